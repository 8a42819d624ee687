//! What a verdict rests on, in the files of a run's folder.

use std::path::Path;

use anyhow::{Context, Result};
use mongodb::bson::Document;
use sampler_testkit::abacus::{Outcome, StandInAbacus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{DURATION, Measure, TAG, Target};
use crate::history::{Record, read_lines, write_lines};

/// What the clients sent, and what they were answered.
pub(crate) const HISTORY: &str = "history.ndjson";
/// What counts at Abacus.
const COUNTED: &str = "counted.ndjson";
/// What Abacus has set aside.
const ASIDE: &str = "aside.ndjson";
/// The spans in the database when all was quiet.
const SPANS: &str = "spans.ndjson";
/// The entries of the ledger by then.
const LEDGER: &str = "ledger.ndjson";
/// Every post to Abacus.
const POSTS: &str = "posts.ndjson";
/// What the API says of each span in the end.
const PROOFS: &str = "proofs.ndjson";
/// The audit trail, as the API lists it.
const TRAIL: &str = "trail.ndjson";

/// A usage that counts at Abacus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// The quantity of a measure.
    fn quantity(&self, name: &str) -> Option<&Value> {
        let mut measures = self.measures.iter();
        Some(&measures.find(|measure| measure.measure == name)?.quantity)
    }

    /// How long its interval is, in ms; negative where it takes back.
    pub(crate) fn duration(&self) -> Option<i64> {
        self.quantity(DURATION)?.as_i64()
    }

    /// The event that started its span.
    pub(crate) fn tag(&self) -> Option<&str> {
        self.quantity(TAG)?.as_str()
    }
}

/// A usage that Abacus took and then set aside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Aside {
    pub dedup_id: String,
    /// Why.
    pub reason: String,
}

impl Aside {
    pub(crate) fn id(&self) -> &str {
        &self.dedup_id
    }
}

/// A post to Abacus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// What the API says of a span: times in ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The id of the span.
    pub id: String,
    pub state: String,
    /// How long it was used.
    pub used: i64,
    /// How much of that Abacus accepted.
    pub billed: i64,
    /// How much an operator skipped.
    pub skipped: i64,
    /// How much of that the upstream may count.
    pub unanswered: i64,
    /// What is neither.
    pub difference: i64,
}

/// A record of the audit trail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The reason that was given.
    pub reason: String,
    /// `asked`, `done` or `refused`.
    pub outcome: String,
}

/// A span of the database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// The `id` of the event that started it.
    pub start_id: String,
    /// Whether nothing is left to do.
    pub complete: bool,
    /// All of it, for diagnosis.
    pub document: Value,
}

/// An entry of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The id of its usage.
    pub usage_guid: String,
    /// The `_id` of its span.
    pub span: Value,
    /// What was used, and by whom.
    pub target: Target,
    /// The moment in the middle of its interval.
    pub timestamp: i64,
    /// How long its interval is, ms; negative where it takes back.
    pub duration: i64,
    /// Where its interval begins: later than it ends where it takes back.
    pub start: i64,
    /// What became of it.
    pub state: String,
    /// The event that started its span.
    pub tag: String,
    /// When it was planned, ms since epoch by Abacus's clock.
    pub planned_at: i64,
    /// When a worker learnt that Abacus has set it aside, by the same clock.
    pub set_aside_at: Option<i64>,
    /// How often it was set aside, and sent again, before the last time.
    pub rounds: usize,
    /// Whether it was not posted, because it takes back what is on no bill.
    pub withheld: bool,
    /// Whether it says that its usage may count all the same, because a post of it had no answer.
    pub unanswered: bool,
    /// Whether a worker has still to send it again, or to ask Abacus for it.
    pub pending: bool,
}

impl Entry {
    /// Whether it says that its usage is on no bill.
    pub(crate) fn is_off(&self) -> bool {
        self.state == "skipped" || self.state == "set_aside"
    }

    /// Whether its interval is a part of the other one's.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        let bounds = |entry: &Self| {
            let end = entry.start + entry.duration;
            (entry.start.min(end), entry.start.max(end))
        };
        let ((from, to), (first, last)) = (bounds(self), bounds(other));
        self.span == other.span && first <= from && to <= last
    }
}

/// Everything that there is to judge.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// What the clients sent, and what they were answered.
    pub records: Vec<Record>,
    /// What counts at Abacus.
    pub counted: Vec<Usage>,
    /// What does not, though Abacus took it.
    pub aside: Vec<Aside>,
    /// The spans in the database.
    pub spans: Vec<Span>,
    /// The entries of the ledger, where there is one.
    pub ledger: Option<Vec<Entry>>,
    /// All posts to Abacus, in order.
    pub posts: Vec<Post>,
    /// What the API says of the spans.
    pub proofs: Vec<Proof>,
    /// The audit trail.
    pub trail: Vec<Trace>,
}

impl Evidence {
    /// Reads what a run has left in its folder.
    pub fn read(folder: &Path) -> Result<Self> {
        Ok(Self {
            records: read_lines(&folder.join(HISTORY))?,
            counted: read_lines(&folder.join(COUNTED))?,
            aside: read_lines(&folder.join(ASIDE))?,
            spans: read_lines(&folder.join(SPANS))?,
            ledger: Some(read_lines(&folder.join(LEDGER))?),
            posts: read_lines(&folder.join(POSTS))?,
            proofs: read_lines(&folder.join(PROOFS))?,
            trail: read_lines(&folder.join(TRAIL))?,
        })
    }
}

/// Writes down what the API says of the spans, and what its audit trail holds.
pub(crate) fn write_answers(folder: &Path, spans: &[Value], trail: &[Value]) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let proofs = spans.iter().map(|span| {
        let of = |name: &str| span["proof"][name].as_i64();
        Some(Proof {
            id: text(&span["id"]),
            state: text(&span["state"]),
            used: of("used")?,
            billed: of("billed")?,
            skipped: of("skipped")?,
            unanswered: of("unanswered")?,
            difference: of("difference")?,
        })
    });
    let proofs: Option<Vec<Proof>> = proofs.collect();
    write_lines(
        &folder.join(PROOFS),
        proofs.context("a span without proof")?,
    )?;
    let trail = trail.iter().map(|trace| Trace {
        reason: text(&trace["reason"]),
        outcome: text(&trace["outcome"]),
    });
    write_lines(&folder.join(TRAIL), trail)
}

/// Writes down what Abacus and the database say, beside the history.
pub(crate) fn write(
    folder: &Path,
    abacus: &StandInAbacus,
    spans: &[Document],
    entries: &[Document],
) -> Result<()> {
    let counted = abacus.counted();
    let counted = counted.iter().map(|counted| {
        let usage = &*counted.usage;
        let measures = usage.measured_usage.iter().map(|entry| Measure {
            measure: entry.measure.clone(),
            quantity: entry.quantity.clone(),
        });
        Usage {
            at: counted.at,
            dedup_id: usage.dedup_id.clone(),
            midpoint: usage.end,
            target: Target(usage.target().map(str::to_owned)),
            measures: measures.collect(),
        }
    });
    write_lines(&folder.join(COUNTED), counted)?;
    let aside = abacus.put_aside();
    let aside = aside.into_iter().map(|(usage, reason)| Aside {
        dedup_id: usage.dedup_id.clone(),
        reason,
    });
    write_lines(&folder.join(ASIDE), aside)?;
    let posts = abacus.posts();
    let posts = posts.iter().map(|post| Post {
        at: post.at,
        dedup_id: post.json()["dedup_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        status: post.status,
        counted: post.outcome == Outcome::Counted,
    });
    write_lines(&folder.join(POSTS), posts)?;
    let spans: Result<Vec<Span>> = spans.iter().map(span).collect();
    write_lines(&folder.join(SPANS), spans?)?;
    let entries: Result<Vec<Entry>> = entries.iter().map(entry).collect();
    write_lines(&folder.join(LEDGER), entries?)
}

fn entry(document: &Document) -> Result<Entry> {
    let target = document.get_document("target")?;
    let target = Target::FIELDS.map(|name| target.get_str(name).unwrap_or_default().to_owned());
    let span = document.get("span").context("an entry without a span")?;
    Ok(Entry {
        usage_guid: document.get_str("_id")?.to_owned(),
        span: serde_json::to_value(span).context("an id as JSON")?,
        target: Target(target),
        timestamp: document.get_i64("timestamp")?,
        duration: document.get_i64("duration")?,
        state: document.get_str("state")?.to_owned(),
        tag: tag_in(document).unwrap_or_default(),
        planned_at: document.get_i64("planned_at")?,
        set_aside_at: document.get_i64("set_aside_at").ok(),
        start: document.get_document("interval")?.get_i64("start")?,
        rounds: document.get_array("earlier_rounds").map_or(0, Vec::len),
        withheld: document.get_bool("withheld").unwrap_or_default(),
        unanswered: document.get_bool("unanswered").unwrap_or_default(),
        pending: document.contains_key("resend") || document.contains_key("ask_again"),
    })
}

/// The event that started the span of an entry.
fn tag_in(entry: &Document) -> Option<String> {
    let measures = entry.get_array("measured_usage").ok()?;
    let mut measures = measures.iter().filter_map(|measure| measure.as_document());
    let tag = measures.find(|measure| measure.get_str("measure").ok() == Some(TAG))?;
    tag.get_str("quantity").ok().map(str::to_owned)
}

fn span(document: &Document) -> Result<Span> {
    let processing = document.get_document("processing").ok();
    let complete = processing.and_then(|processing| processing.get_bool("complete").ok());
    Ok(Span {
        start_id: document
            .get_str("start_dedup_id")
            .unwrap_or_default()
            .to_owned(),
        complete: complete.unwrap_or_default(),
        document: serde_json::to_value(document).context("a span as JSON")?,
    })
}
