//! The audit trail, for operators.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sampler_domain::{ClientId, Timestamp};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{AuditQuery, AuditRecord};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::answer;
use crate::Receiver;
use crate::openapi::params::{Page, Time};
use crate::openapi::{problem_answers, types};
use crate::reading::{List, Parameters, read_act, write_act};

/// Bytes of the id of a span, as it is written.
const SPAN_LEN_MAX: usize = 1_024;

/// `GET /v1/audit`.
#[utoipa::path(
    get, path = "/v1/audit", operation_id = "list_acts", tag = "Operating",
    summary = "The audit trail",
    description = "The newest act comes first.",
    params(
        Time,
        ("who" = Option<String>, Query, description = "Acts of this user or client."),
        ("span" = Option<String>, Query, description = "Acts on this span."),
        Page,
    ),
    responses((status = 200, description = "A page of acts.", body = List<ShownAct<'static>>,
        headers(("Link" = Option<String>, description = "The next page, as `rel=\"next\"`."))), problem_answers::OfReading),
)]
pub async fn list(State(receiver): State<Arc<Receiver>>, grant: Grant, uri: Uri) -> Response {
    let outcome = receiver.audit(&grant, &uri).await;
    answer(&receiver, "audit", &grant, outcome)
}

impl Receiver {
    async fn audit(&self, grant: &Grant, uri: &Uri) -> Result<impl IntoResponse, Problem> {
        grant.require_admin()?;
        let mut parameters = Parameters::of(uri);
        let (from, to) = parameters.time();
        let query = AuditQuery {
            from,
            to,
            who: parameters.parsed("who", "It must be a name of 1 to 255 bytes.", whole_name),
            span: parameters.parsed("span", "It must be the id of a span.", span_id),
            after: parameters.cursor(read_act),
            limit: parameters.limit(),
        };
        let next = parameters.finish()?;
        let _permit = self.admit_reading(grant).await?;
        let page = self.parts.queries.audit(&query).await;
        let page = page.map_err(|failure| self.not_read(&failure))?;
        let next = page.next.map(|last| next.page(&write_act(&last)));
        let items = page.records.iter().map(ShownAct::from);
        Ok(List::new(items.collect(), next).into_response())
    }
}

/// A name as it is kept: one that would be cut or changed is nobody's.
fn whole_name(text: &str) -> Option<ClientId> {
    ClientId::new(text).filter(|name| name.as_str() == text)
}

fn span_id(text: &str) -> Option<String> {
    let is_id = !text.is_empty() && text.len() <= SPAN_LEN_MAX;
    is_id.then(|| text.to_owned())
}

/// An act as it is shown.
#[derive(Serialize, ToSchema)]
#[schema(as = Act)]
struct ShownAct<'a> {
    #[schema(value_type = String)]
    id: Uuid,
    #[schema(value_type = types::Moment)]
    at: Timestamp,
    #[schema(required)]
    who: Option<&'a str>,
    #[schema(example = "span.resume")]
    act: &'a str,
    subject: &'a str,
    reason: &'a str,
    before: &'a Value,
    after: &'a Value,
    outcome: &'static str,
}

impl<'a> From<&'a AuditRecord> for ShownAct<'a> {
    fn from(record: &'a AuditRecord) -> Self {
        Self {
            id: record.id,
            at: record.at,
            who: record.who.as_ref().map(ClientId::as_str),
            act: &record.act,
            subject: &record.subject,
            reason: &record.reason,
            before: &record.before,
            after: &record.after,
            outcome: record.outcome.name(),
        }
    }
}
