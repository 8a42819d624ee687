//! The rules of the ledger: entries, their sums and their expiry.

use std::collections::BTreeMap;

use sampler_domain::{Entry, Interval, SpanId, Target, Timestamp, Window};
use sampler_store::{
    CutUsage, Entries, EntryOrder, EntryPosition, LedgerSum, SumPage, SumPosition, SumQuery, SumRow,
};
use serde_json::Number;

use super::Table;

/// An entry of the ledger with what only the store knows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    pub entry: Entry,
    pub expires_at: Timestamp,
}

impl Table {
    /// Keeps an entry, unless there is one of the same usage. With `watch_at`, its usage is watched from then
    /// on; a watch begins anew.
    pub fn write_entry(
        &mut self,
        entry: &Entry,
        expires_at: Timestamp,
        watch_at: Option<Timestamp>,
    ) {
        if let Some(due_at) = watch_at {
            self.watch(entry, due_at);
        }
        let kept = self.entries.entry(entry.usage_guid.clone());
        kept.or_insert_with(|| StoredEntry {
            entry: entry.clone(),
            expires_at,
        });
    }

    /// All entries, in the order of the ids of the usages.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().map(|kept| &kept.entry)
    }

    pub fn entry(&self, usage_guid: &str) -> Option<&Entry> {
        self.entries.get(usage_guid).map(|kept| &kept.entry)
    }

    /// The entries of a span, those that were accepted first at the beginning.
    pub fn entries_of(&self, span: &SpanId, target: &Target) -> Vec<&Entry> {
        let of_span = self.entries();
        let of_span = of_span.filter(|entry| entry.span == *span && entry.target == *target);
        let mut of_span: Vec<&Entry> = of_span.collect();
        of_span.sort_by_cached_key(|entry| EntryPosition::of(entry));
        of_span
    }

    /// A page of the entries of a span.
    pub fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        order: EntryOrder,
        after: Option<&EntryPosition>,
        limit: usize,
    ) -> Entries {
        let mut entries = self.entries_of(span, target);
        if order == EntryOrder::Newest {
            entries.reverse();
        }
        if let Some(after) = after {
            entries.retain(|entry| match order {
                EntryOrder::Oldest => EntryPosition::of(entry) > *after,
                EntryOrder::Newest => EntryPosition::of(entry) < *after,
            });
        }
        let has_more = entries.len() > limit;
        entries.truncate(limit);
        Entries {
            next: entries
                .last()
                .filter(|_| has_more)
                .map(|it| EntryPosition::of(it)),
            entries: entries.into_iter().cloned().collect(),
        }
    }

    /// What the kept entries of a span add up to.
    pub fn sum_of(&self, span: &SpanId, target: &Target) -> LedgerSum {
        let entries = self.entries_of(span, target);
        let Some(first) = entries.iter().find(|entry| !entry.is_again) else {
            return LedgerSum::default();
        };
        let since = first.interval.start;
        let intervals = entries.iter().map(|entry| entry.interval);
        let counted = intervals.filter(|it| it.start.min(it.end) >= since);
        counted.fold(
            LedgerSum {
                since: Some(since),
                ..LedgerSum::default()
            },
            |sum, interval| LedgerSum {
                usages: sum.usages + 1,
                duration: sum.duration + interval.duration(),
                ..sum
            },
        )
    }

    /// The sums of the entries.
    pub fn sums(&self, query: &SumQuery) -> Result<SumPage, CutUsage> {
        let mut rows: BTreeMap<SumPosition, SumRow> = BTreeMap::new();
        for entry in self.entries().filter(|entry| is_counted(query, entry)) {
            if let Some(cut) = cut(query, entry) {
                return Err(cut);
            }
            let Some(window) = window_of(query, entry.interval.midpoint()) else {
                continue;
            };
            let row = SumRow::new(window, query.group_of(&entry.target));
            let row = rows.entry(row.position()).or_insert(row);
            add(row, entry);
        }
        let is_behind = |at: &SumPosition| query.after.as_ref().is_none_or(|after| after < at);
        let rows = rows.into_iter().filter(|(at, _)| is_behind(at));
        let mut rows: Vec<SumRow> = rows.map(|(_, row)| row).collect();
        let has_more = rows.len() > query.limit;
        rows.truncate(query.limit);
        Ok(SumPage {
            next: rows.last().filter(|_| has_more).map(SumRow::position),
            rows,
        })
    }

    /// Removes the entries that have expired. Returns them.
    pub fn remove_expired(&mut self, now: Timestamp) -> Vec<Entry> {
        let expired = self
            .entries
            .extract_if(.., |_, kept| kept.expires_at <= now);
        expired.map(|(_, kept)| kept.entry).collect()
    }

    /// Removes an entry, which no store does.
    pub fn remove_entry(&mut self, usage_guid: &str) {
        self.entries.remove(usage_guid);
    }
}

/// Whether an entry is counted, in whatever window.
fn is_counted(query: &SumQuery, entry: &Entry) -> bool {
    let resources = query.resources.as_ref();
    query.accepted_to.is_none_or(|to| entry.acceptance.at <= to)
        && query.target.matches(&entry.target)
        && resources.is_none_or(|ids| ids.contains(&entry.target.resource_id))
}

fn window_of(query: &SumQuery, time: Timestamp) -> Option<Window> {
    let mut windows = query.windows.iter().copied();
    windows.find(|window| window.start <= time && time < window.end)
}

/// How the windows cut an entry that is counted, if they do.
fn cut(query: &SumQuery, entry: &Entry) -> Option<CutUsage> {
    let Interval { start, end } = entry.interval;
    let is_within = |edge: &Timestamp| start.min(end) < *edge && *edge < start.max(end);
    let dimension = entry.dimension;
    let mut inner = query.windows.iter().skip(1);
    if inner.any(|window| is_within(&window.start)) {
        let fits = None;
        return Some(CutUsage { dimension, fits });
    }
    let bounds = [query.windows.first()?.start, query.windows.last()?.end];
    let bound = bounds.into_iter().find(is_within)?;
    let next = dimension.boundary_after(bound).unwrap_or(Timestamp::MAX);
    let fits = Some((dimension.window_of(bound), next));
    Some(CutUsage { dimension, fits })
}

fn add(row: &mut SumRow, entry: &Entry) {
    let duration = Number::from(entry.interval.duration());
    row.add_usages(1, &duration);
    for it in entry.measures.as_slice() {
        row.add_measure(it.measure.clone(), it.quantity.as_json(), &duration);
    }
}
