//! Mappings of plans, passed on to Abacus's provisioning service.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use sampler_api as api;
use sampler_domain::Id;
use sampler_service::problem::Problem;
use sampler_upstream::{Mapped, Mapping};
use tracing::warn;

use crate::Caller;
use crate::admission::Kind;
use crate::failures::whole_seconds;
use crate::json::Errors;
use crate::problems::INVALID_EVENT;
use crate::{body, json, problems};

/// Seconds after which it makes sense to come again when provisioning does not say.
const RETRY_AFTER_BUSY: u64 = 5;

#[utoipa::path(
    post, path = "/v1/mappings", operation_id = "map_plan", tag = "Mappings",
    summary = "Map a plan of a resource to plans of Abacus",
    description = "Metering, rating and pricing, in this order. Mappings that exist are recognised, and never changed.",
    request_body(content = api::Mapping, content_type = "application/json"),
    responses((status = 201, description = "At least one of the three was made, and the others existed.")),
)]
pub(crate) async fn map(caller: Caller, request: Request<Body>) -> Result<StatusCode, Problem> {
    let (receiver, grant) = (&caller.receiver, &caller.grant);
    grant.require_write()?;
    let max = receiver.settings.limits.payload;
    let body = body::read(request, &caller, max).await?;
    let _counted = receiver.count(false)?;
    let given: api::Mapping = json::read(body.as_ref(), &INVALID_EVENT)?;
    grant.require(Some(&given.resource_id))?;
    let mapping = mapping(given)?;
    let _turn = receiver.turn(Kind::Mapping, caller.client(), 1).await?;
    let Some(provisioning) = &receiver.parts.provisioning else {
        let detail = "The address of the provisioning service is not set at this receiver.";
        return Err(Problem::new(&problems::PROVISIONING_FAILED, detail));
    };
    match provisioning.map(&mapping, receiver.parts.clock.now()).await {
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
}

fn mapping(given: api::Mapping) -> Result<Mapping, Problem> {
    let mut errors = Errors::default();
    let mut id = |name: &str, text: String| segment(name, text, &mut errors);
    let mapping = Mapping {
        resource_id: id("resource_id", given.resource_id),
        plan_id: id("plan_id", given.plan_id),
        metering_plan: id("metering_plan", given.metering_plan),
        rating_plan: id("rating_plan", given.rating_plan),
        pricing_plan: id("pricing_plan", given.pricing_plan),
    };
    errors.finish(&INVALID_EVENT)?;
    Ok(mapping)
}

/// An id that becomes a segment of a path. An id that could lead to another path is refused, also
/// one that a gateway in between would decode to it. Where an id is wrong, that is in `errors`.
fn segment(name: &str, text: String, errors: &mut Errors) -> Id {
    let id = Id::from_store(text.as_str());
    let leads_elsewhere = text == "." || text.contains("..") || text.contains(['/', '\\', '%']);
    if text.is_empty() {
        errors.wrong(name, "The id is missing or empty.");
    } else if errors.id(name, text).is_some() && leads_elsewhere {
        let detail = "The id must not be \".\", nor contain \"/\", \"\\\", \"%\" or \"..\".";
        errors.wrong(name, detail);
    }
    id
}
