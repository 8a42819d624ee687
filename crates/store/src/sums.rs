//! The sums of the ledger, by windows and groups.

use std::collections::BTreeMap;
use std::time::Duration;

use sampler_domain::{Amount, Granularity, Id, Target, Timestamp, Window, WindowLength};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

use crate::TargetFilter;

#[derive(Clone, Debug, PartialEq)]
pub struct SumQuery {
    /// Only usages of these targets. The organization, the resource or the instance must be among
    /// the conditions: the indexes begin with one of these.
    pub target: TargetFilter,
    /// Only usages that were accepted by then.
    pub accepted_to: Option<Timestamp>,
    /// Only usages of these resources; `None` for all.
    pub resources: Option<Vec<Id>>,
    pub length: WindowLength,
    /// The windows. Each begins where the one before ends. A usage is in the window of its timestamp.
    pub windows: Vec<Window>,
    /// The fields of the target by which usages are grouped within a window: some of
    /// [`Target::FIELDS`], each at most once.
    pub group_by: Vec<&'static str>,
    /// Only rows behind this.
    pub after: Option<SumPosition>,
    pub limit: usize,
}

/// A usage that the windows of a query would cut: its sums would be silently wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutUsage {
    /// By what the usage was cut. Windows must be at least as long.
    pub dimension: Granularity,
    /// The nearest times around the cut that fit, where a bound of the query cuts the usage.
    pub fits: Option<(Timestamp, Timestamp)>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SumPosition {
    /// The start of a window of the query.
    pub window: Timestamp,
    /// After the row of this group; `None` for the first row of the window.
    #[serde(deserialize_with = "stored_ids")]
    pub group: Option<Vec<Id>>,
}

/// Ids of the ledger, which may be empty or too long.
fn stored_ids<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Vec<Id>>, D::Error> {
    let ids: Option<Vec<String>> = Deserialize::deserialize(reader)?;
    Ok(ids.map(|ids| ids.into_iter().map(Id::from_store).collect()))
}

/// The usages of one group in one window.
#[derive(Clone, Debug, PartialEq)]
pub struct SumRow {
    pub window: Window,
    /// The values of the fields that were grouped by, in their order.
    pub group: Vec<Id>,
    pub usages: u64,
    /// Their signed durations together, ms.
    pub duration: Amount,
    /// Quantity × duration in ms, by measure.
    pub amounts: BTreeMap<Id, Amount>,
}

/// Some rows, in the order of their windows, and of their groups within each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SumPage {
    /// The rows. A group or a window without usages has none.
    pub rows: Vec<SumRow>,
    /// The position at which the list continues, if there may be more.
    pub next: Option<SumPosition>,
}

impl SumQuery {
    /// How long a page continues to ask for more windows.
    pub const PAGE_TIME: Duration = Duration::from_secs(1);

    /// The index of the window in which the page begins. It equals the number of windows if there
    /// is no such window.
    pub fn first_window(&self) -> usize {
        let Some(after) = &self.after else { return 0 };
        let first = self
            .windows
            .partition_point(|window| window.end <= after.window);
        // Without groups, a window has one row.
        let is_done = self.group_by.is_empty() && after.group.is_some();
        (first + usize::from(is_done)).min(self.windows.len())
    }

    pub fn group_of(&self, target: &Target) -> Vec<Id> {
        let fields = target.fields();
        self.group_by
            .iter()
            .filter_map(|name| fields.iter().find(|(field, _)| field == name))
            .map(|(_, id)| (*id).clone())
            .collect()
    }
}

impl SumRow {
    pub fn new(window: Window, group: Vec<Id>) -> Self {
        Self {
            window,
            group,
            usages: 0,
            duration: Amount::default(),
            amounts: BTreeMap::new(),
        }
    }

    /// Adds a number of usages, with their total duration, in ms.
    pub fn add_usages(&mut self, usages: u64, duration: &Number) {
        self.usages = self.usages.saturating_add(usages);
        self.duration.add(&Value::from(1), duration);
    }

    /// Adds a quantity of a measure for a duration, in ms.
    pub fn add_measure(&mut self, measure: Id, quantity: &Value, duration: &Number) {
        self.amounts
            .entry(measure)
            .or_default()
            .add(quantity, duration);
    }

    pub fn position(&self) -> SumPosition {
        SumPosition {
            window: self.window.start,
            group: Some(self.group.clone()),
        }
    }
}
