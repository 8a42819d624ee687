//! The ledger of a span: each usage and its state.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use sampler_api as api;
use sampler_domain::{Entry, EntryState, Span, Timestamp, Usage};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::Entries;

use super::answer;
use super::spans::IdPath;
use crate::Receiver;
use crate::openapi::params::{PageParams, Time};
use crate::openapi::problem_answers;
use crate::reading::{Paged, Parameters};

/// Entries that are read at a time where only some of them may be shown, and for one page.
const CHUNK: usize = 1_000;
const WINDOW: usize = 5_000;

/// Bytes of entries that are read at a time or shown on one page, and chunks of these for one page.
const CHUNK_BYTES: usize = 4 << 20;
const CHUNKS: usize = 4;

/// About what an entry takes beside its measures.
const ENTRY_BYTES: usize = 1 << 10;

#[utoipa::path(
    get, path = "/v1/spans/{id}/usages", operation_id = "list_usages_of_span", tag = "Reading",
    summary = "Each usage of a span, and its outcome",
    description = "In the order in which they were planned, or with `order=newest` the last one first.",
    params(
        ("id" = String, Path, description = "The id of the span."),
        ("order" = Option<String>, Query, description = "`oldest` (the default) or `newest` first.", example = "newest"),
        Time, PageParams,
    ),
    responses((status = 200, description = "A page of usages.", body = api::List<api::Usage>,
        headers(("Link" = Option<String>, description = "The next page, as `rel=\"next\"`."))), problem_answers::OfSpan),
)]
pub async fn list(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    id: IdPath,
    uri: Uri,
) -> Response {
    let page = async {
        let mut parameters = Parameters::of(&uri);
        let (from, to) = parameters.time();
        let order = parameters.parsed("order", "It must be oldest or newest.", |text| match text {
            "oldest" => Some(false),
            "newest" => Some(true),
            _ => None,
        });
        let query = UsageQuery {
            from,
            to,
            is_newest_first: order.unwrap_or_default(),
            after: parameters.cursor(),
            limit: parameters.limit(),
        };
        let next = parameters.finish()?;
        // The span comes first: what is planned on it and is executed meanwhile is in the ledger.
        let span = receiver.span(&grant, id).await?.span;
        let usages = receiver.usages_of(&grant, &span, &query).await?;
        let items = usages.shown.iter().map(shown).collect();
        Ok(Paged::new(items, usages.next.map(|last| next.page(&last))))
    };
    answer("usages", &grant, page.await)
}

struct UsageQuery {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    /// Whether the last one that was planned comes first.
    is_newest_first: bool,
    /// The version at which the last usage of the page before was planned.
    after: Option<i64>,
    limit: usize,
}

/// Some usages, and the version after which the list continues.
struct Usages {
    shown: Vec<Entry>,
    limit: usize,
    next: Option<i64>,
}

impl Receiver {
    /// The entries of the ledger in the direction in which they are read, and at its end the one that
    /// is planned and not answered.
    async fn usages_of(
        &self,
        grant: &Grant,
        span: &Span,
        query: &UsageQuery,
    ) -> Result<Usages, Problem> {
        // Each entry has the measures of its span.
        let measures = serde_json::to_vec(&span.measures).map_or(0, |bytes| bytes.len());
        let chunk_max = (CHUNK_BYTES / (ENTRY_BYTES + measures)).max(1);
        let mut usages = Usages::new(query.limit.min(chunk_max));
        let (mut bound, mut read) = (query.after, 0);
        let chunk = query.chunk().min(chunk_max);
        let mut planned = Entry::of_planned(span).filter(|planned| {
            !query.is_newest_first || bound.is_none_or(|bound| planned.version < bound)
        });
        while read < WINDOW.min(CHUNKS * chunk_max) {
            let entries = self.chunk_of(grant, span, query, bound, chunk).await?;
            read += chunk;
            if query.is_newest_first {
                let last = entries.entries.first().map(|entry| entry.version);
                let planned = planned
                    .take()
                    .filter(|planned| last < Some(planned.version));
                bound = planned.as_ref().map(|planned| planned.version).or(bound);
                planned.map(|planned| usages.add(planned, query));
            }
            for entry in entries.entries {
                bound = Some(entry.version);
                if !usages.add(entry, query) {
                    return Ok(usages);
                }
            }
            if entries.next.is_none() {
                let planned = planned.filter(|planned| bound < Some(planned.version));
                planned.map(|planned| usages.add(planned, query));
                return Ok(usages);
            }
            bound = entries.next;
        }
        usages.next = bound;
        Ok(usages)
    }

    async fn chunk_of(
        &self,
        grant: &Grant,
        span: &Span,
        query: &UsageQuery,
        bound: Option<i64>,
        chunk: usize,
    ) -> Result<Entries, Problem> {
        let (id, target) = (span.id.clone(), span.target.clone());
        let is_newest_first = query.is_newest_first;
        let entries = self.read_store(grant, |store| async move {
            if is_newest_first {
                store.usages_from_end(&id, &target, bound, chunk).await
            } else {
                store.usages(&id, &target, bound, chunk).await
            }
        });
        entries.await
    }
}

impl Usages {
    fn new(limit: usize) -> Self {
        Self {
            shown: Vec::new(),
            limit,
            next: None,
        }
    }

    /// Adds an entry, if it is asked for. Returns whether there was room for it.
    fn add(&mut self, entry: Entry, query: &UsageQuery) -> bool {
        if !query.matches(&entry) {
            return true;
        }
        if self.shown.len() == self.limit {
            self.next = self.shown.last().map(|last| last.version);
            return false;
        }
        self.shown.push(entry);
        true
    }
}

impl UsageQuery {
    /// How many entries are read at a time.
    fn chunk(&self) -> usize {
        let is_whole = self.from.is_none() && self.to.is_none();
        if is_whole { self.limit + 1 } else { CHUNK }
    }

    fn matches(&self, entry: &Entry) -> bool {
        let timestamp = entry.interval.midpoint();
        self.from.is_none_or(|from| timestamp >= from) && self.to.is_none_or(|to| timestamp < to)
    }
}

pub(super) fn shown(entry: &Entry) -> api::Usage {
    api::Usage {
        id: entry.usage_guid.clone(),
        span: entry.span.to_string(),
        interval: entry.interval.into(),
        timestamp: entry.interval.midpoint(),
        duration: entry.interval.duration(),
        measured_usage: api::measures(&Usage::of_entry(entry).measured_usage),
        state: entry.state.name().to_owned(),
        attempts: entry.attempts,
        planned_at: entry.planned_at,
        accepted_at: entry.accepted_at,
        status: entry.status,
        location: entry.location.clone(),
        error: entry.error.clone(),
        unanswered: entry.unanswered && entry.state == EntryState::Skipped,
        withheld: entry.withheld,
    }
}
