//! The rules of causes: a cause is no more than the spans that are suspended for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use sampler_domain::{Cause, CauseId, Suspension, Timestamp};
use sampler_store::{CauseQuery, Resumption, SuspendedCause};

use super::{StoredSpan, Table};

impl StoredSpan {
    fn suspended_for(&self, cause: CauseId) -> Option<Suspension> {
        self.span.suspension().filter(|it| it.cause == cause)
    }

    fn resume(&mut self, resumption: Resumption, is_probe: bool) {
        let Resumption { now, refusals } = resumption;
        self.span = self.span.resumed(refusals, is_probe, now);
    }
}

impl Table {
    pub fn suspended_causes(&self, limit: usize) -> Vec<CauseId> {
        let suspensions = self.all().filter_map(|kept| kept.span.suspension());
        let causes: BTreeSet<CauseId> = suspensions.map(|it| it.cause).collect();
        causes.into_iter().take(limit).collect()
    }

    /// Resumes one span as a probe: the one that has been suspended for the cause for longest.
    pub fn probe(&mut self, cause: CauseId, resumption: Resumption) -> bool {
        let since = |kept: &StoredSpan| Some(kept.suspended_for(cause)?.since);
        let suspended = self.spans.values_mut();
        let suspended = suspended.filter_map(|kept| Some((since(kept)?, kept)));
        let first = suspended.min_by_key(|(since, _)| *since);
        let is_there = first.is_some();
        if let Some((_, kept)) = first {
            kept.resume(resumption, true);
        }
        is_there
    }

    /// Resumes up to `limit` spans that were suspended for the cause by `until`. Returns how many.
    pub fn resume_batch(
        &mut self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> u64 {
        let mut count = 0;
        for kept in self.spans.values_mut() {
            let suspension = kept.suspended_for(cause);
            if count < limit && suspension.is_some_and(|it| it.since <= until) {
                kept.resume(resumption, false);
                count += 1;
            }
        }
        count as u64
    }

    /// The causes of a list, those with the most spans first.
    pub fn causes(&self, query: &CauseQuery) -> Vec<SuspendedCause> {
        let resources = query.resources.as_ref();
        let causes = self.all_causes().into_values();
        let mut causes: Vec<SuspendedCause> = causes
            .filter(|it| resources.is_none_or(|ids| ids.contains(&it.cause.resource_id)))
            .collect();
        causes.sort_by_key(|it| (Reverse(it.spans), it.since, it.id));
        causes.truncate(query.limit);
        causes
    }

    pub fn cause(&self, id: CauseId) -> Option<SuspendedCause> {
        self.all_causes().remove(&id)
    }

    fn all_causes(&self) -> BTreeMap<CauseId, SuspendedCause> {
        let mut causes = BTreeMap::new();
        for span in self.all().map(|kept| &kept.span) {
            let (Some(suspension), Some(failure)) = (span.suspension(), &span.processing.failure)
            else {
                continue;
            };
            let of_cause = causes
                .entry(suspension.cause)
                .or_insert_with(|| SuspendedCause {
                    id: suspension.cause,
                    cause: Cause::of(&span.target, failure.status, &failure.error),
                    since: suspension.since,
                    spans: 0,
                });
            of_cause.since = of_cause.since.min(suspension.since);
            of_cause.spans += 1;
        }
        causes
    }
}
