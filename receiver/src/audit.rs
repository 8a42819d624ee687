//! The audit trail, for operators.

use std::sync::Arc;

use axum::extract::State;
use sampler_api as api;
use sampler_domain::ClientId;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{AuditQuery, AuditRecord};

use crate::Receiver;
use crate::openapi::{PageParams, Time};
use crate::parameters::Parameters;
use crate::reading::Paged;

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
pub(crate) async fn list(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    mut parameters: Parameters,
) -> Result<Paged<api::Act>, Problem> {
    grant.require_admin()?;
    let (from, to) = parameters.time();
    let query = AuditQuery {
        from,
        to,
        who: parameters.parsed("who", "It must be a name of 1 to 255 bytes.", whole_name),
        span: parameters.parsed("span", "It must be the id of a span.", span_id),
        after: parameters.cursor(),
        limit: parameters.limit(),
    };
    let next = parameters.finish()?;
    let page = receiver.read_store(&grant, |store| async move { store.audit(&query).await });
    let page = page.await?;
    let items = page.records.into_iter().map(shown).collect();
    Ok(Paged::new(items, &next, page.next.as_ref()))
}

/// A name as it is kept. No record has a name that is too long or has characters that are removed.
fn whole_name(text: &str) -> Option<ClientId> {
    ClientId::new(text).filter(|name| name.as_str() == text)
}

fn span_id(text: &str) -> Option<String> {
    let is_id = !text.is_empty() && text.len() <= SPAN_LEN_MAX;
    is_id.then(|| text.to_owned())
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
