//! Search for spans.

use askama::Template;
use axum::response::Response;
use sampler_api::Span;

use crate::api::{self, Refusal};
use crate::csv;
use crate::frame::render;
use crate::query::{self, Query};
use crate::show;
use crate::visit::{Around, Visit};

/// The spans that were received last, which are shown where nothing is asked for.
const LATEST: &str = "order=received&limit=20";

const FILE: [csv::Column; 14] = [
    ("span", "/id"),
    ("organization_id", "/target/organization_id"),
    ("space_id", "/target/space_id"),
    ("consumer_id", "/target/consumer_id"),
    ("resource_id", "/target/resource_id"),
    ("plan_id", "/target/plan_id"),
    ("resource_instance_id", "/target/resource_instance_id"),
    ("start", "/start"),
    ("end", "/end"),
    ("state", "/state"),
    ("sampled_to", "/sampled_to"),
    ("billed_ms", "/proof/billed"),
    ("skipped_ms", "/proof/skipped"),
    ("unsampled_ms", "/proof/unsampled"),
];

#[derive(Template)]
#[template(path = "spans.html")]
struct SpansPage {
    visit: Visit,
    items: Option<Vec<Span>>,
    around: Around,
    is_latest: bool,
}

/// `GET /console/spans`.
pub(crate) async fn list(visit: Visit) -> Result<Response, Refusal> {
    if visit.asks_for_file() {
        return visit.list_file("/v1/spans", "spans", &FILE).await;
    }
    let is_latest = visit.query.has_time_alone();
    let asked = if is_latest {
        Query::parse(LATEST)
    } else {
        visit.query.for_api()
    };
    let listed = visit.list("/v1/spans", &asked).await;
    let (items, around) = match listed {
        Ok((items, _)) if is_latest => (items, Around::default()),
        // The search is there in any case.
        Err(_) if is_latest => (None, Around::default()),
        listed => listed?,
    };
    let page = SpansPage {
        visit,
        items,
        around,
        is_latest,
    };
    Ok(render(page.around.status(), &page))
}
