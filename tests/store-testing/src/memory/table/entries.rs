//! The entries of the ledger, by the ids of the usages and by spans.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Bound::{Included, Unbounded};
use std::sync::Arc;

use sampler_domain::SpanId;

use super::StoredEntry;
use crate::shared::Shared;

/// All entries. None ever changes its span or its version.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredEntries {
    /// By the ids of the usages.
    all: BTreeMap<Arc<str>, Shared<StoredEntry>>,
    /// Versions and ids of usages, by spans. It follows from the entries, so nothing compares it.
    of_spans: BTreeMap<SpanId, BTreeSet<(i64, Arc<str>)>>,
}

impl StoredEntries {
    pub(super) fn get(&self, usage_guid: &str) -> Option<&StoredEntry> {
        self.all.get(usage_guid).map(|kept| &**kept)
    }

    pub(super) fn get_mut(&mut self, usage_guid: &str) -> Option<&mut StoredEntry> {
        self.all.get_mut(usage_guid).map(Shared::make_mut)
    }

    /// In the order of the ids of the usages.
    pub(super) fn values(&self) -> impl Iterator<Item = &StoredEntry> {
        self.all.values().map(|kept| &**kept)
    }

    /// Keeps an entry, unless there is one of the same usage. Returns the one that is kept.
    pub(super) fn insert(&mut self, kept: StoredEntry) -> &StoredEntry {
        let guid: Arc<str> = kept.entry.usage_guid.as_str().into();
        if !self.all.contains_key(&guid) {
            let of_span = self.of_spans.entry(kept.entry.span.clone()).or_default();
            of_span.insert((kept.entry.version, Arc::clone(&guid)));
        }
        self.all.entry(guid).or_insert_with(|| Shared::new(kept))
    }

    pub(super) fn remove(&mut self, usage_guid: &str) -> Option<StoredEntry> {
        let (guid, removed) = self.all.remove_entry(usage_guid)?;
        if let Some(of_span) = self.of_spans.get_mut(&removed.entry.span) {
            of_span.remove(&(removed.entry.version, guid));
        }
        Some(StoredEntry::clone(&removed))
    }

    /// Those of a span that were planned at a later version than `after`, in their order.
    pub(super) fn of_span(
        &self,
        span: &SpanId,
        after: Option<i64>,
    ) -> impl Iterator<Item = &StoredEntry> {
        // No id comes before the empty one.
        let from = after.map_or(Unbounded, |after| {
            Included((after.saturating_add(1), Arc::from("")))
        });
        let keys = self.of_spans.get(span).into_iter();
        let keys = keys.flat_map(move |of_span| of_span.range((from.clone(), Unbounded)));
        keys.map(|(_, guid)| &*self.all[guid])
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
