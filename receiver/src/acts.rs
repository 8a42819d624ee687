//! The parts that operators' actions share: the scope, the reason, `If-Match`, and the audit trail.
//!
//! An action is recorded in the audit trail before it is carried out ([`sampler_store::AuditRecord`]), and
//! its outcome after that. Where a change had no answer, its repeat decides.

use axum::body::Body;
use axum::http::header::IF_MATCH;
use axum::http::{HeaderMap, Request};
use sampler_api as api;
use sampler_domain::ClientId;
use sampler_service::problem::Problem;
use sampler_store::{ActOutcome, AuditQuery, AuditRecord, StoreError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{info, warn};

use crate::Caller;
use crate::admission::{Kind, Turn};
use crate::failures::Task;
use crate::json::Errors;
use crate::openapi::{PageParams, Time};
use crate::problems::INVALID_BODY;
use crate::reading::{Paged, version_tag};
use crate::{body, json, problems};

/// Bytes of the body of an action. A reason takes up to 12 KB, if each character is escaped.
const BODY_MAX: usize = 64 << 10;

/// In characters.
const REASON_MAX: usize = 1_000;

/// Bytes of the id of a span, as it is written.
const SPAN_LEN_MAX: usize = 1_024;

#[utoipa::path(
    get, path = "/v1/audit", operation_id = "list_acts", tag = "Operating",
    summary = "The audit trail",
    description = "The newest action comes first.",
    params(
        Time,
        ("who" = Option<String>, Query, description = "Actions of this user or client."),
        ("span" = Option<String>, Query, description = "Actions on this span."),
        PageParams,
    ),
    responses((status = 200, description = "A page of actions.", body = api::List<api::Act>)),
)]
pub(crate) async fn list(caller: Caller) -> Result<Paged<api::Act>, Problem> {
    caller.grant.require_admin()?;
    let mut parameters = caller.parameters();
    let (from, to) = parameters.time();
    // No record has a name that is too long or has characters that are removed.
    let whole_name = |text: &str| ClientId::new(text).filter(|name| name.as_str() == text);
    let is_id = |text: &String| (1..=SPAN_LEN_MAX).contains(&text.len());
    let span_id = |text: &str| Some(text.to_owned()).filter(is_id);
    let query = AuditQuery {
        from,
        to,
        who: parameters.parsed("who", "The name must have 1 to 255 bytes.", whole_name),
        span: parameters.parsed("span", "The value must be the id of a span.", span_id),
        after: parameters.cursor(),
        limit: parameters.limit(),
    };
    parameters.finish()?;
    let page = caller.read(|store| async move { store.audit(&query).await });
    let page = page.await?;
    Ok(parameters.page(page.records.into_iter().map(shown), page.next))
}

fn shown(record: AuditRecord) -> api::Act {
    api::Act {
        id: record.id.to_string(),
        at: record.at,
        who: record.who.map(|name| name.as_str().to_owned()),
        act: record.act,
        subject: record.subject,
        reason: record.reason,
        before: record.before,
        after: record.after,
        outcome: record.outcome.name().to_owned(),
    }
}

/// The request of an action, once its body was read, and the permit to serve it.
pub(crate) struct ActionRequest<T> {
    pub(crate) reason: String,
    /// The other members of its body.
    pub(crate) fields: T,
    pub(crate) _turn: Turn,
}

/// The body of an action that has a reason alone.
pub(crate) fn reason(body: api::Reason, _: &mut Errors) -> (String, ()) {
    (body.reason, ())
}

impl Caller {
    /// Checks the scope of an action, reads its body, and checks the reason; `check` takes the body apart into the
    /// reason and the other members, and checks those.
    pub(crate) async fn admit_action<B: DeserializeOwned, T>(
        &self,
        request: Request<Body>,
        check: impl FnOnce(B, &mut Errors) -> (String, T),
    ) -> Result<ActionRequest<T>, Problem> {
        self.grant.require_admin()?;
        self.receiver.require_prepared()?;
        let body = body::read(request, self, BODY_MAX).await?;
        let turn = self.receiver.turn(Kind::Act, self.client(), 1).await?;
        let mut errors = Errors::default();
        let (reason, fields) = check(json::read(body.as_ref(), &INVALID_BODY)?, &mut errors);
        if reason.trim().is_empty() || reason.chars().count() > REASON_MAX {
            let detail =
                format!("The reason must have 1 to {REASON_MAX} characters, and not be blank.");
            errors.wrong("reason", detail);
        }
        errors.finish(&INVALID_BODY)?;
        Ok(ActionRequest {
            reason,
            fields,
            _turn: turn,
        })
    }

    /// A record for the audit trail, about something that is no span. `before` and `after` are the subject before
    /// and after the action.
    pub(crate) fn record(
        &self,
        act: &str,
        subject: String,
        reason: String,
        [before, after]: [Value; 2],
    ) -> AuditRecord {
        let parts = &self.receiver.parts;
        AuditRecord {
            id: parts.random.uuid_v4(),
            at: parts.clock.now(),
            who: self.grant.who().cloned(),
            act: act.to_owned(),
            subject,
            span: None,
            reason,
            before,
            after,
            outcome: ActOutcome::Asked,
        }
    }

    /// Records an action in the audit trail, carries it out, and records its outcome. The store answers whether it
    /// was done; `not_done` where it was not. If it may not have been recorded, it is not carried out.
    pub(crate) async fn perform(
        &self,
        record: AuditRecord,
        action: impl Future<Output = Result<bool, StoreError>>,
        not_done: fn() -> Problem,
    ) -> Result<(), Problem> {
        let (id, operating) = (record.id, &self.receiver.parts.operating);
        let failed = |task, failure| self.receiver.failed(task, &failure);
        let recorded = operating.record_action(&record).await;
        recorded.map_err(|failure| failed(Task::Record, failure))?;
        let who = record.who.as_ref().map(ClientId::as_str);
        info!(act = record.act, record = %id, who, subject = record.subject, "an operator makes a change");
        let answer = action.await;
        let outcome = match &answer {
            Ok(true) => ActOutcome::Done,
            Err(StoreError::Unknown(_)) => ActOutcome::Unknown,
            Ok(false) | Err(_) => ActOutcome::Refused,
        };
        // If that fails, it stays as it is: asked.
        if let Err(failure) = operating.record_outcome(id, outcome).await {
            warn!(code = "audit.not_settled", record = %id, outcome = outcome.name(),
                error = %failure, "the outcome of an operator's action is not in the audit trail");
        }
        let is_done = answer.map_err(|failure| failed(Task::Act, failure))?;
        is_done.then_some(()).ok_or_else(not_done)
    }
}

/// The entity tags that a request names in `If-Match` (RFC 9110, section 13.1.1).
pub(crate) struct IfMatch(Vec<String>);

impl IfMatch {
    /// 428 where the header is missing.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let values = headers.get_all(IF_MATCH).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let tags = values.flat_map(|value| value.split(',')).map(str::trim);
        let tags = tags.filter(|tag| !tag.is_empty());
        let tags: Vec<_> = tags.map(str::to_owned).collect();
        if tags.is_empty() {
            let detail = "Send If-Match with the ETag from your last read. Nothing was done.";
            return Err(Problem::new(&problems::PRECONDITION_REQUIRED, detail));
        }
        Ok(Self(tags))
    }

    /// Compares with the version of what is there now: 412 where it has changed. A weak tag counts as the strong
    /// one: a proxy that compresses an answer weakens its tag.
    pub(crate) fn require(&self, version: i64) -> Result<(), Problem> {
        let now = version_tag(version);
        let is_now = |tag: &String| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == now;
        self.0.iter().any(is_now).then_some(()).ok_or_else(stale)
    }
}

/// The subject of an action has changed since it was read.
pub(crate) fn stale() -> Problem {
    let detail = "The subject has changed since your last read. Nothing was done. Read it again, and send \
                  the request again if it is still right.";
    Problem::new(&problems::PRECONDITION_FAILED, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Result<IfMatch, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IF_MATCH, value.parse().unwrap());
        }
        IfMatch::of(&headers)
    }

    #[test]
    fn a_tag_must_be_the_one_that_is_there() {
        for good in [
            &["\"7\""][..],
            &["*"],
            &["\"8\" , \"7\""],
            &["\"8\"", "\"7\""],
            &["W/\"7\""],
            &["\"8\", W/\"7\""],
        ] {
            assert!(of(good).unwrap().require(7).is_ok(), "{good:?}");
        }
        for stale in [&["\"8\""][..], &["7"], &["W/\"8\""], &["\"07\""]] {
            let problem = of(stale).unwrap().require(7).unwrap_err();
            assert_eq!(problem.status(), 412, "{stale:?}");
        }
        for none in [&[][..], &[""], &[" , "]] {
            assert_eq!(of(none).err().unwrap().status(), 428, "{none:?}");
        }
    }
}
