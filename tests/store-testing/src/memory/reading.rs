//! The store in memory as the reading API sees it.

use std::cmp::Reverse;

use async_trait::async_trait;
use sampler_domain::{CauseId, Id, Span, SpanId, Target};
use sampler_store::{
    AuditPage, AuditQuery, AuditRecord, CauseQuery, CutUsage, Entries, EntryOrder, EntryPosition,
    LedgerSum, Reading, SpanPage, SpanQuery, StoreError, SumPage, SumQuery, SuspendedCause, Watch,
    WatchPage, WatchQuery,
};

use super::MemoryStore;

of_table! {
    Reading {
        spans(query: &SpanQuery) -> SpanPage;
        causes(query: &CauseQuery) -> Vec<SuspendedCause>;
        cause(id: CauseId) -> Option<SuspendedCause>;
        usages(
            span: &SpanId,
            target: &Target,
            order: EntryOrder,
            after: Option<&EntryPosition>,
            limit: usize
        ) -> Entries;
        unconfirmed(query: &WatchQuery) -> WatchPage;
        sums(query: &SumQuery) -> Result<SumPage, CutUsage>;
    }

    async fn newest_spans(&self, limit: usize) -> Result<Vec<Span>, StoreError> {
        let mut spans: Vec<Span> = self.all().into_iter().map(|kept| kept.span).collect();
        spans.sort_by_key(|span| Reverse(span.id.clone()));
        spans.truncate(limit);
        Ok(spans)
    }

    async fn span(&self, id: &str, resources: Option<&[Id]>) -> Result<Option<Span>, StoreError> {
        let is_of =
            |span: &&Span| resources.is_none_or(|ids| ids.contains(&span.target.resource_id));
        Ok(self.with(|table| table.span(id).filter(is_of).cloned()))
    }

    async fn ledger_of(&self, span: &SpanId, target: &Target) -> Result<LedgerSum, StoreError> {
        Ok(self.with(|table| table.sum_of(span, target)))
    }

    async fn watch(&self, usage_guid: &str) -> Result<Option<Watch>, StoreError> {
        Ok(self.with(|table| table.watch_of(usage_guid).cloned()))
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        let state = self.lock();
        let is_behind = |record: &&AuditRecord| {
            let after = query.after.as_ref();
            after.is_none_or(|after| record.position() < *after)
        };
        let newest_first = state.audit.values().rev();
        let found = newest_first.filter(|record| matches(query, record));
        let mut found = found.filter(is_behind);
        let records: Vec<AuditRecord> = found.by_ref().take(query.limit).cloned().collect();
        let has_more = found.next().is_some();
        let last = records.last().filter(|_| has_more);
        Ok(AuditPage {
            next: last.map(AuditRecord::position),
            records,
        })
    }
}

/// Whether a record belongs in a list, wherever the list begins.
fn matches(query: &AuditQuery, record: &AuditRecord) -> bool {
    query.from.is_none_or(|from| record.at >= from)
        && query.to.is_none_or(|to| record.at < to)
        && (query.who.is_none() || query.who == record.who)
        && (query.span.is_none() || query.span == record.span)
}
