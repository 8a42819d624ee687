//! The store in memory as the reading API sees it.

use std::cmp::Reverse;
use std::collections::HashMap;

use async_trait::async_trait;
use sampler_domain::{CauseId, Entry, Id, SpanId, Target};
use sampler_store::{
    AuditPage, AuditQuery, AuditRecord, CauseQuery, Entries, KeptCause, ListedSpan, Reading,
    SpanPage, SpanQuery, StoreError, SumPage, SumQuery, SuspendedCause,
};

use super::MemoryStore;

#[async_trait]
impl Reading for MemoryStore {
    async fn spans(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        Ok(self.lock().table.spans(query))
    }

    async fn newest_spans(&self, limit: usize) -> Result<Vec<ListedSpan>, StoreError> {
        let mut spans = self.lock().table.spans(&SpanQuery {
            limit: usize::MAX,
            ..SpanQuery::default()
        });
        spans
            .spans
            .sort_by_key(|listed| Reverse(listed.span.id.clone()));
        spans.spans.truncate(limit);
        Ok(spans.spans)
    }

    async fn span(
        &self,
        id: &str,
        resources: Option<&[Id]>,
    ) -> Result<Option<ListedSpan>, StoreError> {
        let found = self.lock().table.span(id);
        let is_of = |listed: &ListedSpan| {
            resources.is_none_or(|ids| ids.contains(&listed.span.target.resource_id))
        };
        Ok(found.filter(is_of))
    }

    async fn causes(&self, query: &CauseQuery) -> Result<Vec<SuspendedCause>, StoreError> {
        let state = self.lock();
        let resources = query.resources.as_ref();
        let of =
            |kept: &&KeptCause| resources.is_none_or(|ids| ids.contains(&kept.cause.resource_id));
        let mut kept: Vec<_> = state.table.causes().filter(of).cloned().collect();
        kept.sort_by_key(|kept| (kept.since, kept.id));
        let folded = fold(&mut kept, query);
        kept.truncate(query.limit);
        let counted = |kept: KeptCause| SuspendedCause {
            spans: state.table.count_suspended(kept.id) as u64,
            set_aside: state.table.count_set_aside(kept.id) as u64,
            more: folded.get(&kept.id).copied().unwrap_or(0),
            kept,
        };
        Ok(SuspendedCause::list(
            kept.into_iter().map(counted).collect(),
        ))
    }

    async fn cause(&self, id: CauseId) -> Result<Option<SuspendedCause>, StoreError> {
        let state = self.lock();
        let mut causes = state.table.causes();
        let kept = causes.find(|kept| kept.id == id).cloned();
        Ok(kept.map(|kept| SuspendedCause {
            spans: state.table.count_suspended(id) as u64,
            set_aside: state.table.count_set_aside(id) as u64,
            more: 0,
            kept,
        }))
    }

    async fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        let state = self.lock();
        let entries = state.table.entries_of(span, after).into_iter();
        let entries = entries.filter(|entry| entry.target == *target);
        let entries: Vec<Entry> = entries.take(limit).cloned().collect();
        let last = entries.last().filter(|_| entries.len() == limit);
        Ok(Entries {
            next: last.map(|entry| entry.version),
            entries,
            unreadable: 0,
        })
    }

    async fn usages_from_end(
        &self,
        span: &SpanId,
        target: &Target,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        let state = self.lock();
        let of_target = state.table.entries_of(span, None).into_iter();
        let of_target = of_target.filter(|entry| entry.target == *target).rev();
        let mut entries =
            of_target.filter(|entry| before.is_none_or(|before| entry.version < before));
        let shown: Vec<Entry> = entries.by_ref().take(limit).cloned().collect();
        let last = shown.last().filter(|_| shown.len() == limit);
        Ok(Entries {
            next: last.map(|entry| entry.version),
            entries: shown,
            unreadable: 0,
        })
    }

    async fn usage(&self, id: &str) -> Result<Option<Entry>, StoreError> {
        let state = self.lock();
        Ok(state.table.entry(id).map(|kept| kept.entry.clone()))
    }

    async fn is_refused(&self, usage: &str) -> Result<bool, StoreError> {
        let state = self.lock();
        let mut spans = state.table.all().map(|kept| &kept.span);
        Ok(spans.any(|span| Entry::is_refused_on(span, usage)))
    }

    async fn sums(&self, query: &SumQuery) -> Result<SumPage, StoreError> {
        Ok(self.lock().table.sums(query))
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        let state = self.lock();
        let is_behind = |record: &&AuditRecord| {
            let after = query.after.as_ref();
            after.is_none_or(|after| record.position() < *after)
        };
        let newest_first = state.audit.values().rev();
        let mut found = newest_first.filter(|record| query.matches(record));
        let mut found = found.by_ref().filter(is_behind);
        let records: Vec<AuditRecord> = found.by_ref().take(query.limit).cloned().collect();
        let has_more = found.next().is_some();
        let last = records.last().filter(|_| has_more);
        Ok(AuditPage {
            next: last.map(AuditRecord::position),
            records,
        })
    }
}

/// Leaves the share of each resource. Says how many more there are, by the last one that is left.
fn fold(causes: &mut Vec<KeptCause>, query: &CauseQuery) -> HashMap<CauseId, u64> {
    let mut counts: HashMap<Id, usize> = HashMap::new();
    for kept in &*causes {
        *counts.entry(kept.cause.resource_id.clone()).or_default() += 1;
    }
    let share = query.share(&counts.into_values().collect::<Vec<_>>());
    let mut last: HashMap<Id, (usize, CauseId)> = HashMap::new();
    let mut folded = HashMap::new();
    causes.retain(|kept| {
        let entry = last.entry(kept.cause.resource_id.clone());
        let (count, id) = entry.or_insert((0, kept.id));
        let is_left = *count < share;
        if is_left {
            (*count, *id) = (*count + 1, kept.id);
        } else {
            *folded.entry(*id).or_insert(0) += 1;
        }
        is_left
    });
    folded
}
