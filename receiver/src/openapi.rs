//! The description of the API, as `OpenAPI` 3.1, and the page on which it is read and tried.
//!
//! It is made from the handlers: each has its parameters and its answer above itself, and only
//! described routes are served. The problems and headers of answers are in tables here.

#![allow(dead_code, reason = "of parameters only the description is used")]

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use sampler_api as api;
use sampler_service::http::not_found;
use sampler_service::problem::{ProblemType, kinds};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{AllOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, OpenApi as Document, Ref, RefOr, Response as Answer, ResponseBuilder,
};
use utoipa::{IntoParams, Modify, OpenApi};
use utoipa_swagger_ui::{Config, serve};

use crate::problems::{
    BODIES_THROTTLED, CUT_USAGE, DATABASE_UNAVAILABLE, ID_TAKEN, INVALID_BODY, INVALID_EVENT,
    INVALID_QUERY, INVALID_UNTIL, MALFORMED_JSON, MAPPING_EXISTS, NO_OPEN_SPAN, NO_SUCH_CAUSE,
    NO_SUCH_SPAN, NO_SUCH_USAGE, NOT_RESENDABLE, NOT_SUSPENDED, NOTHING_EXCLUDED, OPEN_SPAN,
    OUTSIDE_SLACK, OVERLAPPING_START, PAYLOAD_TOO_LARGE, PRECONDITION_FAILED,
    PRECONDITION_REQUIRED, PROVISIONING_BUSY, PROVISIONING_FAILED, QUERY_TOO_WIDE, REQUEST_TIMEOUT,
    STOP_BEFORE_START, THROTTLED, TOO_MANY_RANGES, UNSUPPORTED_MEDIA_TYPE,
};

type Problems = &'static [&'static ProblemType];

/// The problems of every request with a token: it is checked, and something may break.
const ALWAYS: Problems = &[
    &kinds::UNAUTHORIZED,
    &kinds::FORBIDDEN,
    &kinds::TOKEN_SERVER_UNAVAILABLE,
    &kinds::INTERNAL,
    &DATABASE_UNAVAILABLE,
    &kinds::OVERLOADED,
    &INVALID_QUERY,
];

/// The problems of every request with a body.
const WITH_BODY: Problems = &[
    &MALFORMED_JSON,
    &REQUEST_TIMEOUT,
    &PAYLOAD_TOO_LARGE,
    &UNSUPPORTED_MEDIA_TYPE,
    &BODIES_THROTTLED,
];

/// The problems of a change that needs `If-Match`.
const CONDITIONAL: Problems = &[&INVALID_BODY, &PRECONDITION_FAILED, &PRECONDITION_REQUIRED];

const OF_EVENTS: Problems = &[&INVALID_EVENT, &ID_TAKEN, &OUTSIDE_SLACK];
const OF_STARTS: Problems = &[&OPEN_SPAN, &OVERLAPPING_START, &THROTTLED];
const OF_STOPS: Problems = &[&NO_OPEN_SPAN, &STOP_BEFORE_START];

/// The problems of single operations.
const OWN: &[(&str, &[Problems])] = &[
    ("start", &[OF_EVENTS, OF_STARTS]),
    ("stop", &[OF_EVENTS, OF_STOPS]),
    ("update", &[OF_EVENTS, OF_STARTS, OF_STOPS]),
    ("post_events", &[OF_EVENTS, OF_STARTS, OF_STOPS]),
    (
        "map_plan",
        &[&[
            &INVALID_EVENT,
            &MAPPING_EXISTS,
            &PROVISIONING_FAILED,
            &PROVISIONING_BUSY,
        ]],
    ),
    ("list_spans", &[&[&QUERY_TOO_WIDE]]),
    ("sum_usages", &[&[&QUERY_TOO_WIDE, &CUT_USAGE]]),
    ("get_span", &[&[&NO_SUCH_SPAN]]),
    ("list_usages_of_span", &[&[&NO_SUCH_SPAN]]),
    (
        "resume_span",
        &[CONDITIONAL, &[&NO_SUCH_SPAN, &NOT_SUSPENDED]],
    ),
    (
        "skip_usage",
        &[
            CONDITIONAL,
            &[
                &NO_SUCH_SPAN,
                &NOT_SUSPENDED,
                &TOO_MANY_RANGES,
                &INVALID_UNTIL,
            ],
        ],
    ),
    (
        "resend_excluded",
        &[CONDITIONAL, &[&NO_SUCH_SPAN, &NOTHING_EXCLUDED]],
    ),
    ("get_cause", &[&[&NO_SUCH_CAUSE]]),
    ("resume_cause", &[&[&INVALID_BODY, &NO_SUCH_CAUSE]]),
    (
        "resend_usage",
        &[&[&INVALID_BODY, &NO_SUCH_USAGE, &NOT_RESENDABLE]],
    ),
    ("set_control", &[CONDITIONAL]),
];

/// The headers of answers that are no problems, and the operations that have them.
const HEADERS: &[(&str, &str, &[&str])] = &[
    (
        "Location",
        "The address of the span that was started.",
        &["start", "update", "post_events"],
    ),
    (
        "Idempotent-Replayed",
        "`true`: the event was kept before.",
        &["start", "stop", "update", "post_events"],
    ),
    (
        "ETag",
        "The entity tag, for `If-Match`.",
        &[
            "get_span",
            "resume_span",
            "skip_usage",
            "resend_excluded",
            "get_control",
            "set_control",
        ],
    ),
    (
        "Link",
        "The next page, as `rel=\"next\"`.",
        &[
            "list_spans",
            "list_usages_of_span",
            "sum_usages",
            "list_unconfirmed",
            "list_acts",
        ],
    ),
];

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sampler",
        description = "Start and stop events of service instances become bills that are exactly right. Times are whole milliseconds since the epoch, UTC; in requests they may also be RFC 3339. Errors are problem documents (RFC 9457).",
    ),
    servers((url = ".", description = "This receiver.")),
    components(schemas(api::Problem)),
    security(("bearer" = [])),
    modifiers(&Bearer),
    tags(
        (name = "Events", description = "The events of resource providers."),
        (name = "Mappings", description = "Plans of resources, and plans of Abacus."),
        (name = "Reading", description = "Spans, their usages and sums."),
        (name = "Operating", description = "The backlog, suspended spans, and control."),
    ),
)]
pub(crate) struct Base;

/// Requests have a token, where `SECURED` is true.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        let scheme = Http::builder()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT");
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme.build()));
    }
}

/// The page of a list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageParams {
    /// The most items of a page.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u16>,
    /// Where the list continues: as in the `Link` of the page before.
    cursor: Option<String>,
}

/// A time: milliseconds since the epoch, or RFC 3339.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Time {
    /// Milliseconds since the epoch, or RFC 3339.
    #[param(example = "2026-11-20T00:00:00Z")]
    from: Option<String>,
    /// The same; this time is not included.
    #[param(example = "2026-11-21T00:00:00Z")]
    to: Option<String>,
}

/// When usages were accepted.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Accepted {
    /// Only usages that the upstream had accepted by then. So the figures of an invoice can be had again.
    #[param(example = "2026-12-03T00:00:00Z")]
    accepted_to: Option<String>,
}

/// Fields of targets, which must be equal.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub(crate) struct OfTarget {
    organization_id: Option<String>,
    space_id: Option<String>,
    consumer_id: Option<String>,
    #[param(example = "postgres")]
    resource_id: Option<String>,
    plan_id: Option<String>,
    resource_instance_id: Option<String>,
}

/// The condition of a change.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(crate) struct IfMatchParams {
    /// The `ETag` of what is changed.
    #[param(rename = "If-Match")]
    if_match: String,
}

/// Adds what the tables say of each operation.
fn complete(document: &mut Document) {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post, &mut item.put];
        for operation in operations.into_iter().flatten() {
            let id = operation.operation_id.clone().unwrap_or_default();
            add_headers(operation, &id);
            let has_body = operation.request_body.is_some();
            let shared = [ALWAYS].into_iter().chain(has_body.then_some(WITH_BODY));
            let own = OWN.iter().filter(|(of, _)| *of == id);
            let kinds = shared.chain(own.flat_map(|(_, kinds)| *kinds).copied());
            let mut by_status: BTreeMap<String, Vec<&ProblemType>> = BTreeMap::new();
            for kind in kinds.flatten() {
                let status = kind.status.as_u16().to_string();
                by_status.entry(status).or_default().push(kind);
            }
            let refusals = by_status.into_iter();
            let refusals = refusals.map(|(status, kinds)| (status, RefOr::T(refusal(&kinds))));
            operation.responses.responses.extend(refusals);
        }
    }
}

fn add_headers(operation: &mut Operation, id: &str) {
    for (name, description, _) in HEADERS.iter().filter(|(_, _, ids)| ids.contains(&id)) {
        for response in operation.responses.responses.values_mut() {
            let text = ObjectBuilder::new().schema_type(Type::String).build();
            let header = HeaderBuilder::new()
                .schema(Some(text))
                .description(Some(*description));
            if let RefOr::T(response) = response {
                let headers = &mut response.headers;
                headers.insert((*name).to_owned(), RefOr::T(header.build()));
            }
        }
    }
}

/// The answer of one of these problems, which have the same status.
fn refusal(kinds: &[&ProblemType]) -> Answer {
    let described = kinds.iter().map(|kind| {
        let ProblemType { slug, title, .. } = kind;
        format!("[`{slug}`](/problems/{slug}): {title}")
    });
    let content = ContentBuilder::new().schema(Some(problem_of(kinds)));
    ResponseBuilder::new()
        .description(described.collect::<Vec<_>>().join("; "))
        .content("application/problem+json", content.build())
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

/// Our own files alone. Swagger UI sets styles on its elements, and has its icons in its stylesheet.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; object-src 'none'",
);

/// Serves the document, and the page on which it is read and tried: Swagger UI, whose files are part of the program.
/// Both are public: they say nothing that the source does not. All addresses of the page are relative, so that they
/// work below any prefix.
pub(crate) fn routes(mut document: Document) -> Router {
    complete(&mut document);
    let text = document.to_json();
    let text = Bytes::from(text.expect("texts, numbers and lists of these"));
    let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let config = Config::new(["../openapi.json"])
        .deep_linking(true)
        // The default asks a server on the internet.
        .validator_url("none");
    let config = Arc::new(config);
    Router::new()
        .route("/openapi.json", get(async move || (json, text)))
        .route("/docs", get(async || Redirect::to("docs/index.html")))
        .route(
            "/docs/{file}",
            get(async move |Path(name): Path<String>| file(&name, config).await),
        )
}

async fn file(name: &str, config: Arc<Config<'static>>) -> Response {
    let Some(file) = serve(name, config).ok().flatten() else {
        return not_found().await.into_response();
    };
    let kind = HeaderValue::try_from(file.content_type);
    let kind = kind.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    let headers = [(CONTENT_TYPE, kind), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, file.bytes.into_owned()).into_response()
}
