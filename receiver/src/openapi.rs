//! The description of the API, as `OpenAPI` 3.1, and the page on which it is read and tried.
//!
//! It is made from the handlers: each has its parameters and its answer above itself, and only
//! described routes are served. The problems and headers of answers are told here.

#![allow(dead_code, reason = "of parameters only the description is used")]

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use sampler_api as api;
use sampler_service::http::not_found;
use sampler_service::problem::ProblemType;
use serde_json::{Value, json, to_value};
use utoipa::openapi::OpenApi as Document;
use utoipa::{IntoParams, OpenApi};
use utoipa_swagger_ui::{Config, serve};

use crate::problems::{self, BODIES_THROTTLED};

/// The problems of every request with a token: it is checked, and something may break.
const ALWAYS: &str = "unauthorized forbidden token-server-unavailable internal \
                      database-unavailable overloaded invalid-query";

/// The problems of every request with a body, beside [`BODIES_THROTTLED`].
const WITH_BODY: &str = "malformed-json request-timeout payload-too-large unsupported-media-type";

/// The problems of a change that needs `If-Match`.
const CONDITIONAL: &str = "precondition-failed precondition-required";

const OF_EVENTS: &str = "invalid-event id-taken outside-slack";
const OF_STARTS: &str = "open-span overlapping-start throttled";
const OF_STOPS: &str = "no-open-span stop-before-start";

/// The problems of single operations.
fn own(operation: &str) -> &'static [&'static str] {
    match operation {
        "start" => &[OF_EVENTS, OF_STARTS],
        "stop" => &[OF_EVENTS, OF_STOPS],
        "update" | "post_events" => &[OF_EVENTS, OF_STARTS, OF_STOPS],
        "map_plan" => &["invalid-event mapping-exists provisioning-failed provisioning-busy"],
        "list_spans" => &["query-too-wide"],
        "sum_usages" => &["query-too-wide cut-usage"],
        "get_span" | "list_usages_of_span" => &["no-such-span"],
        "resume_span" => &["invalid-body no-such-span not-suspended"],
        "skip_usage" => &["invalid-body no-such-span not-suspended too-many-ranges invalid-until"],
        "resend_excluded" => &["invalid-body no-such-span nothing-excluded"],
        "get_cause" => &["no-such-cause"],
        "resume_cause" => &["invalid-body no-such-cause"],
        "resend_usage" => &["invalid-body no-such-usage not-resendable"],
        "set_control" => &["invalid-body"],
        _ => &[],
    }
}

/// The headers of the answers of an operation that are no problems.
fn headers(operation: &str) -> &'static [(&'static str, &'static str)] {
    const LOCATION: (&str, &str) = ("Location", "The address of the span that was started.");
    const REPLAYED: (&str, &str) = ("Idempotent-Replayed", "`true`: the event was kept before.");
    match operation {
        "start" | "update" | "post_events" => &[LOCATION, REPLAYED],
        "stop" => &[REPLAYED],
        "get_span" | "resume_span" | "skip_usage" | "resend_excluded" | "get_control"
        | "set_control" => &[("ETag", "The entity tag, for `If-Match`.")],
        "list_spans" | "list_usages_of_span" | "sum_usages" | "list_unconfirmed" | "list_acts" => {
            &[("Link", "The next page, as `rel=\"next\"`.")]
        }
        _ => &[],
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sampler",
        description = "Start and stop events of service instances become bills that are exactly right. Times are whole milliseconds since the epoch, UTC; in requests they may also be RFC 3339. Errors are problem documents (RFC 9457).",
    ),
    servers((url = ".", description = "This receiver.")),
    components(schemas(api::Problem)),
    security(("bearer" = [])),
    tags(
        (name = "Events", description = "The events of resource providers."),
        (name = "Mappings", description = "Plans of resources, and plans of Abacus."),
        (name = "Reading", description = "Spans, their usages and sums."),
        (name = "Operating", description = "The backlog, suspended spans, and control."),
    ),
)]
pub(crate) struct Base;

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

/// The document with what all requests have in common, and with the headers and problems of each operation.
fn completed(document: &Document) -> Value {
    let mut document = to_value(document).expect("texts, numbers and lists of these");
    let bearer = json!({ "type": "http", "scheme": "bearer", "bearerFormat": "JWT" });
    document["components"]["securitySchemes"] = json!({ "bearer": bearer });
    let paths = members(&mut document["paths"]);
    for operation in paths.flat_map(|(_, path)| members(path).map(|(_, operation)| operation)) {
        let id = operation["operationId"].as_str().unwrap_or_default();
        let (headers, problems) = (headers(id), problems_of(id, operation));
        for (_, answer) in members(&mut operation["responses"]) {
            for (name, description) in headers {
                let text = json!({ "description": description, "schema": { "type": "string" } });
                answer["headers"][*name] = text;
            }
        }
        for (status, kinds) in problems {
            operation["responses"][status.to_string()] = refusal(&kinds);
        }
    }
    document
}

fn members(object: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    object.as_object_mut().into_iter().flatten()
}

/// The problems of an operation, by their status.
fn problems_of(id: &str, operation: &Value) -> BTreeMap<u16, Vec<&'static ProblemType>> {
    let mut parameters = operation["parameters"].as_array().into_iter().flatten();
    let is_conditional = parameters.any(|it| it["name"] == "If-Match");
    let has_body = !operation["requestBody"].is_null();
    let names = [ALWAYS].into_iter().chain(own(id).iter().copied());
    let names = names.chain(has_body.then_some(WITH_BODY));
    let names = names.chain(is_conditional.then_some(CONDITIONAL));
    let all = problems::all();
    let kinds = names
        .flat_map(|names| names.split_ascii_whitespace())
        .map(|name| {
            let kind = all.iter().find(|kind| kind.slug == name);
            *kind.expect("a kind of this name")
        });
    let mut by_status: BTreeMap<u16, Vec<_>> = BTreeMap::new();
    for kind in kinds.chain(has_body.then_some(&BODIES_THROTTLED)) {
        by_status
            .entry(kind.status.as_u16())
            .or_default()
            .push(kind);
    }
    by_status
}

/// The answer of one of these problems, which have the same status.
fn refusal(kinds: &[&ProblemType]) -> Value {
    let described = kinds.iter().map(|kind| {
        let ProblemType { slug, title, .. } = kind;
        format!("[`{slug}`](/problems/{slug}): {title}")
    });
    let uris: Vec<_> = kinds.iter().map(|kind| kind.uri()).collect();
    let of_kinds =
        json!({ "type": "object", "properties": { "type": { "type": "string", "enum": uris } } });
    let schema = json!({ "allOf": [{ "$ref": "#/components/schemas/Problem" }, of_kinds] });
    json!({
        "description": described.collect::<Vec<_>>().join("; "),
        "content": { "application/problem+json": { "schema": schema } },
    })
}

/// Our own files alone. Swagger UI sets styles on its elements, and has its icons in its stylesheet.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'; object-src 'none'",
);

/// Serves the document, and the page on which it is read and tried: Swagger UI, whose files are part of the program.
/// Both are public: they say nothing that the source does not. All addresses of the page are relative, so that they
/// work below any prefix.
pub(crate) fn routes(document: &Document) -> Router {
    let text = completed(document).to_string();
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
