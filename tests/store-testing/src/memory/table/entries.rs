//! The entries of the ledger, by the ids of the usages and by spans.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Bound::{Included, Unbounded};

use sampler_domain::SpanId;

use super::StoredEntry;

/// All entries. None ever changes its span or its version.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredEntries {
    /// By the ids of the usages.
    all: BTreeMap<String, StoredEntry>,
    /// Versions and ids of usages, by spans. It follows from the entries, so nothing compares it.
    of_spans: BTreeMap<SpanId, BTreeSet<(i64, String)>>,
}

impl StoredEntries {
    pub(super) fn get(&self, usage_guid: &str) -> Option<&StoredEntry> {
        self.all.get(usage_guid)
    }

    pub(super) fn get_mut(&mut self, usage_guid: &str) -> Option<&mut StoredEntry> {
        self.all.get_mut(usage_guid)
    }

    /// In the order of the ids of the usages.
    pub(super) fn values(&self) -> impl Iterator<Item = &StoredEntry> {
        self.all.values()
    }

    /// Keeps an entry, unless there is one of the same usage. Returns the one that is kept.
    pub(super) fn insert(&mut self, kept: StoredEntry) -> &StoredEntry {
        let entry = &kept.entry;
        let (guid, key) = (
            entry.usage_guid.clone(),
            (entry.version, entry.usage_guid.clone()),
        );
        if !self.all.contains_key(&guid) {
            let of_span = self.of_spans.entry(entry.span.clone()).or_default();
            of_span.insert(key);
        }
        self.all.entry(guid).or_insert(kept)
    }

    pub(super) fn remove(&mut self, usage_guid: &str) -> Option<StoredEntry> {
        let removed = self.all.remove(usage_guid)?;
        let entry = &removed.entry;
        if let Some(of_span) = self.of_spans.get_mut(&entry.span) {
            of_span.remove(&(entry.version, entry.usage_guid.clone()));
        }
        Some(removed)
    }

    /// Those of a span that were planned at a later version than `after`, in their order.
    pub(super) fn of_span(
        &self,
        span: &SpanId,
        after: Option<i64>,
    ) -> impl Iterator<Item = &StoredEntry> {
        // No id comes before the empty one.
        let from = after.map_or(Unbounded, |after| {
            Included((after.saturating_add(1), String::new()))
        });
        let keys = self.of_spans.get(span).into_iter();
        let keys = keys.flat_map(move |of_span| of_span.range((from.clone(), Unbounded)));
        keys.map(|(_, guid)| &self.all[guid])
    }
}

impl PartialEq for StoredEntries {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Eq for StoredEntries {}

impl Hash for StoredEntries {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.all.hash(state);
    }
}
