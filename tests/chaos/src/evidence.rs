//! What a verdict rests on, in the files of a run's folder.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use mongodb::bson::Document;
use sampler_testkit::abacus::{Outcome, StandInAbacus};
use sampler_verify::api::{self, Interval};
use sampler_verify::quantity::{Measure, Quantity};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::event::{DURATION, TAG, Target};
use crate::history::{Record, read_history};

/// What the clients sent, and what they were answered.
pub(crate) const HISTORY: &str = "history.ndjson";
/// What Abacus, the database and the API say in the end.
const EVIDENCE: &str = "evidence.json";

/// A usage that counts at Abacus.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Usage {
    /// When it came, ms since epoch.
    pub at: i64,
    pub dedup_id: String,
    /// The moment in the middle of its interval.
    pub midpoint: i64,
    /// What was used, and by whom.
    pub target: Target,
    /// How much of it.
    pub measures: Vec<Measure>,
}

impl Usage {
    /// How long its interval is, in ms; negative where it takes back.
    pub(crate) fn duration(&self) -> Option<i64> {
        match quantity(&self.measures, DURATION)? {
            Quantity::Integer(duration) => i64::try_from(*duration).ok(),
            _ => None,
        }
    }

    /// The event that started its span.
    pub(crate) fn tag(&self) -> Option<&str> {
        tag_in(&self.measures)
    }
}

fn quantity<'a>(measures: &'a [Measure], name: &str) -> Option<&'a Quantity> {
    let found = measures.iter().find(|measure| measure.measure == name)?;
    Some(&found.quantity)
}

/// The event that started the span of these measures.
pub(crate) fn tag_in(measures: &[Measure]) -> Option<&str> {
    match quantity(measures, TAG)? {
        Quantity::Text(tag) => Some(tag),
        _ => None,
    }
}

/// A usage that Abacus took and then set aside.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Aside {
    pub dedup_id: String,
    /// Why.
    pub reason: String,
}

/// A post to Abacus.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Post {
    /// When it came, ms since epoch.
    pub at: i64,
    /// The id of its usage.
    pub dedup_id: String,
    /// What it was answered; none without an answer.
    pub status: Option<u16>,
    /// Whether the usage counts since this post.
    pub counted: bool,
}

/// A record of the audit trail.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Trace {
    /// The reason that was given.
    pub reason: String,
    /// `asked`, `done` or `refused`.
    pub outcome: String,
}

/// An entry of the ledger.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Entry {
    /// Its usage, by the names that the API gives to the parts.
    pub usage: api::Entry,
    /// What was used, and by whom.
    pub target: Target,
    /// When it was planned, ms since epoch by Abacus's clock.
    pub planned_at: i64,
    /// When a worker learnt that Abacus has set it aside, by the same clock.
    pub set_aside_at: Option<i64>,
    /// How often it was set aside, and sent again, before the last time.
    pub rounds: usize,
    /// Whether it was not posted, because it takes back what is on no bill.
    pub withheld: bool,
    /// Whether a worker has still to send it again, or to ask Abacus for it.
    pub pending: bool,
}

impl Entry {
    pub(crate) fn id(&self) -> &str {
        &self.usage.id
    }

    /// The event that started its span.
    pub(crate) fn tag(&self) -> &str {
        tag_in(&self.usage.measured_usage).unwrap_or_default()
    }

    /// Whether it says that its usage is on no bill.
    pub(crate) fn is_off(&self) -> bool {
        self.usage.state == "skipped" || self.usage.state == "set_aside"
    }

    /// Whether its interval is a part of the other one's.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        let bounds = |entry: &Self| {
            let Interval { start, end } = entry.usage.interval;
            (start.min(end), start.max(end))
        };
        let ((from, to), (first, last)) = (bounds(self), bounds(other));
        self.usage.span == other.usage.span && first <= from && to <= last
    }
}

/// Everything that there is to judge.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Evidence {
    /// What the clients sent, and what they were answered.
    #[serde(skip)]
    pub records: Vec<Record>,
    /// What counts at Abacus.
    pub counted: Vec<Usage>,
    /// What does not, though Abacus took it.
    pub aside: Vec<Aside>,
    /// The entries of the ledger, those of each span in their order.
    pub ledger: Vec<Entry>,
    /// All posts to Abacus, in order.
    pub posts: Vec<Post>,
    /// The spans as the API shows them.
    pub shown: Vec<api::Span>,
    /// The audit trail.
    pub trail: Vec<Trace>,
}

impl Evidence {
    /// Reads what a run has left in its folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let text = fs::read(folder.join(EVIDENCE)).context(EVIDENCE)?;
        let evidence = serde_json::from_slice(&text).context(EVIDENCE)?;
        Ok(Self {
            records: read_history(&folder.join(HISTORY))?,
            ..evidence
        })
    }
}

/// Writes down what Abacus and the database say, and what the API shows: its spans and its audit trail.
pub(crate) fn write(
    folder: &Path,
    abacus: &StandInAbacus,
    entries: &[Document],
    [spans, trail]: [Vec<Value>; 2],
) -> Result<()> {
    let counted = abacus.counted();
    let counted = counted.iter().map(|counted| {
        let usage = &*counted.usage;
        json!({
            "at": counted.at,
            "dedup_id": usage.dedup_id,
            "midpoint": usage.end,
            "target": usage.target(),
            "measures": usage.measured_usage,
        })
    });
    let aside = abacus.put_aside();
    let aside = aside
        .iter()
        .map(|(usage, reason)| json!({ "dedup_id": usage.dedup_id, "reason": reason }));
    let posts = abacus.posts();
    let posts = posts.iter().map(|post| {
        json!({
            "at": post.at,
            "dedup_id": post.json()["dedup_id"],
            "status": post.status,
            "counted": post.outcome == Outcome::Counted,
        })
    });
    let ledger: Vec<Value> = entries.iter().map(entry).collect::<Result<_>>()?;
    let evidence = json!({
        "counted": counted.collect::<Value>(),
        "aside": aside.collect::<Value>(),
        "posts": posts.collect::<Value>(),
        "ledger": ledger,
        "shown": spans,
        "trail": trail,
    });
    fs::write(folder.join(EVIDENCE), evidence.to_string()).context("writing the evidence")
}

/// The members of a document have the names of the API, beside the ids. The API adds the duration to the
/// measures, as it is posted.
fn entry(document: &Document) -> Result<Value> {
    let target = document.get_document("target")?;
    let target = Target::FIELDS.map(|name| target.get_str(name).unwrap_or_default());
    let mut usage = serde_json::to_value(document).context("an entry as JSON")?;
    usage["id"] = usage["_id"].take();
    usage["span"] = usage["span"]["$oid"].take();
    let duration = json!({ "measure": DURATION, "quantity": usage["duration"] });
    let measures = usage["measured_usage"].as_array_mut();
    measures
        .context("an entry without measures")?
        .push(duration);
    Ok(json!({
        "target": target,
        "planned_at": document.get_i64("planned_at")?,
        "set_aside_at": document.get_i64("set_aside_at").ok(),
        "rounds": document.get_array("earlier_rounds").map_or(0, Vec::len),
        "withheld": document.get_bool("withheld").unwrap_or_default(),
        "pending": document.contains_key("resend") || document.contains_key("ask_again"),
        "usage": usage,
    }))
}
