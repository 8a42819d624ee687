//! The rules of watches: usages that are accepted and may not count.

use sampler_domain::partition::partition_of;
use sampler_domain::{Entry, Timestamp};
use sampler_store::{DueWatches, Watch, WatchOutcome, WatchPage, WatchQuery};

use super::Table;

impl Table {
    pub(super) fn watch(&mut self, entry: &Entry, due_at: Timestamp) {
        let watch = Watch {
            usage_guid: entry.usage_guid.clone(),
            span: entry.span.clone(),
            target: entry.target.clone(),
            interval: entry.interval,
            location: entry.acceptance.location.clone(),
            accepted_at: entry.acceptance.at,
            due_at,
            missing: None,
            is_resent: false,
        };
        self.watches.insert(entry.usage_guid.clone(), watch);
    }

    /// All watches, in the order of the ids of the usages.
    pub fn watches(&self) -> impl Iterator<Item = &Watch> {
        self.watches.values()
    }

    pub fn watch_of(&self, usage_guid: &str) -> Option<&Watch> {
        self.watches.get(usage_guid)
    }

    /// Watches that are due, the longest waiting first. What is missing waits for an operator.
    pub fn due_watches(&self, query: &DueWatches) -> Vec<Watch> {
        let is_due = |watch: &&Watch| {
            watch.due_at <= query.now
                && (watch.missing.is_none() || watch.is_resent)
                && query.partitions.contains(&partition_of(&watch.target))
        };
        let mut due: Vec<Watch> = self.watches().filter(is_due).cloned().collect();
        due.sort_by_key(|watch| watch.due_at);
        due.truncate(query.limit);
        due
    }

    /// The watch, if it still is as it was read.
    fn watch_as(&mut self, read: &Watch) -> Option<&mut Watch> {
        let kept = self.watches.get_mut(&read.usage_guid);
        kept.filter(|kept| *kept == read)
    }

    pub fn claim_watch(&mut self, read: &Watch, due_at: Timestamp) -> bool {
        let kept = self.watch_as(read);
        let is_claimed = kept.is_some();
        if let Some(kept) = kept {
            kept.due_at = due_at;
        }
        is_claimed
    }

    /// Records what came of a watch that still is as it was read.
    pub fn settle_watch(&mut self, read: &Watch, outcome: &WatchOutcome) {
        let Some(kept) = self.watch_as(read) else {
            return;
        };
        match outcome {
            WatchOutcome::Counts => {
                self.watches.remove(&read.usage_guid);
            }
            WatchOutcome::AskAgain { at } => kept.due_at = *at,
            WatchOutcome::Missing(missing) => {
                kept.missing = Some(missing.clone());
                kept.is_resent = false;
            }
            WatchOutcome::Accepted {
                at,
                location,
                due_at,
            } => {
                *kept = Watch {
                    accepted_at: *at,
                    location: location.clone(),
                    due_at: *due_at,
                    missing: None,
                    is_resent: false,
                    ..read.clone()
                };
            }
        }
    }

    /// Has a worker send a usage again that is missing. Returns whether it is, and is not sent already.
    pub fn resend_missing(&mut self, usage_guid: &str, now: Timestamp) -> bool {
        let kept = self.watches.get_mut(usage_guid);
        let missing = kept.filter(|kept| kept.missing.is_some() && !kept.is_resent);
        let is_missing = missing.is_some();
        if let Some(kept) = missing {
            kept.is_resent = true;
            kept.due_at = now;
        }
        is_missing
    }

    /// A page of the watches that a query asks for, those that were accepted first at the beginning.
    pub fn unconfirmed(&self, query: &WatchQuery) -> WatchPage {
        let is_behind = |watch: &&Watch| {
            let after = query.after.as_ref();
            after.is_none_or(|after| watch.position() > *after)
        };
        let found = self.watches().filter(|watch| query.matches(watch));
        let mut watches: Vec<Watch> = found.filter(is_behind).cloned().collect();
        watches.sort_by_key(Watch::position);
        let has_more = watches.len() > query.limit;
        watches.truncate(query.limit);
        WatchPage {
            next: watches.last().filter(|_| has_more).map(Watch::position),
            watches,
        }
    }
}
