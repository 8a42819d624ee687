//! `events dry-run`: the answers that events would get, and the usages that would be billed.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use sampler_api::{DryRun, PostedUsage};
use sampler_verify::moment::{Millis, parse_moment};
use serde::Serialize;
use serde_json::json;

use super::input::{Input, Item};
use super::report::in_one_line;
use super::send::{PATH, media_type};
use super::{FileArguments, clock};
use crate::api::{Api, Query, Request};
use crate::failure::Failure;
use crate::listing::{Common, add};
use crate::output::{print, printable};
use crate::show::{measures, print_json};
use crate::table::table;

/// The most events of one dry run.
const EVENTS_MAX: usize = 1_000;

/// Shows what would become of events: nothing is kept, and nothing is billed
#[derive(Debug, Args)]
#[command(after_help = "\
At most 1,000 events: each is decided as if those before it had taken effect.

Exit codes: 0 all events would be kept, 1 some would be refused, 2 the command line or the file is wrong,
3 the API gives no answer.")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: FileArguments,
    /// Shows the usages until this moment, in ms or RFC 3339 [default: now]
    #[arg(long, value_name = "MOMENT", value_parser = parse_moment)]
    until: Option<Millis>,
    #[command(flatten)]
    common: Common,
}

/// The result of a line of the file.
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
    let mut results = wrong;
    if !events.is_empty() {
        let mut query: Query = vec![("dry_run", "true".to_owned())];
        add(&mut query, "until", arguments.until);
        let bodies: Vec<&str> = events.iter().map(|event| event.body.as_str()).collect();
        let body = format!("[{}]", bodies.join(",\n")).into_bytes();
        let request = Request::post(&PATH)
            .query(query)
            .body(media_type(&events), body);
        let answers: Vec<DryRun> = api.call(&request).await?.read(&PATH)?;
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
        print(&words(&results))?;
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

fn words(results: &[LineResult]) -> String {
    let mut words = String::new();
    for LineResult { line, decision } in results {
        let _ = match decision {
            Decision::Receiver(answer) => write!(words, "line {line}: {}", words_of(answer)),
            Decision::Here { would, problem } => {
                writeln!(words, "line {line}: {would} {}", printable(problem))
            }
        };
    }
    words
}

fn words_of(answer: &DryRun) -> String {
    let mut words = answer.would.to_string();
    if answer.replayed == Some(true) {
        words.push_str(" replayed");
    }
    if let Some(problem) = &answer.problem {
        let _ = write!(words, " {}", in_one_line(problem));
    }
    words.push('\n');
    let usages = answer.usages.as_deref().unwrap_or_default();
    if !usages.is_empty() {
        let _ = writeln!(words, "{}", usage_table(usages));
    }
    if answer.more {
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
