//! The operator's action on one usage that was skipped or set aside: a worker sends it again.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use sampler_api as api;
use sampler_domain::{Entry, EntryState, Resend};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::EntryKey;
use serde_json::{Value, json};

use super::answer;
use super::spans::IdPath;
use super::usages::shown;
use crate::actions::{ActionRequest, NewAuditRecord};
use crate::openapi::problem_answers;
use crate::{Receiver, problems};

/// The longest id of a usage that is searched for, in characters. Sampler's and the original's are UUIDs.
const ID_MAX: usize = 256;

#[utoipa::path(
    post, path = "/v1/usages/{id}/resend", operation_id = "resend_usage", tag = "Operating",
    summary = "Send a usage again",
    description = "The usage was skipped, or set aside by the upstream. A worker sends the same bytes again.",
    params(("id" = String, Path, description = "The id of the usage.")),
    request_body(content = api::Reason, content_type = "application/json"),
    responses((status = 202, description = "A worker sends it.", body = api::Usage), problem_answers::OfUsageAct),
)]
pub async fn resend(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    id: IdPath,
    request: Request<Body>,
) -> Response {
    let resent = async {
        let admitted =
            receiver.admit_action(&grant, request, |body: api::Reason, _| (body.reason, ()));
        let ActionRequest {
            reason, _permit, ..
        } = admitted.await?;
        let entry = receiver.resendable(&grant, id).await?;
        let record = NewAuditRecord {
            kind: "usage.resend",
            subject: format!("/v1/usages/{}", entry.usage_guid),
            span: Some(entry.span.to_string()),
            reason,
            before: summary(&entry, entry.resend.is_some()),
            after: summary(&entry, true),
        };
        let act = receiver.parts.random.uuid_v4();
        let marking = async {
            let resend = Resend {
                act,
                from: entry.state,
                at: receiver.parts.clock.now(),
                // At once, whatever the clock of this machine says.
                due_at: entry.planned_at,
                acceptance: None,
            };
            let (operating, key) = (&receiver.parts.operating, EntryKey::of(&entry));
            let marked = operating.resend_by_operator(&key, &resend).await;
            // A worker finds the mark within seconds. One that is there already stays as it is.
            marked.map(|is_new| is_new || entry.resend.is_some())
        };
        receiver
            .perform(act, &grant, record, marking, not_resendable)
            .await?;
        let answer = Json(shown(&entry)).into_response();
        Ok((StatusCode::ACCEPTED, answer))
    };
    answer("resend", &grant, resent.await)
}

impl Receiver {
    /// The entry of an address, if its usage can be sent again.
    async fn resendable(&self, grant: &Grant, id: IdPath) -> Result<Entry, Problem> {
        let id = id
            .ok()
            .map(|Path(id)| id)
            .filter(|id| id.chars().count() <= ID_MAX)
            .ok_or_else(no_such_usage)?;
        let usage = id.clone();
        let entry = self.read_store(grant, |store| async move { store.usage(&usage).await });
        match entry.await? {
            Some(entry) if entry.withheld => Err(withheld()),
            Some(entry) if entry.is_uncounted() => Ok(entry),
            Some(_) => Err(not_resendable()),
            None if self.is_refused(grant, &id).await? => Err(not_resendable()),
            None => Err(no_such_usage()),
        }
    }

    async fn is_refused(&self, grant: &Grant, id: &str) -> Result<bool, Problem> {
        let id = id.to_owned();
        let is_refused = self.read_store(grant, |store| async move { store.is_refused(&id).await });
        is_refused.await
    }
}

fn no_such_usage() -> Problem {
    let detail = "The ledger has no usage with this id, and the upstream refuses none. Workers send what is \
                  planned.";
    Problem::new(&problems::NO_SUCH_USAGE, detail)
}

fn not_resendable() -> Problem {
    let states = [EntryState::Skipped, EntryState::SetAside].map(EntryState::name);
    let detail = format!(
        "Only a usage that is {} can be sent again. One that is refused is tried again, or \
         skipped if an operator has asked for that. Nothing was done.",
        states.join(" or ")
    );
    Problem::new(&problems::NOT_RESENDABLE, detail)
}

fn withheld() -> Problem {
    let detail = "It takes back a usage that does not count. Send that usage again: this one follows it. \
                  Nothing was done.";
    Problem::new(&problems::NOT_RESENDABLE, detail)
}

/// The state of a usage, as the audit trail shows it.
fn summary(entry: &Entry, is_resending: bool) -> Value {
    json!({
        "state": entry.state.name(),
        "start": entry.interval.start,
        "end": entry.interval.end,
        "resend": is_resending,
    })
}
