//! The control of operators.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Uri};
use axum::response::Response;
use sampler_api as api;
use sampler_domain::Control;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::KeptControl;
use serde_json::Value;

use super::answer;
use crate::actions::{IfMatch, NewAuditRecord, stale};
use crate::openapi::params::IfMatchParams;
use crate::openapi::problem_answers;
use crate::reading::{Parameters, Single, version_tag};
use crate::{Receiver, control_body};

/// The address of what is set.
const SUBJECT: &str = "/v1/control";

#[utoipa::path(
    get, path = "/v1/control", operation_id = "get_control", tag = "Operating",
    summary = "The control of operators",
    responses(
        (status = 200, description = "The control as it is set now.", body = api::Control,
            headers(("ETag" = String, description = "The entity tag of the control."))),
        problem_answers::OfReading,
    ),
)]
pub async fn get(State(receiver): State<Arc<Receiver>>, grant: Grant, uri: Uri) -> Response {
    let shown = async {
        grant.require_admin()?;
        Parameters::of(&uri).finish()?;
        let _permit = receiver.admit_reading(&grant).await?;
        let kept = receiver.control().await?;
        Ok(shown(&kept))
    };
    answer("control", &grant, shown.await)
}

#[utoipa::path(
    put, path = "/v1/control", operation_id = "set_control", tag = "Operating",
    summary = "Set how many starts are admitted, and whether sampling is paused",
    description = "All instances follow within 5 seconds. All members must be there.",
    params(IfMatchParams),
    request_body(content = api::ControlRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The control as it is now.", body = api::Control,
            headers(("ETag" = String, description = "The entity tag of the control."))),
        problem_answers::OfControl,
    ),
)]
pub async fn put(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let set = async {
        grant.require_admin()?;
        Parameters::of(request.uri()).finish()?;
        let seen = IfMatch::of(request.headers())?;
        let admitted = receiver
            .admit_action(&grant, request, control_body::check)
            .await?;
        let kept = receiver.control().await?;
        seen.require(&version_tag(kept.version))?;
        let new = NewAuditRecord {
            kind: "control.set",
            subject: SUBJECT.to_owned(),
            span: None,
            reason: admitted.reason,
            before: record(&kept.control),
            after: record(&admitted.fields),
        };
        let id = receiver.parts.random.uuid_v4();
        let operating = &receiver.parts.operating;
        let setting = operating.set_control(&admitted.fields, kept.version);
        receiver.perform(id, &grant, new, setting, stale).await?;
        // This instance follows at once.
        receiver.steering.poll().await;
        let kept = KeptControl {
            control: admitted.fields,
            version: kept.version.saturating_add(1),
        };
        Ok(shown(&kept))
    };
    answer("control", &grant, set.await)
}

impl Receiver {
    async fn control(&self) -> Result<KeptControl, Problem> {
        let kept = self.parts.operating.control().await;
        kept.map_err(|failure| self.not_read(&failure))
    }
}

fn shown(kept: &KeptControl) -> Single {
    Single::tagged(
        &api::Control::from(&kept.control),
        version_tag(kept.version),
    )
}

/// The control in the audit trail.
fn record(control: &Control) -> Value {
    serde_json::to_value(api::Control::from(control)).unwrap_or_default()
}
