//! What a verdict rests on, in the files of a run's folder.

use std::path::Path;

use anyhow::{Context, Result};
use mongodb::bson::Document;
use sampler_testkit::abacus::StandInAbacus;
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

/// A usage that counts at Abacus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// When it came, ms since epoch.
    pub at: i64,
    /// Its id.
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
    /// Its id.
    pub dedup_id: String,
    /// Why.
    pub reason: String,
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
    /// How long its interval is, ms.
    pub duration: i64,
    /// What became of it.
    pub state: String,
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
}

impl Evidence {
    /// Reads what a run has left in its folder.
    ///
    /// # Errors
    ///
    /// When a file is not there, or not what it should be.
    pub fn read(folder: &Path) -> Result<Self> {
        Ok(Self {
            records: read_lines(&folder.join(HISTORY))?,
            counted: read_lines(&folder.join(COUNTED))?,
            aside: read_lines(&folder.join(ASIDE))?,
            spans: read_lines(&folder.join(SPANS))?,
            ledger: Some(read_lines(&folder.join(LEDGER))?),
        })
    }
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
    })
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
