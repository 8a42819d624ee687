//! Changes of spans by workers and operators (sections 6.5 and 6.6 of the paper), many with one
//! command.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::raw::{CStr, RawBsonRef, cstr};
use bson::{RawDocumentBuf, rawdoc};
use sampler_domain::{Change, Changed, Failure, Key, Next, Planned, Span, Suspension, Timestamp};
use sampler_store::group::{CommandResult, GroupWriter, Resolution};
use sampler_store::{ACTS_NAMED, StoreError};
use tokio::time::Instant;
use uuid::Uuid;

use crate::MongoStore;
use crate::call::{CallError, Link};
use crate::document::{
    cut, empty_document, executed, interval, key_as_binary, planned, raw_id, raw_moment_or_null,
};
use crate::entry_document::ERROR_LEN_MAX;
use crate::resolve::{by_span_id, readable};
use crate::suspension_document::{skip_mark, suspension};
use crate::totals::{resent_mark, totals};
use crate::uncounted::{self, ListUpdate};

/// The field in which a span names the operators' actions that have changed it last.
const ACTS: &CStr = cstr!("processing.acts");

/// Sends changes, each on the conditions of [`Change::is_allowed`].
#[derive(Debug)]
pub(crate) struct ChangeWriter {
    pub(crate) link: Link,
}

/// A change of a span, and the statement that makes it.
#[derive(Debug)]
pub(crate) struct ChangeWrite {
    /// Identifies this change, in `processing.last_change_id`. Another worker may make an equal change
    /// at the same time; the id distinguishes them.
    id: ObjectId,
    /// The operator's action that it carries out. The span names it from then on: what workers
    /// change next, while the answer is lost, does not hide that it was done.
    act: Option<Uuid>,
    before: Span,
    change: Change,
    statement: RawDocumentBuf,
}

impl ChangeWrite {
    /// A change that applies if the span is unchanged since `before` was read
    /// ([`Change::is_allowed`]).
    pub(crate) fn new(before: &Span, change: &Change, act: Option<Uuid>, now: Timestamp) -> Self {
        let id = ObjectId::new();
        let mut condition = condition(before, change, id);
        let mut update = update(before, change, now);
        update.set.append(cstr!("processing.last_change_id"), id);
        if let Some(act) = act {
            let act = act.to_string();
            condition.append(ACTS, rawdoc! { "$ne": act.as_str() });
            let named = i32::try_from(ACTS_NAMED).expect("it is small");
            let last = rawdoc! { "$each": [act.as_str()], "$slice": -named };
            update.push.append(ACTS, last);
        }
        let mut statement = empty_document();
        statement.append(cstr!("q"), condition);
        statement.append(cstr!("u"), update.operators());
        statement.append(cstr!("hint"), "_id_");
        Self {
            statement,
            id,
            act,
            before: before.clone(),
            change: change.clone(),
        }
    }

    /// The outcome of the change, by the document; `None` if the change can still be made.
    fn seen(&self, document: &RawDocumentBuf) -> Resolution<Changed> {
        let processing = document.get_document("processing");
        let last = processing.and_then(|processing| processing.get_object_id("last_change_id"));
        if last.is_ok_and(|last| last == self.id) || self.is_named(document) {
            return Some(Ok(Changed::Made));
        }
        match readable(document) {
            Ok(now) if self.change.is_allowed(&self.before, &now) => None,
            Ok(_) => Some(Ok(Changed::Rejected)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Whether the span names its operator's action.
    fn is_named(&self, document: &RawDocumentBuf) -> bool {
        let Some(act) = self.act.map(|act| act.to_string()) else {
            return false;
        };
        let processing = document.get_document("processing");
        let acts = processing.and_then(|processing| processing.get_array("acts"));
        let mut names = acts.into_iter().flatten().flatten();
        names.any(|name| name.as_str() == Some(&act))
    }
}

/// The documents that a change may be made to: the span as it was read.
fn condition(before: &Span, change: &Change, id: ObjectId) -> RawDocumentBuf {
    let processing = &before.processing;
    let version = processing.version;
    let mut condition = empty_document();
    condition.append(cstr!("_id"), raw_id(&before.id));
    // The shard key.
    condition.append(
        cstr!("processing.key"),
        key_as_binary(Key::of(&before.target)),
    );
    condition.append(cstr!("processing.version"), version);
    condition.append(cstr!("end"), raw_moment_or_null(before.end));
    // Postponements and failures leave the version alone, and are to be made once, too.
    condition.append(cstr!("processing.last_change_id"), rawdoc! { "$ne": id });
    let resent = cstr!("processing.resent.act");
    match &processing.resent {
        Some(mark) => condition.append(resent, mark.act.to_string()),
        None => condition.append(resent, rawdoc! { "$exists": false }),
    }
    uncounted::require_unchanged(before, &mut condition);
    let unanswered = cstr!("processing.unanswered");
    if processing.unanswered {
        condition.append(unanswered, version);
    } else {
        condition.append(unanswered, rawdoc! { "$ne": version });
    }
    if !change.is_of_complete() {
        condition.append(cstr!("processing.complete"), false);
    }
    match &processing.skip {
        Some(skip) => condition.append(cstr!("processing.skip"), skip_mark(skip, version)),
        // A request to skip that the original has left behind has an older version. It does not
        // count.
        None => condition.append(cstr!("processing.skip.version"), rawdoc! { "$ne": version }),
    }
    if let Some(suspended) = change.required_suspension() {
        let Suspension { cause, since } = suspended;
        condition.append(cstr!("processing.suspended.cause"), cause.to_string());
        condition.append(cstr!("processing.suspended.version"), version);
        condition.append(cstr!("processing.suspended.since"), since.as_millis());
    }
    condition
}

/// The operators of the update that makes a change. They are written as they are sent: a worker makes
/// one for each interval.
#[derive(Debug)]
struct Update {
    set: RawDocumentBuf,
    inc: RawDocumentBuf,
    push: RawDocumentBuf,
    unset: RawDocumentBuf,
}

impl Update {
    fn new() -> Self {
        Self {
            set: empty_document(),
            inc: RawDocumentBuf::new(),
            push: RawDocumentBuf::new(),
            unset: empty_document(),
        }
    }

    fn operators(self) -> RawDocumentBuf {
        let mut operators = empty_document();
        for (operator, fields) in [
            (cstr!("$set"), self.set),
            (cstr!("$inc"), self.inc),
            (cstr!("$push"), self.push),
            (cstr!("$unset"), self.unset),
        ] {
            if !fields.is_empty() {
                operators.append(operator, fields);
            }
        }
        operators
    }
}

/// The update that does to a document what [`Span::after`] does to the span.
fn update(before: &Span, change: &Change, now: Timestamp) -> Update {
    let mut update = Update::new();
    if let Some(due_at) = change.due_at() {
        update
            .set
            .append(cstr!("processing.due_at"), due_at.as_millis());
    }
    match change {
        Change::Plan { planned: plan, .. } => {
            update.next_version(now);
            update.plan(before, plan);
        }
        Change::NotFound { .. } => {
            update.next_version(now);
            update.not_found(before, &before.after(change));
        }
        Change::Executed { next, .. } => {
            update.next_version(now);
            update.execution(before, Span::executed, next);
        }
        Change::Skipped { next, .. } => {
            update.next_version(now);
            update.execution(before, Span::skipped, next);
        }
        Change::Complete => {
            update.next_version(now);
            update.set.append(cstr!("processing.complete"), true);
        }
        Change::Postpone { .. } | Change::KeepSuspended { .. } => {}
        Change::Resume { .. } => update.resumption(),
        Change::Resent { resent, .. } => {
            let after = before.after(change);
            update
                .set
                .append(cstr!("processing.totals"), totals(&after));
            let resent = resent_mark(resent);
            update.set.append(cstr!("processing.resent"), resent);
            update.uncounted(before, &after);
        }
        Change::SetAside { .. } => update.uncounted(before, &before.after(change)),
        Change::RequestSkip { skip, .. } => {
            update.resumption();
            let skip = skip_mark(skip, before.processing.version);
            update.set.append(cstr!("processing.skip"), skip);
        }
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
                update.set.append(cstr!("processing.suspended"), suspended);
                update.unset.append(cstr!("processing.probe"), "");
            }
        }
    }
    update
}

impl Update {
    /// Records the time of the change, and increments the version.
    fn next_version(&mut self, now: Timestamp) {
        self.set
            .append(cstr!("processing.last_change_at"), now.as_millis());
        self.inc.append(cstr!("processing.version"), 1);
    }

    fn execution(&mut self, before: &Span, sampled: fn(&Span) -> Span, next: &Next) {
        // The totals change together with the execution, so no reader sees one without the other.
        if before.processing.planned.is_some() {
            let after = sampled(before);
            self.set.append(cstr!("processing.totals"), totals(&after));
            self.uncounted(before, &after);
        }
        let last = before.processing.planned.as_ref().map(executed);
        let last = last.unwrap_or_else(|| interval(before.processing.last));
        self.set.append(cstr!("processing.last_interval"), last);
        match next {
            Next::Planned(plan) => self.plan(before, plan),
            Next::Wait | Next::Complete => self
                .set
                .append(cstr!("processing.planned_interval"), RawBsonRef::Null),
        }
        if *next == Next::Complete {
            self.set.append(cstr!("processing.complete"), true);
        }
        // Always removed: another worker may have recorded a failure since the read, which does not
        // change the version.
        for field in [
            cstr!("processing.attempts"),
            cstr!("processing.failed_version"),
            cstr!("processing.last_error"),
            cstr!("processing.refused_at"),
            cstr!("processing.refusals"),
            cstr!("processing.suspended"),
            cstr!("processing.probe"),
            cstr!("processing.skip"),
            cstr!("processing.unanswered"),
        ] {
            self.unset.append(field, "");
        }
    }

    /// What is kept with the version of the planned interval is about the next version from now on.
    fn not_found(&mut self, before: &Span, after: &Span) {
        let (was, is) = (&before.processing, &after.processing);
        if let Some(plan) = &is.planned {
            self.set
                .append(cstr!("processing.planned_interval"), planned(plan));
        }
        if was.totals != is.totals {
            self.set.append(cstr!("processing.totals"), totals(after));
        }
        if is.attempts > 0 || is.refusals > 0 {
            self.set
                .append(cstr!("processing.failed_version"), is.version);
        }
        for (version, is_there) in [
            (cstr!("processing.probe.version"), is.probe.is_some()),
            (
                cstr!("processing.suspended.version"),
                is.suspended.is_some(),
            ),
            (cstr!("processing.skip.version"), is.skip.is_some()),
        ] {
            if is_there {
                self.set.append(version, is.version);
            }
        }
        self.unset.append(cstr!("processing.unanswered"), "");
    }

    /// Plans an interval, and notes how it cuts the time, if that has changed.
    fn plan(&mut self, before: &Span, plan: &Planned) {
        let planned = planned(plan);
        self.set
            .append(cstr!("processing.planned_interval"), planned);
        if let Some(added) = before.added_cut(plan) {
            let dimensions = cstr!("processing.dimensions");
            self.push.append(dimensions, cut(&added));
        }
    }

    /// Changes the list of what does not count.
    fn uncounted(&mut self, before: &Span, after: &Span) {
        match uncounted::update(before, after) {
            None => {}
            Some(ListUpdate::Remove) => self.unset.append(uncounted::LIST, ""),
            Some(ListUpdate::Add(added)) => self.push.append(uncounted::LIST, added),
            Some(ListUpdate::Replace(all)) => self.set.append(uncounted::LIST, all),
        }
    }

    /// Resets the count of refusals. The last error stays.
    fn resumption(&mut self) {
        for field in [
            cstr!("processing.refusals"),
            cstr!("processing.suspended"),
            cstr!("processing.probe"),
        ] {
            self.unset.append(field, "");
        }
    }

    /// The attempts are stored with their version. The original, when it executes
    /// the interval, increments the version and keeps the old attempts; they must not count then.
    fn failure(&mut self, before: &Span, failure: &Failure, attempts: u32) {
        let message: String = failure.error.chars().take(ERROR_LEN_MAX).collect();
        let mut error = rawdoc! { "at": failure.at.as_millis(), "message": message };
        if let Some(status) = failure.status {
            error.append(cstr!("status"), i32::from(status));
        }
        let version = before.processing.version;
        self.set.append(cstr!("processing.failed_version"), version);
        self.set.append(cstr!("processing.last_error"), error);
        self.set
            .append(cstr!("processing.attempts"), i64::from(attempts));
        // With the version, for the same reason. It stays until the interval is executed.
        if failure.unanswered {
            self.set.append(cstr!("processing.unanswered"), version);
        }
        let planned = before.processing.planned.as_ref();
        if failure.is_post && planned.is_some_and(|it| it.posts_end_by.is_some()) {
            let ended = failure.at.as_millis();
            self.set
                .append(cstr!("processing.planned_interval.posts_end_by"), ended);
        }
    }

    /// Sets both fields, or removes them: the original may have left those of an earlier interval.
    fn refusal(&mut self, refusals: u32, refused_at: Option<Timestamp>) {
        let refusals = (refusals > 0).then_some(i64::from(refusals));
        for (name, value) in [
            (cstr!("processing.refusals"), refusals),
            (
                cstr!("processing.refused_at"),
                refused_at.map(Timestamp::as_millis),
            ),
        ] {
            match value {
                Some(value) => self.set.append(name, value),
                None => self.unset.append(name, ""),
            }
        }
    }
}

pub(crate) async fn change(
    store: &MongoStore,
    span: &Span,
    change: &Change,
    act: Option<Uuid>,
    now: Timestamp,
) -> Result<Changed, StoreError> {
    let change = ChangeWrite::new(span, change, act, now);
    store.changes.submit(Arc::new(change)).await
}

#[async_trait]
impl GroupWriter for ChangeWriter {
    type Write = ChangeWrite;
    type Answer = Changed;
    type Failure = CallError;

    fn size(write: &ChangeWrite) -> usize {
        write.statement.as_bytes().len()
    }

    fn execution_limit(&self) -> Duration {
        self.link.execution_limit()
    }

    /// Each answer stays true. An operator's action that its span does not name was not done. A change
    /// is rejected because of another version, another end, a complete span, another resend, another list
    /// of what does not count, or a span that was resumed or is to be skipped. A version only grows, no
    /// resend comes twice, and between two of them each addition to the list has another last one. An end, a
    /// completion and a request to skip at a version never change. So the condition can never be met again,
    /// however late the command runs.
    fn outlasts_late_commands(_: &Changed) -> bool {
        true
    }

    async fn send(&self, batch: &[Arc<ChangeWrite>], send_by: Instant) -> CommandResult<Self> {
        let statements = batch.iter().map(|change| &change.statement);
        let updated = self.link.update(statements, send_by).await?;
        Ok(updated.write_results(batch.len(), |_| Changed::Made))
    }

    async fn resolve(
        &self,
        batch: &[Arc<ChangeWrite>],
    ) -> Result<Vec<Resolution<Changed>>, CallError> {
        let spans = batch.iter().map(|change| &change.before);
        let spans = by_span_id(&self.link, spans).await?;
        let resolutions = batch
            .iter()
            .map(|change| match spans.get(&change.before.id) {
                Some(document) => change.seen(document),
                // The span is complete, and was removed.
                None => Some(Ok(Changed::Rejected)),
            });
        Ok(resolutions.collect())
    }
}
