//! Search for spans.

use sampler_api::{FoundId, List, Problem, Span};
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::api::{Query, address};
use crate::csv::{self, CSV, FORMAT, line, plain};
use crate::page::{Frame, refused, render};
use crate::session::Session;
use crate::{Console, parameters, show};

pub(crate) const FIELDS: [(&str, &str); 6] = [
    ("organization_id", "Organization"),
    ("space_id", "Space"),
    ("consumer_id", "Consumer"),
    ("resource_id", "Resource"),
    ("plan_id", "Plan"),
    ("resource_instance_id", "Instance"),
];

pub(crate) fn label_of(field: &str) -> &str {
    let known = FIELDS.iter().find(|(name, _)| *name == field);
    known.map_or(field, |(_, label)| label)
}

/// The parameter with the begin of an id, whichever it is.
const PREFIX: &str = "id";

/// The number of recently received spans that are shown.
const LATEST: &str = "20";

/// The labels of the times in the query.
const MOMENTS: [(&str, &str); 2] = [("from", "Runs after"), ("to", "Starts before")];

const STATES: [&str; 4] = ["open", "stopped", "complete", "suspended"];

#[derive(Template)]
#[template(path = "spans.html")]
struct SpansPage {
    frame: Frame,
    query: Query,
    spans: Option<Vec<Span>>,
    problem: Option<Problem>,
    next: Option<String>,
    file: String,
    presets: Vec<(&'static str, String)>,
    /// What was looked for in all ids, and what was found.
    found: Option<Vec<FoundId>>,
    /// Whether the spans are those that were received last.
    is_latest: bool,
}

impl SpansPage {
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
                || matches!(name, "state" | "from" | "to" | "cursor" | PREFIX)
        };
        self.query.iter().filter(move |(name, _)| !has_field(name))
    }
}

pub(crate) fn page_of_id(found: &FoundId) -> String {
    address("/console/spans", &[(found.field.clone(), found.id.clone())])
}

/// The address of the page of a span.
pub(crate) fn page_of(id: &str) -> String {
    format!(
        "/console/spans/{}",
        utf8_percent_encode(id, NON_ALPHANUMERIC)
    )
}

/// All spans as CSV.
fn text(spans: &[Span]) -> String {
    let head = [
        "span",
        "organization_id",
        "space_id",
        "consumer_id",
        "resource_id",
        "plan_id",
        "resource_instance_id",
        "start",
        "end",
        "state",
        "sampled_to",
        "billed_ms",
        "skipped_ms",
        "unsampled_ms",
        "difference_ms",
    ];
    let mut text = line(head);
    for span in spans {
        let (target, proof) = (&span.target, &span.proof);
        let ids = [
            &span.id,
            &target.organization_id,
            &target.space_id,
            &target.consumer_id,
            &target.resource_id,
            &target.plan_id,
            &target.resource_instance_id,
        ];
        let end = span.end.map(|end| end.to_string()).unwrap_or_default();
        let moments = [
            span.start.to_string(),
            end,
            span.state.clone(),
            span.sampled_to.to_string(),
        ];
        let amounts = [
            proof.billed,
            proof.skipped,
            proof.unsampled,
            proof.difference,
        ];
        let ids = ids.into_iter().map(|id| plain(id));
        let amounts = amounts.into_iter().map(|amount| amount.to_string());
        text += &line(ids.chain(moments).chain(amounts));
    }
    text
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
    if csv::is_asked(&query) {
        return match csv::all(&console, &session, "/v1/spans", &query).await {
            Ok(spans) => csv::file("spans", text(&spans)),
            Err(refusal) => refused(Frame::new(&console, &session, "Spans"), refusal),
        };
    }
    let mut page = SpansPage {
        frame: Frame::new(&console, &session, "Spans"),
        file: address(uri.path(), &parameters::with(&query, FORMAT, Some(CSV))),
        presets: parameters::presets(uri.path(), &query, console.clock.now()),
        query,
        spans: None,
        problem: None,
        next: None,
        found: None,
        is_latest: false,
    };
    let grant = session.grant();
    let prefix = parameters::value(&page.query, PREFIX).to_owned();
    if !prefix.is_empty() {
        let asked = [("prefix".to_owned(), prefix)];
        let found = console.api.get::<List<FoundId>>(grant, "/v1/ids", &asked);
        return match found.await {
            Ok(answer) => {
                page.found = Some(answer.body.items);
                render(StatusCode::OK, &page)
            }
            Err(refusal) => refused(page.frame, refusal),
        };
    }
    // A preset may come before anything else.
    if page
        .query
        .iter()
        .all(|(name, _)| matches!(name.as_str(), "from" | "to"))
    {
        let asked = [("order", "received"), ("limit", LATEST)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        let latest = console.api.get::<List<Span>>(grant, "/v1/spans", &asked);
        // The search is there in any case.
        page.spans = latest.await.ok().map(|answer| answer.body.items);
        page.is_latest = true;
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
