//! `span`: one span, with its proof and its usages.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use sampler_api::{Proof, Span};
use sampler_verify::words::counted;
use serde_json::{Value, json};

use crate::api::{Api, Query};
use crate::failure::Failure;
use crate::listing::{Common, Period};
use crate::moment::FORMS;
use crate::output::{print, printable};
use crate::resolve::{self, ResolvedSpan};
use crate::show::{As, Column, facts, length_in_words, measures, pairs, print_json};
use crate::show::{table_of, text};

/// What is said of a usage where a post of it had no answer.
const MAY_COUNT: &str = "a post of the planned usage had no answer: the upstream may count it";

const FACTS: [Column; 14] = [
    ("span", "/id", As::Text),
    ("organization_id", "/target/organization_id", As::Text),
    ("space_id", "/target/space_id", As::Text),
    ("consumer_id", "/target/consumer_id", As::Text),
    ("resource_id", "/target/resource_id", As::Text),
    ("plan_id", "/target/plan_id", As::Text),
    (
        "resource_instance_id",
        "/target/resource_instance_id",
        As::Text,
    ),
    ("start", "/start", As::Time),
    ("  event", "/start_event_id", As::Text),
    ("end", "/end", As::Time),
    ("  event", "/end_event_id", As::Text),
    ("state", "/state", As::Text),
    ("sampled to", "/sampled_to", As::Time),
    ("due at", "/due_at", As::Time),
];

const USAGES: [Column; 6] = [
    ("usage", "/id", As::Text),
    ("from", "/interval/start", As::Time),
    ("to", "/interval/end", As::Time),
    ("duration", "/duration", As::Length),
    ("status", "/status", As::Text),
    ("accepted at", "/accepted_at", As::Time),
];

const RANGES: [Column; 5] = [
    ("from", "/start", As::Time),
    ("to", "/end", As::Time),
    ("taken back to", "/back_to", As::Time),
    ("unanswered", "/unanswered", As::Words(yes)),
    ("error", "/error", As::Text),
];

/// Shows one span: its proof, its usages
#[derive(Debug, Args)]
#[command(after_help = format!("\
A late stop shows as usages of negative duration, from where sampling was to where it should have ended.
--from and --to keep usages whose timestamp is between them.
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
    let (span, document): (Span, Value) = (answer.read(&path)?, answer.read(&path)?);
    let mut query = Query::new();
    arguments.period.add_to(&mut query);
    let of_usages = ["v1", "spans", &id, "usages"];
    let (usages, _) = api.items::<Value>(&of_usages, &query, usize::MAX).await?;
    if arguments.common.json {
        print_json(&json!({ "span": document, "usages": usages }))?;
    } else {
        let facts = pairs(&[facts(&document, &FACTS), delivery(&span)].concat());
        let proof = proof(&span.proof);
        let skipped = ranges(&document["excluded"], "skipped");
        let again = ranges(&document["again"], "sent again");
        let ledger = ledger(&usages, arguments.usages);
        print(&format!("{facts}\n{proof}\n\n{skipped}{again}{ledger}"))?;
    }
    Ok(ExitCode::from(u8::from(span.proof.is_broken())))
}

/// What is measured, what comes next, and what is in the way.
fn delivery(span: &Span) -> Vec<(&'static str, String)> {
    let mut facts = vec![("measures", measures(&span.measured_usage))];
    if let Some(plan) = &span.planned {
        let usage = printable(&plan.usage_id);
        let planned = format!("{} to {} (usage {usage})", plan.start, plan.end);
        facts.push(("planned", planned));
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
    facts
}

/// The proof in one line.
fn proof(proof: &Proof) -> String {
    let [used, billed, skipped] = [proof.used, proof.billed, proof.skipped].map(length_in_words);
    let mut words = format!("proof: used {used} = billed {billed} + skipped {skipped}");
    if proof.unanswered != 0 {
        let unanswered = length_in_words(proof.unanswered);
        let _ = write!(
            words,
            " (the upstream may count {unanswered} of it: a post had no answer)"
        );
    }
    let unsampled = length_in_words(proof.unsampled.saturating_abs());
    let _ = match proof.unsampled {
        0 => Ok(()),
        1.. => write!(words, "; not billed yet {unsampled}"),
        _ => write!(words, "; to be taken back {unsampled}"),
    };
    let usages = counted(proof.usages.unwrap_or_default(), "usage");
    let ledger = length_in_words(proof.ledger.unwrap_or_default());
    let name = if proof.is_broken() {
        "DIFFERENCE"
    } else {
        "difference"
    };
    let difference = proof.difference.unwrap_or_default();
    words + &format!("; the ledger has {usages} of {ledger}, {name} {difference} ms")
}

/// Ranges that do not count; nothing where there are none.
fn ranges(ranges: &Value, what: &str) -> String {
    let Some(ranges) = ranges.as_array().filter(|ranges| !ranges.is_empty()) else {
        return String::new();
    };
    format!("{what}:\n{}\n", table_of(ranges, &RANGES, ""))
}

/// The last usages, in their order.
fn ledger(usages: &[Value], shown: usize) -> String {
    let first = usages.len().saturating_sub(shown);
    let table = table_of(&usages[first..], &USAGES, "No usages.");
    match first {
        0 => table,
        _ => format!(
            "{table}... and {first} earlier usages: --usages {}\n",
            usages.len()
        ),
    }
}

fn yes(value: &Value) -> String {
    let is_so = value.as_bool() == Some(true);
    if is_so { "yes" } else { "-" }.to_owned()
}
