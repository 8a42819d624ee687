//! `events preview`: the usages that the upstream would get, without asking anybody.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use sampler_domain::{
    Granularities, Granularity, Id, Measure, Measures, Planned, Policy, Quantity, Span, SpanId,
    StartEvent, Step, StopEvent, Target, Timestamp, Usage, next_step,
};
use sampler_verify::moment::Millis;
use sampler_verify::words::counted;
use sampler_verify::{History, Used};
use serde_json::json;

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
    let policy = Policy {
        granularities: Granularities::all(granularity),
        stop_grace: 0,
    };
    let history = History::of(arguments.file.open()?.read()?);
    let mut usages = Vec::new();
    for used in &history.used {
        let span = span_of(used).map_err(|what| {
            let line = used.line;
            Failure::Input(format!("line {line}: {what}"))
        })?;
        usages.extend(usages_of(span, Timestamp::clamped(until), &policy));
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

/// The usages of a span, in the order in which a worker posts them.
fn usages_of(mut span: Span, until: Timestamp, policy: &Policy) -> Vec<Usage> {
    let mut usages = Vec::new();
    loop {
        match next_step(&span, until, policy) {
            Step::Plan(interval) => {
                span.processing.planned = Some(Planned::new(&span, interval, until));
            }
            Step::Execute(planned) => {
                usages.push(Usage::new(&span, &planned));
                span = span.executed();
            }
            Step::Complete | Step::Wait(_) => return usages,
        }
    }
}

/// The span that the receiver would keep.
fn span_of(used: &Used) -> Result<Span, String> {
    let measure = |it: &sampler_verify::quantity::Measure| {
        let quantity = serde_json::to_value(&it.quantity).map_err(|error| error.to_string())?;
        let quantity = Quantity::new(quantity).map_err(|error| error.to_string())?;
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
    let span = Span::open(SpanId::new(start.timestamp, used.line), start);
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
