//! The operator's action on a cause: all its spans are resumed.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use sampler_api as api;
use sampler_service::security::Grant;
use serde_json::json;

use super::answer;
use super::spans::IdPath;
use super::suspended::{no_such_cause, shown};
use crate::Receiver;
use crate::actions::{ActionRequest, NewAuditRecord};
use crate::openapi::problem_answers;

#[utoipa::path(
    post, path = "/v1/suspended/{cause}/resume", operation_id = "resume_cause", tag = "Operating",
    summary = "Resume all spans of a cause",
    description = "They are due within seconds. One more refusal suspends such a span again.",
    params(("cause" = String, Path, description = "The id of the cause.")),
    request_body(content = api::Reason, content_type = "application/json"),
    responses((status = 202, description = "Workers resume them.", body = api::Resumed), problem_answers::OfCauseAct),
)]
pub async fn resume(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    cause: IdPath,
    request: Request<Body>,
) -> Response {
    let resumed = async {
        let admitted =
            receiver.admit_action(&grant, request, |body: api::Reason, _| (body.reason, ()));
        let ActionRequest {
            reason, _permit, ..
        } = admitted.await?;
        let cause = receiver.cause(&grant, cause).await?;
        let id = cause.kept.id;
        let record = NewAuditRecord {
            kind: "cause.resume",
            subject: format!("/v1/suspended/{id}"),
            span: None,
            reason,
            before: serde_json::to_value(shown(&cause)).unwrap_or_default(),
            after: json!({ "resuming": cause.spans }),
        };
        let act = receiver.parts.random.uuid_v4();
        // Workers find it within seconds.
        let resuming = receiver.parts.operating.resume_by_operator(id);
        receiver
            .perform(act, &grant, record, resuming, no_such_cause)
            .await?;
        let resumed = cause.spans;
        Ok((StatusCode::ACCEPTED, Json(api::Resumed { resumed })))
    };
    answer("resume", &grant, resumed.await)
}
