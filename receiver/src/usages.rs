//! The ledger of a span: each usage that the upstream has accepted.

use std::sync::Arc;

use axum::extract::State;
use sampler_api as api;
use sampler_domain::{Entry, Span, Timestamp, Usage};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{Entries, EntryOrder, EntryPosition};

use crate::Receiver;
use crate::openapi::{Accepted, PageParams, Time};
use crate::parameters::Parameters;
use crate::reading::Paged;
use crate::spans::IdPath;

/// Entries that are read for one page where only some of them may be shown, and the bytes of all that are read.
const WINDOW: usize = 5_000;
const WINDOW_BYTES: usize = 8 << 20;

/// About what an entry takes beside its measures.
const ENTRY_BYTES: usize = 1 << 10;

#[utoipa::path(
    get, path = "/v1/spans/{id}/usages", operation_id = "list_usages_of_span", tag = "Reading",
    summary = "Each usage of a span that the upstream has accepted",
    description = "In the order in which they were accepted, or with `order=newest` the last one first.",
    params(
        ("id" = String, Path, description = "The id of the span."),
        ("order" = Option<String>, Query, description = "`oldest` (the default) or `newest` first.", example = "newest"),
        Time, Accepted, PageParams,
    ),
    responses((status = 200, description = "A page of usages.", body = api::List<api::Usage>)),
)]
pub(crate) async fn list(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    id: IdPath,
    mut parameters: Parameters,
) -> Result<Paged<api::Usage>, Problem> {
    let (from, to) = parameters.time();
    let order = parameters.parsed("order", "It must be oldest or newest.", |text| match text {
        "oldest" => Some(EntryOrder::Oldest),
        "newest" => Some(EntryOrder::Newest),
        _ => None,
    });
    let query = UsageQuery {
        from,
        to,
        accepted_to: parameters.moment("accepted_to"),
        order: order.unwrap_or_default(),
        after: parameters.cursor(),
        limit: parameters.limit(),
    };
    let next = parameters.finish()?;
    let span = receiver.span(&grant, id).await?;
    let page = receiver.usages_of(&grant, &span, query).await?;
    let items = page.entries.iter().map(shown).collect();
    Ok(Paged::new(items, &next, page.next.as_ref()))
}

struct UsageQuery {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    accepted_to: Option<Timestamp>,
    order: EntryOrder,
    after: Option<EntryPosition>,
    limit: usize,
}

impl Receiver {
    /// A page of entries. As much as one answer may cost is read: a page may be empty, and have a next one.
    async fn usages_of(
        &self,
        grant: &Grant,
        span: &Span,
        query: UsageQuery,
    ) -> Result<Entries, Problem> {
        // Each entry has the measures of its span.
        let measures = serde_json::to_vec(&span.measures).map_or(0, |bytes| bytes.len());
        let affordable = (WINDOW_BYTES / (ENTRY_BYTES + measures)).max(1);
        let is_whole = [query.from, query.to, query.accepted_to] == [None; 3];
        let window = if is_whole { query.limit + 1 } else { WINDOW };
        let (id, target) = (span.id.clone(), span.target.clone());
        let (order, after) = (query.order, query.after.clone());
        let window = window.min(affordable);
        let read = self.read_store(grant, |store| async move {
            store
                .usages(&id, &target, order, after.as_ref(), window)
                .await
        });
        let mut page = read.await?;
        page.entries.retain(|entry| query.matches(entry));
        if page.entries.len() > query.limit {
            page.entries.truncate(query.limit);
            page.next = page.entries.last().map(EntryPosition::of);
        }
        Ok(page)
    }
}

impl UsageQuery {
    fn matches(&self, entry: &Entry) -> bool {
        let timestamp = entry.interval.midpoint();
        self.from.is_none_or(|from| timestamp >= from)
            && self.to.is_none_or(|to| timestamp < to)
            && self.accepted_to.is_none_or(|to| entry.acceptance.at <= to)
    }
}

fn shown(entry: &Entry) -> api::Usage {
    api::Usage {
        id: entry.usage_guid.clone(),
        span: entry.span.to_string(),
        interval: entry.interval.into(),
        timestamp: entry.interval.midpoint(),
        duration: entry.interval.duration(),
        measured_usage: api::measures(&Usage::of_entry(entry).measured_usage),
        accepted_at: entry.acceptance.at,
        status: entry.acceptance.status,
        location: entry.acceptance.location.clone(),
    }
}
