//! `events dry-run`: the answers that events would get, and the usages that would be billed.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use sampler_api::{DryRun, PostedUsage};
use sampler_verify::moment::Millis;
use serde::Serialize;
use serde_json::json;

use super::foreseen::Foreseen;
use super::input::{Input, Item};
use super::report::in_one_line;
use super::send::{PATH, media_type};
use super::{FileArguments, clock};
use crate::api::{Api, Query, Request};
use crate::failure::Failure;
use crate::listing::{Common, add};
use crate::moment::time;
use crate::output::{print, printable};
use crate::show::{measures, print_json};
use crate::table::table;

const EVENTS_MAX: usize = 1_000;

/// Shows what events would do: nothing is kept, and nothing is billed
#[derive(Debug, Args)]
#[command(after_help = "\
At most 1,000 events: each is decided as if the events before it had taken effect. The sum is over all
usages that the upstream would get until then, each once.

Examples:
  sampler events dry-run events.ndjson
  sampler events dry-run spans.csv --measures memory --usages --until 2026-12-01

Exit codes: 0 all events would be kept, 1 some would be refused, 2 the command line or the file is wrong,
3 the API gives no answer.")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: FileArguments,
    /// The usages until this time [default: now]
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    until: Option<Millis>,
    /// Shows each event with a table of its usages
    #[arg(long)]
    usages: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct LineResult {
    line: u64,
    #[serde(flatten)]
    decision: Decision,
}

/// Who decided about a line.
#[derive(Serialize)]
#[serde(untagged)]
enum Decision {
    Receiver(Box<DryRun>),
    /// It was not sent.
    Here {
        would: u16,
        problem: String,
    },
}

pub(super) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let now = arguments.file.now.unwrap_or_else(clock::now);
    let (mut events, mut wrong) = (Vec::new(), Vec::new());
    let mut input = Input::open(&arguments.file, now)?;
    while let Some(Item { line, event }) = input.next()? {
        match event {
            Ok(event) => events.push(event),
            Err(problem) => wrong.push(LineResult {
                line,
                decision: Decision::Here {
                    would: 400,
                    problem,
                },
            }),
        }
        if events.len() + wrong.len() > EVENTS_MAX {
            let what = format!("a dry run can have at most {EVENTS_MAX} events");
            return Err(Failure::Input(what));
        }
    }
    if events
        .iter()
        .any(|event| event.is_cloud_event != events[0].is_cloud_event)
    {
        let what = "a dry run cannot have CloudEvents and other events together";
        return Err(Failure::Input(what.to_owned()));
    }
    let (mut results, mut foreseen) = (wrong, Foreseen::default());
    if !events.is_empty() {
        let mut query: Query = vec![("dry_run", "true".to_owned())];
        add(&mut query, "until", arguments.until);
        let bodies: Vec<&str> = events.iter().map(|event| event.body.as_str()).collect();
        let body = format!("[{}]", bodies.join(",\n")).into_bytes();
        let request = Request::post(&PATH)
            .query(query)
            .body(media_type(&events), body);
        let answers: Vec<DryRun> = api.call(&request).await?.read(&PATH)?;
        for (event, answer) in events.iter().zip(&answers) {
            foreseen.add(event, answer);
        }
        let answers = events
            .iter()
            .zip(answers)
            .map(|(event, answer)| LineResult {
                line: event.line,
                decision: Decision::Receiver(Box::new(answer)),
            });
        results.extend(answers);
    }
    results.sort_by_key(|result| result.line);
    let is_good = results.iter().all(LineResult::is_kept);
    if arguments.common.json {
        print_json(&json!({ "items": results }))?;
    } else {
        print(&words(&results, arguments.usages))?;
        let kept = results.iter().filter(|result| result.is_kept()).count();
        print(&foreseen.words(kept, results.len() - kept))?;
    }
    Ok(ExitCode::from(u8::from(!is_good)))
}

impl LineResult {
    fn is_kept(&self) -> bool {
        match &self.decision {
            Decision::Receiver(answer) => answer.would < 300,
            Decision::Here { .. } => false,
        }
    }
}

/// The events that would be refused; with their usages, all.
fn words(results: &[LineResult], with_usages: bool) -> String {
    let mut words = String::new();
    for result in results {
        let line = result.line;
        let _ = match &result.decision {
            Decision::Receiver(answer) if with_usages || !result.is_kept() => {
                write!(words, "line {line}: {}", words_of(answer, with_usages))
            }
            Decision::Receiver(_) => Ok(()),
            Decision::Here { would, problem } => {
                writeln!(words, "line {line}: {would} {}", printable(problem))
            }
        };
    }
    words
}

pub(crate) fn words_of(answer: &DryRun, with_usages: bool) -> String {
    let mut words = answer.would.to_string();
    if answer.replayed == Some(true) {
        words.push_str(" replayed");
    }
    if let Some(problem) = &answer.problem {
        let _ = write!(words, " {}", in_one_line(problem));
    }
    words.push('\n');
    let usages = answer.usages.as_deref().unwrap_or_default();
    if with_usages && !usages.is_empty() {
        let _ = writeln!(words, "{}", usage_table(usages));
    }
    if with_usages && answer.more {
        let _ = writeln!(words, "... there are more usages than are shown");
    }
    words
}

fn usage_table(usages: &[PostedUsage]) -> String {
    let rows = usages.iter().map(|usage| {
        let (id, at) = (printable(&usage.dedup_id), usage.end.to_string());
        [id, at, measures(&usage.measured_usage)]
    });
    table(["usage", "timestamp", "measures"], rows, &[0, 1, 2])
}
