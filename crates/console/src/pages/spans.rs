//! Search for spans.

use askama::Template;
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_api::{FoundId, Span};

use crate::api::{Refusal, address};
use crate::csv::{self, line, plain};
use crate::page::{Frame, refused, render};
use crate::show;
use crate::visit::{Listed, Visit};

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
    visit: Visit,
    listed: Listed<Span>,
    file: String,
    presets: Vec<(&'static str, String)>,
    /// What was looked for in all ids, and what was found.
    found: Option<Vec<FoundId>>,
    /// Whether the spans are those that were received last.
    is_latest: bool,
}

impl SpansPage {
    /// Parameters that the form has no field for, such as a limit.
    fn others(&self) -> impl Iterator<Item = &(String, String)> {
        self.visit.query.iter().filter(|(name, _)| {
            let is_id = FIELDS.iter().any(|(field, _)| field == name);
            !is_id && !matches!(name.as_str(), "state" | "from" | "to" | "cursor" | PREFIX)
        })
    }
}

pub(crate) fn page_of_id(found: &FoundId) -> String {
    address("/console/spans", &[(found.field.clone(), found.id.clone())])
}

pub(crate) fn page_of(id: &str) -> String {
    format!(
        "/console/spans/{}",
        utf8_percent_encode(id, NON_ALPHANUMERIC)
    )
}

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
pub(crate) async fn list(visit: Visit) -> Response {
    let frame = visit.frame("Spans");
    answer(visit)
        .await
        .unwrap_or_else(|refusal| refused(frame, refusal))
}

async fn answer(visit: Visit) -> Result<Response, Refusal> {
    if csv::is_asked(&visit.query) {
        return csv::file(&visit, "/v1/spans", &visit.query, "spans", text).await;
    }
    let (mut listed, mut found) = (Listed::default(), None);
    let prefix = visit.value(PREFIX);
    let is_latest = prefix.is_empty() && visit.asks_for_time_alone();
    if !prefix.is_empty() {
        let asked = [("prefix".to_owned(), prefix.to_owned())];
        found = Some(visit.first("/v1/ids", &asked).await?);
    } else if is_latest {
        let asked = [("order", "received"), ("limit", LATEST)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        // The search is there in any case.
        listed.items = visit.first("/v1/spans", &asked).await.ok();
    } else {
        listed = visit.listed("/v1/spans", &MOMENTS).await?;
    }
    let page = SpansPage {
        frame: visit.frame("Spans"),
        file: visit.file(),
        presets: visit.presets(),
        visit,
        listed,
        found,
        is_latest,
    };
    Ok(render(page.listed.status(), &page))
}
