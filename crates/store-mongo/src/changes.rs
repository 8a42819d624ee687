//! Changing what workers know of spans (sections 6.5 and 6.6 of the paper), many with one command.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Document, RawDocumentBuf, doc};
use sampler_domain::Span;
use sampler_store::group::{Seen, Verdicts, Writes};
use sampler_store::{Changed, StoreError};
use tokio::time::Instant;

use crate::call::{Fault, Link};
use crate::document::{id_to_bson, moment_or_null};
use crate::look::{by_span_id, readable};

/// Makes changes that need the version and the end that a span was read with.
#[derive(Debug)]
pub(crate) struct Changes {
    link: Link,
}

/// A change, and what it makes of the span.
#[derive(Debug)]
pub(crate) struct Change {
    /// Kept with the span as `processing.last_change_id`: by it a change is known that others have
    /// made, too.
    id: ObjectId,
    before: Span,
    after: Span,
    statement: RawDocumentBuf,
}

impl Change {
    /// A change that sets and does what `update` says.
    ///
    /// # Errors
    /// Where the change cannot be written as a statement.
    pub(crate) fn new(before: Span, update: Update, after: Span) -> Result<Self, StoreError> {
        let id = ObjectId::new();
        let statement = doc! {
            "q": {
                "_id": id_to_bson(&before.id),
                "processing.version": before.processing.version,
                "processing.complete": false,
                "end": moment_or_null(before.end),
                // Waits and failures leave the version alone, and are to be noted once, too.
                "processing.last_change_id": { "$ne": id },
            },
            "u": update.with_id(id),
        };
        let statement = RawDocumentBuf::try_from(&statement);
        Ok(Self {
            statement: statement.map_err(|error| StoreError::Refused(Box::new(error)))?,
            id,
            before,
            after,
        })
    }

    fn made(&self) -> Changed {
        Changed::Done(Box::new(self.after.clone()))
    }

    /// What a look at the span says; nothing where the change can still be made.
    fn seen(&self, document: &RawDocumentBuf) -> Seen<Changed> {
        let processing = document.get_document("processing");
        let last = processing.and_then(|processing| processing.get_object_id("last_change_id"));
        if last.is_ok_and(|last| last == self.id) {
            return Some(Ok(self.made()));
        }
        let now = match readable(document) {
            Ok(now) => now,
            Err(error) => return Some(Err(error)),
        };
        let untouched = now.processing.version == self.before.processing.version
            && now.end == self.before.end
            && !now.processing.complete;
        (!untouched).then_some(Ok(Changed::Lost))
    }
}

/// What a change does, by the operators of an update.
#[derive(Debug, Default)]
pub(crate) struct Update {
    pub(crate) set: Document,
    pub(crate) inc: Document,
    pub(crate) unset: Document,
}

impl Update {
    fn with_id(self, id: ObjectId) -> Document {
        let Self {
            mut set,
            inc,
            unset,
        } = self;
        set.insert("processing.last_change_id", id);
        let operators = [("$set", set), ("$inc", inc), ("$unset", unset)];
        operators
            .into_iter()
            .filter(|(_, fields)| !fields.is_empty())
            .map(|(operator, fields)| (operator.to_owned(), fields.into()))
            .collect()
    }
}

impl Changes {
    pub(crate) fn new(link: Link) -> Self {
        Self { link }
    }
}

#[async_trait]
impl Writes for Changes {
    type Write = Change;
    type Answer = Changed;
    type Failure = Fault;

    fn size(write: &Change) -> usize {
        write.statement.as_bytes().len()
    }

    fn carried_out_within(&self) -> Duration {
        self.link.carried_out_within()
    }

    /// Each answer does. A change that is lost has found another version, another end, or a span
    /// that is complete; a version only grows, an end that is set stays, and what is complete stays
    /// so. The condition that failed can never be met again, however late the command comes.
    fn outlasts_late_commands(_: &Changed) -> bool {
        true
    }

    async fn write(&self, batch: &[Arc<Change>], send_by: Instant) -> Verdicts<Self> {
        let statements = batch.iter().map(|change| &change.statement);
        let updated = self.link.update(statements, send_by).await?;
        Ok(updated.verdicts(batch.len(), |place| batch[place].made()))
    }

    async fn look(&self, batch: &[Arc<Change>]) -> Result<Vec<Seen<Changed>>, Fault> {
        let ids = batch.iter().map(|change| &change.before.id);
        let spans = by_span_id(&self.link, ids).await?;
        let seen = |change: &Arc<Change>| match spans.get(&change.before.id) {
            Some(document) => change.seen(document),
            // It is complete, and was removed.
            None => Some(Ok(Changed::Lost)),
        };
        Ok(batch.iter().map(seen).collect())
    }
}
