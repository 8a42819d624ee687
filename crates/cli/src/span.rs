//! `span`: one span, drawn over time, with its proof and its usages.

mod timeline;

use std::fmt::{Display, Write};
use std::process::ExitCode;

use clap::Args;
use sampler_api::{Plan, Proof, Span, Timestamp, Usage};
use sampler_verify::words::counted;
use serde_json::{Value, json};

use crate::api::{Api, Query};
use crate::failure::Failure;
use crate::listing::{Common, Period};
use crate::moment::FORMS;
use crate::output::{print, printable};
use crate::resolve::{self, ResolvedSpan};
use crate::show::{length_in_words, measures, pairs, print_json, text};
use crate::table::table;
use crate::terminal::width;
use timeline::{Bar, Timeline};

/// Shows one span: its timeline, its proof, its usages
#[derive(Debug, Args)]
#[command(after_help = format!("\
The timeline shows the usages as windows (|), forwards (=) and backwards (<), what is planned or refused
(.), and the stop (^). A late stop shows as usages that go backwards from where sampling was to where it
should have ended. --from and --to keep usages whose timestamp is between them.
{FORMS}

Examples:
  sampler span orders-db
  sampler span 6b0067e75a449b4a91561b99 --usages 100

Exit codes: 0 the proof adds up, 1 it does not, 2 the command line is wrong, there is no such span, or the
instance has several, 3 the API gives no answer."))]
pub(crate) struct Arguments {
    /// The id of the span, as in `sampler spans`, or an instance that has one span
    #[arg(value_name = "SPAN|INSTANCE")]
    span: String,
    /// How many usages are shown, the last ones
    #[arg(long, value_name = "N", default_value_t = 20)]
    usages: usize,
    #[command(flatten)]
    period: Period,
    #[command(flatten)]
    common: Common,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let ResolvedSpan { id, answer } = resolve::span(&api, &arguments.span).await?;
    let path = ["v1", "spans", &id];
    let span: Span = answer.read(&path)?;
    let mut query = Query::new();
    arguments.period.add_to(&mut query);
    let of_usages = ["v1", "spans", &id, "usages"];
    if arguments.common.json {
        let (usages, _) = api.items::<Value>(&of_usages, &query, usize::MAX).await?;
        let span: Value = answer.read(&path)?;
        print_json(&json!({ "span": span, "usages": usages }))?;
    } else {
        let (usages, _) = api.items(&of_usages, &query, usize::MAX).await?;
        print(&page(&span, &usages, arguments.usages))?;
    }
    let adds_up = span.proof.difference == 0;
    Ok(ExitCode::from(u8::from(!adds_up)))
}

fn page(span: &Span, usages: &[Usage], shown: usize) -> String {
    let parts = [
        facts(span),
        timeline_of(span, usages).draw(width()),
        format!("{}\n", proof(&span.proof, span.start)),
        ledger(usages, shown),
    ];
    parts.join("\n")
}

/// What is said of a usage where a post of it had no answer.
pub(crate) const MAY_COUNT: &str =
    "a post of the planned usage had no answer: the upstream may count it";

fn facts(span: &Span) -> String {
    let target = &span.target;
    let mut facts = vec![
        ("span", printable(&span.id)),
        ("organization_id", printable(&target.organization_id)),
        ("space_id", printable(&target.space_id)),
        ("consumer_id", printable(&target.consumer_id)),
        ("resource_id", printable(&target.resource_id)),
        ("plan_id", printable(&target.plan_id)),
        (
            "resource_instance_id",
            printable(&target.resource_instance_id),
        ),
        ("measures", measures(&span.measured_usage)),
        (
            "start",
            event(Some(span.start), span.start_event_id.as_deref()),
        ),
        ("end", event(span.end, span.end_event_id.as_deref())),
        ("state", printable(&span.state)),
        ("sampled to", span.sampled_to.to_string()),
        ("due at", text(span.due_at)),
    ];
    if let Some(Plan {
        start,
        end,
        usage_id,
    }) = &span.planned
    {
        let usage = printable(usage_id);
        facts.push(("planned", format!("{start} to {end} (usage {usage})")));
    }
    if span.delivery.unanswered {
        facts.push(("unanswered", MAY_COUNT.to_owned()));
    }
    if let Some(error) = &span.delivery.last_error {
        let (at, status, what) = (error.at, text(error.status), printable(&error.error));
        let attempts = span.delivery.attempts;
        let error = format!("{at} {status} {what} (attempt {attempts})");
        facts.push(("last error", error));
    }
    pairs(&facts)
}

/// When an event took place, and its id.
fn event(at: Option<impl Display>, id: Option<&str>) -> String {
    match id.map(printable) {
        Some(id) => format!("{} (event {id})", text(at)),
        None => text(at),
    }
}

/// The proof in one line.
fn proof(proof: &Proof, start: Timestamp) -> String {
    let relation = if proof.difference == 0 { "=" } else { "IS NOT" };
    let since = if start == proof.since {
        String::new()
    } else {
        format!(" since {}", proof.since)
    };
    let unanswered = match proof.unanswered {
        0 => String::new(),
        length => format!(
            " (the upstream may count {} of it: a post had no answer)",
            length_in_words(length)
        ),
    };
    let unsampled = match proof.unsampled {
        0 => String::new(),
        left if left > 0 => format!("; not billed yet {}", length_in_words(left)),
        left => format!("; to be taken back {}", length_in_words(-left)),
    };
    format!(
        "proof: used {}{since} {relation} billed {} + skipped {}{unanswered}{unsampled}; difference {} ms, {}",
        length_in_words(proof.used),
        length_in_words(proof.billed),
        length_in_words(proof.skipped),
        proof.difference,
        counted(proof.usages, "usage"),
    )
}

fn timeline_of(span: &Span, usages: &[Usage]) -> Timeline {
    let usages = usages.iter().map(|usage| Bar {
        from: usage.interval.start.as_millis(),
        to: usage.interval.end.as_millis(),
        is_done: usage.is_answered(),
    });
    let planned = span.planned.iter().map(|plan| Bar {
        from: plan.start.as_millis(),
        to: plan.end.as_millis(),
        is_done: false,
    });
    Timeline {
        start: span.start.as_millis(),
        end: span.end.map(Timestamp::as_millis),
        sampled_to: span.sampled_to.as_millis(),
        bars: usages.chain(planned).collect(),
    }
}

/// The last usages, in their order.
fn ledger(usages: &[Usage], shown: usize) -> String {
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
            printable(&usage.id),
            usage.interval.start.to_string(),
            usage.interval.end.to_string(),
            length_in_words(usage.duration),
            printable(&usage.state),
            usage.planned_at.to_string(),
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

fn answered(usage: &Usage) -> String {
    let unanswered = usage.unanswered.then(|| "a post had no answer".to_owned());
    let parts = [
        unanswered,
        usage.status.map(|status| status.to_string()),
        usage.accepted_at.map(|at| at.to_string()),
        usage.error.as_deref().map(printable),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
