//! The store in memory as the reading API sees it, with the audit trail and the scans of all spans.

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use sampler_domain::partition::partition_of;
use sampler_domain::{CauseId, Entry, Id, Span, SpanId, Target};
use uuid::Uuid;

use super::MemoryStore;
use crate::{
    ActOutcome, AllSpans, Audit, AuditPage, AuditQuery, AuditRecord, CausePage, CauseQuery,
    Entries, KeptCause, Ledger, ListedSpan, Lookup, Page, Queries, SpanKey, SpanKeys, SpanPage,
    SpanQuery, SpanScan, StoreError, SumPage, SumQuery, SuspendedCause,
};

#[async_trait]
impl Queries for MemoryStore {
    async fn spans(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        Ok(self.lock().table.spans(query))
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

    async fn causes(&self, query: &CauseQuery) -> Result<CausePage, StoreError> {
        let state = self.lock();
        let key = |kept: &KeptCause| (kept.since, kept.id);
        let begin = query.begin().map(|begin| (begin.since, begin.id));
        let resources = query.resources.as_ref();
        let of = |kept: &&KeptCause| {
            resources.is_none_or(|ids| ids.contains(&kept.cause.resource_id))
                && begin.is_none_or(|begin| key(kept) > begin)
        };
        let mut kept: Vec<_> = state.table.causes().filter(of).cloned().collect();
        kept.sort_by_key(key);
        kept.truncate(query.read_max());
        let block = query.block_of(kept);
        let counted = |kept: &KeptCause| SuspendedCause {
            spans: state.table.count_suspended(kept.id) as u64,
            set_aside: state.table.count_set_aside(kept.id) as u64,
            kept: kept.clone(),
        };
        let causes = block.left.iter().map(counted).collect();
        Ok(block.page(causes, query.limit))
    }

    async fn cause(&self, id: CauseId) -> Result<Option<SuspendedCause>, StoreError> {
        let state = self.lock();
        let mut causes = state.table.causes();
        let kept = causes.find(|kept| kept.id == id).cloned();
        Ok(kept.map(|kept| SuspendedCause {
            spans: state.table.count_suspended(id) as u64,
            set_aside: state.table.count_set_aside(id) as u64,
            kept,
        }))
    }

    async fn look_up(&self, target: &Target, by: &Lookup) -> Result<Vec<Span>, StoreError> {
        let state = self.lock();
        let table = &state.table;
        let found = match by {
            Lookup::StartedBy(id) => table.find_by_start_id(target, id).into_iter().collect(),
            Lookup::StoppedBy(id) => table.find_by_stop_id(target, id).into_iter().collect(),
            Lookup::NotEndedBy(moment) => table.find_not_ended(target, *moment),
        };
        Ok(found.into_iter().cloned().collect())
    }

    async fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        self.entries(span, target, after, limit).await
    }

    async fn usage(&self, id: &str) -> Result<Option<Entry>, StoreError> {
        let state = self.lock();
        Ok(state.table.entry(id).map(|kept| kept.entry.clone()))
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

#[async_trait]
impl Audit for MemoryStore {
    async fn record_act(&self, record: &AuditRecord) -> Result<(), StoreError> {
        let mut state = self.lock();
        let kept = state.audit.entry(record.position());
        kept.or_insert_with(|| record.clone());
        Ok(())
    }

    async fn settle_act(&self, id: Uuid, outcome: ActOutcome) -> Result<(), StoreError> {
        let mut state = self.lock();
        let kept = state.audit.values_mut().find(|record| record.id == id);
        if let Some(kept) = kept {
            kept.outcome = outcome;
        }
        Ok(())
    }
}

impl SpanScan for MemoryStore {
    fn spans_of(&self, partition: u32, from: Option<&Id>, page: usize) -> SpanKeys {
        let state = self.lock();
        let is_of = |target: &Target| {
            let is_behind = from.is_none_or(|from| target.resource_instance_id >= *from);
            is_behind && partition_of(target) == partition
        };
        let all = state.table.all().map(|kept| &kept.span);
        let of_partition = all.filter(|span| is_of(&span.target));
        let mut keys: Vec<SpanKey> = of_partition
            .map(|span| SpanKey {
                id: span.id.clone(),
                target: span.target.clone(),
            })
            .collect();
        drop(state);
        let instance = |key: &SpanKey| key.target.resource_instance_id.clone();
        keys.sort_by_key(|key| (instance(key), key.id.clone()));
        let pages: Vec<_> = keys.chunks(page).map(|page| Ok(page.to_vec())).collect();
        stream::iter(pages).boxed()
    }
}

#[async_trait]
impl AllSpans for MemoryStore {
    async fn page(&self, after: Option<&SpanId>, limit: usize) -> Result<Page, StoreError> {
        let state = self.lock();
        let spans = state.table.page(after, limit);
        let last = spans.last().filter(|_| spans.len() == limit);
        Ok(Page {
            next: last.map(|span| span.id.clone()),
            spans,
            unreadable: 0,
        })
    }
}
