//! `events preview`: the usages that the upstream would get, without asking anybody.

use std::process::ExitCode;

use clap::Args;
use sampler_domain::{
    Acceptance, Action, Contract, Driver, Granularities, Granularity, Measure, Measures, Policy,
    Quantity, Remembered, RunId, Span, SpanId, StartEvent, StopEvent, Target, Terms, Timestamp,
    Usage,
};
use sampler_verify::moment::Millis;
use sampler_verify::words::counted;
use sampler_verify::{History, Used};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::failure::Failure;
use crate::file::FileArguments;
use crate::moment::time;
use crate::show::{exit_code, length_in_words, show, table_of};

const USAGES: &str = "target start end duration timestamp measured_usage";

/// Shows the usages that the upstream would get for the events of a file, offline
#[derive(Debug, Args)]
#[command(after_help = "\
The usages follow by the rules of the worker, if the upstream accepts each and no other event comes.

Examples:
  sampler events preview events.ndjson
  sampler events preview spans.csv --granularity hour --until 2026-12-01")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: FileArguments,
    /// The usages until this time [default: now]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    until: Option<Millis>,
    /// The windows of the worker: `SAMPLER_DIMENSION`
    #[arg(long, value_parser = ["minute", "hour", "day", "month"], default_value = "day")]
    granularity: String,
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
    let file = arguments.file.open()?;
    let history = History::of(file.read()?);
    let mut usages = Vec::new();
    for used in &history.used {
        let span = span_of(used);
        let span = span.map_err(|what| file.wrong(&format!("line {}: {what}", used.line)))?;
        usages.extend(usages_of(span, Timestamp::clamped(until), &terms));
    }
    let contradictions = &history.contradictions;
    let document = json!({ "usages": usages, "contradictions": contradictions });
    show(&document, || {
        let details = contradictions.iter().map(|it| format!("{}\n", it.detail));
        details.collect::<String>() + &in_words(&usages)
    })?;
    Ok(exit_code(contradictions.is_empty()))
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
    let target = Target::from_store(used.target.ids());
    let start = StartEvent {
        id: None,
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
        id: None,
        timestamp: Timestamp::clamped(end),
        target,
    };
    Ok(span.ended(&stop, None))
}

fn in_words(usages: &[Usage]) -> String {
    let all: Millis = usages.iter().map(|usage| usage.interval.duration()).sum();
    let (count, all) = (counted(usages.len(), "usage"), length_in_words(all));
    let shown = usages.iter().map(|usage| {
        json!({
            "target": usage.target, "start": usage.interval.start, "end": usage.interval.end,
            "duration": usage.interval.duration(), "timestamp": usage.start,
            "measured_usage": usage.measured_usage,
        })
    });
    let shown: Vec<Value> = shown.collect();
    format!(
        "{}\n{count} of {all} together.\n",
        table_of(&shown, USAGES, "No usages.")
    )
}
