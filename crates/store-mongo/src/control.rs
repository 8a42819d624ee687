//! Control: a document of the operators' settings, and one of the controller's state.

use std::collections::BTreeMap;

use bson::{Document, doc};
use sampler_domain::{
    Control, ControllerMemory, ControllerSettings, ControllerTerms, Percent, SamplingControl,
    StartRates,
};
use sampler_store::group::CommandFailure;
use sampler_store::{ControllerState, KeptControl, Published, StoreError};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::MongoStore;
use crate::backlog::dated;
use crate::raw::{Unreadable, unreadable};

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
    match read_controller(document) {
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
    let document = controller_document(state);
    let before = state.version.saturating_sub(1);
    store.replace(CONTROLLER, before, &document).await
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
    sampling: SamplingDocument,
    controller: SettingsDocument,
}

#[derive(Serialize, Deserialize)]
struct StartsDocument {
    rate: f64,
    resources: Vec<ResourceDocument>,
}

/// Names of resources may hold dots, so they cannot be field names.
#[derive(Serialize, Deserialize)]
struct ResourceDocument {
    resource_id: String,
    rate: f64,
}

#[derive(Serialize, Deserialize)]
struct SamplingDocument {
    paused: bool,
}

/// The range of a parameter is checked where it is used: a wrong one turns the controller off.
#[derive(Serialize, Deserialize)]
struct SettingsDocument {
    enabled: bool,
    target_seconds: f64,
    kp: f64,
    ki: f64,
    kd: f64,
}

#[derive(Serialize, Deserialize)]
struct ControllerDocument {
    version: i64,
    rate: f64,
    needed_seconds: f64,
    proportional: f64,
    integral: f64,
    derivative: f64,
    error_sum: f64,
    last_error: Option<f64>,
    capacity: f64,
}

fn control_document(control: &Control, version: i64) -> ControlDocument {
    let resources = control.starts.resources.iter();
    let resources = resources.map(|(resource, rate)| ResourceDocument {
        resource_id: resource.clone(),
        rate: rate.get(),
    });
    let controller = &control.controller;
    ControlDocument {
        version,
        starts: StartsDocument {
            rate: control.starts.rate.get(),
            resources: resources.collect(),
        },
        sampling: SamplingDocument {
            paused: control.sampling.paused,
        },
        controller: SettingsDocument {
            enabled: controller.enabled,
            target_seconds: controller.target_seconds,
            kp: controller.kp,
            ki: controller.ki,
            kd: controller.kd,
        },
    }
}

fn read_control(document: Document) -> Result<KeptControl, Unreadable> {
    let document: ControlDocument = bson::deserialize_from_document(document)?;
    let mut resources = BTreeMap::new();
    for it in document.starts.resources {
        resources.insert(it.resource_id, percent(it.rate)?);
    }
    let controller = document.controller;
    let control = Control {
        starts: StartRates {
            rate: percent(document.starts.rate)?,
            resources,
        },
        sampling: SamplingControl {
            paused: document.sampling.paused,
        },
        controller: ControllerSettings {
            enabled: controller.enabled,
            target_seconds: controller.target_seconds,
            kp: controller.kp,
            ki: controller.ki,
            kd: controller.kd,
        },
    };
    Ok(KeptControl {
        control,
        version: document.version,
    })
}

fn percent(number: f64) -> Result<Percent, Unreadable> {
    Percent::new(number).map_err(unreadable)
}

fn controller_document(state: &ControllerState) -> ControllerDocument {
    let (terms, memory) = (&state.terms, &state.memory);
    ControllerDocument {
        version: state.version,
        rate: state.rate.get(),
        needed_seconds: terms.needed_seconds,
        proportional: terms.proportional,
        integral: terms.integral,
        derivative: terms.derivative,
        error_sum: memory.integral,
        last_error: memory.last_error,
        capacity: memory.capacity,
    }
}

fn read_controller(document: Document) -> Result<ControllerState, Unreadable> {
    let document: ControllerDocument = bson::deserialize_from_document(document)?;
    Ok(ControllerState {
        rate: percent(document.rate)?,
        terms: ControllerTerms {
            needed_seconds: document.needed_seconds,
            proportional: document.proportional,
            integral: document.integral,
            derivative: document.derivative,
        },
        memory: ControllerMemory {
            integral: document.error_sum,
            last_error: document.last_error,
            capacity: document.capacity,
            rate: Some(percent(document.rate)?),
        },
        version: document.version,
    })
}
