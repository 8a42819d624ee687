//! Mappings of plans, passed on to Abacus's provisioning service.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use percent_encoding::percent_decode_str;
use sampler_api as api;
use sampler_domain::Id;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_upstream::{Mapped, Mapping};
use serde_json::Value;
use tracing::warn;

use super::failures::whole_seconds;
use super::{Admitted, answer};
use crate::admission::RequestKind;
use crate::errors::Errors;
use crate::form::Readable;
use crate::openapi::problem_answers;
use crate::problems::INVALID_EVENT;
use crate::{Receiver, body, event, json, problems};

/// Seconds after which it makes sense to come again when provisioning does not say.
const RETRY_AFTER_BUSY: u64 = 5;

#[utoipa::path(
    post, path = "/v1/mappings", operation_id = "map_plan", tag = "Mappings",
    summary = "Map a plan of a resource to plans of Abacus",
    description = "Metering, rating and pricing, in this order. Mappings that exist are recognised, and never changed.",
    request_body(content = api::Mapping, content_type = "application/json"),
    responses(
        (status = 201, description = "At least one of the three was made, and the others existed."),
        problem_answers::OfMapping,
    ),
)]
pub async fn map(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let mapped = async {
        grant.require_write()?;
        let body = body::read(request, &receiver, receiver.sender(&grant)).await?;
        let _counted = receiver.acquire_in_flight(RequestKind::Mapping)?;
        let admitted = receiver.admit(&grant, body, MappingForm, |_| vec![RequestKind::Mapping]);
        let Admitted { event, _permits } = admitted.await?;
        let Some(provisioning) = &receiver.parts.provisioning else {
            let detail = "The address of the provisioning service is not set at this receiver.";
            return Err(Problem::new(&problems::PROVISIONING_FAILED, detail));
        };
        match provisioning.map(&event, receiver.parts.clock.now()).await {
            Mapped::Made => Ok(StatusCode::CREATED),
            Mapped::Existed => {
                let detail = "Metering, rating and pricing of this plan are mapped already. \
                              A mapping is never changed.";
                Err(Problem::new(&problems::MAPPING_EXISTS, detail))
            }
            Mapped::Busy { after } => {
                let seconds = after.map_or(RETRY_AFTER_BUSY, whole_seconds);
                let detail = "The provisioning service takes no mappings for a while.";
                Err(Problem::new(&problems::PROVISIONING_BUSY, detail).retry_after(seconds))
            }
            Mapped::Failed { error } => {
                warn!(code = "mapping.failed", error, "a mapping failed");
                let detail = "The provisioning service failed. Repeating the request is safe.";
                Err(Problem::new(&problems::PROVISIONING_FAILED, detail))
            }
        }
    };
    answer("mapping", &grant, mapped.await)
}

struct MappingForm;

impl Readable for MappingForm {
    type Read = Mapping;

    fn read(&self, body: &[u8]) -> Result<Mapping, Problem> {
        let given: api::Mapping = json::read(body, &INVALID_EVENT)?;
        let mut errors = Errors::default();
        let mapping = mapping(given, &mut errors);
        errors.finish().map_err(event::invalid)?;
        Ok(mapping.expect("what could not be read was named"))
    }

    fn resources(read: &Mapping) -> Vec<&str> {
        vec![read.resource_id.as_str()]
    }

    fn resources_in<'v>(&self, body: &'v Value) -> Vec<Option<&'v str>> {
        vec![body["resource_id"].as_str()]
    }
}

fn mapping(given: api::Mapping, errors: &mut Errors) -> Option<Mapping> {
    // All are read before any is missed, so that all are named.
    let resource_id = segment("resource_id", given.resource_id, errors);
    let plan_id = segment("plan_id", given.plan_id, errors);
    let metering_plan = segment("metering_plan", given.metering_plan, errors);
    let rating_plan = segment("rating_plan", given.rating_plan, errors);
    let pricing_plan = segment("pricing_plan", given.pricing_plan, errors);
    Some(Mapping {
        resource_id: resource_id?,
        plan_id: plan_id?,
        metering_plan: metering_plan?,
        rating_plan: rating_plan?,
        pricing_plan: pricing_plan?,
    })
}

/// An id that becomes a segment of a path. An id that could lead to another path is refused, also
/// one that a gateway in between would decode to it.
fn segment(name: &str, text: String, errors: &mut Errors) -> Option<Id> {
    if text.is_empty() {
        errors.wrong(name, "It is missing or empty.");
        return None;
    }
    let id = errors.id(name, text)?;
    if leads_elsewhere(id.as_str()) {
        let detail = "It must not be \".\", nor contain \"/\", \"\\\" or \"..\".";
        errors.wrong(name, detail);
    }
    Some(id)
}

/// Decoded as often as it takes to leave nothing encoded.
fn leads_elsewhere(segment: &str) -> bool {
    let mut text = Cow::Borrowed(segment);
    loop {
        if text == "." || text.contains(['/', '\\']) || text.contains("..") {
            return true;
        }
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if decoded == text {
            return false;
        }
        text = Cow::Owned(decoded);
    }
}
