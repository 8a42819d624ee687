//! A hole in the record: the first run, a pruned cursor, a purge. What runs now is compared with the spans
//! of the receiver, and what cannot be known is said. Pure: no clock, no I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use sampler_verify::Target;
use sampler_verify::moment::Millis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::lists::Listed;
use super::state::{Bound, Change, FeedState, Idle, Kind, Outcome, Phase, Tracked, Unknown, Why};
use super::usage_event::{Quantities, Record};
use crate::event::SpanSeen;
use crate::snapshot::{Difference, Instance, compare as compare_all};

/// The hole, and what is known about it.
pub(super) struct Hole<'a> {
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

/// What is to be done about a hole.
#[derive(Debug, Default)]
pub(super) struct Filled {
    pub(super) changes: Vec<Change>,
    /// Open spans that look like a feed's, in organizations that this foundation does not have, or
    /// no longer has.
    pub(super) others: Vec<Target>,
}

/// What runs and is not left to its events, by GUID, with the time at which it was made.
type Expected<'a> = HashMap<&'a str, (Tracked, Millis)>;

impl Hole<'_> {
    /// The resources that spans of this feed can have.
    pub(super) fn resources(&self, open: &[SpanSeen]) -> BTreeSet<String> {
        let running = self.listed.running.iter();
        let tracked = self.state.tracked().map(|(_, tracked)| tracked);
        let tracked = tracked.filter(|it| it.record() == self.record);
        let open = open.iter().map(|span| target_of(&span.target));
        let open = open.filter(|target| self.is_of_feed(target));
        let known = running
            .chain(tracked)
            .map(|it| it.target.resource_id.clone());
        let all = known.chain(open.map(|target| target.resource_id));
        all.chain(self.listed.resources.iter().cloned()).collect()
    }

    /// What is to be done, given the open spans.
    pub(super) fn filled(&self, spans: Vec<SpanSeen>) -> Filled {
        let spans: BTreeMap<String, SpanSeen> = spans
            .into_iter()
            .filter(|span| self.is_of_feed(&target_of(&span.target)))
            .map(|span| (span.id.clone(), span))
            .collect();
        let spans: Vec<SpanSeen> = spans.into_values().collect();
        let expected = self.expected(&spans);
        let mut filled = Filled::default();
        for difference in compare(self.at, &expected, &spans) {
            for found in &difference.open_without_instance {
                let body = value_of(&found.proposal);
                self.end(&mut filled, body, found.start.unwrap_or(self.at));
            }
            let starts = difference
                .instance_without_span
                .iter()
                .chain(&difference.differs);
            for found in starts {
                let body = value_of(&found.proposal);
                filled.changes.extend(self.begun(body, &expected));
            }
        }
        // What continues under another resource stops first.
        let is_start =
            |change: &Change| change.posted.as_ref().map(|it| it.outcome) != Some(Outcome::Stopped);
        filled.changes.sort_by_key(is_start);
        self.note_known(&mut filled.changes, &expected, &spans);
        filled
    }

    /// What runs and is not left to its events, under the names that it was started with.
    fn expected(&self, spans: &[SpanSeen]) -> Expected<'_> {
        let open: HashMap<&str, Millis> = spans
            .iter()
            .map(|span| (span.target.resource_instance_id.as_str(), span.start))
            .collect();
        let mut expected = Expected::new();
        for running in &self.listed.running {
            let key = running.target.resource_instance_id.as_str();
            if self.left.contains(key) {
                continue;
            }
            let mut now = running.clone();
            now.last = self.at;
            match (self.state.phases.get(key), open.get(key)) {
                (Some(Phase::Started(before)), _) if before.has_plan_of(running) => {
                    now.target = before.target.clone();
                    now.last = before.last;
                }
                // Its next event may be dated before the lists, by another clock.
                (None, Some(start)) => now.last = *start,
                _ => {}
            }
            expected.insert(key, (now, running.last));
        }
        expected
    }

    /// Stops what does not run.
    fn end(&self, filled: &mut Filled, body: Value, start: Millis) {
        let target: Target = converted(&body);
        let key = &target.resource_instance_id;
        if !self.is_ours(&target) {
            filled.others.push(target);
            return;
        }
        if self.listed.unplaced.contains(key) || self.left.contains(key) {
            return;
        }
        let last = match self.state.phases.get(key) {
            Some(Phase::Started(tracked)) => tracked.last.max(start),
            _ => start,
        };
        let unknown = unknown(&target, Bound::End, last, self.at);
        let change = Change::posting(Outcome::Stopped, body, Idle::ended(self.record, self.at));
        filled.changes.push(change.with_unknown(vec![unknown]));
    }

    /// A start or an update of what runs.
    fn begun(&self, body: Value, expected: &Expected<'_>) -> Option<Change> {
        let mut target: Target = converted(&body);
        let (tracked, made) = expected.get(target.resource_instance_id.as_str())?;
        let is_start = body["type"] == "start";
        // Since the last that is known of it, or since it was made.
        let from = match self.state.phases.get(&target.resource_instance_id) {
            Some(Phase::Started(before)) => before.last,
            Some(Phase::Idle(idle)) if idle.why == Why::Ended => idle.at.max(*made),
            Some(Phase::Idle(_)) | None => *made,
        };
        let mut unknowns = Vec::new();
        if !is_start {
            if let Some(plan) = body["previous"]["plan_id"].as_str() {
                plan.clone_into(&mut target.plan_id);
            }
            unknowns.push(unknown(&target, Bound::End, from, self.at));
        }
        unknowns.push(unknown(&tracked.target, Bound::Start, from, self.at));
        let phase = Phase::Started(Tracked {
            last: self.at,
            ..tracked.clone()
        });
        let outcome = if is_start {
            Outcome::Started
        } else {
            Outcome::Updated
        };
        Some(Change::posting(outcome, body, phase).with_unknown(unknowns))
    }

    /// Notes what the receiver has already, and what later events change.
    fn note_known(&self, changes: &mut Vec<Change>, expected: &Expected<'_>, spans: &[SpanSeen]) {
        let done: HashSet<String> = changes.iter().filter_map(|it| it.key.clone()).collect();
        let mut known: BTreeMap<&str, Phase> = BTreeMap::new();
        for key in self.noted {
            // Unless it is listed below, it has ended before the note is read.
            if !self.state.phases.contains_key(key) && !self.left.contains(key) {
                known.insert(key, Idle::ended(self.record, self.at));
            }
        }
        for (key, tracked) in self.state.tracked() {
            // It does not run, and is not billed.
            if tracked.record() == self.record && !self.listed.unplaced.contains(key) {
                known.insert(key, Idle::ended(self.record, self.at));
            }
        }
        for running in &self.listed.running {
            let made = Idle {
                record: self.record,
                why: Why::Made,
                at: running.last,
                seen: self.at,
            };
            let key = running.target.resource_instance_id.as_str();
            // An end, or a refusal, says more.
            if !self.state.phases.contains_key(key) {
                known.insert(key, Phase::Idle(made));
            }
        }
        for span in spans {
            let target = target_of(&span.target);
            if self.is_ours(&target) {
                let key = &span.target.resource_instance_id;
                known.insert(key, Phase::Started(self.open(target, span)));
            }
        }
        for (key, (tracked, _)) in expected {
            known.insert(key, Phase::Started(tracked.clone()));
        }
        known.retain(|key, _| {
            let phase = self.state.phases.get(*key);
            let is_left = self.left.contains(*key) && matches!(phase, Some(Phase::Started(_)));
            !done.contains(*key) && !is_left
        });
        changes.extend(known.into_iter().map(|(key, phase)| Change {
            key: Some(key.to_owned()),
            phase: Some(phase),
            ..Change::default()
        }));
    }

    /// A span that is only known to be open.
    fn open(&self, target: Target, span: &SpanSeen) -> Tracked {
        Tracked {
            target,
            kind: match self.record {
                Record::Services => Kind::Service,
                Record::Apps => Kind::Process,
            },
            plan: None,
            quantities: quantities_of(&json!(span.measured_usage)),
            last: span.start,
        }
    }

    /// Whether a span is this foundation's: others may have the same resource.
    fn is_ours(&self, target: &Target) -> bool {
        let organization = &target.organization_id;
        let mut tracked = self.state.tracked().map(|(_, tracked)| &tracked.target);
        self.listed.organizations.contains(organization)
            || tracked.any(|it| it.organization_id == *organization)
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

/// Compares what runs with the open spans, resource by resource.
fn compare(at: Millis, expected: &Expected<'_>, spans: &[SpanSeen]) -> Vec<Difference> {
    let mut instances: BTreeMap<&str, Vec<Instance>> = BTreeMap::new();
    for span in spans {
        instances.entry(&span.target.resource_id).or_default();
    }
    for (tracked, _) in expected.values() {
        let of_resource = instances.entry(&tracked.target.resource_id).or_default();
        of_resource.push(Instance {
            target: converted(&tracked.target),
            since: None,
            measured_usage: Some(converted(&tracked.measures())),
        });
    }
    let compared = instances.into_iter().map(|(resource, instances)| {
        let spans = spans
            .iter()
            .filter(|span| span.target.resource_id == resource);
        compare_all(at, at, &instances, spans)
    });
    compared.collect()
}

fn unknown(target: &Target, what: Bound, from: Millis, to: Millis) -> Unknown {
    Unknown {
        target: target.clone(),
        what,
        from: Some(from.min(to)),
        to,
    }
}

/// The quantities of a span, if a feed has started it.
fn quantities_of(measures: &Value) -> Option<Quantities> {
    let of = |name: &str| {
        let mut all = measures.as_array()?.iter();
        let quantity = &all.find(|it| it["measure"] == name)?["quantity"];
        #[expect(clippy::cast_possible_truncation, reason = "whole, and within 2^53")]
        let whole = quantity.as_f64().map(|it| it as i64);
        quantity.as_i64().or(whole)
    };
    Some(Quantities {
        memory_mb: of("memory_mb"),
        instances: of("instances")?,
    })
}

/// The same ids, as the API has them, or as the feed does.
fn converted<T: DeserializeOwned>(document: &impl Serialize) -> T {
    let value = value_of(document);
    serde_json::from_value(value).expect("both have the same members")
}

fn target_of(target: &sampler_api::Target) -> Target {
    converted(target)
}

fn value_of(document: &impl Serialize) -> Value {
    serde_json::to_value(document).expect("texts, numbers and lists of these")
}
