//! Search for spans.

use sampler_api::{List, Problem, Span};
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::api::{Query, address};
use crate::page::{Frame, refused, render};
use crate::session::Session;
use crate::{Console, parameters, show};

/// The fields of a target, as people call them.
pub(crate) const FIELDS: [(&str, &str); 6] = [
    ("organization_id", "Organization"),
    ("space_id", "Space"),
    ("consumer_id", "Consumer"),
    ("resource_id", "Resource"),
    ("plan_id", "Plan"),
    ("resource_instance_id", "Instance"),
];

/// The label of a field of a target.
pub(crate) fn label_of(field: &str) -> &str {
    let known = FIELDS.iter().find(|(name, _)| *name == field);
    known.map_or(field, |(_, label)| label)
}

/// The labels of the moments that are asked for.
const MOMENTS: [(&str, &str); 2] = [("from", "Runs after"), ("to", "Starts before")];

const STATES: [&str; 4] = ["open", "stopped", "complete", "suspended"];

#[derive(Template)]
#[template(path = "spans.html")]
struct Page {
    frame: Frame,
    query: Query,
    spans: Option<Vec<Span>>,
    problem: Option<Problem>,
    next: Option<String>,
}

impl Page {
    fn value(&self, name: &str) -> &str {
        parameters::value(&self.query, name)
    }

    fn is_state(&self, state: &str) -> bool {
        self.value("state") == state
    }

    fn local(&self, name: &str) -> String {
        parameters::local(&self.query, name)
    }

    /// Parameters that the form has no field for, such as a limit.
    fn others(&self) -> impl Iterator<Item = &(String, String)> {
        let has_field = |name: &str| {
            FIELDS.iter().any(|(field, _)| *field == name)
                || matches!(name, "state" | "from" | "to" | "cursor")
        };
        self.query.iter().filter(move |(name, _)| !has_field(name))
    }
}

/// The address of the page of a span.
pub(crate) fn page_of(id: &str) -> String {
    format!(
        "/console/spans/{}",
        utf8_percent_encode(id, NON_ALPHANUMERIC)
    )
}

/// `GET /console/spans`.
pub(crate) async fn list(
    State(console): State<Arc<Console>>,
    Extension(session): Extension<Session>,
    uri: Uri,
) -> Response {
    let query = parameters::read(&uri);
    if let Some(address) = parameters::without_empty(&uri, &query) {
        return Redirect::to(&address).into_response();
    }
    let mut page = Page {
        frame: Frame::new(&console, &session, "Spans"),
        query,
        spans: None,
        problem: None,
        next: None,
    };
    if page.query.is_empty() {
        return render(StatusCode::OK, &page);
    }
    let asked = parameters::for_api(&page.query);
    let listed = console
        .api
        .get::<List<Span>>(session.grant(), "/v1/spans", &asked);
    match listed.await {
        Ok(answer) => {
            let next = answer.cursor.map(|cursor| {
                let query = parameters::with(&page.query, "cursor", Some(&cursor));
                address(uri.path(), &query)
            });
            (page.spans, page.next) = (Some(answer.body.items), next);
            render(StatusCode::OK, &page)
        }
        // The page shows the problem beside the search.
        Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
            page.problem = Some(parameters::in_words(
                *refusal.problem,
                &page.query,
                &MOMENTS,
            ));
            render(StatusCode::BAD_REQUEST, &page)
        }
        Err(refusal) => refused(page.frame, refusal),
    }
}
