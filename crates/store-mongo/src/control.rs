//! Control: a document of the operators' settings, and one of the controller's state.

use bson::{Document, doc};
use sampler_domain::{Control, ControllerSettings, Percent, SamplingControl, StartRates};
use sampler_store::group::CommandFailure;
use sampler_store::{ControllerState, KeptControl, Published, StoreError};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::MongoStore;
use crate::backlog::dated;
use crate::raw::Unreadable;

/// The control that operators have set.
const CONTROL: &str = "control";

const CONTROLLER: &str = "controller";

pub(crate) async fn control(store: &MongoStore) -> Result<KeptControl, StoreError> {
    let Some(found) = store.control.find_by_id(CONTROL).await? else {
        return Ok(KeptControl::default());
    };
    read_control(found).map_err(StoreError::refused)
}

pub(crate) async fn set_control(
    store: &MongoStore,
    control: &Control,
    version: i64,
) -> Result<bool, StoreError> {
    let document = control_document(control, version.saturating_add(1));
    store.replace(CONTROL, version, &document).await
}

pub(crate) async fn controller(
    store: &MongoStore,
) -> Result<Option<Published<ControllerState>>, StoreError> {
    let Some((document, age)) = store.published_as(CONTROLLER).await? else {
        return Ok(None);
    };
    match bson::deserialize_from_document(document) {
        Ok(value) => Ok(Some(Published { value, age })),
        Err(problem) => {
            if store.link.logged.is_news("control", CONTROLLER) {
                error!(code = "controller.unreadable", error = %problem,
                    "what the controller decided cannot be read");
            }
            Ok(None)
        }
    }
}

pub(crate) async fn set_controller(
    store: &MongoStore,
    state: &ControllerState,
) -> Result<bool, StoreError> {
    let before = state.version.saturating_sub(1);
    store.replace(CONTROLLER, before, state).await
}

impl MongoStore {
    /// Writes a document where it has this version, or where there is none at version 0; dates it by
    /// the clock of the server.
    async fn replace(
        &self,
        id: &'static str,
        version: i64,
        document: &impl Serialize,
    ) -> Result<bool, StoreError> {
        let document = bson::serialize_to_document(document).map_err(StoreError::refused)?;
        let filter = doc! { "_id": id, "version": version };
        let update = dated(id, document);
        match self.control.update_one(filter, update, version == 0).await {
            Ok(written) => Ok(written.matched_count > 0 || written.upserted_id.is_some()),
            // Somebody has written the first one meanwhile.
            Err(error) if error.is_duplicate_key() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct ControlDocument {
    version: i64,
    starts: StartsDocument,
    sampling: SamplingControl,
    controller: ControllerSettings,
}

#[derive(Serialize, Deserialize)]
struct StartsDocument {
    rate: Percent,
    resources: Vec<ResourceDocument>,
}

/// Names of resources may hold dots, so they cannot be field names.
#[derive(Serialize, Deserialize)]
struct ResourceDocument {
    resource_id: String,
    rate: Percent,
}

fn control_document(control: &Control, version: i64) -> ControlDocument {
    let resources = control.starts.resources.iter();
    let resources = resources.map(|(resource, rate)| ResourceDocument {
        resource_id: resource.clone(),
        rate: *rate,
    });
    ControlDocument {
        version,
        starts: StartsDocument {
            rate: control.starts.rate,
            resources: resources.collect(),
        },
        sampling: control.sampling,
        controller: control.controller,
    }
}

fn read_control(document: Document) -> Result<KeptControl, Unreadable> {
    let document: ControlDocument = bson::deserialize_from_document(document)?;
    let resources = document.starts.resources.into_iter();
    let control = Control {
        starts: StartRates {
            rate: document.starts.rate,
            resources: resources.map(|it| (it.resource_id, it.rate)).collect(),
        },
        sampling: document.sampling,
        controller: document.controller,
    };
    Ok(KeptControl {
        control,
        version: document.version,
    })
}
