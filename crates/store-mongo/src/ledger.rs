//! The ledger: a document for each usage, many with one command.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::raw::RawDocumentBuf;
use bson::{Bson, Document, doc};
use futures_util::future::join_all;
use sampler_domain::partition::partition_of;
use sampler_domain::{Acceptance, Entry, EntryState, LastError, Resend, SpanId, Target, Timestamp};
use sampler_store::group::{CommandResult, GroupWriter, Resolution, WriteResult};
use sampler_store::{
    Confirmation, Entries, EntryKey, Finished, Ledger, StoreError, Unconfirmed, UnconfirmedQuery,
};
use tokio::time::Instant;
use uuid::Uuid;

use crate::call::{CallError, Link, take};
use crate::document::{id_to_bson, partition_number, read_integer};
use crate::entry_document::{entry_in, state_in, written};
use crate::unreadable::decoded;
use crate::{MongoStore, confirmations, index, resends};

#[derive(Debug)]
pub(crate) struct EntryWriter {
    pub(crate) link: Link,
}

#[derive(Debug)]
pub(crate) struct EntryWrite {
    usage_guid: String,
    /// The key of its document.
    partition: i32,
    span: Bson,
    state: EntryState,
    document: RawDocumentBuf,
}

impl EntryWrite {
    fn new(entry: &Entry, lifetime: i64) -> Result<Self, StoreError> {
        let partition = partition_number(&entry.target);
        let document = written(entry, partition, lifetime);
        Ok(Self {
            document: document.map_err(StoreError::refused)?,
            usage_guid: entry.usage_guid.clone(),
            partition,
            span: id_to_bson(&entry.span),
            state: entry.state,
        })
    }

    /// The condition that only its document meets. It names the shard that has the document.
    fn condition(&self) -> Document {
        doc! { "_id": &self.usage_guid, "partition": self.partition, "span": &self.span }
    }
}

/// The entry that is kept of a usage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    state: EntryState,
    /// Whether it may have been written before.
    is_older: bool,
}

/// Spans whose entries are made to expire at once.
const EXPIRIES_AT_ONCE: usize = 256;

/// The states of usages, by their ids; or why an entry cannot be read.
type States = HashMap<String, Result<EntryState, crate::document::Unreadable>>;

impl EntryWriter {
    async fn states(&self, filter: Document) -> Result<States, CallError> {
        let found = self
            .link
            .find_linearizable(filter, "_id_", doc! { "state": 1 })
            .await?;
        let mut states = HashMap::new();
        for raw in found {
            if let Ok(usage_guid) = raw.get_str("_id") {
                let state = decoded(&raw).and_then(|document| state_in(&document));
                states.insert(usage_guid.to_owned(), state);
            }
        }
        Ok(states)
    }
}

#[async_trait]
impl GroupWriter for EntryWriter {
    type Write = EntryWrite;
    type Answer = Kept;
    type Failure = CallError;

    fn size(write: &EntryWrite) -> usize {
        write.document.as_bytes().len()
    }

    fn execution_limit(&self) -> Duration {
        self.link.execution_limit()
    }

    /// No client waits for an entry, so there may be fewer and larger commands. The server takes them for
    /// less.
    fn commands_in_flight() -> usize {
        2
    }

    /// Each answer stays true: the entry that was written first refuses every later one.
    fn outlasts_late_commands(_: &Kept) -> bool {
        true
    }

    async fn send(&self, batch: &[Arc<EntryWrite>], send_by: Instant) -> CommandResult<Self> {
        let documents = batch.iter().map(|write| &write.document);
        let written = self.link.insert(documents, send_by).await?;
        let failed: Vec<usize> = written.failed.iter().map(|(index, _)| *index).collect();
        let fresh = |index: usize| Kept {
            state: batch[index].state,
            is_older: false,
        };
        let mut results = written.write_results(batch.len(), fresh);
        // An entry that is kept already is refused here, and read by its id afterwards.
        for index in failed {
            if !matches!(results[index], WriteResult::Refused(_)) {
                results[index] = WriteResult::Unresolved;
            }
        }
        Ok(results)
    }

    async fn resolve(&self, batch: &[Arc<EntryWrite>]) -> Result<Vec<Resolution<Kept>>, CallError> {
        let conditions: Vec<Document> = batch.iter().map(|write| write.condition()).collect();
        let mut states = self.states(doc! { "$or": conditions }).await?;
        let missing = batch
            .iter()
            .map(|write| write.usage_guid.as_str())
            .filter(|usage_guid| !states.contains_key(*usage_guid));
        let missing: Vec<&str> = missing.collect();
        if !missing.is_empty() {
            // After spans were restored from a backup, the entry can name the span as it was before:
            // a start that was sent again has another `_id`, and usages with the same ids.
            states.extend(self.states(doc! { "_id": { "$in": missing } }).await?);
        }
        let resolutions = batch.iter().map(|write| {
            let state = states.remove(&write.usage_guid)?;
            // Two writers of one usage may share a command.
            if let Ok(state) = &state {
                states.insert(write.usage_guid.clone(), Ok(*state));
            }
            let kept = state.map(|state| Kept {
                state,
                is_older: true,
            });
            Some(kept.map_err(StoreError::refused))
        });
        Ok(resolutions.collect())
    }
}

impl MongoStore {
    /// Entries of a span whose versions are within a bound, forwards (1) or backwards (-1).
    pub(crate) async fn entries_in(
        &self,
        span: &SpanId,
        target: &Target,
        bound: Option<Document>,
        order: i32,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        let mut filter = doc! {
            "partition": i64::from(partition_of(target)),
            "span": id_to_bson(span),
        };
        if let Some(bound) = bound {
            filter.insert("version", bound);
        }
        let sort = doc! { "partition": order, "span": order, "version": order };
        let options = self.usages.find_options(limit, sort, index::OF_SPAN);
        let usages = self.usages.collection.clone();
        let find = async move {
            let found = usages.find(filter).with_options(options).await?;
            take(found, limit).await
        };
        let (documents, _) = self.usages.run(find).await?;
        let mut page = Entries::default();
        for raw in &documents {
            match entry_in(raw) {
                Ok(entry) => page.entries.push(entry),
                Err(problem) => {
                    page.unreadable += 1;
                    self.tell_of_entry(raw, &problem);
                }
            }
        }
        page.entries.retain(|entry| entry.target == *target);
        let last = documents.last().filter(|_| documents.len() == limit);
        let version = last.and_then(|raw| decoded(raw).ok());
        page.next = version.and_then(|document| read_integer(&document, "version").ok());
        Ok(page)
    }
}

/// The condition that the entry of a usage is in this state.
pub(crate) fn while_in(entry: &Entry, state: EntryState) -> Document {
    doc! {
        "_id": &entry.usage_guid,
        "partition": i64::from(partition_of(&entry.target)),
        "span": id_to_bson(&entry.span),
        "state": state.name(),
    }
}

impl MongoStore {
    /// A usage that was skipped may count, also where that became known after its entry was written.
    async fn learn_unanswered(&self, later: &Entry) -> Result<(), StoreError> {
        if !later.may_count() {
            return Ok(());
        }
        let filter = while_in(later, EntryState::Skipped);
        let (usages, update) = (&self.usages, doc! { "$set": { "unanswered": true } });
        usages
            .update_one(&usages.collection, filter, update, false)
            .await?;
        Ok(())
    }
}

#[async_trait]
impl Ledger for MongoStore {
    async fn write_entry(&self, entry: Entry, lifetime: i64) -> Result<EntryState, StoreError> {
        let write = EntryWrite::new(&entry, lifetime)?;
        let kept = self.entries.submit(Arc::new(write)).await?;
        match kept.state {
            EntryState::Accepted if kept.is_older => {
                confirmations::ask_later(self, &entry).await?;
            }
            EntryState::Skipped if kept.is_older => self.learn_unanswered(&entry).await?,
            _ => {}
        }
        Ok(kept.state)
    }

    async fn expire(&self, finished: &[Finished]) -> Result<(), StoreError> {
        // No more at once than the group has room for.
        for some in finished.chunks(EXPIRIES_AT_ONCE) {
            let expiries = some.iter().map(|span| {
                let statement = expiry(span.key.partition(), span);
                async move {
                    let statement = Arc::new(statement.map_err(StoreError::refused)?);
                    self.expiries.submit(statement).await
                }
            });
            let expired = join_all(expiries).await;
            expired.into_iter().collect::<Result<(), StoreError>>()?;
        }
        Ok(())
    }

    async fn mark_resend(&self, entry: &EntryKey, resend: &Resend) -> Result<bool, StoreError> {
        resends::mark_resend(self, entry, resend).await
    }

    async fn withheld_of(&self, entry: &Entry) -> Result<Vec<Entry>, StoreError> {
        resends::withheld_of(self, entry).await
    }

    async fn takes_back_uncounted(&self, entry: &Entry) -> Result<bool, StoreError> {
        resends::takes_back_uncounted(self, entry).await
    }

    async fn due_resends(&self, now: Timestamp, limit: usize) -> Result<Vec<Entry>, StoreError> {
        resends::due_resends(self, now, limit).await
    }

    async fn postpone_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        due_at: Timestamp,
    ) -> Result<(), StoreError> {
        resends::postpone_resend(self, entry, act, due_at).await
    }

    async fn claim_resend(
        &self,
        entry: &EntryKey,
        read: &Resend,
        due_at: Timestamp,
    ) -> Result<bool, StoreError> {
        resends::claim_resend(self, entry, read, due_at).await
    }

    async fn accept_resent(
        &self,
        entry: &Entry,
        acceptance: &Acceptance,
    ) -> Result<bool, StoreError> {
        resends::accept_resent(self, entry, acceptance).await
    }

    async fn has_resend(&self, entry: &EntryKey, act: Uuid) -> Result<bool, StoreError> {
        resends::has_resend(self, entry, act).await
    }

    async fn end_resend(
        &self,
        entry: &EntryKey,
        act: Uuid,
        refusal: Option<&LastError>,
    ) -> Result<(), StoreError> {
        resends::end_resend(self, entry, act, refusal).await
    }

    async fn unconfirmed(&self, query: &UnconfirmedQuery) -> Result<Vec<Unconfirmed>, StoreError> {
        confirmations::unconfirmed(self, query).await
    }

    async fn confirm(&self, confirmed: &[(Unconfirmed, Confirmation)]) -> Result<u64, StoreError> {
        confirmations::confirm(self, confirmed).await
    }
}

#[derive(Debug)]
pub(crate) struct ExpiryWriter {
    pub(crate) link: Link,
}

#[async_trait]
impl GroupWriter for ExpiryWriter {
    type Write = RawDocumentBuf;
    type Answer = ();
    type Failure = CallError;

    fn size(write: &RawDocumentBuf) -> usize {
        write.as_bytes().len()
    }

    fn execution_limit(&self) -> Duration {
        self.link.execution_limit()
    }

    fn outlasts_late_commands((): &()) -> bool {
        true
    }

    async fn send(&self, batch: &[Arc<RawDocumentBuf>], send_by: Instant) -> CommandResult<Self> {
        let statements = batch.iter().map(|statement| &**statement);
        let expired = self.link.update(statements, send_by).await?;
        let mut results: Vec<_> = batch.iter().map(|_| WriteResult::Settled(())).collect();
        for (index, failure) in expired.failed {
            results[index] = WriteResult::failed(failure);
        }
        Ok(results)
    }

    /// Sent again if the outcome is unknown: an expiry that is set already stays.
    async fn resolve(
        &self,
        batch: &[Arc<RawDocumentBuf>],
    ) -> Result<Vec<Resolution<()>>, CallError> {
        Ok(batch.iter().map(|_| None).collect())
    }
}

/// The statement that lets the entries of a span expire. If there are very many, it may reach only
/// some within its time limit; the next call continues. The entry of a usage that is still asked for is only
/// marked: it expires once that is over.
fn expiry(partition: u32, finished: &Finished) -> Result<RawDocumentBuf, bson::error::Error> {
    let is_asked_for = doc! { "$and": [
        { "$eq": ["$state", EntryState::Accepted.name()] },
        { "$ne": [{ "$type": "$ask_again.at" }, "missing"] },
    ] };
    let marked = doc! { "$mergeObjects": ["$ask_again", { "expires": true }] };
    RawDocumentBuf::try_from(&doc! {
        "q": {
            "partition": i64::from(partition),
            "span": id_to_bson(&finished.id),
            "expires_at": { "$exists": false },
            "ask_again.expires": { "$ne": true },
        },
        "u": [{ "$set": {
            "expires_at": { "$cond": [&is_asked_for, "$$REMOVE", expires_at()] },
            "ask_again": { "$cond": [&is_asked_for, marked, "$ask_again"] },
        } }],
        "multi": true,
        "hint": index::OF_SPAN,
    })
}

/// When an entry expires, as an expression: its lifetime after its last answer.
pub(crate) fn expires_at() -> Document {
    let from = doc! { "$max": [
        "$accepted_at", "$counted_at", "$set_aside_at", "$skipped_at", "$resent_at", "$resend.at",
    ] };
    let at = doc! { "$convert": {
        "input": { "$add": ["$$from", "$lifetime"] },
        "to": "date",
        "onError": "$$REMOVE",
    } };
    // An entry whose expiry cannot be computed is kept, so that an operator can examine it.
    let is_fit = doc! { "$and": [{ "$isNumber": "$$from" }, { "$isNumber": "$lifetime" }] };
    doc! { "$let": {
        "vars": { "from": from },
        "in": { "$cond": [is_fit, at, "$$REMOVE"] },
    } }
}
