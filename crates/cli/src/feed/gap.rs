//! A gap in the record: the first run, a pruned cursor, a purge. What runs now is compared with the spans of the
//! receiver, and what cannot be known is said. Pure: no clock, no I/O.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use sampler_verify::Target;
use sampler_verify::moment::Millis;

use super::outside::Listed;
use super::state::{Change, FeedState, Kind, Mark, Phase, Tracked};
use super::translate::{gone, listed};
use super::usage_event::Record;
use crate::event::{SpanSeen, by_value};

/// The gap, and what is known about it.
pub(super) struct Gap<'a> {
    pub(super) record: Record,
    pub(super) state: &'a FeedState,
    /// The time of the lists, in ms.
    pub(super) at: Millis,
    pub(super) listed: &'a Listed,
    pub(super) behind: &'a Behind,
}

/// What a record has behind the events that are old enough.
#[derive(Debug, Default)]
pub(super) struct Behind {
    /// The last event that is old enough.
    pub(super) mark: Option<Mark>,
    /// What has events behind that: these say more than a list.
    pub(super) left: HashSet<String>,
    /// What is noted behind that, as running.
    pub(super) noted: HashSet<String>,
}

impl Gap<'_> {
    /// The organizations whose spans are this foundation's: others may have the same resource.
    pub(super) fn organizations(&self) -> BTreeSet<String> {
        let tracked = self.state.tracked();
        let tracked = tracked.map(|it| it.target.organization_id.clone());
        tracked
            .chain(self.listed.organizations.iter().cloned())
            .collect()
    }

    /// What is to be done, given the open spans of these organizations.
    pub(super) fn changes(&self, spans: Vec<SpanSeen>) -> Vec<Change> {
        let (open, mut changes) = (self.open(spans), Vec::new());
        let running = &self.listed.running;
        for (key, tracked) in &open {
            let is_listed = running.contains_key(key) || self.listed.unplaced.contains(key);
            if is_listed || self.behind.left.contains(key) {
                let phase = Phase::Started(tracked.clone());
                changes.push(Change::noting(key, phase));
            } else {
                changes.push(gone(tracked, self.at));
            }
        }
        for (key, now) in running {
            if !self.behind.left.contains(key) {
                changes.push(self.running(now, open.get(key)));
            }
        }
        // What is noted and not listed has ended before the note is read; what is tracked and not billed does not run.
        let phases = &self.state.phases;
        let noted = self
            .behind
            .noted
            .iter()
            .filter(|key| !phases.contains_key(*key));
        let tracked = self.state.tracked().map(Tracked::key);
        for key in noted.map(String::as_str).chain(tracked) {
            let is_known = running.contains_key(key) || open.contains_key(key);
            let is_left = self.behind.left.contains(key) || self.listed.unplaced.contains(key);
            if !is_known && !is_left {
                let ended = Phase::Ended(self.at);
                changes.push(Change::noting(key, ended));
            }
        }
        changes
    }

    /// What runs and is not left to its events, given what the receiver has of it.
    fn running(&self, now: &Tracked, open: Option<&Tracked>) -> Change {
        let since = match (self.state.phases.get(now.key()), open) {
            (_, Some(open)) => open.last,
            (Some(Phase::Started(before)), None) => before.last,
            (Some(Phase::Ended(at)), None) => now.last.max(*at),
            (Some(Phase::Refused(_)) | None, None) => now.last,
        };
        listed(now, open, since, self.at)
    }

    /// The open spans of this feed, by instance; with all that is known of them.
    fn open(&self, spans: Vec<SpanSeen>) -> BTreeMap<String, Tracked> {
        let open = spans
            .into_iter()
            .filter(|span| self.is_of_feed(&span.target));
        let open = open.map(|span| {
            let key = span.target.resource_instance_id.clone();
            let mut tracked = Tracked {
                measures: by_value(&span.measured_usage).unwrap_or_default(),
                target: span.target,
                kind: match self.record {
                    Record::Services => Kind::Service,
                    Record::Apps => Kind::Process,
                },
                plan: None,
                last: span.start,
            };
            if let Some(Phase::Started(known)) = self.state.phases.get(&key)
                && known.target == tracked.target
            {
                tracked.kind = known.kind;
                tracked.plan.clone_from(&known.plan);
                tracked.last = tracked.last.max(known.last);
            }
            (key, tracked)
        });
        open.collect()
    }

    /// Whether a feed of this record names a consumer and an instance like this.
    fn is_of_feed(&self, target: &Target) -> bool {
        match self.record {
            Record::Services => {
                let guid = target.consumer_id.strip_prefix("service:");
                guid == Some(&target.resource_instance_id)
            }
            Record::Apps => target.consumer_id.starts_with("app:"),
        }
    }
}
