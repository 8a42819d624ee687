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
use serde::{Deserialize, Serialize};

use super::answer;
use super::spans::IdPath;
use crate::Receiver;
use crate::openapi::params::{AsOf, PageParams, Time};
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
        Time, AsOf, PageParams,
    ),
    responses((status = 200, description = "A page of usages.", body = api::List<api::Usage>,
        headers(("Link" = Option<String>, description = "The next page, as `rel=\"next\"`, and the one before, as `rel=\"prev\"`."))), problem_answers::OfSpan),
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
            as_of: parameters.moment("as_of"),
            is_newest_first: order.unwrap_or_default(),
            has_order: order.is_some(),
            place: parameters.cursor(),
            limit: parameters.limit(),
        };
        let pages = parameters.finish()?;
        // The span comes first: what is planned on it and is executed meanwhile is in the ledger.
        let span = receiver.span(&grant, id).await?.span;
        let shown_here = receiver
            .usages_of(&grant, &span, &query)
            .await?
            .page(&query);
        let items = shown_here.entries.iter();
        Ok(Paged {
            items: items.map(|entry| shown(entry, query.as_of)).collect(),
            next: shown_here.next.map(|place| pages.page(&place)),
            previous: shown_here.previous.map(|place| pages.page(&place)),
        })
    };
    answer("usages", &grant, page.await)
}

struct UsageQuery {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    /// The time at which the ledger is shown.
    as_of: Option<Timestamp>,
    /// Whether the last one that was planned comes first.
    is_newest_first: bool,
    /// Whether the order was asked for: only then there are links to pages before, which clients that
    /// know of one link do not expect.
    has_order: bool,
    place: Option<UsagePosition>,
    limit: usize,
}

/// A place in a list: by the version at which a usage was planned.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(untagged)]
enum UsagePosition {
    /// The entries after this version.
    After(i64),
    /// The entries before this version.
    Before { before: i64 },
}

impl UsagePosition {
    fn version(self) -> i64 {
        match self {
            Self::After(version) | Self::Before { before: version } => version,
        }
    }

    fn is_before(self) -> bool {
        matches!(self, Self::Before { .. })
    }
}

/// Some usages, and the version after which the list continues.
struct Usages {
    shown: Vec<Entry>,
    limit: usize,
    next: Option<i64>,
}

/// A page in the order that was asked for, and the pages beside it.
struct Shown {
    entries: Vec<Entry>,
    next: Option<UsagePosition>,
    previous: Option<UsagePosition>,
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
        let (mut bound, mut read) = (query.place.map(UsagePosition::version), 0);
        let chunk = query.chunk().min(chunk_max);
        let mut planned = Entry::of_planned(span).filter(|planned| {
            !query.is_backwards() || bound.is_none_or(|bound| planned.version < bound)
        });
        while read < WINDOW.min(CHUNKS * chunk_max) {
            let entries = self.chunk_of(grant, span, query, bound, chunk).await?;
            read += chunk;
            if query.is_backwards() {
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
        let is_backwards = query.is_backwards();
        let entries = self.read_store(grant, |store| async move {
            if is_backwards {
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

    /// The page, in the order that was asked for.
    fn page(self, query: &UsageQuery) -> Shown {
        let (mut entries, further) = (self.shown, self.next);
        let first = entries.first().map(|first| first.version);
        if query.place.is_some_and(UsagePosition::is_before) {
            entries.reverse();
            return Shown {
                entries,
                next: first.map(UsagePosition::After),
                previous: further.map(|before| UsagePosition::Before { before }),
            };
        }
        let before = first.filter(|_| query.place.is_some() && query.has_order);
        Shown {
            entries,
            next: further.map(UsagePosition::After),
            previous: before.map(|before| UsagePosition::Before { before }),
        }
    }
}

impl UsageQuery {
    /// Whether the ledger is read from its end.
    fn is_backwards(&self) -> bool {
        self.is_newest_first != self.place.is_some_and(UsagePosition::is_before)
    }

    /// How many entries are read at a time.
    fn chunk(&self) -> usize {
        let is_whole = self.from.is_none() && self.to.is_none() && self.as_of.is_none();
        if is_whole { self.limit + 1 } else { CHUNK }
    }

    fn matches(&self, entry: &Entry) -> bool {
        let timestamp = entry.interval.midpoint();
        self.from.is_none_or(|from| timestamp >= from)
            && self.to.is_none_or(|to| timestamp < to)
            && self.as_of.is_none_or(|at| entry.as_of(at).is_some())
    }
}

/// The entry, as the ledger had it at a time: what the upstream answered later was not there.
pub(super) fn shown(entry: &Entry, as_of: Option<Timestamp>) -> api::Usage {
    let state = as_of.and_then(|at| entry.as_of(at)).unwrap_or(entry.state);
    let until = as_of.unwrap_or(Timestamp::MAX);
    let accepted_at = entry.accepted_at.filter(|at| *at <= until);
    let is_now = as_of.is_none_or(|at| entry.is_unchanged_since(at));
    // The answer to a refusal is not kept once the usage is accepted, and the answer that accepted it
    // is not kept once it is sent again.
    let is_of_answer =
        is_now || (accepted_at.is_some() && entry.resent_at.is_none_or(|at| at <= until));
    api::Usage {
        id: entry.usage_guid.clone(),
        span: entry.span.to_string(),
        interval: entry.interval.into(),
        timestamp: entry.interval.midpoint(),
        duration: entry.interval.duration(),
        measured_usage: api::measures(&Usage::of_entry(entry).measured_usage),
        state: state.name().to_owned(),
        attempts: entry.attempts,
        planned_at: entry.planned_at,
        accepted_at,
        status: entry.status.filter(|_| is_of_answer),
        location: entry.location.clone().filter(|_| is_of_answer),
        error: entry.error.clone().filter(|_| is_now),
        unanswered: entry.unanswered && state == EntryState::Skipped,
        withheld: entry.withheld,
    }
}
