//! The parts that operators' actions share: the scope, the reason, the audit trail, and `If-Match` where
//! an action is on one span or document.
//!
//! An action is recorded in the audit trail before it is carried out ([`sampler_store::AuditRecord`]), and
//! its outcome after that.

mod precondition;

use axum::body::Body;
use axum::http::Request;
use sampler_domain::ClientId;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{ActOutcome, AuditRecord, StoreError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{info, warn};
use uuid::Uuid;

use crate::admission::ServingPermit;
use crate::errors::Errors;
use crate::problems::INVALID_BODY;
use crate::{Receiver, json, problems};

pub(crate) use precondition::{IfMatch, stale};

/// Bytes of the body of an action. A reason takes up to 12 KB, if each character is escaped.
const BODY_MAX: usize = 64 << 10;

/// In characters.
const REASON_MAX: usize = 1_000;

/// The request of an action, once its body was read, and the permit to serve it.
pub(crate) struct ActionRequest<T> {
    pub(crate) reason: String,
    /// The other members of its body.
    pub(crate) fields: T,
    pub(crate) _permit: ServingPermit,
}

/// What the audit trail says of an action.
pub(crate) struct NewAuditRecord<'a> {
    /// The kind of the action, such as `span.skip`.
    pub(crate) kind: &'a str,
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
        let sender = self.sender(grant);
        let body = crate::body::read(request, self, sender).await?;
        if body.as_ref().len() > BODY_MAX {
            let detail = format!("The body is larger than {BODY_MAX} bytes.");
            return Err(Problem::new(&problems::PAYLOAD_TOO_LARGE, detail));
        }
        let permit = self
            .admission
            .act(sender)
            .await
            .map_err(|reason| self.turned_away(reason))?;
        let given = json::read(body.as_ref(), &INVALID_BODY)?;
        let mut errors = Errors::default();
        let (reason, fields) = check(given, &mut errors);
        if reason.trim().is_empty() || reason.chars().count() > REASON_MAX {
            let detail = format!("It must have 1 to {REASON_MAX} characters, and not be blank.");
            errors.wrong("reason", detail);
        }
        let checked = errors.finish();
        checked.map_err(|errors| json::invalid(&INVALID_BODY, errors))?;
        Ok(ActionRequest {
            reason,
            fields,
            _permit: permit,
        })
    }

    /// Records an action in the audit trail. If that may have failed, the action must not be carried out.
    async fn record_action(
        &self,
        id: Uuid,
        grant: &Grant,
        new: NewAuditRecord<'_>,
    ) -> Result<(), Problem> {
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
        let recorded = self.parts.operating.record_action(&record).await;
        recorded.map_err(|failure| self.failure_of_recording(&failure))?;
        let who = record.who.as_ref().map(ClientId::as_str);
        info!(act = record.act, record = %id, who, subject = record.subject, "an operator makes a change");
        Ok(())
    }

    /// Records the outcome of an action. If that fails, it stays [`ActOutcome::Asked`].
    async fn record_outcome(&self, id: Uuid, outcome: ActOutcome) {
        if let Err(failure) = self.parts.operating.record_outcome(id, outcome).await {
            warn!(code = "audit.not_settled", record = %id, outcome = outcome.name(),
                error = %failure, "the outcome of an operator's action is not in the audit trail");
        }
    }

    /// Records an action in the audit trail, carries it out, and records its outcome. The changed documents
    /// can name its id. The store answers whether it was done.
    ///
    /// # Errors
    /// `not_done` where it was not done, 500 or 503 after a failure of the store.
    pub(crate) async fn perform(
        &self,
        id: Uuid,
        grant: &Grant,
        new: NewAuditRecord<'_>,
        action: impl Future<Output = Result<bool, StoreError>>,
        not_done: fn() -> Problem,
    ) -> Result<(), Problem> {
        self.record_action(id, grant, new).await?;
        let answer = action.await;
        let outcome = match &answer {
            Ok(true) => ActOutcome::Done,
            Err(StoreError::Unknown(_)) => ActOutcome::Unknown,
            Ok(false) | Err(_) => ActOutcome::Refused,
        };
        self.record_outcome(id, outcome).await;
        if answer.map_err(|failure| self.failure_of_action(&failure))? {
            return Ok(());
        }
        Err(not_done())
    }
}
