//! Lists of spans, and single spans.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Uri};
use axum::response::Response;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_api as api;
use sampler_domain::{Id, SUSPENDED_DUE_AT, Span, SpanId, SpanState, Target, Timestamp};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{ListedSpan, SpanPage, SpanQuery};

use super::answer;
use crate::openapi::params::{OfTarget, PageParams, Time};
use crate::openapi::problem_answers;
use crate::reading::{Paged, Parameters, Single, readable_resources, restrict, tag_of};
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
pub type IdPath = Result<Path<String>, PathRejection>;

#[utoipa::path(
    get, path = "/v1/spans", operation_id = "list_spans", tag = "Reading",
    summary = "Spans of an organization, a resource or an instance",
    description = "The newest start comes first. One of `organization_id`, `resource_id`, `resource_instance_id` and `state=suspended` is required.",
    params(
        OfTarget,
        ("state" = Option<String>, Query, description = "The state of the span."),
        ("order" = Option<String>, Query, description = "`received`: the spans of all targets that were received last, at most 100. It goes with `limit` alone."),
        ("cause" = Option<String>, Query, description = "With `state=suspended`: why, as in `/v1/suspended`."),
        Time, PageParams,
    ),
    responses((status = 200, description = "A page of spans.", body = api::List<api::Span>,
        headers(("Link" = Option<String>, description = "The next page, as `rel=\"next\"`."))), problem_answers::OfList),
)]
pub async fn list(State(receiver): State<Arc<Receiver>>, grant: Grant, uri: Uri) -> Response {
    let page = async {
        let mut parameters = Parameters::of(&uri);
        let order = parameters.parsed("order", "It must be received.", |text| {
            (text == "received").then_some(())
        });
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
        let page = if restrict(&mut query.resources, &query.target, &grant) {
            let page =
                receiver.read_store(&grant, |store| async move { store.spans(&query).await });
            page.await?
        } else {
            SpanPage::default()
        };
        let next = page.next.map(|last| next.page(&last));
        let now = receiver.parts.clock.now();
        let items = page.spans.iter().map(|listed| shown(listed, now)).collect();
        Ok(Paged::new(items, next))
    };
    answer("spans", &grant, page.await)
}

#[utoipa::path(
    get, path = "/v1/spans/{id}", operation_id = "get_span", tag = "Reading",
    summary = "One span, with proof of what was billed",
    params(("id" = String, Path, description = "The id of the span.")),
    responses(
        (status = 200, description = "The span.", body = api::Span,
            headers(("ETag" = String, description = "The entity tag of the answer."))),
        problem_answers::OfSpan,
    ),
)]
pub async fn get(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    id: IdPath,
    uri: Uri,
) -> Response {
    let shown = async {
        Parameters::of(&uri).finish()?;
        let listed = receiver.span(&grant, id).await?;
        Ok(shown_span(&listed, receiver.parts.clock.now()))
    };
    answer("span", &grant, shown.await)
}

impl Receiver {
    /// The spans that were received last, of all targets. With the scope of single resources, those of
    /// them that started last.
    async fn newest(&self, grant: &Grant, limit: usize) -> Result<Paged<api::Span>, Problem> {
        let _permit = self.admit_reading(grant).await?;
        let found = match readable_resources(grant) {
            None => self.parts.reading.newest_spans(limit).await,
            Some(resources) if resources.is_empty() => Ok(Vec::new()),
            resources => {
                let query = SpanQuery {
                    resources,
                    limit,
                    ..SpanQuery::default()
                };
                let page = self.parts.reading.spans(&query).await;
                page.map(|page| page.spans)
            }
        };
        let spans = found.map_err(|failure| self.not_read(&failure))?;
        let now = self.parts.clock.now();
        let items = spans.iter().map(|listed| shown(listed, now)).collect();
        Ok(Paged::new(items, None))
    }

    /// The span of an address. It counts as missing where the grant does not allow reading it.
    pub(super) async fn span(&self, grant: &Grant, id: IdPath) -> Result<ListedSpan, Problem> {
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
}

/// The answer that shows a span. Its tag is made of the span as it is at its start time: so the tag
/// does not change because time passes, and an operator can change what was read a minute ago.
pub(super) fn shown_span(listed: &ListedSpan, now: Timestamp) -> Single {
    let tag = tag_of(&shown(listed, listed.span.start));
    Single::tagged(&shown(listed, now), tag)
}

fn read_query(parameters: &mut Parameters) -> SpanQuery {
    let mut query = SpanQuery::default();
    for name in Target::FIELDS {
        if let Some(id) = parameters.id(name) {
            query.target.set(name, id);
        }
    }
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
    if query.target.narrowed_by().is_some() || query.state == Some(SpanState::Suspended) {
        return Ok(());
    }
    let detail = "The query reads too many spans. Add organization_id, resource_id or \
                  resource_instance_id, or state=suspended.";
    Err(Problem::new(&problems::QUERY_TOO_WIDE, detail))
}

fn no_such_span() -> Problem {
    let detail = "There is no span with this id, or the token does not allow reading its resource.";
    Problem::new(&problems::NO_SUCH_SPAN, detail)
}

pub(super) fn location(id: &SpanId) -> HeaderValue {
    let id = id.to_string();
    let segment = Cow::from(utf8_percent_encode(&id, SEGMENT));
    HeaderValue::try_from(["/v1/spans/", &segment].concat())
        .expect("what is percent-encoded is ASCII")
}

/// A span as the API shows it at this time.
pub(super) fn shown(listed: &ListedSpan, now: Timestamp) -> api::Span {
    let span = &listed.span;
    let processing = &span.processing;
    // Nothing is left to do for one that is complete, and a suspended one waits for its cause.
    let due_at = listed
        .due_at
        .filter(|due_at| !processing.complete && *due_at != SUSPENDED_DUE_AT);
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
        due_at,
        planned: processing.planned.as_ref().map(|planned| api::Plan {
            start: planned.interval.start,
            end: planned.interval.end,
            usage_id: planned.usage_guid.clone(),
        }),
        delivery: api::Delivery {
            attempts: processing.attempts,
            unanswered: processing.unanswered,
            last_error: processing.last_error.as_ref().map(|error| api::LastError {
                at: error.at,
                status: error.status,
                error: error.error.clone(),
            }),
        },
        proof: proof(span, now),
    }
}

fn proof(span: &Span, now: Timestamp) -> api::Proof {
    let totals = &span.processing.totals;
    api::Proof {
        used: span.sampled_to().since(totals.since),
        billed: totals.billed,
        skipped: totals.skipped,
        unanswered: totals.unanswered,
        difference: span.difference(),
        unsampled: span.unsampled(now),
        usages: totals.usages,
        since: totals.since,
    }
}
