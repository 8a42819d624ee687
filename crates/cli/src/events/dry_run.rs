//! `events dry-run`: the answers that events would get, and the usages that would be billed.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use sampler_verify::moment::{Millis, parse_moment};
use serde_json::{Value, json};

use super::input::{Input, Item};
use super::report::problem;
use super::send::{PATH, media_type};
use super::{FileArguments, clock};
use crate::api::{Api, Query, Request};
use crate::failure::Failure;
use crate::listing::{Common, add};
use crate::output::print;
use crate::show::{measures, moment, print_json, text};
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

pub(super) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let now = arguments.file.now.unwrap_or_else(clock::now);
    let (mut events, mut wrong) = (Vec::new(), Vec::new());
    let mut input = Input::open(&arguments.file, now)?;
    while let Some(Item { line, event }) = input.next()? {
        match event {
            Ok(event) => events.push(event),
            Err(reason) => wrong.push(json!({ "line": line, "would": 400, "problem": reason })),
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
        let answers: Vec<Value> = api.call(&request).await?.read(&PATH)?;
        for (event, mut answer) in events.iter().zip(answers) {
            answer["line"] = json!(event.line);
            results.push(answer);
        }
    }
    results.sort_by_key(|result| result["line"].as_u64());
    let is_kept = |result: &Value| result["would"].as_u64().is_some_and(|would| would < 300);
    let is_good = results.iter().all(is_kept);
    if arguments.common.json {
        print_json(&json!({ "items": results }))?;
    } else {
        print(&words(&results))?;
    }
    Ok(ExitCode::from(u8::from(!is_good)))
}

fn words(results: &[Value]) -> String {
    let mut words = String::new();
    for result in results {
        let (line, would) = (text(result, "/line"), text(result, "/would"));
        let why = match &result["problem"] {
            Value::Null => String::new(),
            document => format!(" {}", problem(document)),
        };
        let replayed = match result["replayed"] {
            Value::Bool(true) => " replayed",
            _ => "",
        };
        let _ = writeln!(words, "line {line}: {would}{replayed}{why}");
        let usages = result["usages"].as_array().map_or(&[][..], Vec::as_slice);
        if !usages.is_empty() {
            let _ = writeln!(words, "{}", usage_table(usages));
        }
        if result["more"] == Value::Bool(true) {
            let _ = writeln!(words, "... there are more usages than are shown");
        }
    }
    words
}

fn usage_table(usages: &[Value]) -> String {
    let rows = usages.iter().map(|usage| {
        let (id, at) = (text(usage, "/dedup_id"), moment(usage, "/end"));
        [id, at, measures(usage, "/measured_usage", "/quantity")]
    });
    table(["usage", "timestamp", "measures"], rows, &[0, 1, 2])
}
