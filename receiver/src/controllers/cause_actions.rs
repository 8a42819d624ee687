//! The operator's action on a cause: all its spans are resumed.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use sampler_api as api;
use sampler_domain::{CauseId, Timestamp};
use sampler_service::security::Grant;
use sampler_store::{Resumption, StoreError};
use serde_json::json;
use tokio::time::Instant;

use super::answer;
use super::spans::IdPath;
use super::suspended::{no_such_cause, shown};
use crate::Receiver;
use crate::actions::{ActionRequest, NewAuditRecord};
use crate::openapi::problem_answers;

/// Spans that one command resumes.
const BATCH: usize = 1_000;

/// How long a request resumes spans. The next one continues.
const TIME_MAX: Duration = Duration::from_secs(20);

/// The refusals that a resumed span has already: one more suspends the span, whatever `SAMPLER_SUSPEND_AFTER` is.
const REFUSALS: u32 = 1_000_000;

#[utoipa::path(
    post, path = "/v1/suspended/{cause}/resume", operation_id = "resume_cause", tag = "Operating",
    summary = "Resume all spans of a cause",
    description = "They are due at once. One more refusal suspends such a span again. Where there are too many for one request, the same request continues.",
    params(("cause" = String, Path, description = "The id of the cause.")),
    request_body(content = api::Reason, content_type = "application/json"),
    responses((status = 202, description = "Workers sample them.", body = api::Resumed), problem_answers::OfCauseAct),
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
        let record = NewAuditRecord {
            kind: "cause.resume",
            subject: format!("/v1/suspended/{}", cause.id),
            span: None,
            reason,
            before: serde_json::to_value(shown(&cause)).unwrap_or_default(),
            after: json!({ "resuming": cause.spans }),
        };
        let act = receiver.parts.random.uuid_v4();
        let mut resumed = 0;
        let resuming = async {
            let until = receiver.parts.clock.now();
            resumed = receiver.resume_until(cause.id, until).await?;
            Ok(resumed > 0)
        };
        receiver
            .perform(act, &grant, record, resuming, no_such_cause)
            .await?;
        Ok((StatusCode::ACCEPTED, Json(api::Resumed { resumed })))
    };
    answer("resume", &grant, resumed.await)
}

impl Receiver {
    /// Resumes the spans that were suspended for a cause by `until`, as many as the time allows.
    async fn resume_until(&self, cause: CauseId, until: Timestamp) -> Result<u64, StoreError> {
        let began = Instant::now();
        let resumption = Resumption {
            now: until,
            refusals: REFUSALS,
        };
        let mut resumed = 0;
        loop {
            let operating = &self.parts.operating;
            let batch = operating
                .resume_batch(cause, until, resumption, BATCH)
                .await?;
            resumed += batch;
            if batch == 0 || began.elapsed() >= TIME_MAX {
                return Ok(resumed);
            }
        }
    }
}
