//! The ledger of a span: each usage and its state.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sampler_domain::{Entry, Interval, Measures, Span, Timestamp};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use serde::Serialize;
use utoipa::ToSchema;

use super::answer;
use super::spans::SpanPath;
use crate::Receiver;
use crate::openapi::params::{AsOf, Page, Time};
use crate::openapi::{problem_answers, types};
use crate::reading::{List, Parameters, read_version, write_version};

/// Entries that are read at a time where only some of them may be shown, and for one page.
const CHUNK: usize = 1_000;
const WINDOW: usize = 5_000;

/// Bytes of entries that are read at a time, and chunks of these for one page.
const CHUNK_BYTES: usize = 4 << 20;
const CHUNKS: usize = 4;

/// About what an entry takes beside its measures.
const ENTRY_BYTES: usize = 1 << 10;

/// `GET /v1/spans/{id}/usages`.
#[utoipa::path(
    get, path = "/v1/spans/{id}/usages", operation_id = "list_usages_of_span", tag = "Reading",
    summary = "Each usage of a span, and what became of it",
    description = "In the order in which they were planned.",
    params(("id" = String, Path, description = "The id of the span."), Time, AsOf, Page),
    responses((status = 200, description = "A page of usages.", body = List<ShownUsage<'static>>,
        headers(("Link" = Option<String>, description = "The next page, as `rel=\"next\"`."))), problem_answers::OfSpan),
)]
pub async fn list(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    id: SpanPath,
    uri: Uri,
) -> Response {
    let outcome = receiver.usages(&grant, id, &uri).await;
    answer(&receiver, "usages", &grant, outcome)
}

/// The query for a list of a span's usages.
struct UsageQuery {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    /// The moment whose ledger is shown.
    as_of: Option<Timestamp>,
    /// Only usages that were planned at a later version.
    after: Option<i64>,
    limit: usize,
}

/// Some usages, and behind which version the list goes on.
#[derive(Default)]
struct Usages {
    shown: Vec<Entry>,
    next: Option<i64>,
}

impl Receiver {
    async fn usages(
        &self,
        grant: &Grant,
        id: SpanPath,
        uri: &Uri,
    ) -> Result<impl IntoResponse, Problem> {
        let mut parameters = Parameters::of(uri);
        let (from, to) = parameters.time();
        let query = UsageQuery {
            from,
            to,
            as_of: parameters.moment("as_of"),
            after: parameters.cursor(read_version),
            limit: parameters.limit(),
        };
        let next = parameters.finish()?;
        let _permit = self.admit_reading(grant).await?;
        // The span comes first: what is planned on it and is executed meanwhile is in the ledger.
        let span = self.span(grant, id).await?.span;
        let usages = self.usages_of(&span, &query).await?;
        let next = usages.next.map(|last| next.page(&write_version(last)));
        let items = usages.shown.iter().map(|entry| shown(entry, query.as_of));
        Ok(List::new(items.collect(), next).into_response())
    }

    /// The entries of the ledger, and behind them the one that is planned and not answered.
    async fn usages_of(&self, span: &Span, query: &UsageQuery) -> Result<Usages, Problem> {
        let mut usages = Usages::default();
        let (mut after, mut read) = (query.after, 0);
        // Each entry has the measures of its span.
        let measures = serde_json::to_vec(&span.measures).map_or(0, |bytes| bytes.len());
        let chunk_max = (CHUNK_BYTES / (ENTRY_BYTES + measures)).max(1);
        let chunk = query.chunk().min(chunk_max);
        while read < WINDOW.min(CHUNKS * chunk_max) {
            let entries = self
                .parts
                .queries
                .usages(&span.id, &span.target, after, chunk);
            let entries = entries.await.map_err(|failure| self.not_read(&failure))?;
            read += chunk;
            for entry in entries.entries {
                after = Some(entry.version);
                if !usages.add(entry, query) {
                    return Ok(usages);
                }
            }
            if entries.next.is_none() {
                let planned = Entry::of_planned(span);
                let planned = planned.filter(|planned| after < Some(planned.version));
                planned.map(|planned| usages.add(planned, query));
                return Ok(usages);
            }
            after = entries.next;
        }
        usages.next = after;
        Ok(usages)
    }
}

impl Usages {
    /// Adds an entry, if it is asked for. Returns whether there was room for it.
    fn add(&mut self, mut entry: Entry, query: &UsageQuery) -> bool {
        if !query.matches(&entry) {
            return true;
        }
        if self.shown.len() == query.limit {
            self.next = self.shown.last().map(|last| last.version);
            return false;
        }
        // They are not shown, and may be large.
        entry.measures = Measures::default();
        self.shown.push(entry);
        true
    }
}

impl UsageQuery {
    /// How many entries are read at a time.
    fn chunk(&self) -> usize {
        let is_whole = self.from.is_none() && self.to.is_none() && self.as_of.is_none();
        if is_whole { self.limit + 1 } else { CHUNK }
    }

    fn matches(&self, entry: &Entry) -> bool {
        let timestamp = entry.interval.midpoint();
        let was_there = |at| entry.as_of(at).is_some();
        self.from.is_none_or(|from| timestamp >= from)
            && self.to.is_none_or(|to| timestamp < to)
            && self.as_of.is_none_or(was_there)
    }
}

/// A usage as it is shown.
#[derive(Serialize, ToSchema)]
#[schema(as = Usage)]
pub(super) struct ShownUsage<'a> {
    #[schema(example = "ad1f2853-43e0-5cbf-b4f7-39fd0d67600c")]
    id: &'a str,
    span: String,
    #[schema(value_type = types::Interval)]
    interval: Interval,
    #[schema(value_type = types::Moment)]
    timestamp: Timestamp,
    /// In ms; negative where it takes something back.
    duration: i64,
    #[schema(example = "accepted")]
    state: &'static str,
    attempts: u32,
    #[schema(value_type = types::Moment)]
    planned_at: Timestamp,
    #[schema(value_type = Option<types::Moment>, required)]
    accepted_at: Option<Timestamp>,
    #[schema(required)]
    status: Option<u16>,
    #[schema(required)]
    location: Option<&'a str>,
    #[schema(required)]
    error: Option<&'a str>,
}

/// The entry, as the ledger had it at a moment: what Abacus answered later was not there.
pub(super) fn shown(entry: &Entry, as_of: Option<Timestamp>) -> ShownUsage<'_> {
    let state = as_of.and_then(|at| entry.as_of(at)).unwrap_or(entry.state);
    let is_past = |moment: Timestamp| as_of.is_none_or(|at| moment <= at);
    let accepted_at = entry.accepted_at.filter(|at| is_past(*at));
    let is_now = as_of.is_none_or(|at| entry.is_unchanged_since(at));
    // Of the answer to a refusal nothing is kept once it is accepted, and of that once it is sent again.
    let is_of_answer = is_now || (accepted_at.is_some() && entry.resent_at.is_none_or(is_past));
    ShownUsage {
        id: &entry.usage_guid,
        span: entry.span.to_string(),
        interval: entry.interval,
        timestamp: entry.interval.midpoint(),
        duration: entry.interval.duration(),
        state: state.name(),
        attempts: entry.attempts,
        planned_at: entry.planned_at,
        accepted_at,
        status: entry.status.filter(|_| is_of_answer),
        location: entry.location.as_deref().filter(|_| is_of_answer),
        error: entry.error.as_deref().filter(|_| is_now),
    }
}
