//! Changes of spans by workers and operators (sections 6.5 and 6.6 of the paper), many with one
//! command.
//!
//! There is one lock, `processing.version`: a change is made if the span still has the version that was read,
//! and writes the members of `processing` that it alters.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::{RawDocumentBuf, cstr};
use bson::{Bson, doc, rawdoc};
use sampler_domain::{Change, Changed, Key, Span, SpanId, Timestamp};
use sampler_store::StoreError;
use sampler_store::group::{CommandResult, GroupWriter, Resolution};
use tokio::time::Instant;

use crate::MongoStore;
use crate::call::{BY_ID, CallError, Link};
use crate::document::{id_to_bson, key_as_binary, raw_id};
use crate::processing::altered;
use crate::raw::{decoded, span_in};
use crate::resolve::without_measures;

/// Sends changes.
#[derive(Debug)]
pub(crate) struct ChangeWriter {
    pub(crate) link: Link,
}

/// A change of a span, and the statement that makes it.
#[derive(Debug)]
pub(crate) struct ChangeWrite {
    /// The version that was read.
    version: i64,
    after: Span,
    statement: RawDocumentBuf,
}

impl ChangeWrite {
    fn new(read: &Span, change: &Change, now: Timestamp) -> Self {
        let statement = rawdoc! {
            "q": condition(read), "u": update(read, &change.after, now), "hint": BY_ID,
        };
        Self {
            version: read.processing.version,
            after: change.after.clone(),
            statement,
        }
    }
}

/// The span as it was read. Its key names the shard that has it.
fn condition(read: &Span) -> RawDocumentBuf {
    let mut condition = RawDocumentBuf::new();
    condition.append(cstr!("_id"), raw_id(&read.id));
    let key = key_as_binary(Key::of(&read.target));
    condition.append(cstr!("processing.key"), key);
    condition.append(cstr!("processing.version"), read.processing.version);
    condition
}

/// The update that makes the span that was read the one that it is to be.
fn update(read: &Span, after: &Span, now: Timestamp) -> RawDocumentBuf {
    let mut set = RawDocumentBuf::new();
    set.append(cstr!("processing.version"), after.processing.version);
    set.append(cstr!("processing.last_change_at"), now.as_millis());
    let mut unset = RawDocumentBuf::new();
    for (member, value) in altered(&read.processing, &after.processing) {
        match value {
            Some(value) => set.append(member, value),
            None => unset.append(member, ""),
        }
    }
    let mut update = rawdoc! { "$set": set };
    if !unset.is_empty() {
        update.append(cstr!("$unset"), unset);
    }
    update
}

/// Makes a change in a command that it shares with others.
pub(crate) async fn change(
    store: &MongoStore,
    read: &Span,
    change: &Change,
    now: Timestamp,
) -> Result<Changed, StoreError> {
    let change = ChangeWrite::new(read, change, now);
    store.changes.submit(Arc::new(change)).await
}

/// Makes a change in a command of its own, whose answer the driver asks for again where it is lost.
pub(crate) async fn change_by_operator(
    store: &MongoStore,
    read: &Span,
    change: &Change,
    now: Timestamp,
) -> Result<Changed, StoreError> {
    let filter = decoded(&condition(read));
    let update = decoded(&update(read, &change.after, now));
    let link = store.link.clone();
    let call = async move { link.find_and_update(filter, update, (BY_ID, None)).await };
    let is_made = store.link.run(call).await?;
    Ok(if is_made {
        Changed::Made
    } else {
        Changed::Rejected
    })
}

#[async_trait]
impl GroupWriter for ChangeWriter {
    type Write = ChangeWrite;
    type Answer = Changed;
    type Failure = CallError;

    fn size(write: &ChangeWrite) -> usize {
        write.statement.as_bytes().len()
    }

    async fn send(&self, batch: &[Arc<ChangeWrite>], send_by: Instant) -> CommandResult<Self> {
        let statements = batch.iter().map(|change| &change.statement);
        let updated = self.link.update(statements, send_by).await?;
        Ok(updated.write_results(batch.len(), |_| Changed::Made))
    }

    /// Some of the changes were rejected, and the server does not say which. A span that is as the change makes
    /// it has been changed. A worker whose change is taken for rejected reads the span and decides again, so
    /// nothing is lost where another change has followed already.
    async fn resolve(
        &self,
        batch: &[Arc<ChangeWrite>],
    ) -> Result<Vec<Resolution<Changed>>, CallError> {
        let ids: Vec<Bson> = batch.iter().map(|it| id_to_bson(&it.after.id)).collect();
        let mut options = self.link.find_options(ids.len(), doc! {}, BY_ID);
        options.projection = Some(without_measures());
        let found = self.link.find(doc! { "_id": { "$in": ids } }, options);
        let spans = found
            .await?
            .into_iter()
            .filter_map(|raw| span_in(&raw).ok());
        let spans: HashMap<SpanId, Span> = spans.map(|span| (span.id.clone(), span)).collect();
        let resolutions = batch.iter().map(|change| {
            let now = spans.get(&change.after.id).map(|span| &span.processing);
            match now {
                Some(now) if *now == change.after.processing => Some(Ok(Changed::Made)),
                // It can still be made.
                Some(now) if now.version == change.version => None,
                _ => Some(Ok(Changed::Rejected)),
            }
        });
        Ok(resolutions.collect())
    }
}
