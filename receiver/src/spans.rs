//! Lists of spans, and single spans.

use std::fmt::Write as _;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::HeaderValue;
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_api as api;
use sampler_domain::{Again, Excluded, Id, SUSPENDED_DUE_AT, Span, SpanId, SpanState, Timestamp};
use sampler_service::problem::Problem;
use sampler_store::{LedgerSum, Reading, SpanPage, SpanQuery, StoreError};

use crate::Caller;
use crate::openapi::{OfTarget, PageParams, Time};
use crate::parameters::Parameters;
use crate::problems;
use crate::reading::{Paged, Tagged, tagged};

/// The characters that are percent-encoded in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The most spans of a list by when they were received.
const NEWEST_MAX: usize = 100;

/// The id in the address of a span, a cause or a usage.
pub(crate) type IdPath = Result<Path<String>, PathRejection>;

#[utoipa::path(
    get, path = "/v1/spans", operation_id = "list_spans", tag = "Reading",
    summary = "Spans of an organization, a resource or an instance",
    description = "The newest start comes first. One of `organization_id`, `resource_id`, `resource_instance_id`, `state=suspended` and `excluded=true` is required.",
    params(
        OfTarget,
        ("state" = Option<String>, Query, description = "The state of the span."),
        ("order" = Option<String>, Query, description = "`received`: the spans of all targets that were received last, at most 100. It goes with `limit` alone."),
        ("cause" = Option<String>, Query, description = "With `state=suspended`: why, as in `/v1/suspended`."),
        ("excluded" = Option<bool>, Query, description = "`true`: only spans of which something is excluded."),
        Time, PageParams,
    ),
    responses((status = 200, description = "A page of spans.", body = api::List<api::Span>)),
)]
pub(crate) async fn list(caller: Caller) -> Result<Paged<api::Span>, Problem> {
    let mut parameters = caller.parameters();
    let is_received = |text: &str| (text == "received").then_some(());
    let order = parameters.parsed("order", "The value must be received.", is_received);
    let mut query = read_query(&mut parameters);
    let alone = SpanQuery {
        limit: query.limit,
        ..SpanQuery::default()
    };
    if order.is_some() && query != alone {
        parameters.complain("order", "The parameter goes with limit alone.");
    }
    parameters.finish()?;
    if order.is_none() {
        require_narrow(&query)?;
    }
    let resource = query.target.get("resource_id").cloned();
    let page = caller.read_list(resource, |store, resources| async move {
        query.resources = resources;
        match order {
            Some(()) => newest(&*store, query).await,
            None => store.spans(&query).await,
        }
    });
    let (page, now) = (page.await?, caller.receiver.parts.clock.now());
    Ok(parameters.page(page.spans.iter().map(|span| shown(span, now)), page.next))
}

/// The spans that were received last, of all targets. With the scope of single resources, those of them that
/// started last.
async fn newest(store: &dyn Reading, mut query: SpanQuery) -> Result<SpanPage, StoreError> {
    query.limit = query.limit.min(NEWEST_MAX);
    let spans = match query.resources {
        None => store.newest_spans(query.limit).await?,
        Some(_) => store.spans(&query).await?.spans,
    };
    Ok(SpanPage { spans, next: None })
}

#[utoipa::path(
    get, path = "/v1/spans/{id}", operation_id = "get_span", tag = "Reading",
    summary = "One span, with proof of what was billed",
    params(("id" = String, Path, description = "The id of the span.")),
    responses((status = 200, description = "The span.", body = api::Span)),
)]
pub(crate) async fn get(caller: Caller, id: IdPath) -> Result<Tagged<api::Span>, Problem> {
    caller.parameters().finish()?;
    let span = caller.span(id).await?;
    let ledger = caller.ledger_of(&span).await?;
    Ok(shown_span(&span, caller.receiver.parts.clock.now(), ledger))
}

impl Caller {
    /// The span of an address. It counts as missing where the token does not allow reading it.
    pub(crate) async fn span(&self, id: IdPath) -> Result<Span, Problem> {
        // A segment that is not UTF-8 is the id of no span.
        let Ok(Path(id)) = id else {
            return Err(no_such_span());
        };
        let resources = self.readable(None);
        let found = self.read(|store| async move { store.span(&id, resources.as_deref()).await });
        found.await?.ok_or_else(no_such_span)
    }

    /// What the entries of a span add up to, read independently of the span.
    pub(crate) async fn ledger_of(&self, span: &Span) -> Result<LedgerSum, Problem> {
        let (id, target) = (span.id.clone(), span.target.clone());
        self.read(|store| async move { store.ledger_of(&id, &target).await })
            .await
    }
}

/// The answer that shows a span, with what its entries of the ledger add up to.
pub(crate) fn shown_span(span: &Span, now: Timestamp, ledger: LedgerSum) -> Tagged<api::Span> {
    let mut shown = shown(span, now);
    shown.proof.usages = Some(ledger.usages);
    shown.proof.ledger = Some(ledger.duration);
    // Once all entries have expired there is nothing to compare with.
    let billed = ledger.since.map_or(0, |since| span.billed_since(since));
    shown.proof.difference = Some(billed - ledger.duration);
    tagged(shown, span.processing.version)
}

fn read_query(parameters: &mut Parameters) -> SpanQuery {
    let mut query = SpanQuery {
        target: parameters.target(),
        excluded: parameters.only_true("excluded"),
        ..SpanQuery::default()
    };
    let names = SpanState::NAMES.join(", ");
    let expected = format!("The value must be one of {names}.");
    query.state = parameters.parsed("state", &expected, SpanState::from_name);
    let expected = "The value must be the id of a cause, as in /v1/suspended.";
    query.cause = parameters.parsed("cause", expected, |text| text.parse().ok());
    if query.cause.is_some() && query.state != Some(SpanState::Suspended) {
        parameters.complain("cause", "The parameter needs state=suspended.");
    }
    (query.from, query.to) = parameters.time();
    query.after = parameters.cursor();
    query.limit = parameters.limit();
    query
}

/// Each list comes from an index.
fn require_narrow(query: &SpanQuery) -> Result<(), Problem> {
    let is_suspended = query.state == Some(SpanState::Suspended);
    if query.target.narrowed_by().is_some() || is_suspended || query.excluded {
        return Ok(());
    }
    let detail = "The query reads too many spans. Add organization_id, resource_id or \
                  resource_instance_id, or state=suspended, or excluded=true.";
    Err(Problem::new(&problems::QUERY_TOO_WIDE, detail))
}

fn no_such_span() -> Problem {
    let detail = "There is no span with this id, or the token does not allow reading its resource.";
    Problem::new(&problems::NO_SUCH_SPAN, detail)
}

/// The address of a span. Each answer to a start has one.
pub(crate) fn address(id: &SpanId) -> String {
    let mut address = String::with_capacity(64);
    address.push_str("/v1/spans/");
    let written = match id {
        // As one number: to write byte by byte is slow.
        SpanId::ObjectId(bytes) => {
            let mut number = [0; 16];
            number[4..].copy_from_slice(bytes);
            write!(address, "{:024x}", u128::from_be_bytes(number))
        }
        SpanId::Text(text) => write!(address, "{}", utf8_percent_encode(text, SEGMENT)),
    };
    written.expect("a text takes everything");
    address
}

pub(crate) fn location(id: &SpanId) -> HeaderValue {
    let address = Bytes::from(address(id));
    HeaderValue::from_maybe_shared(address).expect("what is percent-encoded is ASCII")
}

/// A span as the API shows it at this time, without the ledger.
fn shown(span: &Span, now: Timestamp) -> api::Span {
    let processing = &span.processing;
    let planned = processing.planned.as_ref();
    // Nothing is left to do for one that is complete, and a suspended one waits for its cause.
    let is_due = !processing.complete && processing.due_at != SUSPENDED_DUE_AT;
    let failure = processing.failure.as_ref();
    let proof = span.proof(now);
    api::Span {
        id: span.id.to_string(),
        target: span.target.clone().into(),
        measured_usage: api::measures(span.measures.as_slice()),
        start: span.start,
        end: span.end,
        state: span.state().name().to_owned(),
        start_event_id: span.start_id.as_ref().map(Id::to_string),
        end_event_id: span.end_id.as_ref().map(Id::to_string),
        sampled_to: span.sampled_to(),
        due_at: is_due.then_some(processing.due_at),
        planned: planned.map(|planned| api::Plan {
            start: planned.interval.start,
            end: planned.interval.end,
            usage_id: planned.usage_guid.clone(),
        }),
        delivery: api::Delivery {
            attempts: failure.map_or(0, |failure| failure.attempts),
            unanswered: planned.is_some_and(|planned| planned.unanswered),
            last_error: failure.map(|failure| api::LastError {
                at: failure.at,
                status: failure.status,
                error: failure.error.clone(),
            }),
        },
        excluded: processing.excluded.iter().map(excluded).collect(),
        again: processing.again.iter().map(again).collect(),
        proof: api::Proof {
            used: proof.used,
            billed: proof.billed,
            skipped: proof.skipped,
            unanswered: proof.unanswered,
            unsampled: proof.unsampled,
            usages: None,
            ledger: None,
            difference: None,
        },
    }
}

fn excluded(range: &Excluded) -> api::Excluded {
    api::Excluded {
        start: range.interval.start,
        end: range.interval.end,
        back_to: range.back_to,
        unanswered: range.unanswered,
        error: range.error.clone(),
    }
}

/// What is left of a range that is sent again: once its usage is recorded, its way back.
fn again(again: &Again) -> api::Excluded {
    let left = excluded(&again.range);
    match again.range.way_back() {
        Some(way_back) if again.is_way_back => api::Excluded {
            start: way_back.start,
            end: way_back.end,
            back_to: None,
            ..left
        },
        _ => left,
    }
}
