//! One span: its timeline, its proof and its ledger.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use sampler_api::{Excluded, List, Measure, Span, Target, Usage};
use sampler_domain::Units;
use url::Url;

use super::acts;
use crate::api::{Refusal, address, segment};
use crate::page::{Frame, render};
use crate::show::{self, Html};
use crate::timeline::Timeline;
use crate::view::{Row, Table};
use crate::visit::Visit;
use crate::{csv, parameters};

/// Usages that are read at a time, and how often, for one drawing.
const USAGES_AT_A_TIME: &str = "1000";
const READS_MAX: usize = 5;

/// The parameter with the order of the ledger. A dispute is about its end, which comes first.
const ORDER: &str = "order";
const OLDEST: &str = "oldest";
const NEWEST: &str = "newest";

const COLUMNS: &str = "From|To|Duration|Status|Accepted|Usage";

const EXCLUDED: &str = "From|To|Duration|State|Error";

const HEAD: &str = "usage,start,end,duration_ms,status,accepted_at,location";

#[derive(Template)]
#[template(path = "span.html")]
struct SpanPage {
    frame: Frame,
    span: Span,
    acts: Html,
    trail: Html,
    timeline: Timeline,
    /// Up to where usages are drawn, where there are more.
    drawn_to: Option<Html>,
    facts: Vec<(&'static str, Html)>,
    ids: Vec<(&'static str, Html)>,
    excluded: Table,
    table: Table,
    next: Option<String>,
    /// Whether the ledger begins with the oldest usage, and the page with the other order.
    is_oldest_first: bool,
    turned: String,
    file: String,
    is_refreshing: bool,
}

/// Usages for the drawing.
struct Drawn {
    usages: Vec<Usage>,
    has_more: bool,
}

/// `GET /console/spans/{id}`.
pub(crate) async fn show(Path(id): Path<String>, visit: Visit) -> Result<Response, Refusal> {
    let path = format!("/v1/spans/{}", segment(&id));
    let ledger = format!("{path}/usages");
    if visit.asks_for_file() {
        let usages = csv::all::<Usage>(&visit, &ledger).await?;
        return Ok(csv::file(
            "ledger",
            &csv::cells(HEAD),
            usages.iter().map(line),
        ));
    }
    let span = visit.get::<Span>(&path, &[]).await?.body;
    let asked = parameters::for_api(&visit.query);
    let is_oldest_first = visit.value(ORDER) == OLDEST;
    let order = if is_oldest_first { OLDEST } else { NEWEST };
    let of_table = parameters::with(&asked, ORDER, Some(order));
    let rows = visit.get::<List<Usage>>(&ledger, &of_table).await?;
    let is_all = rows.cursor.is_none() && visit.value("cursor").is_empty();
    let drawn = if is_all {
        Drawn {
            usages: rows.body.items.clone(),
            has_more: false,
        }
    } else {
        drawn(&visit, &ledger).await?
    };
    let turned = parameters::with(&visit.query, "cursor", None);
    let turned = parameters::with(&turned, ORDER, (!is_oldest_first).then_some(OLDEST));
    let frame = visit.frame();
    let last = drawn.usages.last().map(|usage| usage.timestamp);
    let page = SpanPage {
        acts: buttons(&visit, &frame, &span),
        trail: trail(&span.target),
        timeline: Timeline::draw(&span, &drawn.usages, &visit.query, visit.now()),
        drawn_to: last.filter(|_| drawn.has_more).map(show::at),
        facts: facts(&span),
        ids: ids(&span, &visit.console.parts.units),
        excluded: excluded(&visit, &frame, &span),
        table: table(&rows.body.items),
        next: rows
            .cursor
            .map(|cursor| format!("{}#ledger", visit.address_with("cursor", &cursor))),
        is_oldest_first,
        turned: format!("{}#ledger", address("", &turned)),
        file: visit.file(),
        is_refreshing: span.state != "complete" && visit.query.is_empty(),
        frame,
        span,
    };
    Ok(render(StatusCode::OK, &page))
}

async fn drawn(visit: &Visit, ledger: &str) -> Result<Drawn, Refusal> {
    let mut query = parameters::for_api(&visit.query);
    for (name, value) in [
        ("limit", Some(USAGES_AT_A_TIME)),
        ("cursor", None),
        (ORDER, None),
    ] {
        query = parameters::with(&query, name, value);
    }
    let (mut usages, mut has_more) = (Vec::new(), true);
    for _ in 0..READS_MAX {
        let page = visit.get::<List<Usage>>(ledger, &query).await?;
        usages.extend(page.body.items);
        let Some(cursor) = page.cursor else {
            has_more = false;
            break;
        };
        query = parameters::with(&query, "cursor", Some(&cursor));
    }
    Ok(Drawn { usages, has_more })
}

fn trail(target: &Target) -> Html {
    show::trail(&[
        &target.organization_id,
        &target.space_id,
        &target.consumer_id,
        &target.resource_id,
        &target.plan_id,
    ])
}

fn buttons(visit: &Visit, frame: &Frame, span: &Span) -> Html {
    if !visit.session.is_admin() || span.state != "suspended" {
        return Html::default();
    }
    acts::buttons_of(&frame.root, &span.id)
}

/// What is known of the span's progress.
fn facts(span: &Span) -> Vec<(&'static str, Html)> {
    let mut facts = vec![
        ("Start", show::at(span.start)),
        ("Stop", show::at_or(span.end, "none")),
        ("Sampled to", show::at(span.sampled_to)),
    ];
    facts.extend(span.due_at.map(|due| ("Due", show::at(due))));
    if let Some(plan) = &span.planned {
        let interval = show::at(plan.start).and(show::words("\u{2192}"));
        facts.push(("Planned", interval.and(show::at(plan.end))));
    }
    if span.delivery.attempts > 0 {
        let attempts = format!("{} without success", span.delivery.attempts);
        facts.push(("Attempts", show::words(&attempts)));
    }
    if let Some(error) = &span.delivery.last_error {
        let status = error.status.map(|status| show::bad(&status.to_string()));
        let told = show::at(error.at).and(status);
        facts.push(("Last error", told.and(show::error(&error.error))));
    }
    facts
}

/// The ids of the span, and what is measured.
fn ids(span: &Span, units: &Units) -> Vec<(&'static str, Html)> {
    let event = |id: &Option<String>| {
        let id = id.as_deref().map(show::id);
        id.unwrap_or_else(|| show::faint("without an id"))
    };
    let mut ids = vec![
        ("Span", show::id(&span.id)),
        ("Start event", event(&span.start_event_id)),
    ];
    if span.end.is_some() {
        ids.push(("Stop event", event(&span.end_event_id)));
    }
    let plan = span.planned.as_ref();
    ids.extend(plan.map(|plan| ("Planned usage", show::id(&plan.usage_id))));
    let measures = span.measured_usage.iter();
    ids.extend(measures.map(|it| ("Measure", measured(it, span.proof.billed, units))));
    ids
}

/// A measure with its quantity, and what is billed of it where its unit is known.
fn measured(measure: &Measure, billed: i64, units: &Units) -> Html {
    let (name, unit) = (&measure.measure, units.of(&measure.measure));
    let quantity = show::quoted(&measure.quantity.to_string());
    let shown = show::quoted(name).and(quantity);
    let Some((unit, amount)) = unit.zip(measure.quantity.as_f64()) else {
        return shown;
    };
    let hourly = unit.hourly();
    let amount = show::exact(&hourly.of(amount * billed as f64));
    let billed = format!("billed {amount} {}", hourly.name);
    shown
        .and(show::words(&unit.to_string()))
        .and(show::faint(&billed))
}

/// What does not count upstream, and what is sent again.
fn excluded(visit: &Visit, frame: &Frame, span: &Span) -> Table {
    let may_act = visit.session.is_admin() && !span.excluded.is_empty();
    let mut table = Table::new("Excluded", "excluded-row", EXCLUDED);
    if may_act {
        table.column("Action");
    }
    for range in &span.excluded {
        let mut cells = range_cells(range, "skipped");
        cells.extend(may_act.then(|| {
            let page = acts::resend_page(&frame.root, &span.id, range);
            show::button(&page, "Resend\u{2026}", "resend")
        }));
        table.row(cells);
    }
    for range in &span.again {
        table.row(range_cells(range, "again"));
    }
    table
}

fn range_cells(range: &Excluded, state: &str) -> Vec<Html> {
    let unanswered = range
        .unanswered
        .then(|| show::faint("a post had no answer"));
    let taken_back = range.back_to.map(|back_to| {
        let told = format!("taken back to {back_to}");
        show::faint(&told)
    });
    let interval = range.interval();
    let state = show::state(state).and(unanswered).and(taken_back);
    vec![
        show::at(range.start),
        show::at(range.end),
        show::length(interval.end.since(interval.start)),
        state,
        range.error.as_deref().map(show::error).unwrap_or_default(),
    ]
}

fn table(usages: &[Usage]) -> Table {
    let mut table = Table::new("Ledger", "ledger-row", COLUMNS);
    table.rows.extend(usages.iter().map(|usage| Row {
        anchor: format!("u-{}", usage.id),
        class: ["forward", "backward"][usize::from(usage.duration < 0)],
        cells: cells(usage),
    }));
    table
}

fn cells(usage: &Usage) -> Vec<Html> {
    let status = usage.status.map(|status| show::words(&status.to_string()));
    vec![
        show::at(usage.interval.start),
        show::at(usage.interval.end),
        show::length(usage.duration),
        status.unwrap_or_default(),
        show::at(usage.accepted_at),
        document(usage),
    ]
}

/// The id of a usage, as a link to the document that the upstream has of it, if a browser can open
/// that.
fn document(usage: &Usage) -> Html {
    let name = show::id(&usage.id);
    let location = usage.location.as_ref();
    let location = location.and_then(|location| Url::parse(location).ok());
    let location = location.filter(|address| {
        let is_web = matches!(address.scheme(), "http" | "https");
        is_web && address.username().is_empty() && address.password().is_none()
    });
    match location {
        Some(address) => show::outside(address.as_str(), &name),
        None => name,
    }
}

fn line(usage: &Usage) -> Vec<String> {
    let status = usage.status.map(|it| it.to_string());
    vec![
        usage.id.clone(),
        usage.interval.start.to_string(),
        usage.interval.end.to_string(),
        usage.duration.to_string(),
        status.unwrap_or_default(),
        usage.accepted_at.to_string(),
        usage.location.clone().unwrap_or_default(),
    ]
}
