//! A gap in the record: the first run, a pruned cursor, a purge. What runs now is compared with the spans of the
//! receiver, and what cannot be known is said. Pure: no clock, no I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use sampler_verify::Target;
use sampler_verify::moment::Millis;
use sampler_verify::quantity::Measure;
use serde::Deserialize;

use super::lists::Listed;
use super::state::{Change, FeedState, Kind, Phase, Quantities, Tracked, Why};
use super::translate::{gone, listed};
use super::usage_event::Record;

/// A span of the receiver.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Span {
    pub(super) target: Target,
    pub(super) measured_usage: Vec<Measure>,
    pub(super) start: Millis,
    pub(super) end: Option<Millis>,
}

/// The gap, and what is known about it.
pub(super) struct Gap<'a> {
    pub(super) record: Record,
    pub(super) state: &'a FeedState,
    /// The time of the lists, in ms.
    pub(super) at: Millis,
    pub(super) listed: &'a Listed,
    /// What has events behind the cursor: these say more than a list.
    pub(super) left: &'a HashSet<String>,
    /// What is noted behind the cursor, as running.
    pub(super) noted: &'a HashSet<String>,
}

/// What is to be done about a gap.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pub(super) changes: Vec<Change>,
    /// Open spans that look like a feed's, in organizations that this foundation does not have, or no longer has.
    pub(super) others: Vec<Target>,
}

impl Gap<'_> {
    /// The resources that spans of this feed can have.
    pub(super) fn resources(&self, open: &[Span]) -> BTreeSet<String> {
        let tracked = self.state.tracked().filter(|it| it.record() == self.record);
        let known = self.listed.running.iter().chain(tracked);
        let open = open.iter().filter(|span| self.is_of_feed(&span.target));
        let targets = known
            .map(|it| &it.target)
            .chain(open.map(|span| &span.target));
        let resources = targets.map(|target| target.resource_id.clone());
        resources
            .chain(self.listed.resources.iter().cloned())
            .collect()
    }

    /// What is to be done, given the open spans.
    pub(super) fn filled(&self, spans: Vec<Span>) -> Filled {
        let mut filled = Filled::default();
        let open = self.open(spans);
        let running: HashMap<&str, &Tracked> = self
            .listed
            .running
            .iter()
            .map(|it| (it.key(), it))
            .collect();
        for (key, tracked) in &open {
            let is_listed = running.contains_key(&**key) || self.listed.unplaced.contains(key);
            if !is_listed && !self.is_ours(&tracked.target) {
                filled.others.push(tracked.target.clone());
            } else if is_listed || self.left.contains(key) {
                let phase = Phase::Started(tracked.clone());
                filled.changes.push(Change::noting(key, phase));
            } else {
                filled.changes.push(gone(tracked, self.at));
            }
        }
        for (key, now) in &running {
            if !self.left.contains(*key) {
                filled.changes.push(self.running(now, open.get(*key)));
            } else if !self.state.phases.contains_key(*key) && !open.contains_key(*key) {
                let made = Phase::idle(self.record, Why::Made, now.last, self.at);
                filled.changes.push(Change::noting(key, made));
            }
        }
        // What is noted and not listed has ended before the note is read; what is tracked and not billed does not run.
        let noted = self
            .noted
            .iter()
            .filter(|key| !self.state.phases.contains_key(*key));
        let tracked = self.state.tracked().filter(|it| it.record() == self.record);
        for key in noted.map(String::as_str).chain(tracked.map(Tracked::key)) {
            let is_known = running.contains_key(key) || open.contains_key(key);
            let is_left = self.left.contains(key) || self.listed.unplaced.contains(key);
            if !is_known && !is_left {
                let ended = Phase::ended(self.record, self.at);
                filled.changes.push(Change::noting(key, ended));
            }
        }
        filled
    }

    /// What runs and is not left to its events, given what the receiver has of it.
    fn running(&self, now: &Tracked, open: Option<&Tracked>) -> Change {
        let since = match (self.state.phases.get(now.key()), open) {
            (_, Some(open)) => open.last,
            (Some(Phase::Started(before)), None) => before.last,
            (Some(Phase::Idle(idle)), None) if idle.why == Why::Ended => idle.at.max(now.last),
            (Some(Phase::Idle(_)) | None, None) => now.last,
        };
        listed(now, open, since, self.at)
    }

    /// The open spans of this feed, by instance; with all that is known of them.
    fn open(&self, spans: Vec<Span>) -> BTreeMap<String, Tracked> {
        let open = spans
            .into_iter()
            .filter(|span| self.is_of_feed(&span.target));
        let open = open.map(|span| {
            let key = span.target.resource_instance_id.clone();
            let kind = match self.record {
                Record::Services => Kind::Service,
                Record::Apps => Kind::Process,
            };
            let mut tracked = Tracked {
                quantities: quantities_of(&span.measured_usage),
                target: span.target,
                kind,
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

    /// Whether a span is this foundation's: others may have the same resource.
    fn is_ours(&self, target: &Target) -> bool {
        let organization = &target.organization_id;
        self.listed.organizations.contains(organization)
            || self.state.organizations().contains(organization)
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

/// The quantities of a span, if a feed has started it.
fn quantities_of(measures: &[Measure]) -> Option<Quantities> {
    let of = |name: &str| {
        let found = measures.iter().find(|it| it.measure == name)?;
        found.quantity.as_i64()
    };
    Some(Quantities {
        memory_mb: of("memory_mb"),
        instances: of("instances")?,
    })
}
