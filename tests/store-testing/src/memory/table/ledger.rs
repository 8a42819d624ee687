//! The rules of the ledger: entries, their expiry and their sums.

use std::collections::BTreeMap;

use sampler_domain::{CauseId, Entry, EntryState, SpanId, Timestamp};
use sampler_store::{SumPage, SumPosition, SumQuery, SumRow};

use super::Table;

/// An entry of the ledger with what only the store knows of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredEntry {
    /// The entry.
    pub entry: Entry,
    /// How long after its last answer it is kept, ms.
    pub lifetime: i64,
    /// When it expires; none before its span may be removed.
    pub expires_at: Option<Timestamp>,
    /// Whether its span is complete: it expires once its usage is not asked for any more.
    pub expires_once_confirmed: bool,
    /// The cause that it is kept under, where its usage was set aside.
    pub cause: Option<CauseId>,
}

impl Table {
    /// Keeps an entry of the ledger, unless there is one of the same usage. Returns in which state it
    /// is by then.
    pub fn write_entry(&mut self, entry: Entry, lifetime: i64) -> EntryState {
        self.ask_later(&entry);
        self.learn_unanswered(&entry);
        let kept = self.entries.insert(StoredEntry {
            entry,
            lifetime,
            expires_at: None,
            expires_once_confirmed: false,
            cause: None,
        });
        kept.entry.state
    }

    /// Asks the upstream no earlier than this entry says, if its usage is kept and asked for.
    pub fn ask_later(&mut self, entry: &Entry) {
        let kept = self.entries.get_mut(&entry.usage_guid);
        let ask = kept.and_then(|kept| kept.entry.question.as_mut());
        if let (Some(ask), Some(later)) = (ask, entry.question) {
            ask.at = ask.at.max(later.at);
            ask.until = ask.until.max(later.until);
        }
    }

    /// A usage that was skipped may count, also where that became known after its entry was written.
    fn learn_unanswered(&mut self, later: &Entry) {
        let kept = self.entries.get_mut(&later.usage_guid);
        if let Some(kept) =
            kept.filter(|kept| kept.entry.state == EntryState::Skipped && later.may_count())
        {
            kept.entry.unanswered = true;
        }
    }

    /// All entries of the ledger, in the order of the ids of the usages.
    pub fn entries(&self) -> impl Iterator<Item = &StoredEntry> {
        self.entries.values()
    }

    /// The entry of a usage.
    pub fn entry(&self, usage_guid: &str) -> Option<&StoredEntry> {
        self.entries.get(usage_guid)
    }

    /// The entries of a span that were planned at a later version than `after`, in their order.
    pub fn entries_of(&self, span: &SpanId, after: Option<i64>) -> Vec<&Entry> {
        let of_span = self.entries.of_span(span, after);
        of_span.map(|kept| &kept.entry).collect()
    }

    /// The sums of the entries.
    pub fn sums(&self, query: &SumQuery) -> SumPage {
        let mut rows: BTreeMap<SumPosition, SumRow> = BTreeMap::new();
        let entries = self.entries.values().map(|kept| kept.entry.clone());
        let spans = self.all().map(|kept| &kept.span);
        let planned = spans.filter(|span| !span.processing.complete && query.has_refused());
        let refused = planned.filter_map(Entry::of_planned);
        let entries = entries.chain(refused);
        for entry in entries.filter(|entry| query.counts(entry)) {
            let Some(window) = query.window_of(entry.interval.midpoint()) else {
                continue;
            };
            let row = SumRow::new(window, query.group_of(&entry.target));
            let row = rows.entry(row.position()).or_insert(row);
            row.add(&entry.measures, entry.interval.duration());
        }
        let is_behind = |at: &SumPosition| query.after.as_ref().is_none_or(|after| after < at);
        let rows = rows.into_iter().filter(|(at, _)| is_behind(at));
        let mut rows: Vec<SumRow> = rows.map(|(_, row)| row).collect();
        let has_more = rows.len() > query.limit;
        rows.truncate(query.limit);
        SumPage {
            next: rows.last().filter(|_| has_more).map(SumRow::position),
            rows,
        }
    }

    /// Lets the entries of these spans expire.
    pub fn expire(&mut self, spans: &[SpanId]) {
        let guids = spans.iter().flat_map(|span| self.guids_of(span));
        for guid in guids.collect::<Vec<String>>() {
            if let Some(kept) = self.entries.get_mut(&guid) {
                kept.expire();
            }
        }
    }

    /// Removes the entries that have expired. Returns them.
    pub fn remove_expired(&mut self, now: Timestamp) -> Vec<Entry> {
        let is_over = |kept: &&StoredEntry| kept.expires_at.is_some_and(|at| at <= now);
        let over = self.entries.values().filter(is_over);
        let over: Vec<String> = over.map(|kept| kept.entry.usage_guid.clone()).collect();
        let removed = over.iter().filter_map(|guid| self.entries.remove(guid));
        removed.map(|kept| kept.entry).collect()
    }

    fn guids_of(&self, span: &SpanId) -> Vec<String> {
        let of_span = self.entries.of_span(span, None);
        of_span.map(|kept| kept.entry.usage_guid.clone()).collect()
    }

    /// Removes an entry, which no store does.
    pub fn remove_entry(&mut self, usage_guid: &str) {
        self.entries.remove(usage_guid);
    }
}
