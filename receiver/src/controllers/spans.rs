//! Lists of spans, and single spans.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_domain::{
    Id, Interval, LastError, Measures, SUSPENDED_DUE_AT, SpanId, SpanState, Target, Timestamp,
};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{ListedSpan, SpanPage, SpanQuery};
use serde::Serialize;
use utoipa::ToSchema;

use super::answer;
use crate::openapi::params::{IfNoneMatchParams, OfTarget, Page, Time};
use crate::openapi::{problem_answers, types};
use crate::reading::{List, Parameters, Single, read_position, readable_resources, write_position};
use crate::{Receiver, problems};

/// The characters that are percent-encoded in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The id in the address of one span.
pub type SpanPath = Result<Path<String>, PathRejection>;

/// `GET /v1/spans`.
#[utoipa::path(
    get, path = "/v1/spans", operation_id = "list_spans", tag = "Reading",
    summary = "Spans of an organization, a resource or an instance",
    description = "The newest start comes first. One of `organization_id`, `resource_id`, `resource_instance_id` and `state=suspended` is required.",
    params(
        OfTarget,
        ("state" = Option<String>, Query, description = "The state of the span."),
        ("cause" = Option<String>, Query, description = "With `state=suspended`: why, as in `/v1/suspended`."),
        Time, Page,
    ),
    responses((status = 200, description = "A page of spans.", body = List<ShownSpan<'static>>,
        headers(("Link" = Option<String>, description = "The next page, as `rel=\"next\"`."))), problem_answers::OfList),
)]
pub async fn list(State(receiver): State<Arc<Receiver>>, grant: Grant, uri: Uri) -> Response {
    let outcome = receiver.spans(&grant, &uri).await;
    answer(&receiver, "spans", &grant, outcome)
}

/// `GET /v1/spans/{id}`.
#[utoipa::path(
    get, path = "/v1/spans/{id}", operation_id = "get_span", tag = "Reading",
    summary = "One span, with proof of what was billed",
    params(("id" = String, Path, description = "The id of the span."), IfNoneMatchParams),
    responses(
        (status = 200, description = "The span.", body = ShownSpan<'static>,
            headers(("ETag" = String, description = "The entity tag of the answer."))),
        (status = 304, description = "It has not changed."),
        problem_answers::OfSpan,
    ),
)]
pub async fn get(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    id: SpanPath,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let shown = async {
        Parameters::of(&uri).finish()?;
        let _permit = receiver.admit_reading(&grant).await?;
        let listed = receiver.span(&grant, id).await?;
        Ok(shown_span(&listed, &headers))
    };
    answer(&receiver, "span", &grant, shown.await)
}

impl Receiver {
    async fn spans(&self, grant: &Grant, uri: &Uri) -> Result<impl IntoResponse, Problem> {
        let mut parameters = Parameters::of(uri);
        let mut query = read_query(&mut parameters);
        let next = parameters.finish()?;
        require_narrow(&query)?;
        let page = if restrict(&mut query, grant) {
            let _permit = self.admit_reading(grant).await?;
            let page = self.parts.queries.spans(&query).await;
            page.map_err(|failure| self.not_read(&failure))?
        } else {
            SpanPage::default()
        };
        let next = page.next.map(|last| next.page(&write_position(&last)));
        let items = page.spans.iter().map(ShownSpan::from);
        Ok(List::new(items.collect(), next).into_response())
    }

    /// The span of an address. One that the grant does not let read is not there.
    pub(super) async fn span(&self, grant: &Grant, id: SpanPath) -> Result<ListedSpan, Problem> {
        // A segment that is not UTF-8 is the id of no span.
        let Ok(Path(id)) = id else {
            return Err(no_such_span());
        };
        let resources = readable_resources(grant);
        let found = self.parts.queries.span(&id, resources.as_deref()).await;
        let found = found.map_err(|failure| self.not_read(&failure))?;
        found.ok_or_else(no_such_span)
    }
}

/// The answer that shows a span.
pub(super) fn shown_span(listed: &ListedSpan, request: &HeaderMap) -> Single {
    Single::new(&ShownSpan::from(listed), request)
}

fn read_query(parameters: &mut Parameters) -> SpanQuery {
    let mut query = SpanQuery::default();
    for name in Target::FIELDS {
        if let Some(id) = parameters.id(name) {
            query.target.set(name, id);
        }
    }
    let names = SpanState::ALL.map(SpanState::name).join(", ");
    let expected = format!("It must be one of {names}.");
    query.state = parameters.parsed("state", &expected, SpanState::from_name);
    let expected = "It must be the id of a cause, as in /v1/suspended.";
    query.cause = parameters.parsed("cause", expected, |text| text.parse().ok());
    if query.cause.is_some() && query.state != Some(SpanState::Suspended) {
        parameters.complain("cause", "It needs state=suspended.");
    }
    (query.from, query.to) = parameters.time();
    query.after = parameters.cursor(read_position);
    query.limit = parameters.limit();
    query
}

/// Each list comes from an index.
fn require_narrow(query: &SpanQuery) -> Result<(), Problem> {
    if query.narrowed_by().is_some() || query.state == Some(SpanState::Suspended) {
        return Ok(());
    }
    let detail = "Too many spans would have to be read. Add organization_id, resource_id or \
                  resource_instance_id, or state=suspended.";
    Err(Problem::new(&problems::QUERY_TOO_WIDE, detail))
}

/// Leaves out spans of resources that the grant does not let read. Returns whether any can be left.
fn restrict(query: &mut SpanQuery, grant: &Grant) -> bool {
    let Some(resources) = readable_resources(grant) else {
        return true;
    };
    if let Some(resource) = query.target.get("resource_id") {
        return resources.contains(resource);
    }
    query.resources = Some(resources);
    true
}

fn no_such_span() -> Problem {
    let detail = "There is no span of this id, or the token does not allow to read its resource.";
    Problem::new(&problems::NO_SUCH_SPAN, detail)
}

/// The address of a span.
pub(super) fn location(id: &SpanId) -> HeaderValue {
    let id = id.to_string();
    let address = format!("/v1/spans/{}", utf8_percent_encode(&id, SEGMENT));
    HeaderValue::try_from(address).expect("what is percent-encoded is ASCII")
}

/// A span as it is shown.
#[derive(Serialize, ToSchema)]
#[schema(as = Span)]
pub(super) struct ShownSpan<'a> {
    #[schema(example = "6b0067e75a449b4a91561b99")]
    id: String,
    #[schema(value_type = types::Target)]
    target: &'a Target,
    #[schema(value_type = Vec<types::Measure>)]
    measured_usage: &'a Measures,
    #[schema(value_type = types::Moment)]
    start: Timestamp,
    #[schema(value_type = Option<types::Moment>, required)]
    end: Option<Timestamp>,
    #[schema(example = "open")]
    state: &'static str,
    #[schema(required)]
    start_event_id: Option<&'a str>,
    #[schema(required)]
    end_event_id: Option<&'a str>,
    #[schema(value_type = types::Moment)]
    sampled_to: Timestamp,
    #[schema(value_type = Option<types::Moment>, required)]
    due_at: Option<Timestamp>,
    #[schema(value_type = Option<types::Plan>, required)]
    planned: Option<ShownPlan<'a>>,
    delivery: Delivery<'a>,
    proof: Proof,
}

/// The planned interval.
#[derive(Serialize)]
struct ShownPlan<'a> {
    #[serde(flatten)]
    interval: Interval,
    usage_id: &'a str,
}

/// The attempts to deliver its usage so far.
#[derive(Serialize, ToSchema)]
struct Delivery<'a> {
    attempts: u32,
    #[schema(required)]
    last_error: Option<ShownError<'a>>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = LastError)]
struct ShownError<'a> {
    #[schema(value_type = types::Moment)]
    at: Timestamp,
    #[schema(required)]
    status: Option<u16>,
    error: &'a str,
}

/// That each millisecond that is used is billed once.
#[derive(Serialize, ToSchema)]
struct Proof {
    used: i64,
    billed: i64,
    skipped: i64,
    difference: i64,
    usages: u64,
    #[schema(value_type = types::Moment)]
    since: Timestamp,
}

impl<'a> From<&'a ListedSpan> for ShownSpan<'a> {
    fn from(listed: &'a ListedSpan) -> Self {
        let span = &listed.span;
        let processing = &span.processing;
        let totals = &processing.totals;
        let plan = processing.planned.as_ref().map(|planned| ShownPlan {
            interval: planned.interval,
            usage_id: &planned.usage_guid,
        });
        Self {
            id: span.id.to_string(),
            target: &span.target,
            measured_usage: &span.measures,
            start: span.start,
            end: span.end,
            state: span.state().name(),
            start_event_id: span.start_id.as_ref().map(Id::as_str),
            end_event_id: span.end_id.as_ref().map(Id::as_str),
            sampled_to: span.sampled_to(),
            // Nothing is left to do for one that is complete, and a suspended one waits for its cause.
            due_at: listed
                .due_at
                .filter(|due_at| !processing.complete && *due_at != SUSPENDED_DUE_AT),
            planned: plan,
            delivery: Delivery {
                attempts: processing.attempts,
                last_error: processing.last_error.as_ref().map(ShownError::from),
            },
            proof: Proof {
                used: span.sampled_to().since(totals.since),
                billed: totals.billed,
                skipped: totals.skipped,
                difference: span.difference(),
                usages: totals.usages,
                since: totals.since,
            },
        }
    }
}

impl<'a> From<&'a LastError> for ShownError<'a> {
    fn from(error: &'a LastError) -> Self {
        Self {
            at: error.at,
            status: error.status,
            error: &error.error,
        }
    }
}
