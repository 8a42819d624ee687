//! Which problems a request may be answered with.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sampler_service::problem::{ProblemType, kinds};
use utoipa::IntoResponses;
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use crate::problems::{
    BODIES_THROTTLED, CUT_USAGE, DATABASE_UNAVAILABLE, ID_TAKEN, INVALID_BODY, INVALID_EVENT,
    INVALID_QUERY, INVALID_UNTIL, MALFORMED_JSON, MAPPING_EXISTS, NO_OPEN_SPAN, NO_SUCH_CAUSE,
    NO_SUCH_SPAN, NO_SUCH_USAGE, NOT_RESENDABLE, NOT_SUSPENDED, NOTHING_EXCLUDED, OPEN_SPAN,
    OUTSIDE_SLACK, OVERLAPPING_START, PAYLOAD_TOO_LARGE, PRECONDITION_FAILED,
    PRECONDITION_REQUIRED, PROVISIONING_BUSY, PROVISIONING_FAILED, QUERY_TOO_WIDE, REQUEST_TIMEOUT,
    STOP_BEFORE_START, THROTTLED, TOO_MANY_RANGES, UNSUPPORTED_MEDIA_TYPE,
};

/// The type of problem documents.
pub(crate) const PROBLEM: &str = "application/problem+json";

/// The problems of every request with a token: it is checked, and something may break.
const ALWAYS: &[&ProblemType] = &[
    &kinds::UNAUTHORIZED,
    &kinds::FORBIDDEN,
    &kinds::TOKEN_SERVER_UNAVAILABLE,
    &kinds::INTERNAL,
    &DATABASE_UNAVAILABLE,
    &kinds::OVERLOADED,
];

/// The problems of every request with a body.
const WITH_BODY: &[&ProblemType] = &[
    &MALFORMED_JSON,
    &REQUEST_TIMEOUT,
    &PAYLOAD_TOO_LARGE,
    &UNSUPPORTED_MEDIA_TYPE,
    &BODIES_THROTTLED,
];

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident: $($shared:ident)+ $(, $kind:expr)*;)+) => {$(
        $(#[$doc])*
        pub(crate) struct $name;

        impl IntoResponses for $name {
            fn responses() -> BTreeMap<String, RefOr<Response>> {
                let own: &[&ProblemType] = &[$(&$kind),*];
                responses([$($shared,)+ own].concat())
            }
        }
    )+};
}

refusals! {
    /// Of a start.
    OfStart: ALWAYS WITH_BODY,
        INVALID_EVENT, INVALID_QUERY, OPEN_SPAN, ID_TAKEN, OUTSIDE_SLACK, OVERLAPPING_START, THROTTLED;
    /// Of a stop.
    OfStop: ALWAYS WITH_BODY,
        INVALID_EVENT, INVALID_QUERY, ID_TAKEN, NO_OPEN_SPAN, OUTSIDE_SLACK, STOP_BEFORE_START;
    /// Of an update, or of any event.
    OfAnyEvent: ALWAYS WITH_BODY,
        INVALID_EVENT, INVALID_QUERY, OPEN_SPAN, ID_TAKEN, NO_OPEN_SPAN,
        OUTSIDE_SLACK, STOP_BEFORE_START, OVERLAPPING_START, THROTTLED;
    /// Of a mapping.
    OfMapping: ALWAYS WITH_BODY,
        INVALID_EVENT, MAPPING_EXISTS, PROVISIONING_FAILED, PROVISIONING_BUSY;
    /// Of a list that is not too wide.
    OfList: ALWAYS, INVALID_QUERY, QUERY_TOO_WIDE;
    /// Of sums.
    OfSums: ALWAYS, INVALID_QUERY, QUERY_TOO_WIDE, CUT_USAGE;
    /// Of a list or a single thing that is always there.
    OfReading: ALWAYS, INVALID_QUERY;
    /// Of a span, or of what belongs to one.
    OfSpan: ALWAYS, INVALID_QUERY, NO_SUCH_SPAN;
    /// Of the action that resumes a span.
    OfResume: ALWAYS WITH_BODY,
        INVALID_BODY, NO_SUCH_SPAN, NOT_SUSPENDED, PRECONDITION_FAILED, PRECONDITION_REQUIRED;
    /// Of the action that skips what is refused.
    OfSkip: ALWAYS WITH_BODY,
        INVALID_BODY, NO_SUCH_SPAN, NOT_SUSPENDED, TOO_MANY_RANGES, INVALID_UNTIL,
        PRECONDITION_FAILED, PRECONDITION_REQUIRED;
    /// Of the action that sends again what was excluded.
    OfResend: ALWAYS WITH_BODY,
        INVALID_BODY, NO_SUCH_SPAN, NOTHING_EXCLUDED, PRECONDITION_FAILED, PRECONDITION_REQUIRED;
    /// Of a cause.
    OfCause: ALWAYS, INVALID_QUERY, NO_SUCH_CAUSE;
    /// Of an operator's action on a cause.
    OfCauseAct: ALWAYS WITH_BODY, INVALID_BODY, NO_SUCH_CAUSE;
    /// Of an operator's action on a usage.
    OfUsageAct: ALWAYS WITH_BODY, INVALID_BODY, NO_SUCH_USAGE, NOT_RESENDABLE;
    /// Of setting control.
    OfControl: ALWAYS WITH_BODY,
        INVALID_BODY, INVALID_QUERY, PRECONDITION_FAILED, PRECONDITION_REQUIRED;
}

/// A response for each status of these problems, which names its problems.
pub(crate) fn responses(kinds: Vec<&ProblemType>) -> BTreeMap<String, RefOr<Response>> {
    let mut by_status: BTreeMap<String, Vec<&ProblemType>> = BTreeMap::new();
    for kind in kinds {
        by_status
            .entry(kind.status.as_u16().to_string())
            .or_default()
            .push(kind);
    }
    let responses = by_status
        .into_iter()
        .map(|(status, kinds)| (status, RefOr::T(response(&kinds))));
    responses.collect()
}

fn response(kinds: &[&ProblemType]) -> Response {
    let mut description = String::new();
    for kind in kinds {
        let separator = if description.is_empty() { "" } else { "; " };
        let _ = write!(
            description,
            "{separator}[`{slug}`](/problems/{slug}): {title}",
            slug = kind.slug,
            title = kind.title
        );
    }
    let content = ContentBuilder::new().schema(Some(problem_of(kinds)));
    ResponseBuilder::new()
        .description(description)
        .content(PROBLEM, content.build())
        .build()
}

/// A problem document of one of these types.
fn problem_of(kinds: &[&ProblemType]) -> Schema {
    let uris = kinds.iter().map(|kind| kind.uri());
    let uri = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(uris))
        .build();
    let status = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .enum_values(kinds.first().map(|kind| [kind.status.as_u16()]));
    let of_kinds = ObjectBuilder::new()
        .property("type", uri)
        .property("status", status.build())
        .build();
    AllOfBuilder::new()
        .item(Ref::from_schema_name("Problem"))
        .item(of_kinds)
        .build()
        .into()
}
