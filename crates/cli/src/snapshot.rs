//! `snapshot`: compares what really runs with the spans, and mends the difference.

mod comparison;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use sampler_verify::Target;
use sampler_verify::events::json_in_words;
use sampler_verify::moment::{InWords, Millis, parse_length, parse_moment};
use sampler_verify::words::{counted, form};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{Api, ApiError, Query};
use crate::event::{Measured, SpanSeen};
use crate::events::{FileEvent, Sender};
use crate::failure::Failure;
use crate::moment;
use crate::output::{Progress, printable, warn};
use crate::show::{exit_code, show, table};
use comparison::{Difference, Instance, compare, key_of};

/// How many events are sent at once.
const BATCH: usize = 500;
/// A proposed start can still be applied for so long, ms; where the slack is short, for half of it.
const TIME_TO_APPLY: Millis = 24 * 60 * 60 * 1_000;

/// Compares what really runs with the spans
#[derive(Debug, Args)]
#[command(after_help = "\
FILE is NDJSON. The first line is the head: {\"resource_id\": \"postgres\", \"at\": 1795186800000}. Each other
line is an instance that ran then: organization_id, space_id, consumer_id, plan_id, resource_instance_id, and
if they are known since (since when it runs for this customer, under any plan) and measured_usage.

Each event has an id that follows from what it says: applying a snapshot twice is safe. What has changed
since is refused.

Examples:
  sampler snapshot now.ndjson
  sampler snapshot apply now.ndjson --most 5000")]
pub(crate) struct Arguments {
    /// `diff` (the default) shows what differs, `apply` sends the events that mend it; and a snapshot
    #[arg(value_name = "[diff|apply] FILE", required = true, num_args = 1..=2)]
    what: Vec<PathBuf>,
    /// Sends nothing if more events would be sent: a snapshot that lacks instances would stop them
    #[arg(long, value_name = "N", default_value_t = 100)]
    most: usize,
    /// How old events may be that the receiver takes: `SAMPLER_SLACK_PAST_INTERVAL`
    #[arg(long, value_name = "LENGTH", default_value = "61d", value_parser = parse_length)]
    slack: Millis,
}

/// A time in milliseconds since 1970, or RFC 3339.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
struct Moment(Millis);

impl TryFrom<Value> for Moment {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        let what = "a time is neither milliseconds since 1970 nor RFC 3339";
        parse_moment(&text).map(Self).map_err(|_| what)
    }
}

/// The first line of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    resource_id: String,
    at: Moment,
}

/// A further line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    organization_id: String,
    space_id: String,
    consumer_id: String,
    plan_id: String,
    resource_instance_id: String,
    since: Option<Moment>,
    measured_usage: Option<Vec<Measured>>,
}

pub(crate) async fn run(arguments: Arguments, api: &Api) -> Result<ExitCode, Failure> {
    let (file, applies) = match arguments.what.as_slice() {
        [file] => (file, false),
        [act, file] if act == Path::new("diff") => (file, false),
        [act, file] if act == Path::new("apply") => (file, true),
        _ => {
            let what = "sampler snapshot [diff|apply] FILE";
            return Err(Failure::Input(what.to_owned()));
        }
    };
    let now = moment::now();
    let text = std::fs::read_to_string(file).map_err(|error| Failure::of_file(file, &error))?;
    let read = read(&text, now);
    let (head, instances) = read.map_err(|what| Failure::of_file(file, &what))?;
    let time_to_apply = TIME_TO_APPLY.min(arguments.slack / 2);
    let floor = now
        .saturating_sub(arguments.slack)
        .saturating_add(time_to_apply);
    let difference = difference(api, &head, floor, &instances).await?;
    if applies {
        return apply(api, &difference, arguments.most).await;
    }
    show(&difference, || in_words(&difference))?;
    Ok(exit_code(difference.items().next().is_none()))
}

/// Reads the head and the instances, and checks what the receiver cannot.
fn read(text: &str, now: Millis) -> Result<(Head, Vec<Instance>), String> {
    let lines = (1..).zip(text.trim_start_matches('\u{feff}').lines());
    let mut lines = lines.filter(|(_, text)| !text.trim().is_empty() && !text.starts_with('#'));
    let (line, text) = lines.next().ok_or("the snapshot has no head")?;
    let in_line = |line: u64, what: &str| format!("line {line}: {what}");
    let wrong = |line: u64, error| in_line(line, &json_in_words(&error));
    let head: Head = serde_json::from_str(text).map_err(|error| wrong(line, error))?;
    if head.at.0 > now {
        return Err(in_line(line, "\"at\" is in the future"));
    }
    let (mut instances, mut targets) = (Vec::new(), HashSet::new());
    for (line, text) in lines {
        let found: Line = serde_json::from_str(text).map_err(|error| wrong(line, error))?;
        let instance = found.instance(&head).map_err(|what| in_line(line, what))?;
        if !targets.insert((key_of(&instance.target), instance.target.plan_id.clone())) {
            return Err(in_line(line, "the same target is in the file already"));
        }
        instances.push(instance);
    }
    Ok((head, instances))
}

impl Line {
    fn instance(self, head: &Head) -> Result<Instance, &'static str> {
        let since = self.since.map(|since| since.0);
        if since.is_some_and(|since| since > head.at.0) {
            return Err("\"since\" is after the time of the snapshot");
        }
        Ok(Instance {
            target: Target {
                organization_id: self.organization_id,
                space_id: self.space_id,
                consumer_id: self.consumer_id,
                resource_id: head.resource_id.clone(),
                plan_id: self.plan_id,
                resource_instance_id: self.resource_instance_id,
            },
            since,
            measured_usage: self.measured_usage,
        })
    }
}

/// Compares the instances with the spans that ran at the time of the snapshot, or begin later. Where starts of
/// before would be proposed, the spans that ran from then on are read, too.
async fn difference(
    api: &Api,
    head: &Head,
    floor: Millis,
    instances: &[Instance],
) -> Result<Difference, ApiError> {
    let Head {
        resource_id,
        at: Moment(at),
    } = head;
    let progress = Progress::to(None);
    let mut spans = BTreeMap::new();
    let mut read = async |from: Millis, to: Option<Millis>| {
        let mut query: Query = vec![
            ("resource_id", resource_id.clone()),
            ("from", from.to_string()),
        ];
        query.extend(to.map(|to| ("to", to.to_string())));
        let take = |page: Vec<SpanSeen>| {
            spans.extend(page.into_iter().map(|span| (span.id.clone(), span)));
            progress.show(spans.len() as u64, "spans", "");
        };
        api.each_page(&["v1", "spans"], query, take).await?;
        Ok::<_, ApiError>(compare(*at, floor, instances, spans.values()))
    };
    let mut difference = read(*at, None).await?;
    let starts = difference.instance_without_span.iter();
    let starts = starts.map(|found| found.proposal.timestamp);
    if let Some(earliest) = starts.min().filter(|earliest| earliest < at) {
        difference = read(earliest, Some(*at)).await?;
    }
    progress.finish();
    Ok(difference)
}

async fn apply(api: &Api, difference: &Difference, most: usize) -> Result<ExitCode, Failure> {
    let count = difference.items().count();
    if count > most {
        warn(&format!(
            "nothing is sent: {} {} more than --most {most}; see `sampler snapshot diff`",
            counted(count, "event"),
            form(count, "is", "are"),
        ));
        return Ok(ExitCode::FAILURE);
    }
    let mut sender = Sender::new(api, BATCH, Progress::to(Some(count as u64)));
    let events = (1..)
        .zip(difference.items())
        .map(|(line, (_, found))| FileEvent {
            line,
            is_cloud_event: false,
            body: found.proposal.body(),
        });
    sender.send_events(events).await?;
    let report = sender.finish();
    let document = json!({ "difference": difference, "report": report });
    show(&document, || in_words(difference) + &report.words())?;
    Ok(exit_code(report.is_good()))
}

fn in_words(difference: &Difference) -> String {
    let (at, count) = (InWords(difference.at), difference.items().count());
    let checked = counted(difference.checked, "instance");
    if count == 0 {
        return format!("Nothing differs: {checked} at {at}.\n");
    }
    let rows = (1..)
        .zip(difference.items())
        .map(|(line, (meaning, found))| {
            let event = &found.proposal;
            [
                format!("{line}"),
                printable(&event.target.to_string()),
                meaning.to_owned(),
                format!("{} at {}", event.r#type, InWords(event.timestamp)),
                printable(found.span.as_deref().unwrap_or("-")),
            ]
        });
    let table = table(["line", "target", "", "event", "span"], rows, &[1, 2, 3, 4]);
    let differences = counted(count, "difference");
    format!("{table}\n\n{differences} among {checked} at {at}.\n")
}
