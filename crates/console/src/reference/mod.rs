//! The description of the API as pages: all requests with their parameters, bodies, answers and
//! examples, and each type of problem. They are public, and there also where the console is off.

mod example;
mod operation;
mod schema;

use std::sync::Arc;

use askama::Template;
use askama::filters::HtmlSafe;
use axum::Router;
use axum::extract::Path;
use axum::middleware;
use axum::response::Html;
use axum::routing::get;
use sampler_service::problem::{ProblemType, help};
use serde::Serialize;
use serde_json::Value;

use crate::assets::Assets;
use crate::page::protect;
use operation::{Operation, operations};
use schema::{Part, Schema, schemas};

/// Where the files of these pages are.
const FILES: &str = "/docs/assets";

pub struct Reference {
    page: Arc<str>,
    assets: Arc<Assets>,
    kinds: Vec<&'static ProblemType>,
}

/// All requests.
#[derive(Template)]
#[template(path = "reference.html")]
struct ReferencePage<'a> {
    assets: &'a Assets,
    description: &'a str,
    tags: Vec<Tag>,
    schemas: Vec<Schema>,
    problems: &'a [&'static ProblemType],
}

/// Requests that belong together.
struct Tag {
    name: String,
    description: String,
    operations: Vec<Operation>,
}

/// A text of ours. Names in backticks become code on a page.
pub(crate) fn prose(text: &str) -> Prose<'_> {
    Prose {
        parts: text.split('`').enumerate().collect(),
    }
}

/// Every other part is code.
#[derive(Template)]
#[template(
    source = "{% for (index, part) in parts %}{% if index % 2 == 1 %}<code>{{ part }}</code>{% else %}{{ part }}{% endif %}{% endfor %}",
    ext = "html"
)]
pub(crate) struct Prose<'t> {
    parts: Vec<(usize, &'t str)>,
}

impl HtmlSafe for Prose<'_> {}

impl Reference {
    /// The pages of an `OpenAPI` document, and of types of problems.
    pub fn new(document: &impl Serialize, kinds: &[&'static ProblemType]) -> Self {
        let document = serde_json::to_value(document).unwrap_or_default();
        let assets = Arc::new(Assets::embedded(FILES));
        let page = ReferencePage {
            assets: &assets,
            description: text(&document["info"], "description"),
            tags: tags(&document),
            schemas: schemas(&document),
            problems: kinds,
        };
        let page = page.render().unwrap_or_else(|error| {
            tracing::error!(
                code = "console.not_rendered",
                error = %error,
                "a page could not be rendered"
            );
            String::new()
        });
        Self {
            page: page.into(),
            assets,
            kinds: kinds.to_vec(),
        }
    }

    pub fn routes(self) -> Router {
        let (page, files) = (self.page, self.assets);
        let file = async move |Path(name): Path<String>| files.serve(&name);
        Router::new()
            .route("/docs", get(async move || Html(page.to_string())))
            .route("/docs/assets/{name}", get(file))
            .merge(help::routes(self.kinds))
            .layer(middleware::from_fn(protect))
    }
}

fn tags(document: &Value) -> Vec<Tag> {
    let mut all = operations(document);
    let named = document["tags"].as_array().into_iter().flatten();
    let tags = named.map(|tag| {
        let name = text(tag, "name").to_owned();
        let (operations, rest) = std::mem::take(&mut all)
            .into_iter()
            .partition(|operation| operation.tag == name);
        all = rest;
        let description = text(tag, "description").to_owned();
        Tag {
            name,
            description,
            operations,
        }
    });
    tags.collect()
}

/// A member that is a text; empty if there is none.
fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// Whether objects of a schema must have a field.
fn requires(schema: &Value, field: &str) -> bool {
    let mut required = schema["required"].as_array().into_iter().flatten();
    required.any(|name| name == field)
}

/// The value that a `$ref` points to.
fn resolved<'v>(document: &'v Value, value: &'v Value) -> &'v Value {
    match value["$ref"].as_str().and_then(|it| it.strip_prefix('#')) {
        Some(pointer) => document.pointer(pointer).unwrap_or(value),
        None => value,
    }
}

/// The name of the schema that a `$ref` points to.
fn name_of(value: &Value) -> Option<&str> {
    value["$ref"].as_str()?.rsplit('/').next()
}
