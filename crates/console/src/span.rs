//! One span: its timeline, its proof and its ledger.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use sampler_api::{Excluded, List, Measure, Span, Usage};
use url::Url;

use crate::api::{self, Refusal, segment};
use crate::csv;
use crate::frame::render;
use crate::query::Query;
use crate::show;
use crate::timeline::Timeline;
use crate::visit::Visit;

/// The most usages that are drawn, in thousands.
const THOUSANDS_MAX: usize = 5;

/// The parameter with the order of the ledger. A dispute is about its end, which comes first.
const ORDER: &str = "order";
const OLDEST: &str = "oldest";
const NEWEST: &str = "newest";

const FILE: [csv::Column; 7] = [
    ("usage", "/id"),
    ("start", "/interval/start"),
    ("end", "/interval/end"),
    ("duration_ms", "/duration"),
    ("status", "/status"),
    ("accepted_at", "/accepted_at"),
    ("location", "/location"),
];

#[derive(Template)]
#[template(path = "span.html")]
struct SpanPage {
    visit: Visit,
    span: Span,
    timeline: Timeline,
    /// The last usage that is drawn, where there are more.
    last_drawn: Option<Usage>,
    ledger: Vec<Usage>,
    next: Option<String>,
    is_oldest_first: bool,
}

/// `GET /console/spans/{id}`.
pub(crate) async fn show(visit: Visit) -> Result<Response, Refusal> {
    let path = format!("/v1/spans/{}", segment(&visit.id));
    let ledger = format!("{path}/usages");
    if visit.asks_for_file() {
        return visit.list_file(&ledger, "ledger", &FILE).await;
    }
    let query = &visit.query;
    let span: Span = visit.get(&path, &Query::default()).await?.body;
    let is_oldest_first = query.get(ORDER) == OLDEST;
    let order = if is_oldest_first { OLDEST } else { NEWEST };
    let asked = query.for_api().with(ORDER, order);
    let rows = visit.get::<List<Usage>>(&ledger, &asked).await?;
    let is_all = rows.cursor.is_none() && query.get("cursor").is_empty();
    let (mut drawn, has_more) = if is_all {
        (rows.body.items.clone(), false)
    } else {
        let oldest_first = query.for_api().with(ORDER, "");
        visit.all(&ledger, &oldest_first, THOUSANDS_MAX).await?
    };
    let page = SpanPage {
        timeline: Timeline::new(&span, &drawn, query, visit.now()),
        last_drawn: drawn.pop().filter(|_| has_more),
        ledger: rows.body.items,
        next: rows
            .cursor
            .map(|cursor| query.with("cursor", &cursor).at("")),
        is_oldest_first,
        span,
        visit,
    };
    Ok(render(StatusCode::OK, &page))
}

impl SpanPage {
    /// Whether the page is read again from time to time.
    fn is_refreshing(&self) -> bool {
        self.span.state != "complete" && self.visit.query.is_empty()
    }

    /// The page with the ledger in the other order.
    fn turned(&self) -> String {
        let order = if self.is_oldest_first { "" } else { OLDEST };
        self.visit
            .query
            .with("cursor", "")
            .with(ORDER, order)
            .at("")
    }

    /// What does not count upstream, and what is sent again, each with its state.
    fn ranges(&self) -> impl Iterator<Item = (&Excluded, &'static str)> {
        let skipped = self.span.excluded.iter().map(|range| (range, "skipped"));
        skipped.chain(self.span.again.iter().map(|range| (range, "again")))
    }

    /// The unit of a measure, and what is billed of the measure by the hour, where the unit is known.
    fn billed(&self, measure: &Measure) -> Option<(String, String)> {
        let unit = self.visit.console.parts.units.of(&measure.measure)?;
        let amount = measure.quantity.as_f64()? * self.span.proof.billed as f64;
        let hourly = unit.hourly();
        let amount = show::grouped(&hourly.of(amount));
        Some((unit.to_string(), format!("{amount} {}", hourly.name)))
    }
}

/// The query that chooses an excluded range.
fn range_query(range: &Excluded) -> String {
    let (low, high) = (range.start.min(range.end), range.start.max(range.end));
    Query::default().between(low, high).at("")
}

/// The address of the document that the upstream has of a usage, if a browser can open it.
fn document(usage: &Usage) -> Option<Url> {
    let address = Url::parse(usage.location.as_deref()?).ok()?;
    let is_web = matches!(address.scheme(), "http" | "https");
    let is_plain = address.username().is_empty() && address.password().is_none();
    (is_web && is_plain).then_some(address)
}
