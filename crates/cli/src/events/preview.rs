//! `events preview`: the usages that the upstream would get, without asking anybody.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use sampler_domain::{
    Acceptance, Action, Contract, Driver, Granularities, Granularity, Id, Measure, Measures,
    Policy, Quantity, Remembered, RunId, Span, SpanId, StartEvent, StopEvent, Target, Terms,
    Timestamp, Usage,
};
use sampler_verify::moment::Millis;
use sampler_verify::words::counted;
use sampler_verify::{History, Used};
use serde_json::json;
use uuid::Uuid;

use crate::failure::Failure;
use crate::file::FileArguments;
use crate::listing::Common;
use crate::moment::time;
use crate::output::{print, printable};
use crate::show::{length_in_words, measures, print_json, target};
use crate::table::table;

/// How many usages a table shows.
const ROWS_SHOWN: usize = 10_000;

/// Shows the usages that the upstream would get for the events of a file, offline
#[derive(Debug, Args)]
#[command(after_help = "\
The usages follow by the rules of the worker, if the upstream accepts each and no other event comes.

Examples:
  sampler events preview events.ndjson
  sampler events preview spans.csv --granularity hour --until 2026-12-01

Exit codes: 0 all events go together, 1 some contradict others, 2 the command line or the file is wrong.")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: FileArguments,
    /// The usages until this time [default: now]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    until: Option<Millis>,
    /// The windows of the worker: `SAMPLER_DIMENSION`
    #[arg(long, value_parser = ["minute", "hour", "day", "month"], default_value = "day")]
    granularity: String,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let until = arguments.until.unwrap_or_else(|| arguments.file.now());
    let granularity: Granularity = arguments
        .granularity
        .parse()
        .expect("only its names are values of the option");
    let terms = Terms {
        run: RunId(Uuid::nil()),
        policy: Policy {
            granularities: Granularities::all(granularity),
            stop_grace: 0,
        },
        contract: Contract::Forever,
        suspend_after: 1,
    };
    let history = History::of(arguments.file.open()?.read()?);
    let mut usages = Vec::new();
    for used in &history.used {
        let span = span_of(used).map_err(|what| {
            let line = used.line;
            Failure::Input(format!("line {line}: {what}"))
        })?;
        usages.extend(usages_of(span, Timestamp::clamped(until), &terms));
    }
    let contradictions = &history.contradictions;
    if arguments.common.json {
        print_json(&json!({ "usages": usages, "contradictions": contradictions }))?;
    } else {
        let mut words = String::new();
        for contradiction in contradictions {
            let _ = writeln!(words, "{}", printable(&contradiction.detail));
        }
        print(&(words + &in_words(&usages)))?;
    }
    Ok(ExitCode::from(u8::from(!contradictions.is_empty())))
}

/// The usages of a span, in the order in which a worker posts them to an upstream that accepts each.
fn usages_of(span: Span, until: Timestamp, terms: &Terms) -> Vec<Usage> {
    let mut usages = Vec::new();
    let mut driver = Driver::new(span, Remembered::default(), until);
    loop {
        match driver.action(until, terms) {
            Action::Change(change) => driver.on_change_made(*change),
            Action::Post { delivery, .. } => {
                usages.push(Usage::new(driver.span(), &delivery));
                driver.on_accepted(Acceptance {
                    at: until,
                    status: None,
                    location: None,
                });
            }
            Action::WriteEntry(_) => driver.on_entry_written(),
            _ => return usages,
        }
    }
}

/// The span that the receiver would keep.
fn span_of(used: &Used) -> Result<Span, String> {
    let measure = |it: &sampler_verify::quantity::Measure| {
        let quantity = Quantity::new(it.quantity.clone()).map_err(|error| error.to_string())?;
        Measure::new(&*it.measure, quantity).map_err(|error| error.to_string())
    };
    let measured: Result<Vec<Measure>, String> = used.measures.iter().map(measure).collect();
    let measured = Measures::new(measured?).map_err(|errors| errors[0].to_string())?;
    let id = |id: &Option<String>| id.as_deref().map(Id::from_store);
    let target = Target::from_store(used.target.ids());
    let start = StartEvent {
        id: id(&used.start_id),
        timestamp: Timestamp::clamped(used.start),
        target: target.clone(),
        measures: measured,
    };
    let (id_of_span, due_at) = (SpanId::new(start.timestamp, used.line), start.timestamp);
    let span = Span::open(id_of_span, start, due_at);
    let Some(end) = used.end else {
        return Ok(span);
    };
    let stop = StopEvent {
        id: id(&used.end_id),
        timestamp: Timestamp::clamped(end),
        target,
    };
    Ok(span.ended(&stop, None))
}

fn in_words(usages: &[Usage]) -> String {
    let header = ["target", "from", "to", "duration", "timestamp", "measures"];
    let rows = usages.iter().take(ROWS_SHOWN).map(|usage| {
        [
            target(&usage.target.clone().into()),
            usage.interval.start.to_string(),
            usage.interval.end.to_string(),
            length_in_words(usage.interval.duration()),
            usage.end.to_string(),
            measures(&sampler_api::measures(&usage.measured_usage)),
        ]
    });
    let all: Millis = usages.iter().map(|usage| usage.interval.duration()).sum();
    let sum = format!(
        "{} of {} together.\n",
        counted(usages.len(), "usage"),
        length_in_words(all)
    );
    if usages.is_empty() {
        return sum;
    }
    let rest = match usages.len().saturating_sub(ROWS_SHOWN) {
        0 => String::new(),
        rest => format!("... and {rest} more; --json has all\n"),
    };
    format!("{}\n{rest}\n{sum}", table(header, rows, &[0, 1, 2, 4, 5]))
}
