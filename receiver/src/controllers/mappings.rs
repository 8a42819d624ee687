//! Mappings of plans, passed on to Abacus's provisioning service.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use sampler_abacus::{Mapped, Mapping};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use tracing::warn;

use super::failures::whole_seconds;
use super::{Admitted, answer};
use crate::admission::{RequestKind, ShardRange};
use crate::form::Readable;
use crate::json::Json;
use crate::openapi::{problem_answers, types};
use crate::{Receiver, body, event, problems};

/// Seconds after which it makes sense to come again when provisioning does not say.
const RETRY_AFTER_BUSY: u64 = 5;

/// `POST /v1/mappings`.
#[utoipa::path(
    post, path = "/v1/mappings", operation_id = "map_plan", tag = "Mappings",
    summary = "Map a plan of a resource to plans of Abacus",
    description = "Metering, rating and pricing, in this order. Mappings that exist are recognised, and never changed.",
    request_body(content = types::Mapping, content_type = "application/json"),
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
    let outcome = receiver.map(&grant, request).await;
    answer(&receiver, "mapping", &grant, outcome)
}

/// Reads a mapping.
struct MappingForm;

impl Readable for MappingForm {
    type Read = Mapping;

    fn resources<'j>(&self, body: &'j Json<'_>) -> Vec<Option<&'j str>> {
        vec![body.get("resource_id").and_then(Json::as_str)]
    }

    fn read(self, body: Json<'_>) -> Result<Mapping, Problem> {
        event::mapping(body)
    }
}

impl Receiver {
    async fn map(&self, grant: &Grant, request: Request<Body>) -> Result<StatusCode, Problem> {
        grant.require_write()?;
        if self.options.mappings_full_scope {
            grant.require_everything()?;
        }
        let _counted = self.acquire_in_flight(RequestKind::Mapping)?;
        let body = body::read(request, self, self.sender(grant)).await?;
        let turns = |_: &Mapping| vec![(RequestKind::Mapping, ShardRange::default())];
        let Admitted { event, _permits } = self.admit(grant, body, MappingForm, turns).await?;
        let Some(provisioning) = &self.parts.provisioning else {
            let detail = "This receiver was not told where the provisioning service is.";
            return Err(Problem::new(&problems::PROVISIONING_FAILED, detail));
        };
        match provisioning.map(&event, self.parts.clock.now()).await {
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
}
