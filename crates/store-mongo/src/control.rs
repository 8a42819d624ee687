//! Control: a document of the operators' settings, and one of the controller's state.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};
use mongodb::options::FindOneOptions;
use sampler_domain::{
    Control, ControllerMemory, ControllerSettings, ControllerTerms, Percent, SamplingControl,
    StartRates,
};
use sampler_store::{ControllerState, KeptControl, Published, StoreError};
use tracing::error;

use crate::MongoStore;
use crate::backlog::{dated, number};
use crate::call::CallError;
use crate::codes::DUPLICATE_KEY;
use crate::document::{Unreadable, member, read_integer, read_text, unreadable};

/// The control that operators have set.
const CONTROL: &str = "control";

const CONTROLLER: &str = "controller";

pub(crate) async fn control(store: &MongoStore) -> Result<KeptControl, StoreError> {
    let (control, time_limit) = (store.control.clone(), store.link.time_limit);
    let call = async move {
        let options = FindOneOptions::builder().max_time(time_limit).build();
        let found = control.find_one(doc! { "_id": CONTROL });
        found.with_options(options).await
    };
    let Some(found) = store.link.run(call).await? else {
        return Ok(KeptControl::default());
    };
    read_control(&found).map_err(StoreError::refused)
}

pub(crate) async fn set_control(
    store: &MongoStore,
    control: &Control,
    version: i64,
) -> Result<bool, StoreError> {
    let mut document = control_document(control);
    document.insert("version", version.saturating_add(1));
    store.replace(CONTROL, version, document).await
}

pub(crate) async fn controller(
    store: &MongoStore,
) -> Result<Option<Published<ControllerState>>, StoreError> {
    let Some((document, age)) = store.published_as(CONTROLLER).await? else {
        return Ok(None);
    };
    match read_controller(&document) {
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
    store.replace(CONTROLLER, before, document).await
}

impl MongoStore {
    /// Writes a document where it has this version, or where there is none at version 0; dates it by
    /// the clock of the server.
    async fn replace(
        &self,
        id: &'static str,
        version: i64,
        document: Document,
    ) -> Result<bool, StoreError> {
        let filter = doc! { "_id": id, "version": version };
        let update = dated(id, document);
        let update = self
            .link
            .update_one(&self.control, filter, update, version == 0);
        match update.await {
            Ok(written) => Ok(written.matched_count > 0 || written.upserted_id.is_some()),
            // Somebody has written the first one meanwhile.
            Err(error) if is_duplicate(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

fn is_duplicate(error: &CallError) -> bool {
    use mongodb::error::{ErrorKind, WriteFailure};
    let CallError::Driver(error) = error else {
        return false;
    };
    matches!(&*error.kind, ErrorKind::Write(WriteFailure::WriteError(error)) if error.code == DUPLICATE_KEY)
}

/// Names of resources may hold dots, so they cannot be field names.
fn control_document(control: &Control) -> Document {
    let resources = control.starts.resources.iter();
    let resources = resources
        .map(|(resource, rate)| doc! { "resource_id": resource, "rate": rate.get() })
        .collect::<Vec<_>>();
    let controller = &control.controller;
    doc! {
        "starts": { "rate": control.starts.rate.get(), "resources": resources },
        "sampling": { "paused": control.sampling.paused },
        "controller": {
            "enabled": controller.enabled,
            "target_seconds": controller.target_seconds,
            "kp": controller.kp,
            "ki": controller.ki,
            "kd": controller.kd,
        },
    }
}

fn read_control(document: &Document) -> Result<KeptControl, Unreadable> {
    let starts = member(document, "starts")?;
    let mut resources = BTreeMap::new();
    let list = starts.get_array("resources");
    for item in list.map_err(|_| unreadable("resources", "is not a list"))? {
        let Some(item) = item.as_document() else {
            return Err(unreadable("resources", "holds what is not a document"));
        };
        let resource = read_text(item, "resource_id")?.to_owned();
        resources.insert(resource, percent(item, "rate")?);
    }
    let controller = member(document, "controller")?;
    let control = Control {
        starts: StartRates {
            rate: percent(starts, "rate")?,
            resources,
        },
        sampling: SamplingControl {
            paused: flag(member(document, "sampling")?, "paused")?,
        },
        // The range of a parameter is checked where it is used: a wrong one turns the controller off.
        controller: ControllerSettings {
            enabled: flag(controller, "enabled")?,
            target_seconds: number_or_nan(controller, "target_seconds"),
            kp: number_or_nan(controller, "kp"),
            ki: number_or_nan(controller, "ki"),
            kd: number_or_nan(controller, "kd"),
        },
    };
    Ok(KeptControl {
        control,
        version: read_integer(document, "version")?,
    })
}

fn flag(document: &Document, name: &str) -> Result<bool, Unreadable> {
    let flag = document.get_bool(name);
    flag.map_err(|_| unreadable(name, "is not a boolean"))
}

fn number_or_nan(document: &Document, name: &str) -> f64 {
    match document.get(name) {
        Some(Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_)) => number(document, name),
        _ => f64::NAN,
    }
}

fn percent(document: &Document, name: &str) -> Result<Percent, Unreadable> {
    Percent::new(number_or_nan(document, name))
        .map_err(|_| unreadable(name, "is not a number from 0 to 100"))
}

fn finite(document: &Document, name: &str) -> Result<f64, Unreadable> {
    let number = number(document, name);
    if number.is_finite() {
        return Ok(number);
    }
    Err(unreadable(name, "is not finite"))
}

fn controller_document(state: &ControllerState) -> Document {
    let (terms, memory) = (&state.terms, &state.memory);
    doc! {
        "rate": state.rate.get(),
        "needed_seconds": terms.needed_seconds,
        "proportional": terms.proportional,
        "integral": terms.integral,
        "derivative": terms.derivative,
        "error_sum": memory.integral,
        "last_error": memory.last_error,
        "capacity": memory.capacity,
        "version": state.version,
    }
}

fn read_controller(document: &Document) -> Result<ControllerState, Unreadable> {
    let has_last = matches!(document.get("last_error"), Some(Bson::Double(_)));
    Ok(ControllerState {
        rate: percent(document, "rate")?,
        terms: ControllerTerms {
            needed_seconds: finite(document, "needed_seconds")?,
            proportional: finite(document, "proportional")?,
            integral: finite(document, "integral")?,
            derivative: finite(document, "derivative")?,
        },
        memory: ControllerMemory {
            integral: finite(document, "error_sum")?,
            last_error: has_last
                .then(|| finite(document, "last_error"))
                .transpose()?,
            capacity: finite(document, "capacity")?,
            rate: Some(percent(document, "rate")?),
        },
        version: read_integer(document, "version")?,
    })
}
