//! Changing what workers know of spans (sections 6.5 and 6.6 of the paper), many with one command.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocumentBuf, doc};
use sampler_domain::{Change, Changed, Failure, Next, Span, Suspension, Timestamp};
use sampler_store::StoreError;
use sampler_store::group::{CommandResult, Resolution, Writes};
use tokio::time::Instant;

use crate::call::{CallError, Link};
use crate::document::{executed, id_to_bson, interval, moment, moment_or_null, partition, planned};
use crate::entry_document::ERROR_LEN_MAX;
use crate::resolve::{by_span_id, readable};
use crate::suspension_document::suspension;
use crate::totals::totals;

/// Makes changes that need the version and the end that a span was read with.
#[derive(Debug)]
pub(crate) struct Changes {
    link: Link,
}

/// A change of a span, and the statement that makes it.
#[derive(Debug)]
pub(crate) struct ChangeOfSpan {
    /// Kept with the span as `processing.last_change_id`: by it a change is known that others have
    /// made, too.
    id: ObjectId,
    before: Span,
    /// How the span must be suspended by then, if it must.
    suspension: Option<Suspension>,
    statement: RawDocumentBuf,
}

impl ChangeOfSpan {
    /// A change that is made if the span still is as it was `before`
    /// ([`Span::admits_change_of`]).
    ///
    /// # Errors
    /// Where the change cannot be written as a statement.
    pub(crate) fn new(before: &Span, change: &Change, now: Timestamp) -> Result<Self, StoreError> {
        let id = ObjectId::new();
        let mut condition = doc! {
            "_id": id_to_bson(&before.id),
            // Where it is kept. A change is made of what was taken in, and so has a partition.
            "processing.partition": partition(&before.target),
            "target.resource_instance_id": before.target.resource_instance_id.as_str(),
            "processing.version": before.processing.version,
            "processing.complete": false,
            "end": moment_or_null(before.end),
            // Waits and failures leave the version alone, and are to be noted once, too.
            "processing.last_change_id": { "$ne": id },
        };
        let suspended = match change {
            Change::KeepSuspended { suspension } => Some(*suspension),
            _ => None,
        };
        if let Some(suspended) = suspended {
            for (name, value) in suspension(suspended, before.processing.version) {
                condition.insert(format!("processing.suspended.{name}"), value);
            }
        }
        let statement = doc! {
            "q": condition,
            "u": update(before, change, now).with_id(id),
            "hint": "_id_",
        };
        let statement = RawDocumentBuf::try_from(&statement);
        Ok(Self {
            statement: statement.map_err(|error| StoreError::Refused(Box::new(error)))?,
            id,
            before: before.clone(),
            suspension: suspended,
        })
    }

    /// What the span says of the change; nothing where the change can still be made.
    fn seen(&self, document: &RawDocumentBuf) -> Resolution<Changed> {
        let processing = document.get_document("processing");
        let last = processing.and_then(|processing| processing.get_object_id("last_change_id"));
        if last.is_ok_and(|last| last == self.id) {
            return Some(Ok(Changed::Made));
        }
        match readable(document) {
            Ok(now) if self.before.admits_change_of(&now) && self.is_about(&now) => None,
            Ok(_) => Some(Ok(Changed::Lost)),
            Err(error) => Some(Err(error)),
        }
    }
}

impl ChangeOfSpan {
    /// Whether what the change is about is still so ([`Change::is_about`]).
    fn is_about(&self, now: &Span) -> bool {
        self.suspension.is_none() || self.suspension == now.processing.suspended
    }
}

/// What a change does, by the operators of an update.
#[derive(Debug, Default)]
struct Update {
    set: Document,
    inc: Document,
    unset: Document,
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

/// The update that makes of a document what [`Span::after`] makes of the span.
fn update(before: &Span, change: &Change, now: Timestamp) -> Update {
    let mut update = Update::default();
    if let Some(due_at) = change.due_at() {
        update.set.insert("processing.due_at", moment(due_at));
    }
    match change {
        Change::Plan { planned: plan, .. } => {
            update.sampling(now);
            let set = &mut update.set;
            set.insert("processing.planned_interval", planned(plan));
        }
        Change::Executed { next, .. } => {
            update.sampling(now);
            update.execution(before, next);
        }
        Change::Complete => {
            update.sampling(now);
            update.set.insert("processing.complete", true);
        }
        Change::Postpone { .. } | Change::KeepSuspended { .. } => {}
        Change::Failed {
            failure,
            attempts,
            refusals,
            refused_at,
            suspension: suspended,
        } => {
            update.failure(before, failure, *attempts);
            update.refusal(*refusals, *refused_at);
            if let Some(suspended) = suspended {
                let suspended = suspension(*suspended, before.processing.version);
                update.set.insert("processing.suspended", suspended);
                update.unset.insert("processing.probe", "");
            }
        }
    }
    update
}

impl Update {
    /// What sampling has come to is another version.
    fn sampling(&mut self, now: Timestamp) {
        self.set.insert("processing.last_change_at", moment(now));
        self.inc.insert("processing.version", 1);
    }

    fn execution(&mut self, before: &Span, next: &Next) {
        // What is noted and what it comes to are one change: nobody sees one without the other.
        if before.processing.planned.is_some() {
            let after = before.executed();
            self.set.insert("processing.totals", totals(&after));
        }
        let last = before.processing.planned.as_ref().map(executed);
        let last = last.unwrap_or_else(|| interval(before.processing.last));
        self.set.insert("processing.last_interval", last);
        let following = match next {
            Next::Planned(plan) => Bson::Document(planned(plan)),
            Next::Wait | Next::Complete => Bson::Null,
        };
        self.set.insert("processing.planned_interval", following);
        if *next == Next::Complete {
            self.set.insert("processing.complete", true);
        }
        // Whatever was read: a failure that another worker noted since leaves the version alone.
        self.unset = doc! {
            "processing.attempts": "",
            "processing.failed_version": "",
            "processing.last_error": "",
            "processing.refused_at": "",
            "processing.refusals": "",
            "processing.suspended": "",
            "processing.probe": "",
        };
    }

    /// The count belongs to the version: an original leaves it behind when it executes the interval.
    fn failure(&mut self, before: &Span, failure: &Failure, attempts: u32) {
        let message: String = failure.error.chars().take(ERROR_LEN_MAX).collect();
        let mut error = doc! { "at": moment(failure.at), "message": message };
        if let Some(status) = failure.status {
            error.insert("status", i32::from(status));
        }
        let version = before.processing.version;
        self.set.insert("processing.failed_version", version);
        self.set.insert("processing.last_error", error);
        self.set.insert("processing.attempts", i64::from(attempts));
    }

    /// What an original has left behind is not of this interval, and goes.
    fn refusal(&mut self, refusals: u32, refused_at: Option<Timestamp>) {
        let refusals = (refusals > 0).then(|| Bson::from(i64::from(refusals)));
        for (name, value) in [
            ("processing.refusals", refusals),
            ("processing.refused_at", refused_at.map(moment)),
        ] {
            match value {
                Some(value) => self.set.insert(name, value),
                None => self.unset.insert(name, ""),
            };
        }
    }
}

impl Changes {
    pub(crate) fn new(link: Link) -> Self {
        Self { link }
    }
}

#[async_trait]
impl Writes for Changes {
    type Write = ChangeOfSpan;
    type Answer = Changed;
    type Failure = CallError;

    fn size(write: &ChangeOfSpan) -> usize {
        write.statement.as_bytes().len()
    }

    fn carried_out_within(&self) -> Duration {
        self.link.carried_out_within()
    }

    /// Each answer does. A change that is lost has found another version, another end, or a span
    /// that is complete; a version only grows, an end that is set stays, and what is complete stays
    /// so. One that was to keep a span suspended has found it resumed. The condition that failed can never be met again, however late the command comes.
    fn outlasts_late_commands(_: &Changed) -> bool {
        true
    }

    async fn write(&self, batch: &[Arc<ChangeOfSpan>], send_by: Instant) -> CommandResult<Self> {
        let statements = batch.iter().map(|change| &change.statement);
        let updated = self.link.update(statements, send_by).await?;
        Ok(updated.write_results(batch.len(), |_| Changed::Made, None))
    }

    async fn resolve(
        &self,
        batch: &[Arc<ChangeOfSpan>],
    ) -> Result<Vec<Resolution<Changed>>, CallError> {
        let spans = batch.iter().map(|change| &change.before);
        let spans = by_span_id(&self.link, spans).await?;
        let seen = |change: &Arc<ChangeOfSpan>| match spans.get(&change.before.id) {
            Some(document) => change.seen(document),
            // It is complete, and was removed.
            None => Some(Ok(Changed::Lost)),
        };
        Ok(batch.iter().map(seen).collect())
    }
}
