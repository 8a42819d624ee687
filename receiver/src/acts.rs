//! The parts that operators' actions share: the scope, the reason, `If-Match`, and the audit trail.
//!
//! An action is recorded in the audit trail before it is carried out ([`sampler_store::AuditRecord`]), and
//! its outcome after that. Where a change had no answer, its repeat decides.

use axum::body::Body;
use axum::http::header::IF_MATCH;
use axum::http::{HeaderMap, Request};
use sampler_domain::ClientId;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{ActOutcome, AuditRecord, StoreError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{info, warn};

use crate::admission::{Kind, Turn};
use crate::events::client;
use crate::failures::Task;
use crate::json::Errors;
use crate::problems::INVALID_BODY;
use crate::reading::version_tag;
use crate::{Receiver, body, json, problems};

/// Bytes of the body of an action. A reason takes up to 12 KB, if each character is escaped.
const BODY_MAX: usize = 64 << 10;

/// In characters.
const REASON_MAX: usize = 1_000;

/// The request of an action, once its body was read, and the permit to serve it.
pub(crate) struct ActionRequest<T> {
    pub(crate) reason: String,
    /// The other members of its body.
    pub(crate) fields: T,
    pub(crate) _turn: Turn,
}

/// What the audit trail says of an action.
pub(crate) struct NewAuditRecord {
    /// The kind of the action, such as `span.skip`.
    pub(crate) kind: &'static str,
    pub(crate) subject: String,
    /// The id of the span, if the action is about a span.
    pub(crate) span: Option<String>,
    pub(crate) reason: String,
    /// The subject before the action.
    pub(crate) before: Value,
    /// The subject after the action.
    pub(crate) after: Value,
}

impl Receiver {
    /// Checks the scope of an action, reads its body, and checks the reason; `check` takes the body apart into the
    /// reason and the other members, and checks those.
    ///
    /// # Errors
    /// 403 without the scope, before the body is read; 400 that names each value that is wrong; 413
    /// and others for a body that cannot be read; 503 if too many actions are in progress.
    pub(crate) async fn admit_action<B: DeserializeOwned, T>(
        &self,
        grant: &Grant,
        request: Request<Body>,
        check: impl FnOnce(B, &mut Errors) -> (String, T),
    ) -> Result<ActionRequest<T>, Problem> {
        grant.require_admin()?;
        self.require_prepared()?;
        let client = client(grant, "");
        let body = body::read(request, self, client, BODY_MAX).await?;
        let turn = self.turn(Kind::Act, client, 1).await?;
        let mut errors = Errors::default();
        let (reason, fields) = check(json::read(body.as_ref(), &INVALID_BODY)?, &mut errors);
        if reason.trim().is_empty() || reason.chars().count() > REASON_MAX {
            let detail = format!("It must have 1 to {REASON_MAX} characters, and not be blank.");
            errors.wrong("reason", detail);
        }
        errors.finish(&INVALID_BODY)?;
        Ok(ActionRequest {
            reason,
            fields,
            _turn: turn,
        })
    }

    /// Records an action in the audit trail, carries it out, and records its outcome. The store answers whether it
    /// was done. If it may not have been recorded, it is not carried out.
    ///
    /// # Errors
    /// `not_done` where it was not done, 500 or 503 after a failure of the store.
    pub(crate) async fn perform(
        &self,
        grant: &Grant,
        new: NewAuditRecord,
        action: impl Future<Output = Result<bool, StoreError>>,
        not_done: fn() -> Problem,
    ) -> Result<(), Problem> {
        let (id, operating) = (self.parts.random.uuid_v4(), &self.parts.operating);
        let record = AuditRecord {
            id,
            at: self.parts.clock.now(),
            who: grant.who().cloned(),
            act: new.kind.to_owned(),
            subject: new.subject,
            span: new.span,
            reason: new.reason,
            before: new.before,
            after: new.after,
            outcome: ActOutcome::Asked,
        };
        let recorded = operating.record_action(&record).await;
        recorded.map_err(|failure| self.failed(Task::Record, &failure))?;
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
        let is_done = answer.map_err(|failure| self.failed(Task::Act, &failure))?;
        is_done.then_some(()).ok_or_else(not_done)
    }
}

/// The entity tags that a request names in `If-Match` (RFC 9110, section 13.1.1).
pub(crate) struct IfMatch(Vec<String>);

impl IfMatch {
    /// # Errors
    /// 428 where the header is missing.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let values = headers.get_all(IF_MATCH).iter();
        let tags = values.filter_map(|value| value.to_str().ok());
        let tags = tags.flat_map(|value| value.split(',')).map(str::trim);
        let tags: Vec<_> = tags.filter(|tag| !tag.is_empty()).collect();
        if tags.is_empty() {
            let detail = "Send If-Match with the ETag from your last read. Nothing was done.";
            return Err(Problem::new(&problems::PRECONDITION_REQUIRED, detail));
        }
        Ok(Self(tags.into_iter().map(str::to_owned).collect()))
    }

    /// Compares with the version of what is there now. A weak tag counts as the strong one: a proxy that
    /// compresses an answer weakens its tag.
    ///
    /// # Errors
    /// 412 where it has changed.
    pub(crate) fn require(&self, version: i64) -> Result<(), Problem> {
        let now = version_tag(version);
        let is_now = |tag: &String| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == now;
        let has_changed = !self.0.iter().any(is_now);
        if has_changed { Err(stale()) } else { Ok(()) }
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
