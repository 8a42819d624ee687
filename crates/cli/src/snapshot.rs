//! `snapshot`: compares what really runs with the spans, and mends the difference.

mod comparison;
mod proposal;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use sampler_api::Target;
use sampler_verify::moment::{InWords, Millis, parse_length};
use sampler_verify::words::{counted, form};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::api::{Api, Query};
use crate::clock;
use crate::event::Measured;
use crate::events::{FileEvent, Sender};
use crate::failure::Failure;
use crate::listing::Common;
use crate::moment;
use crate::output::{print, warn};
use crate::progress::Progress;
use crate::show::print_json;
use crate::table::table;
use comparison::key_of;
pub(crate) use comparison::{Comparison, Instance, SpanSeen};
pub(crate) use proposal::Difference;

/// How many events are sent at once.
const BATCH: usize = 500;
const ROWS_SHOWN: usize = 10_000;
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
  sampler snapshot apply now.ndjson --most 5000

Exit codes: 0 nothing differs, or all events are kept, 1 something differs, some events were refused, or there
are more than --most, 2 the command line or the file is wrong, 3 the API gives no answer.")]
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
    #[command(flatten)]
    common: Common,
}

/// The first line of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    resource_id: String,
    #[serde(deserialize_with = "moment::in_json")]
    at: Millis,
}

/// A further line.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    organization_id: String,
    space_id: String,
    consumer_id: String,
    resource_id: Option<String>,
    plan_id: String,
    resource_instance_id: String,
    #[serde(default, deserialize_with = "moment::in_json_if_any")]
    since: Option<Millis>,
    measured_usage: Option<Vec<Measured>>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let api = Api::new(&arguments.common.connection)?;
    let (file, applies) = arguments.act()?;
    let (head, instances) = read(file, clock::now())?;
    let floor = earliest_start(clock::now(), arguments.slack);
    let difference = compare(&api, &head.resource_id, head.at, floor, instances).await?;
    if applies {
        return apply(&api, &difference, &arguments).await;
    }
    show(&difference, arguments.common.json)
}

impl Arguments {
    /// The file, and whether the difference is to be mended.
    fn act(&self) -> Result<(&Path, bool), Failure> {
        match self.what.as_slice() {
            [file] => Ok((file, false)),
            [act, file] if act == Path::new("diff") => Ok((file, false)),
            [act, file] if act == Path::new("apply") => Ok((file, true)),
            _ => {
                let what = "sampler snapshot [diff|apply] FILE";
                Err(Failure::Input(what.to_owned()))
            }
        }
    }
}

/// No start is dated earlier: it would be refused, at once or tomorrow.
fn earliest_start(now: Millis, slack: Millis) -> Millis {
    now.saturating_sub(slack)
        .saturating_add(TIME_TO_APPLY.min(slack / 2))
}

/// Compares the instances of a resource that ran at a time with its spans.
async fn compare(
    api: &Api,
    resource: &str,
    at: Millis,
    floor: Millis,
    instances: Vec<Instance>,
) -> Result<Difference, Failure> {
    let mut comparison = Comparison::new(at, floor, instances);
    let query = |from: Millis| -> Query {
        vec![
            ("resource_id", resource.to_owned()),
            ("from", from.to_string()),
        ]
    };
    let mut progress = Progress::to(None);
    let mut count = 0;
    let mut tell = |spans: usize| {
        count += spans as u64;
        progress.show(count, count, "spans", "");
    };
    api.each_page(&["v1", "spans"], query(at), |spans: Vec<SpanSeen>| {
        tell(spans.len());
        for span in spans {
            comparison.add(span);
        }
    })
    .await?;
    if let Some((from, to)) = comparison.before() {
        let mut query = query(from);
        query.push(("to", to.to_string()));
        api.each_page(&["v1", "spans"], query, |spans: Vec<SpanSeen>| {
            tell(spans.len());
            for span in &spans {
                comparison.add_before(span);
            }
        })
        .await?;
    }
    progress.finish();
    Ok(comparison.finish())
}

fn show(difference: &Difference, as_json: bool) -> Result<ExitCode, Failure> {
    if as_json {
        print_json(difference)?;
    } else {
        print(&words(difference))?;
    }
    let differs = difference.items().next().is_some();
    Ok(ExitCode::from(u8::from(differs)))
}

async fn apply(
    api: &Api,
    difference: &Difference,
    arguments: &Arguments,
) -> Result<ExitCode, Failure> {
    let (count, most) = (difference.items().count(), arguments.most);
    if count > most {
        warn(&format!(
            "nothing is sent: {} {} more than --most {most}; see `sampler snapshot diff`",
            counted(count, "event"),
            form(count, "is", "are"),
        ));
        return Ok(ExitCode::FAILURE);
    }
    let mut sender = Sender::new(api, BATCH, count as u64);
    let events = difference
        .items()
        .zip(1..)
        .map(|((_, found), line)| FileEvent {
            line,
            is_cloud_event: false,
            body: found.proposal.body(),
        });
    sender.send_events(events).await?;
    let report = sender.finish();
    if arguments.common.json {
        print_json(&json!({ "difference": difference, "report": report.document() }))?;
    } else {
        print(&format!("{}{}", words(difference), report.words()))?;
    }
    Ok(ExitCode::from(u8::from(!report.is_good())))
}

fn words(difference: &Difference) -> String {
    let at = InWords(difference.at);
    let count = difference.items().count();
    let checked = counted(difference.checked, "instance");
    if count == 0 {
        return format!("Nothing differs: {checked} at {at}.\n");
    }
    let rows = difference.items().zip(1..).take(ROWS_SHOWN);
    let rows = rows.map(|((meaning, found), line)| found.row(meaning, line));
    let table = table(["line", "target", "", "event", "span"], rows, &[1, 2, 3, 4]);
    let rest = match count.saturating_sub(ROWS_SHOWN) {
        0 => String::new(),
        rest => format!("\n... and {rest} more; --json shows all"),
    };
    let differences = counted(count, "difference");
    format!("{table}{rest}\n\n{differences} among {checked} at {at}.\n")
}

/// Reads a file as a whole, and checks what the receiver cannot.
fn read(path: &Path, now: Millis) -> Result<(Head, Vec<Instance>), Failure> {
    let wrong =
        |line: u64, what: &str| Failure::Input(format!("{}: line {line}: {what}", path.display()));
    let file = File::open(path).map_err(|error| Failure::of_file(path, &error))?;
    let (mut head, mut instances, mut targets) = (None::<Head>, Vec::new(), HashSet::new());
    for (text, line) in BufReader::new(file).lines().zip(1..) {
        let text = text.map_err(|error| wrong(line, &error.to_string()))?;
        let text = text.trim_start_matches('\u{feff}').trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let Some(head) = &head else {
            let found: Head = parsed(text).map_err(|what| wrong(line, &what))?;
            if found.at > now {
                return Err(wrong(line, "\"at\" is in the future"));
            }
            head = Some(found);
            continue;
        };
        let instance = parsed::<Line>(text).and_then(|found| found.instance(head));
        let instance = instance.map_err(|what| wrong(line, &what))?;
        if !targets.insert((key_of(&instance.target), instance.target.plan_id.clone())) {
            return Err(wrong(line, "the same target is in the file already"));
        }
        instances.push(instance);
    }
    let head = head.ok_or_else(|| Failure::of_file(path, &"the snapshot has no head"))?;
    Ok((head, instances))
}

fn parsed<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| sampler_verify::events::json_in_words(&error))
}

impl Line {
    fn instance(self, head: &Head) -> Result<Instance, String> {
        if self.resource_id.is_some_and(|it| it != head.resource_id) {
            return Err("its resource is not that of the snapshot".to_owned());
        }
        if self.since.is_some_and(|since| since > head.at) {
            return Err("\"since\" is after the time of the snapshot".to_owned());
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
            since: self.since,
            measured_usage: self.measured_usage,
        })
    }
}
