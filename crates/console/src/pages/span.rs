//! One span: its timeline, its proof and its ledger.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_api::units::Hourly;
use sampler_api::{List, Measure, Span, Usage};
use sampler_domain::{Timestamp, Units};
use url::Url;

use crate::api::{Query, Refusal, address};
use crate::csv::{self, CSV, FORMAT, line, plain};
use crate::page::{Frame, refused, render};
use crate::timeline::{DRAWN_MAX, Timeline, View};
use crate::visit::Visit;
use crate::{parameters, show};

/// Usages that are read at a time, and how often, for one drawing.
const USAGES_AT_A_TIME: usize = 1_000;
const READS_MAX: usize = 5;

/// The parameter with the order of the ledger. A dispute is about its end, which comes first.
const ORDER: &str = "order";
const OLDEST: &str = "oldest";
const NEWEST: &str = "newest";

#[derive(Template)]
#[template(path = "span.html")]
struct SpanPage {
    frame: Frame,
    span: Span,
    timeline: Timeline,
    usages: Vec<Usage>,
    /// Up to where usages are drawn, where there are more.
    drawn_to: Option<Timestamp>,
    later: Option<String>,
    next: Option<String>,
    previous: Option<String>,
    /// The page with the ledger in the other order.
    turned: String,
    file: String,
    amounts: Vec<Billed>,
    zoom: Vec<(&'static str, String)>,
    visit: Visit,
    is_refreshing: bool,
    is_admin: bool,
    /// Whether rows name their usages, because the drawing has no element for each.
    rows_name_usages: bool,
}

impl SpanPage {
    fn is_oldest_first(&self) -> bool {
        self.visit.value(ORDER) == OLDEST
    }

    /// Whether the session may change the span, and there is something to do.
    fn may_act(&self) -> bool {
        self.is_admin && self.span.state == "suspended"
    }

    /// Whether the session may have usages sent again, and there is one in the table.
    fn may_resend(&self) -> bool {
        self.is_admin && self.usages.iter().any(Usage::is_resendable)
    }
}

/// A measure of the span, and what is billed of it where its unit is known.
struct Billed {
    name: String,
    quantity: String,
    /// What is billed by the hour, what that is called, and how it follows.
    by_the_hour: Option<(String, Hourly)>,
}

impl Billed {
    fn new(measure: &Measure, billed: i64, units: &Units) -> Self {
        let unit = units.of(&measure.measure);
        let quantity = measure.quantity.to_string();
        let by_the_hour = unit.zip(measure.quantity.as_f64()).map(|(unit, amount)| {
            let hourly = unit.hourly();
            (show::decimals(&hourly.of(amount * billed as f64)), hourly)
        });
        Self {
            name: measure.measure.clone(),
            quantity: match unit {
                Some(unit) => format!("{quantity} {unit}"),
                None => quantity,
            },
            by_the_hour,
        }
    }
}

/// Usages for the drawing.
struct Drawn {
    usages: Vec<Usage>,
    has_more: bool,
}

/// `GET /console/spans/{id}`.
pub(crate) async fn show(Path(id): Path<String>, visit: Visit) -> Response {
    let frame = visit.frame("Spans");
    answer(&id, visit)
        .await
        .unwrap_or_else(|refusal| refused(frame, refusal))
}

async fn answer(id: &str, visit: Visit) -> Result<Response, Refusal> {
    if csv::is_asked(&visit.query) {
        let path = format!("{}/usages", path_of(id));
        let query = parameters::with(&visit.query, ORDER, None);
        return csv::file(&visit, &path, &query, "ledger", text).await;
    }
    Ok(render(StatusCode::OK, &page(id, visit).await?))
}

/// The address of a span in the API.
fn path_of(id: &str) -> String {
    format!("/v1/spans/{}", utf8_percent_encode(id, NON_ALPHANUMERIC))
}

/// The ledger as CSV.
fn text(usages: &[Usage]) -> String {
    let head = [
        "usage",
        "start",
        "end",
        "duration_ms",
        "state",
        "status",
        "attempts",
        "planned_at",
        "accepted_at",
        "unanswered",
        "withheld",
        "location",
        "error",
    ];
    let mut text = line(head);
    for usage in usages {
        text += &line([
            plain(&usage.id),
            usage.interval.start.to_string(),
            usage.interval.end.to_string(),
            usage.duration.to_string(),
            usage.state.clone(),
            usage.status.map_or_else(String::new, |it| it.to_string()),
            usage.attempts.to_string(),
            usage.planned_at.to_string(),
            usage
                .accepted_at
                .map_or_else(String::new, |it| it.to_string()),
            usage.unanswered.to_string(),
            usage.withheld.to_string(),
            plain(usage.location.as_deref().unwrap_or_default()),
            plain(usage.error.as_deref().unwrap_or_default()),
        ]);
    }
    text
}

/// The address of the document that the upstream has of a usage, if a browser can open it.
pub(crate) fn document_of(usage: &Usage) -> Option<Url> {
    let address = Url::parse(usage.location.as_ref()?).ok()?;
    let is_web = matches!(address.scheme(), "http" | "https");
    (is_web && address.username().is_empty() && address.password().is_none()).then_some(address)
}

async fn page(id: &str, visit: Visit) -> Result<SpanPage, Refusal> {
    let (span, drawn, rows) = read(&visit, id).await?;
    let path = visit.path.clone();
    let (from, to) = (
        parameters::moment(&visit.query, "from"),
        parameters::moment(&visit.query, "to"),
    );
    let base = parameters::with(&visit.query, "cursor", None);
    let turned = match visit.value(ORDER) {
        OLDEST => parameters::with(&base, ORDER, None),
        _ => parameters::with(&base, ORDER, Some(OLDEST)),
    };
    let turned = format!("{}#ledger", address(&path, &turned));
    let file = address(&path, &parameters::with(&base, FORMAT, Some(CSV)));
    let view = View {
        from,
        to,
        now: visit.console.parts.clock.now(),
        address: Box::new(move |from: Timestamp, to: Timestamp| {
            let query = parameters::with(&base, "from", Some(&from.as_millis().to_string()));
            address(
                &path,
                &parameters::with(&query, "to", Some(&to.as_millis().to_string())),
            )
        }),
    };
    let timeline = Timeline::draw(&span, &drawn.usages, &view);
    let last = drawn.usages.last().map(|usage| usage.timestamp);
    let drawn_to = last.filter(|_| drawn.has_more);
    let later = drawn_to.map(|at| (view.address)(at, timeline.to()));
    let zoom = timeline.zoom(&span, &view, &visit.path);
    let [next, previous] = [rows.cursor, rows.previous]
        .map(|cursor| Some(format!("{}#ledger", visit.address_with("cursor", &cursor?))));
    let measures = span.measured_usage.iter();
    let amounts = measures.map(|it| Billed::new(it, span.proof.billed, &visit.console.parts.units));
    Ok(SpanPage {
        frame: visit.frame("Spans"),
        timeline,
        is_admin: visit.session.is_admin(),
        is_refreshing: span.state != "complete" && visit.query.is_empty(),
        rows_name_usages: drawn.usages.len() > DRAWN_MAX,
        usages: rows.body.items,
        drawn_to,
        later,
        next,
        previous,
        turned,
        file,
        amounts: amounts.collect(),
        zoom,
        visit,
        span,
    })
}

/// The span, the usages for the drawing, and those for the table.
async fn read(
    visit: &Visit,
    id: &str,
) -> Result<(Span, Drawn, crate::api::Answer<List<Usage>>), Refusal> {
    let path = path_of(id);
    let span = visit.get::<Span>(&path, &[]).await?.body;
    let path = format!("{path}/usages");
    let asked = parameters::for_api(&visit.query);
    let order = match visit.value(ORDER) {
        "" => NEWEST,
        order => order,
    };
    let of_table = parameters::with(&asked, ORDER, Some(order));
    let rows = visit.get::<List<Usage>>(&path, &of_table).await?;
    let is_all = rows.cursor.is_none() && visit.value("cursor").is_empty();
    if is_all {
        let mut usages = rows.body.items.clone();
        if order == NEWEST {
            usages.reverse();
        }
        let drawn = Drawn {
            usages,
            has_more: false,
        };
        return Ok((span, drawn, rows));
    }
    let drawn = drawn(visit, &path, &asked).await?;
    Ok((span, drawn, rows))
}

async fn drawn(visit: &Visit, path: &str, asked: &Query) -> Result<Drawn, Refusal> {
    let limit = USAGES_AT_A_TIME.to_string();
    let mut query = parameters::with(asked, "limit", Some(&limit));
    query = parameters::with(&query, "cursor", None);
    query = parameters::with(&query, ORDER, None);
    let mut usages = Vec::new();
    for _ in 0..READS_MAX {
        let page = visit.get::<List<Usage>>(path, &query).await?;
        usages.extend(page.body.items);
        let Some(cursor) = page.cursor else {
            return Ok(Drawn {
                usages,
                has_more: false,
            });
        };
        query = parameters::with(&query, "cursor", Some(&cursor));
    }
    Ok(Drawn {
        usages,
        has_more: true,
    })
}
