//! Everything outside of a feed: the platform, the receiver and the clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sampler_verify::moment::Millis;
use serde_json::Value;

use super::state::{Mark, Refused, Tracked};
use super::usage_event::{Record, UsageEvent};
use crate::event::SpanSeen;
use crate::failure::Failure;

/// A part of a record.
#[derive(Clone, Debug)]
pub(super) struct EventPage {
    pub(super) events: Vec<UsageEvent>,
    pub(super) is_last: bool,
}

/// What runs at a time, as the platform lists it.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    /// By GUID. `last` is when each was made.
    pub(super) running: BTreeMap<String, Tracked>,
    /// What is listed, but nobody says where it belongs: it is neither started nor stopped.
    pub(super) unplaced: BTreeSet<String>,
    pub(super) organizations: BTreeSet<String>,
}

/// The tests have another one, with faults.
pub(super) trait Outside {
    /// In ms.
    fn now(&self) -> Millis;

    /// The events after a mark, or from the beginning of the record. None: the mark is gone, pruned or purged.
    async fn events(
        &self,
        record: Record,
        mark: Option<&Mark>,
    ) -> Result<Option<EventPage>, Failure>;

    async fn running(&self, record: Record) -> Result<Listed, Failure>;

    /// When each task has ended, if it has. One that the platform no longer has is missing.
    async fn tasks(&self, guids: &[String]) -> Result<HashMap<String, Option<Millis>>, Failure>;

    /// The open spans of these organizations at the receiver.
    async fn open_spans(&self, organizations: &BTreeSet<String>) -> Result<Vec<SpanSeen>, Failure>;

    /// Sends events until each is kept or refused for good.
    async fn post(&self, bodies: &[&Value]) -> Result<Refused, Failure>;
}
