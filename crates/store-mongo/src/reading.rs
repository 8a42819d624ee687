//! The reading API's interface, and the store that has connections of its own for it.

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use mongodb::options::FindOptions;
use sampler_domain::{CauseId, Entry, Id, SpanId, Target};
use sampler_store::{
    AuditPage, AuditQuery, CauseQuery, Entries, ListedSpan, Reading, SpanPage, SpanQuery,
    StoreError, SumPage, SumQuery, SuspendedCause,
};
use tracing::error;

use crate::call::{CallError, Link};
use crate::document::{Unreadable, member, read, read_optional_moment};
use crate::entry_document::entry_in;
use crate::unreadable::{decoded, name_of};
use crate::{
    ConnectError, MongoOptions, MongoStore, audit, cause_list, id_list, index, span_list, sums,
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
        reader.usages.logged = self.link.logged.clone();
        reader.audit.logged = self.link.logged.clone();
        Ok(reader)
    }

    /// The span in a document. One that cannot be read is logged.
    pub(crate) fn listed(&self, raw: &RawDocument) -> Option<ListedSpan> {
        let listed = listed_span(raw);
        if let Err(problem) = &listed
            && self.is_news("list", raw)
        {
            let name = name_of(raw);
            error!(code = "list.unreadable", span.id = %name, error = %problem, "a span cannot be read and is not listed");
        }
        listed.ok()
    }

    /// Logs an entry of the ledger that cannot be read.
    pub(crate) fn tell_of_entry(&self, raw: &RawDocument, problem: &dyn std::fmt::Display) {
        if self.is_news("usages", raw) {
            let name = name_of(raw);
            error!(code = "usage.unreadable", usage = %name, error = %problem,
                "an entry of the ledger cannot be read");
        }
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

fn listed_span(raw: &RawDocument) -> Result<ListedSpan, Unreadable> {
    let document = decoded(raw)?;
    let span = read(&document)?;
    let processing = member(&document, "processing")?;
    let due_at = read_optional_moment(processing, "due_at")?;
    Ok(ListedSpan { span, due_at })
}

#[async_trait]
impl Reading for MongoStore {
    async fn spans(&self, query: &SpanQuery) -> Result<SpanPage, StoreError> {
        span_list::spans(self, query).await
    }

    async fn newest_spans(&self, limit: usize) -> Result<Vec<ListedSpan>, StoreError> {
        id_list::newest_spans(self, limit).await
    }

    async fn span(
        &self,
        id: &str,
        resources: Option<&[Id]>,
    ) -> Result<Option<ListedSpan>, StoreError> {
        let mut forms = vec![Bson::from(id)];
        if is_hexadecimal(id) {
            forms.extend(ObjectId::parse_str(id).map(Bson::ObjectId));
        }
        let options = self.link.find_options(1, doc! {}, "_id_");
        let mut filter = doc! { "_id": { "$in": forms } };
        if let Some(resources) = resources {
            let ids: Vec<&str> = resources.iter().map(Id::as_str).collect();
            filter.insert("target.resource_id", doc! { "$in": ids });
        }
        let found = self.link.found(filter, options, 1).await?;
        let listed = found.documents.first().map(|raw| listed_span(raw));
        listed.transpose().map_err(StoreError::refused)
    }

    async fn causes(&self, query: &CauseQuery) -> Result<Vec<SuspendedCause>, StoreError> {
        cause_list::causes(self, query).await
    }

    async fn cause(&self, id: CauseId) -> Result<Option<SuspendedCause>, StoreError> {
        cause_list::cause(self, id).await
    }

    async fn usages(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        let bound = after.map(|after| doc! { "$gt": after });
        self.entries_in(span, target, bound, 1, limit).await
    }

    async fn usages_from_end(
        &self,
        span: &SpanId,
        target: &Target,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        let bound = before.map(|before| doc! { "$lt": before });
        self.entries_in(span, target, bound, -1, limit).await
    }

    async fn usage(&self, id: &str) -> Result<Option<Entry>, StoreError> {
        let options = self.usages.find_options(1, doc! {}, "_id_");
        let found = self.usages.found(doc! { "_id": id }, options, 1).await?;
        let entry = found.documents.first().map(|raw| entry_in(raw));
        entry.transpose().map_err(StoreError::refused)
    }

    async fn is_refused(&self, usage: &str) -> Result<bool, StoreError> {
        let filter = doc! {
            "processing.planned_interval.usage_guid": usage,
            "processing.refused_at": { "$exists": true },
        };
        let options = self.link.find_options(1, doc! {}, index::REFUSED);
        let found = self.link.found(filter, options, 1).await?;
        let spans = found
            .documents
            .iter()
            .filter_map(|raw| listed_span(raw).ok());
        Ok(spans
            .into_iter()
            .any(|it| Entry::is_refused_on(&it.span, usage)))
    }

    async fn sums(&self, query: &SumQuery) -> Result<SumPage, StoreError> {
        sums::sums(self, query).await
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage, StoreError> {
        audit::audit(self, query).await
    }
}
