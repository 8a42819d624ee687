//! Changes of spans by workers and operators (sections 6.5 and 6.6 of the paper), many with one
//! command.
//!
//! There is one lock, `processing.version`: a change is made if the span still has the version that was read,
//! and writes the members of `processing` that it alters.

use std::sync::Arc;

use async_trait::async_trait;
use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::rawdoc;
use sampler_domain::{Change, Changed, Key, Span, Timestamp};
use sampler_store::group::{CommandResult, GroupWriter, WriteResult};
use tokio::time::Instant;

use crate::call::{BY_ID, CallError, Link};
use crate::document::{key_as_binary, raw_id};
use crate::processing::altered;

/// Sends changes.
#[derive(Debug)]
pub(crate) struct ChangeWriter {
    pub(crate) link: Link,
}

/// The statement that makes a change. Of statements that find no document the server says only how many there
/// are. So this one would insert a document then, whose `_id` is not that of the condition: what finds nothing
/// fails, and each change has an answer of its own.
pub(crate) fn statement(read: &Span, change: &Change, now: Timestamp) -> RawDocumentBuf {
    let mut update = update(read, &change.after, now);
    let other = RawArrayBuf::new();
    update.append(cstr!("$setOnInsert"), rawdoc! { "_id": other });
    rawdoc! { "q": condition(read), "u": update, "upsert": true, "hint": BY_ID }
}

/// The span as it was read. Its key names the shard that has it.
pub(crate) fn condition(read: &Span) -> RawDocumentBuf {
    let mut condition = RawDocumentBuf::new();
    condition.append(cstr!("_id"), raw_id(&read.id));
    let key = key_as_binary(Key::of(&read.target));
    condition.append(cstr!("processing.key"), key);
    condition.append(cstr!("processing.version"), read.processing.version);
    condition
}

/// The update that makes the span that was read the one that it is to be.
pub(crate) fn update(read: &Span, after: &Span, now: Timestamp) -> RawDocumentBuf {
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

#[async_trait]
impl GroupWriter for ChangeWriter {
    type Write = RawDocumentBuf;
    type Answer = Changed;
    type Failure = CallError;

    fn size(write: &RawDocumentBuf) -> usize {
        write.as_bytes().len()
    }

    async fn send(&self, batch: &[Arc<RawDocumentBuf>], send_by: Instant) -> CommandResult<Self> {
        let statements = batch.iter().map(|statement| &**statement);
        let updated = self.link.update(statements, send_by).await?;
        let made = batch.iter().map(|_| WriteResult::Settled(Changed::Made));
        let mut results: Vec<_> = made.collect();
        for (index, failure) in updated.failed {
            results[index] = if failure.is_other_id() {
                WriteResult::Settled(Changed::Rejected)
            } else {
                WriteResult::Refused(failure)
            };
        }
        Ok(results)
    }
}
