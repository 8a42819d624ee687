//! The description of the API, as `OpenAPI` 3.1.
//!
//! It is made from the handlers: each has its parameters and answers above itself, and only
//! described routes are served. The addresses beside the API are described here.

pub(crate) mod docs;
pub(crate) mod params;
pub(crate) mod problem_answers;

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Router, http::HeaderValue};
use sampler_service::problem::kinds;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterBuilder, ParameterIn};
use utoipa::openapi::response::ResponsesBuilder;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, OpenApi as Document, PathItem, Ref, Required, ResponseBuilder,
    SecurityRequirement,
};
use utoipa::{Modify, OpenApi};

/// Where the document is.
const PATH: &str = "/openapi.json";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sampler",
        description = "Start and stop events of service instances become bills that are exactly right. Times are whole milliseconds since the epoch, UTC; in requests they may also be RFC 3339. Errors are problem documents (RFC 9457).",
    ),
    servers((url = ".", description = "This receiver.")),
    components(schemas(sampler_api::Problem, sampler_api::Healthy)),
    modifiers(&Bearer),
    tags(
        (name = "Events", description = "The events of resource providers."),
        (name = "Mappings", description = "Plans of resources, and plans of Abacus."),
        (name = "Reading", description = "Spans, their usages and sums."),
        (name = "Operating", description = "The backlog, suspended spans, and control."),
        (name = "Health", description = "Whether the program is well. Without a token."),
        (name = "Documentation", description = "This description. Without a token."),
    ),
)]
struct Base;

/// Requests have a token, where `SECURED` is true.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        let scheme = Http::builder()
            .scheme(HttpAuthScheme::Bearer)
            .bearer_format("JWT");
        let scheme = SecurityScheme::Http(scheme.build());
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", scheme);
        let none: [&str; 0] = [];
        document.security = Some(vec![SecurityRequirement::new("bearer", none)]);
    }
}

/// The document, before the handlers are in it.
pub(crate) fn base() -> Document {
    let mut document = Base::openapi();
    for described in beside() {
        let item = PathItem::new(HttpMethod::Get, described.operation());
        document.paths.paths.insert(described.path.to_owned(), item);
    }
    document
}

/// Serves the document. It is public: it says nothing that the source does not.
pub(crate) fn routes(document: &Document) -> Router {
    let text = document
        .to_json()
        .expect("texts, numbers and lists of these");
    let text = axum::body::Bytes::from(text);
    Router::new().route(
        PATH,
        get(async move || {
            let json = HeaderValue::from_static("application/json");
            ([(CONTENT_TYPE, json)], text).into_response()
        }),
    )
}

/// A request that is served beside the API, by a router of its own.
struct Beside {
    path: &'static str,
    tag: &'static str,
    summary: &'static str,
    /// The parameter in its path, if it has one.
    parameter: Option<(&'static str, &'static str)>,
    /// The media types of its answers, each with the name of its schema if it has one.
    answers: &'static [(&'static str, Option<&'static str>)],
    refusals: &'static [&'static sampler_service::problem::ProblemType],
}

const JSON: &str = "application/json";

fn beside() -> [Beside; 7] {
    [
        Beside::health(
            "/healthcheck",
            "Whether the program is well, and what fails",
            &[&kinds::UNAUTHORIZED, &kinds::UNHEALTHY],
        ),
        Beside::health("/healthz/live", "Whether the program answers", &[]),
        Beside::health(
            "/healthz/ready",
            "Whether the program takes requests",
            &[&kinds::UNHEALTHY, &kinds::SHUTTING_DOWN],
        ),
        Beside {
            path: "/metrics",
            tag: "Health",
            summary: "Metrics, in Prometheus's text format",
            parameter: None,
            answers: &[("text/plain; version=0.0.4; charset=utf-8", None)],
            refusals: &[
                &kinds::UNAUTHORIZED,
                &kinds::FORBIDDEN,
                &kinds::TOKEN_SERVER_UNAVAILABLE,
                &kinds::INTERNAL,
            ],
        },
        Beside::documentation(PATH, "This document", &[(JSON, None)]),
        Beside::documentation("/docs", "Leads to this document, to read and to try", &[]),
        Beside {
            path: "/problems/{name}",
            tag: "Documentation",
            summary: "A type of problem, and what is done about it",
            parameter: Some(("name", "The last part of the type of a problem document.")),
            answers: &[("text/plain; charset=utf-8", None)],
            refusals: &[&kinds::NOT_FOUND],
        },
    ]
}

impl Beside {
    fn health(
        path: &'static str,
        summary: &'static str,
        refusals: &'static [&'static sampler_service::problem::ProblemType],
    ) -> Self {
        Self {
            path,
            tag: "Health",
            summary,
            parameter: None,
            answers: &[(JSON, Some("Healthy"))],
            refusals,
        }
    }

    fn documentation(
        path: &'static str,
        summary: &'static str,
        answers: &'static [(&'static str, Option<&'static str>)],
    ) -> Self {
        Self {
            path,
            tag: "Documentation",
            summary,
            parameter: None,
            answers,
            refusals: &[],
        }
    }

    /// The address of the page leads to its files.
    fn status(&self) -> &'static str {
        if self.path == "/docs" { "303" } else { "200" }
    }

    fn operation(&self) -> utoipa::openapi::path::Operation {
        let mut answer = ResponseBuilder::new().description("Success.");
        for (media_type, schema) in self.answers {
            let content = ContentBuilder::new();
            let content = match schema {
                Some(name) => content.schema(Some(Ref::from_schema_name(*name))),
                None if *media_type == JSON => content,
                None => content.schema(Some(ObjectBuilder::new().schema_type(Type::String))),
            };
            answer = answer.content(*media_type, content.build());
        }
        let mut responses = ResponsesBuilder::new()
            .response(self.status(), answer.build())
            .build();
        let refusals = problem_answers::responses(self.refusals.to_vec());
        responses.responses.extend(refusals);
        let mut operation = OperationBuilder::new()
            .tag(self.tag)
            .summary(Some(self.summary))
            .operation_id(Some(self.path.replace(['/', '{', '}'], "_")))
            .securities(Some(Vec::<SecurityRequirement>::new()))
            .responses(responses);
        if let Some((name, description)) = self.parameter {
            let parameter = ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some(description))
                .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
            operation = operation.parameter(parameter.build());
        }
        operation.build()
    }
}
