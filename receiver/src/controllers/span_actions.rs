//! Operators' actions on one suspended span: to resume it, or to skip its planned usage.
//!
//! An operator changes what was read: the entity tag in `If-Match` must be that of the span as it is
//! now, and the change is conditional on its version, its end and its suspension.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use axum::response::{IntoResponse, Response};
use sampler_api as api;
use sampler_domain::{Change, Changed, SKIP_DELAY, Skip, Span, Suspension};
use sampler_service::problem::{FieldError, Pointer, Problem};
use sampler_service::security::Grant;
use sampler_store::ListedSpan;
use serde_json::{Value, json};
use uuid::Uuid;

use super::answer;
use super::spans::{IdPath, location, shown_span};
use crate::actions::{ActionRequest, IfMatch, NewAuditRecord, stale};
use crate::openapi::params::IfMatchParams;
use crate::openapi::problem_answers;
use crate::{Receiver, problems};

#[utoipa::path(
    post, path = "/v1/spans/{id}/resume", operation_id = "resume_span", tag = "Operating",
    summary = "Resume a span",
    description = "The span must be suspended. It is due at once, and is suspended again after as many refusals as any span (SAMPLER_SUSPEND_AFTER).",
    params(("id" = String, Path, description = "The id of the span."), IfMatchParams),
    request_body(content = api::Reason, content_type = "application/json"),
    responses(
        (status = 200, description = "The span as it is now.", body = api::Span,
            headers(("ETag" = String, description = "The entity tag of the answer."))),
        problem_answers::OfSpanAct,
    ),
)]
pub async fn resume(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    id: IdPath,
    request: Request<Body>,
) -> Response {
    let resumed = async {
        // 403 comes before 428.
        grant.require_admin()?;
        let if_match = IfMatch::of(request.headers())?;
        let admitted =
            receiver.admit_action(&grant, request, |body: api::Reason, _| (body.reason, ()));
        let ActionRequest {
            reason, _permit, ..
        } = admitted.await?;
        let (listed, suspension) = receiver.suspended_span(&grant, id, &if_match).await?;
        // A time of the workers' clock that has passed. The clock of this machine may be ahead.
        let due_at = suspension.since;
        receiver
            .act_on_span(&grant, "span.resume", reason, listed, |_| Change::Resume {
                suspension,
                due_at,
            })
            .await
    };
    answer("resume", &grant, resumed.await)
}

#[utoipa::path(
    post, path = "/v1/spans/{id}/skip", operation_id = "skip_usage", tag = "Operating",
    summary = "Skip a usage",
    description = "The usage is not billed, unless it is sent again later. The span resumes after it.",
    params(("id" = String, Path, description = "The id of the span."), IfMatchParams),
    request_body(content = api::SkipRequest, content_type = "application/json"),
    responses(
        (status = 200, description = "The span as it is now.", body = api::Span,
            headers(("ETag" = String, description = "The entity tag of the answer."))),
        problem_answers::OfSkip,
    ),
)]
pub async fn skip(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    id: IdPath,
    request: Request<Body>,
) -> Response {
    let skipped = async {
        // 403 comes before 428.
        grant.require_admin()?;
        let if_match = IfMatch::of(request.headers())?;
        let admitted = receiver.admit_action(&grant, request, |body: api::SkipRequest, _| {
            (body.reason, body.usage_id)
        });
        let ActionRequest {
            reason,
            fields: usage_id,
            _permit,
        } = admitted.await?;
        let (listed, suspension) = receiver.suspended_span(&grant, id, &if_match).await?;
        if !listed.span.plans(&usage_id) {
            return Err(not_planned());
        }
        // Counted from the last refusal, by the workers' clock.
        let not_before = suspension.since.plus(SKIP_DELAY);
        let at = receiver.parts.clock.now();
        receiver
            .act_on_span(&grant, "span.skip", reason, listed, |act| {
                Change::RequestSkip {
                    skip: Skip {
                        usage_guid: usage_id,
                        at,
                        not_before,
                        act,
                    },
                    suspension,
                    due_at: not_before,
                }
            })
            .await
    };
    answer("skip", &grant, skipped.await)
}

impl Receiver {
    /// The suspended span of an address, if it is unchanged since the operator read it.
    async fn suspended_span(
        &self,
        grant: &Grant,
        id: IdPath,
        if_match: &IfMatch,
    ) -> Result<(ListedSpan, Suspension), Problem> {
        let listed = self.span(grant, id).await?;
        let now = self.parts.clock.now();
        if_match.require(shown_span(&listed, now).tag())?;
        match listed.span.processing.suspended {
            Some(suspension) if !listed.span.processing.complete => Ok((listed, suspension)),
            _ => {
                let detail = "The span is not suspended. Nothing was done.";
                Err(Problem::new(&problems::NOT_SUSPENDED, detail))
            }
        }
    }

    /// Records the action in the audit trail, then makes its change. Answers with the span as it is after
    /// that.
    async fn act_on_span(
        &self,
        grant: &Grant,
        kind: &'static str,
        reason: String,
        listed: ListedSpan,
        change: impl FnOnce(Uuid) -> Change,
    ) -> Result<Response, Problem> {
        let (act, span) = (self.parts.random.uuid_v4(), &listed.span);
        let change = change(act);
        let after = ListedSpan {
            span: span.after(&change),
            due_at: change.due_at().or(listed.due_at),
        };
        let record = NewAuditRecord {
            kind,
            subject: location(&span.id).to_str().unwrap_or_default().to_owned(),
            span: Some(span.id.to_string()),
            reason,
            before: summary(span),
            after: summary(&after.span),
        };
        let clock = &self.parts.clock;
        let changing = async {
            let operating = &self.parts.operating;
            let changed = operating.change_by_operator(act, span, &change, clock.now());
            changed.await.map(|changed| changed == Changed::Made)
        };
        self.perform(act, grant, record, changing, stale).await?;
        Ok(shown_span(&after, clock.now()).into_response())
    }
}

fn not_planned() -> Problem {
    let pointer = Pointer::root().field("usage_id");
    let detail = "It is not the usage that is planned for the span.";
    let error = FieldError::new(pointer, detail);
    let detail = "Only the usage that is planned can be skipped. Nothing was done.";
    Problem::new(&problems::NOT_PLANNED, detail).errors([error])
}

/// The summary of a span in the audit trail.
fn summary(span: &Span) -> Value {
    let processing = &span.processing;
    json!({
        "state": span.state().name(),
        "cause": processing.suspended.map(|it| it.cause.to_string()),
        "sampled_to": span.sampled_to(),
        "planned": processing.planned.as_ref().map(|planned| json!({
            "start": planned.interval.start,
            "end": planned.interval.end,
            "usage_id": planned.usage_guid,
        })),
        "skip": span.to_be_skipped().map(|skip| &skip.usage_guid),
        "unanswered": processing.unanswered,
    })
}
