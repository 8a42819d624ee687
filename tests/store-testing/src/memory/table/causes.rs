//! The rules of causes and of the spans that are suspended under them.

use std::collections::BTreeMap;

use sampler_domain::{Cause, CauseId, Suspension, Timestamp};
use sampler_store::{KeptCause, Probe, Resumption};

use super::{StoredSpan, Table};
use crate::shared::Shared;

impl StoredSpan {
    fn suspension(&self) -> Option<Suspension> {
        self.span.processing.suspended
    }

    fn is_suspended_under(&self, cause: CauseId) -> bool {
        self.suspension().is_some_and(|it| it.cause == cause)
    }

    /// It is due, and tried again.
    fn resume(&mut self, resumption: Resumption, is_probe: bool) {
        self.span = self.span.resumed(resumption.refusals, is_probe);
        self.due_at = Some(resumption.now);
        self.probed_at = is_probe.then_some(resumption.now);
    }

    /// Whether it is tried for the cause, for less than `lasts` ms so far.
    fn is_probing(&self, cause: CauseId, now: Timestamp, lasts: i64) -> bool {
        let is_recent = |at: Timestamp| now.since(at).abs() < lasts;
        self.span.processing.probe == Some(cause) && self.probed_at.is_some_and(is_recent)
    }
}

impl Table {
    /// All causes, by their ids.
    pub fn causes(&self) -> impl Iterator<Item = &KeptCause> {
        self.causes.values()
    }

    /// How many spans are suspended under a cause.
    pub fn count_suspended(&self, cause: CauseId) -> usize {
        let of_cause = |kept: &&StoredSpan| kept.is_suspended_under(cause);
        self.all().filter(of_cause).count()
    }

    /// Keeps a cause, unless it is there.
    pub fn register(&mut self, cause: &Cause, now: Timestamp, probe_at: Timestamp) {
        self.register_as(cause.id(), cause, now, probe_at);
    }

    fn register_as(&mut self, id: CauseId, cause: &Cause, now: Timestamp, probe_at: Timestamp) {
        let kept = self.causes.entry(id).or_insert_with(|| KeptCause {
            id,
            cause: cause.clone(),
            since: now,
            probe_at,
            touched_at: now,
            resuming: None,
            resumes: 0,
        });
        kept.touched_at = now;
    }

    /// Writes the missing causes of suspended spans; returns how many.
    pub fn register_missing(&mut self, now: Timestamp, probe_at: Timestamp) -> u64 {
        let mut missing = BTreeMap::new();
        for span in self.all().map(|kept| &kept.span) {
            let error = span.processing.last_error.as_ref();
            let (Some(suspension), Some(error)) = (span.processing.suspended, error) else {
                continue;
            };
            if !self.causes.contains_key(&suspension.cause) {
                missing.insert(suspension.cause, Cause::of(&span.target, error));
            }
        }
        for (id, cause) in &missing {
            self.register_as(*id, cause, now, probe_at);
        }
        missing.len() as u64
    }

    /// Causes that are to be probed by now, or whose spans go on, the longest waiting first.
    pub fn due_causes(&self, now: Timestamp, limit: usize) -> Vec<KeptCause> {
        let is_due = |kept: &&KeptCause| kept.probe_at <= now || kept.resuming.is_some();
        let mut due: Vec<KeptCause> = self.causes.values().filter(is_due).cloned().collect();
        due.sort_by_key(|kept| (kept.probe_at, kept.id));
        due.truncate(limit);
        due
    }

    /// Sets when the cause is to be probed next, unless somebody else did.
    pub fn claim_probe(&mut self, cause: &KeptCause, next: Timestamp) -> bool {
        let kept = self.causes.get_mut(&cause.id);
        let kept = kept.filter(|kept| kept.probe_at == cause.probe_at);
        let Some(kept) = kept else {
            return false;
        };
        kept.probe_at = next;
        true
    }

    /// Resumes one span as a probe: the one that has been suspended under the cause for longest.
    /// Does nothing while a probe that began less than `lasts` ms ago has no answer.
    pub fn probe(&mut self, cause: CauseId, resumption: Resumption, lasts: i64) -> Probe {
        let is_running = |kept: &StoredSpan| kept.is_probing(cause, resumption.now, lasts);
        if self.all().any(is_running) {
            return Probe::Running;
        }
        let spans = self.spans.values_mut();
        let suspended = spans.filter(|kept| kept.is_suspended_under(cause));
        let since = |kept: &&mut Shared<StoredSpan>| kept.suspension().map(|it| it.since);
        let Some(kept) = suspended.min_by_key(since) else {
            return Probe::NoSpan;
        };
        kept.resume(resumption, true);
        Probe::Begun
    }

    /// Resumes all spans of the cause as probes. A planted bug: no store does this.
    pub fn probe_each(&mut self, cause: CauseId, resumption: Resumption) -> Probe {
        for kept in self.spans.values_mut() {
            if kept.is_suspended_under(cause) {
                kept.resume(resumption, true);
            }
        }
        Probe::Begun
    }

    /// Marks the cause, so that all spans that were suspended under it by now are resumed.
    pub fn begin_resuming(&mut self, cause: CauseId, now: Timestamp) -> bool {
        let kept = self.causes.get_mut(&cause);
        let is_known = kept.is_some();
        if let Some(kept) = kept {
            kept.resuming = kept.resuming.max(Some(now));
        }
        is_known
    }

    /// The same for an operator, until a worker sets its time.
    pub fn resume_by_operator(&mut self, cause: CauseId) -> bool {
        if let Some(kept) = self.causes.get_mut(&cause) {
            kept.resumes += 1;
        }
        self.begin_resuming(cause, Timestamp::MAX)
    }

    /// The cause, if it is still being resumed as it was when it was read.
    fn resuming_as(&mut self, read: &KeptCause) -> Option<&mut KeptCause> {
        let kept = self.causes.get_mut(&read.id);
        let of = |kept: &KeptCause| (kept.since, kept.resuming, kept.resumes);
        kept.filter(|kept| of(kept) == of(read))
    }

    /// Resumes spans that were suspended under the cause by `until`.
    pub fn resume_batch(
        &mut self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> u64 {
        let is_meant = |kept: &&mut Shared<StoredSpan>| {
            let suspension = kept.suspension();
            suspension.is_some_and(|it| it.cause == cause && it.since <= until)
        };
        let mut count = 0;
        for kept in self.spans.values_mut().filter(is_meant).take(limit) {
            kept.resume(resumption, false);
            count += 1;
        }
        count
    }

    /// Sets by which time the spans were suspended that are resumed.
    pub fn set_resuming(&mut self, cause: &KeptCause, until: Timestamp) {
        if let Some(kept) = self.resuming_as(cause) {
            kept.resuming = Some(until);
        }
    }

    /// Records that all spans that were to be resumed are resumed.
    pub fn end_resuming(&mut self, cause: &KeptCause) {
        if let Some(kept) = self.resuming_as(cause) {
            kept.resuming = None;
        }
    }

    /// Removes a cause if nothing was recorded of it since it was read, and nothing is suspended
    /// or set aside under it.
    pub fn remove_cause(&mut self, cause: &KeptCause) -> bool {
        let kept = self.causes.get(&cause.id);
        let is_same =
            kept.is_some_and(|kept| kept.touched_at == cause.touched_at && kept.resuming.is_none());
        let is_needed = self.count_suspended(cause.id) > 0 || self.count_set_aside(cause.id) > 0;
        if !is_same || is_needed {
            return false;
        }
        self.causes.remove(&cause.id).is_some()
    }
}
