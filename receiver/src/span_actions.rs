//! Operators' actions on one span: to resume it, to skip what the upstream refuses, and to send again what was
//! excluded.
//!
//! An operator changes what was read: the entity tag in `If-Match` must be that of the span as it is now, and
//! the change is conditional on its version.

use axum::body::Body;
use axum::http::Request;
use sampler_api as api;
use sampler_domain::{Change, ChangeKind, Changed, EXCLUDED_MAX, SkipRefusal, Span, Timestamp};
use sampler_service::problem::{FieldError, Pointer, Problem};
use sampler_store::AuditRecord;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Caller;
use crate::acts::{IfMatch, reason, stale};
use crate::json::Errors;
use crate::openapi::IfMatchParams;
use crate::problems;
use crate::reading::Tagged;
use crate::spans::{IdPath, address, shown_span};

#[utoipa::path(
    post, path = "/v1/spans/{id}/resume", operation_id = "resume_span", tag = "Operating",
    summary = "Resume a span",
    description = "The span must be suspended. It is due at once, and is suspended again after as many refusals as any span (SAMPLER_SUSPEND_AFTER).",
    params(("id" = String, Path, description = "The id of the span."), IfMatchParams),
    request_body(content = api::Reason, content_type = "application/json"),
    responses((status = 200, description = "The span as it is now.", body = api::Span)),
)]
pub(crate) async fn resume(
    caller: Caller,
    id: IdPath,
    request: Request<Body>,
) -> Result<Tagged<api::Span>, Problem> {
    let decide = |span: &Span, (), now| span.to_resume(now).ok_or_else(not_suspended);
    let resumed = caller.act_on_span("span.resume", id, request, reason, decide);
    resumed.await
}

#[utoipa::path(
    post, path = "/v1/spans/{id}/skip", operation_id = "skip_usage", tag = "Operating",
    summary = "Skip what the upstream refuses",
    description = "The span must be suspended. It continues at `until`; the time before that is `excluded`, and can be sent again.",
    params(("id" = String, Path, description = "The id of the span."), IfMatchParams),
    request_body(content = api::SkipRequest, content_type = "application/json"),
    responses((status = 200, description = "The span as it is now.", body = api::Span)),
)]
pub(crate) async fn skip(
    caller: Caller,
    id: IdPath,
    request: Request<Body>,
) -> Result<Tagged<api::Span>, Problem> {
    let read = |body: api::SkipRequest, errors: &mut Errors| {
        let until = body.until.and_then(|until| errors.time("until", &until));
        (body.reason, until)
    };
    let decide = |span: &Span, until, now| span.to_skip(until, now).map_err(not_skipped);
    let skipped = caller.act_on_span("span.skip", id, request, read, decide);
    skipped.await
}

#[utoipa::path(
    post, path = "/v1/spans/{id}/resend", operation_id = "resend_excluded", tag = "Operating",
    summary = "Send again what was excluded",
    description = "Workers send the intervals that are `excluded` within these times again, before anything else of the span.",
    params(("id" = String, Path, description = "The id of the span."), IfMatchParams),
    request_body(content = api::ResendRequest, content_type = "application/json"),
    responses((status = 200, description = "The span as it is now.", body = api::Span)),
)]
pub(crate) async fn resend(
    caller: Caller,
    id: IdPath,
    request: Request<Body>,
) -> Result<Tagged<api::Span>, Problem> {
    let read = |body: api::ResendRequest, errors: &mut Errors| {
        let from = body.from.and_then(|from| errors.time("from", &from));
        let to = body.to.and_then(|to| errors.time("to", &to));
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            errors.wrong("to", "The time must be later than from.");
        }
        (body.reason, (from, to))
    };
    let decide = |span: &Span, (from, to), now| {
        let change = span.to_resend(from, to, now);
        change.ok_or_else(nothing_excluded)
    };
    let resent = caller.act_on_span("span.resend", id, request, read, decide);
    resent.await
}

impl Caller {
    /// Reads the request and the span, decides the change, records the action in the audit trail, and makes the
    /// change. Answers with the span as it is after that.
    async fn act_on_span<B: DeserializeOwned, T: Send>(
        &self,
        act: &str,
        id: IdPath,
        request: Request<Body>,
        read: impl FnOnce(B, &mut Errors) -> (String, T),
        decide: impl FnOnce(&Span, T, Timestamp) -> Result<Change, Problem>,
    ) -> Result<Tagged<api::Span>, Problem> {
        // 403 comes before 428.
        self.grant.require_admin()?;
        let if_match = IfMatch::of(request.headers())?;
        let asked = self.admit_action(request, read).await?;
        let span = self.span(id).await?;
        if_match.require(span.processing.version)?;
        let parts = &self.receiver.parts;
        let now = parts.clock.now();
        let change = decide(&span, asked.fields, now)?;
        // No action changes the ledger. A read after the action could fail, although the action is done.
        let ledger = self.ledger_of(&span).await?;
        let states = [summary(&span), summary_after(&span, &change)];
        let record = AuditRecord {
            span: Some(span.id.to_string()),
            ..self.record(act, address(&span.id), asked.reason, states)
        };
        let changing = async {
            let changed = parts
                .operating
                .change_by_operator(&span, &change, now)
                .await;
            changed.map(|changed| changed == Changed::Made)
        };
        self.perform(record, changing, stale).await?;
        Ok(shown_span(&change.after, now, ledger))
    }
}

fn not_suspended() -> Problem {
    let detail = "The span is not suspended. Nothing was done.";
    Problem::new(&problems::NOT_SUSPENDED, detail)
}

fn nothing_excluded() -> Problem {
    let detail = "Nothing of the span is excluded within these times. An interval is sent again whole, or not at \
                  all. Nothing was done.";
    Problem::new(&problems::NOTHING_EXCLUDED, detail)
}

fn not_skipped(refusal: SkipRefusal) -> Problem {
    let detail = match refusal {
        SkipRefusal::NotSuspended => return not_suspended(),
        SkipRefusal::TooManyRanges => {
            let detail = format!(
                "The span would have more than {EXCLUDED_MAX} ranges that are excluded. Nothing was done."
            );
            return Problem::new(&problems::TOO_MANY_RANGES, detail);
        }
        SkipRefusal::NoBoundary => {
            "The time must be a boundary of the span's dimension, or the end of the span."
        }
        SkipRefusal::TooEarly => {
            "The time must not be earlier than the end of the refused interval."
        }
        SkipRefusal::AfterEnd => "The time must not be later than the end of the span.",
        SkipRefusal::InFuture => "The time must not be in the future.",
        SkipRefusal::LeadsBack => {
            "The refused interval is a correction, which is skipped without a time."
        }
    };
    let error = FieldError::new(Pointer::root().field("until"), detail);
    let detail = "The span cannot be skipped up to this time. Nothing was done.";
    Problem::new(&problems::INVALID_UNTIL, detail).errors([error])
}

/// The summary of a span in the audit trail.
fn summary(span: &Span) -> Value {
    let planned = span.processing.planned.as_ref();
    json!({
        "state": span.state().name(),
        "cause": span.suspension().map(|it| it.cause.to_string()),
        "sampled_to": span.sampled_to(),
        "planned": planned.map(|planned| json!({
            "start": planned.interval.start,
            "end": planned.interval.end,
            "usage_id": planned.usage_guid,
            "unanswered": planned.unanswered,
        })),
    })
}

/// The same after a change, with the target and the ranges that are skipped or sent again.
fn summary_after(before: &Span, change: &Change) -> Value {
    let after = &change.after;
    let mut summary = summary(after);
    let range = |start: Timestamp, end: Timestamp| json!({ "start": start, "end": end, "duration": end.since(start) });
    let ranges: Vec<Value> = match (change.kind, &before.processing.planned) {
        (ChangeKind::Skip, Some(skipped)) => {
            vec![range(skipped.interval.start, after.sampled_to())]
        }
        (ChangeKind::Resend, _) => {
            let moved = after.processing.again.iter();
            let moved = moved.skip(before.processing.again.len());
            moved
                .map(|again| range(again.range.interval.start, again.range.reach()))
                .collect()
        }
        _ => return summary,
    };
    summary["target"] = json!(api::Target::from(after.target.clone()));
    summary["ranges"] = ranges.into();
    summary
}
