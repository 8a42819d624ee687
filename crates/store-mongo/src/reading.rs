//! The reading API's interface, and the store that has connections of its own for it.

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use mongodb::options::FindOptions;
use sampler_domain::{CauseId, Id, Span, SpanId, Target};
use sampler_store::{
    AuditPage, AuditQuery, CauseQuery, CutUsage, Entries, EntryOrder, EntryPosition, LedgerSum,
    Reading, SpanPage, SpanQuery, StoreError, SumPage, SumQuery, SuspendedCause, Watch, WatchPage,
    WatchQuery,
};

use crate::call::{BY_ID, CallError, Link};
use crate::raw::span_in;
use crate::{
    ConnectError, MongoOptions, MongoStore, audit, causes, ledger, span_list, sums, watches,
};

/// The most bytes of documents on one page; a single document may have more.
const PAGE_BYTES: usize = 4 << 20;

/// Documents that the server sends at once.
const BATCH_SIZE: u32 = 101;

/// Documents of a page, and whether there may be more that match.
#[derive(Default)]
pub(crate) struct FoundDocuments {
    pub(crate) documents: Vec<RawDocumentBuf>,
    pub(crate) has_more: bool,
}

impl MongoStore {
    /// The same store over connections of its own, with these options: so reading never takes a
    /// connection from writing.
    pub async fn reader(&self, options: MongoOptions) -> Result<Self, ConnectError> {
        let mut reader = Self::connect(options).await?;
        reader.link.logged = self.link.logged.clone();
        Ok(reader)
    }

    /// The span in a document. One that cannot be read is logged.
    pub(crate) fn listed(&self, raw: &RawDocument) -> Option<Span> {
        let span = span_in(raw);
        if let Err(problem) = &span {
            self.link.logged.tell("list.unreadable", raw, problem);
        }
        span.ok()
    }
}

impl Link {
    /// Up to `limit` documents that match, as many as a page may hold.
    pub(crate) async fn found(
        &self,
        filter: Document,
        mut options: FindOptions,
        limit: usize,
    ) -> Result<FoundDocuments, CallError> {
        options.max_time = Some(self.time_limit);
        options.limit = i64::try_from(limit.saturating_add(1)).ok();
        options.batch_size = Some(BATCH_SIZE.min(u32::try_from(limit + 1).unwrap_or(BATCH_SIZE)));
        let collection = self.collection.clone();
        let read = async move {
            let mut cursor = collection.find(filter).with_options(options).await?;
            let (mut found, mut bytes) = (FoundDocuments::default(), 0);
            while cursor.advance().await? {
                let document = cursor.current();
                bytes += document.as_bytes().len();
                let is_full = found.documents.len() == limit || bytes > PAGE_BYTES;
                if is_full && !found.documents.is_empty() {
                    found.has_more = true;
                    break;
                }
                found.documents.push(document.to_owned());
            }
            Ok::<_, mongodb::error::Error>(found)
        };
        self.run(read).await
    }
}

/// Whether a text is an `ObjectId` as we write it.
fn is_hexadecimal(id: &str) -> bool {
    id.len() == 24
        && id
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[async_trait]
impl Reading for MongoStore {
    async fn spans(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        span_list::spans(self, query).await
    }

    /// Their ids begin with the time of the insert.
    async fn newest_spans(&self, limit: usize) -> Result<Vec<Span>, StoreError> {
        let options = self.link.find_options(limit, doc! { "_id": -1 }, BY_ID);
        let of_spans = doc! { "_id": { "$type": "objectId" } };
        let found = self.link.found(of_spans, options, limit).await?;
        let listed = found.documents.iter().filter_map(|raw| self.listed(raw));
        Ok(listed.collect())
    }

    async fn span(&self, id: &str, resources: Option<&[Id]>) -> Result<Option<Span>, StoreError> {
        let mut forms = vec![Bson::from(id)];
        if is_hexadecimal(id) {
            forms.extend(ObjectId::parse_str(id).map(Bson::ObjectId));
        }
        let options = self.link.find_options(1, doc! {}, BY_ID);
        let mut filter = doc! { "_id": { "$in": forms } };
        if let Some(resources) = resources {
            let ids: Vec<&str> = resources.iter().map(Id::as_str).collect();
            filter.insert("target.resource_id", doc! { "$in": ids });
        }
        let found = self.link.fetch(filter, options).await?;
        let span = found.first().map(|raw| span_in(raw));
        span.transpose().map_err(StoreError::refused)
    }

    async fn causes(&self, query: &CauseQuery) -> Result<Vec<SuspendedCause>, StoreError> {
        causes::causes(self, query).await
    }

    async fn cause(&self, id: CauseId) -> Result<Option<SuspendedCause>, StoreError> {
        causes::cause(self, id).await
    }

    async fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        order: EntryOrder,
        after: Option<&EntryPosition>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        ledger::usages(self, span, target, order, after, limit).await
    }

    async fn ledger_of(&self, span: &SpanId, target: &Target) -> Result<LedgerSum, StoreError> {
        ledger::sum_of(self, span, target).await
    }

    async fn unconfirmed(&self, query: &WatchQuery) -> Result<WatchPage, StoreError> {
        watches::unconfirmed(self, query).await
    }

    async fn watch(&self, usage_guid: &str) -> Result<Option<Watch>, StoreError> {
        watches::watch(self, usage_guid).await
    }

    async fn sums(&self, query: &SumQuery) -> Result<Result<SumPage, CutUsage>, StoreError> {
        sums::sums(self, query).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        audit::audit(self, query).await
    }
}
