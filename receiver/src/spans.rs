//! Lists of spans, and single spans.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_api as api;
use sampler_domain::{Again, Excluded, Id, SUSPENDED_DUE_AT, Span, SpanId, SpanState, Timestamp};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{LedgerSum, SpanQuery};

use crate::openapi::{OfTarget, PageParams, Time};
use crate::parameters::Parameters;
use crate::reading::{Paged, Tagged, readable_resources, restrict, tagged};
use crate::{Receiver, problems};

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
pub(crate) async fn list(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    mut parameters: Parameters,
) -> Result<Paged<api::Span>, Problem> {
    let is_received = |text: &str| (text == "received").then_some(());
    let order = parameters.parsed("order", "It must be received.", is_received);
    let mut query = read_query(&mut parameters);
    let alone = SpanQuery {
        limit: query.limit,
        ..SpanQuery::default()
    };
    if order.is_some() && query != alone {
        parameters.complain("order", "It goes with no other parameter than limit.");
    }
    let next = parameters.finish()?;
    if order.is_some() {
        return receiver.newest(&grant, query.limit.min(NEWEST_MAX)).await;
    }
    require_narrow(&query)?;
    if !restrict(&mut query.resources, &query.target, &grant) {
        return Ok(Paged::whole(Vec::new()));
    }
    let page = receiver.read_store(&grant, |store| async move { store.spans(&query).await });
    let page = page.await?;
    let now = receiver.parts.clock.now();
    let items = page.spans.iter().map(|span| shown(span, now)).collect();
    Ok(Paged::new(items, &next, page.next.as_ref()))
}

#[utoipa::path(
    get, path = "/v1/spans/{id}", operation_id = "get_span", tag = "Reading",
    summary = "One span, with proof of what was billed",
    params(("id" = String, Path, description = "The id of the span.")),
    responses((status = 200, description = "The span.", body = api::Span)),
)]
pub(crate) async fn get(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    id: IdPath,
    parameters: Parameters,
) -> Result<Tagged<api::Span>, Problem> {
    parameters.finish()?;
    let span = receiver.span(&grant, id).await?;
    let ledger = receiver.ledger_of(&grant, &span).await?;
    Ok(shown_span(&span, receiver.parts.clock.now(), ledger))
}

impl Receiver {
    /// The spans that were received last, of all targets. With the scope of single resources, those of
    /// them that started last.
    async fn newest(&self, grant: &Grant, limit: usize) -> Result<Paged<api::Span>, Problem> {
        let query = SpanQuery {
            resources: readable_resources(grant),
            limit,
            ..SpanQuery::default()
        };
        let found = self.read_store(grant, |store| async move {
            match &query.resources {
                None => store.newest_spans(limit).await,
                Some(resources) if resources.is_empty() => Ok(Vec::new()),
                Some(_) => store.spans(&query).await.map(|page| page.spans),
            }
        });
        let (found, now) = (found.await?, self.parts.clock.now());
        let items = found.iter().map(|span| shown(span, now)).collect();
        Ok(Paged::whole(items))
    }

    /// The span of an address. It counts as missing where the grant does not allow reading it.
    pub(crate) async fn span(&self, grant: &Grant, id: IdPath) -> Result<Span, Problem> {
        // A segment that is not UTF-8 is the id of no span.
        let Ok(Path(id)) = id else {
            return Err(no_such_span());
        };
        let resources = readable_resources(grant);
        let found = self.read_store(grant, |store| async move {
            store.span(&id, resources.as_deref()).await
        });
        found.await?.ok_or_else(no_such_span)
    }

    /// What the entries of a span add up to, read independently of the span.
    pub(crate) async fn ledger_of(&self, grant: &Grant, span: &Span) -> Result<LedgerSum, Problem> {
        let (id, target) = (span.id.clone(), span.target.clone());
        let read = self.read_store(
            grant,
            |store| async move { store.ledger_of(&id, &target).await },
        );
        read.await
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
    let expected = format!("It must be one of {names}.");
    query.state = parameters.parsed("state", &expected, SpanState::from_name);
    let expected = "It must be the id of a cause, as in /v1/suspended.";
    query.cause = parameters.parsed("cause", expected, |text| text.parse().ok());
    if query.cause.is_some() && query.state != Some(SpanState::Suspended) {
        parameters.complain("cause", "It needs state=suspended.");
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

pub(crate) fn location(id: &SpanId) -> HeaderValue {
    let id = id.to_string();
    let segment = Cow::from(utf8_percent_encode(&id, SEGMENT));
    HeaderValue::try_from(["/v1/spans/", &segment].concat())
        .expect("what is percent-encoded is ASCII")
}

/// A span as the API shows it at this time, without the ledger.
fn shown(span: &Span, now: Timestamp) -> api::Span {
    let processing = &span.processing;
    let planned = processing.planned.as_ref();
    // Nothing is left to do for one that is complete, and a suspended one waits for its cause.
    let is_due = !processing.complete && processing.due_at != SUSPENDED_DUE_AT;
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
        delivery: delivery(span),
        excluded: processing.excluded.iter().map(excluded).collect(),
        again: processing.again.iter().map(again).collect(),
        proof: proof(span, now),
    }
}

fn delivery(span: &Span) -> api::Delivery {
    let planned = span.processing.planned.as_ref();
    let failure = span.processing.failure.as_ref();
    api::Delivery {
        attempts: failure.map_or(0, |failure| failure.attempts),
        unanswered: planned.is_some_and(|planned| planned.unanswered),
        last_error: failure.map(|failure| api::LastError {
            at: failure.at,
            status: failure.status,
            error: failure.error.clone(),
        }),
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

fn proof(span: &Span, now: Timestamp) -> api::Proof {
    let proof = span.proof(now);
    api::Proof {
        used: proof.used,
        billed: proof.billed,
        skipped: proof.skipped,
        unanswered: proof.unanswered,
        unsampled: proof.unsampled,
        usages: None,
        ledger: None,
        difference: None,
    }
}
