//! `span`: one span, drawn over time, with its proof and its usages.

mod timeline;

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use sampler_verify::moment::{Millis, parse_moment};
use serde_json::{Value, json};

use crate::api::{Api, Query};
use crate::failure::Failure;
use crate::listing::{Common, Period, add};
use crate::output::print;
use crate::show::{integer, length, measures, moment, pairs, print_json, text};
use crate::table::table;
use timeline::{Bar, Timeline};

/// The width of a terminal that does not tell it.
const WIDTH_DEFAULT: usize = 100;
/// Narrower, nothing can be seen.
const WIDTH_MIN: usize = 40;
const WIDTH_MAX: usize = 400;

/// Shows one span: its timeline, its proof, its usages
#[derive(Debug, Args)]
#[command(after_help = "\
The timeline shows the usages as windows (|), forwards (=) and backwards (<), what is planned or refused
(.), and the stop (^). A late stop shows as usages that go backwards from where sampling was to where it
should have ended.

Exit codes: 0 the proof adds up, 1 it does not, 2 the command line is wrong, 3 the API gives no answer.")]
pub(crate) struct Arguments {
    /// The id of the span, of `sampler spans` or the Location of its start
    #[arg(value_name = "SPAN")]
    id: String,
    /// How many usages are shown, the last ones
    #[arg(long, value_name = "N", default_value_t = 20)]
    usages: usize,
    /// The ledger as it was at this moment, in ms or RFC 3339
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    as_of: Option<Millis>,
    #[command(flatten)]
    period: Period,
    #[command(flatten)]
    common: Common,
}

/// Runs the command.
pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let (span, _) = api.single(&["v1", "spans", &arguments.id]).await?;
    let mut query = Query::new();
    arguments.period.add_to(&mut query);
    add(&mut query, "as_of", arguments.as_of);
    let path = ["v1", "spans", &arguments.id, "usages"];
    let (usages, _) = api.items(&path, &query, usize::MAX).await?;
    if arguments.common.json {
        print_json(&json!({ "span": span, "usages": usages }))?;
    } else {
        print(&page(&span, &usages, arguments.usages))?;
    }
    let adds_up = integer(&span, "/proof/difference") == Some(0);
    Ok(ExitCode::from(u8::from(!adds_up)))
}

fn page(span: &Value, usages: &[Value], shown: usize) -> String {
    let mut parts = vec![facts(span)];
    if let Some(timeline) = timeline_of(span, usages) {
        parts.push(timeline.draw(width()));
    }
    parts.push(format!("{}\n", proof(span)));
    parts.push(ledger(usages, shown));
    parts.join("\n")
}

fn facts(span: &Value) -> String {
    let ids = [
        "organization_id",
        "space_id",
        "consumer_id",
        "resource_id",
        "plan_id",
    ];
    let ids = ids.into_iter().chain(["resource_instance_id"]);
    let mut facts = vec![("span", text(span, "/id"))];
    facts.extend(ids.map(|name| (name, text(span, &format!("/target/{name}")))));
    facts.push(("measures", measures(span, "/measured_usage", "/quantity")));
    let event = |moment: String, id: &str| match text(span, id).as_str() {
        "-" => moment,
        id => format!("{moment} (event {id})"),
    };
    facts.push(("start", event(moment(span, "/start"), "/start_event_id")));
    facts.push(("end", event(moment(span, "/end"), "/end_event_id")));
    facts.push(("state", text(span, "/state")));
    facts.push(("sampled to", moment(span, "/sampled_to")));
    facts.push(("due at", moment(span, "/due_at")));
    if span["planned"].is_object() {
        let (from, to) = (moment(span, "/planned/start"), moment(span, "/planned/end"));
        let id = text(span, "/planned/usage_id");
        facts.push(("planned", format!("{from} to {to} (usage {id})")));
    }
    if span
        .pointer("/delivery/last_error")
        .is_some_and(Value::is_object)
    {
        let attempts = text(span, "/delivery/attempts");
        let (at, status) = (
            moment(span, "/delivery/last_error/at"),
            text(span, "/delivery/last_error/status"),
        );
        let error = text(span, "/delivery/last_error/error");
        facts.push((
            "last error",
            format!("{at} {status} {error} (attempt {attempts})"),
        ));
    }
    pairs(&facts)
}

/// The proof in one line.
fn proof(span: &Value) -> String {
    let is_right = integer(span, "/proof/difference") == Some(0);
    let relation = if is_right { "=" } else { "IS NOT" };
    let since = if integer(span, "/proof/since") == integer(span, "/start") {
        String::new()
    } else {
        format!(" since {}", moment(span, "/proof/since"))
    };
    format!(
        "proof: used {}{since} {relation} billed {} + skipped {}; difference {} ms, {} usages",
        length(span, "/proof/used"),
        length(span, "/proof/billed"),
        length(span, "/proof/skipped"),
        text(span, "/proof/difference"),
        text(span, "/proof/usages"),
    )
}

fn timeline_of(span: &Value, usages: &[Value]) -> Option<Timeline> {
    let bar = |usage: &Value, start: &str, end: &str, is_done| {
        Some(Bar {
            from: integer(usage, start)?,
            to: integer(usage, end)?,
            is_done,
        })
    };
    let is_done = |usage: &Value| !matches!(usage["state"].as_str(), Some("planned" | "refused"));
    let bars = usages
        .iter()
        .filter_map(|usage| bar(usage, "/interval/start", "/interval/end", is_done(usage)));
    let planned = bar(span, "/planned/start", "/planned/end", false);
    Some(Timeline {
        start: integer(span, "/start")?,
        end: integer(span, "/end"),
        sampled_to: integer(span, "/sampled_to")?,
        bars: bars.chain(planned).collect(),
    })
}

fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|columns| columns.parse().ok());
    columns.unwrap_or(WIDTH_DEFAULT).clamp(WIDTH_MIN, WIDTH_MAX)
}

/// The last usages, in their order.
fn ledger(usages: &[Value], shown: usize) -> String {
    let first = usages.len().saturating_sub(shown);
    let header = [
        "usage",
        "from",
        "to",
        "duration",
        "state",
        "planned at",
        "answered",
    ];
    let rows = usages[first..].iter().map(|usage| {
        [
            text(usage, "/id"),
            moment(usage, "/interval/start"),
            moment(usage, "/interval/end"),
            length(usage, "/duration"),
            text(usage, "/state"),
            moment(usage, "/planned_at"),
            answered(usage),
        ]
    });
    let mut text = format!("{}\n", table(header, rows, &[0, 1, 2, 4, 5, 6]));
    if first > 0 {
        let _ = writeln!(
            text,
            "... and {first} earlier usages: --usages {}",
            usages.len()
        );
    }
    text
}

fn answered(usage: &Value) -> String {
    let parts = [
        text(usage, "/status"),
        moment(usage, "/accepted_at"),
        text(usage, "/error"),
    ];
    let parts: Vec<String> = parts.into_iter().filter(|part| part != "-").collect();
    parts.join(" ")
}
