//! The comparison of the spans of a resource with the instances that really run.
//!
//! A span and an instance of the same target belong together. So do a span and an instance that differ
//! in the plan alone, if one of each is left over. A span that has stopped since then ran at that time,
//! so its instance is not new. A span that begins later is not listed, but no start is proposed that
//! would run beside it.
//!
//! The provider says since when an instance runs, whatever its plan. Some of that time may be in spans
//! that have ended: a start from before their end would bill that time twice.

use std::collections::BTreeMap;

use sampler_verify::Target;
use sampler_verify::moment::Millis;
use serde::Serialize;

use crate::event::{Event, Measured, SpanSeen, are_equal};

/// An instance that runs, as its provider knows it.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) target: Target,
    /// Since when it runs for this customer, under any plan.
    pub(crate) since: Option<Millis>,
    /// Measures that the provider does not name are not compared.
    pub(crate) measured_usage: Option<Vec<Measured>>,
}

/// What differs, with the events that would make the spans agree. Each can be sent as it is.
#[derive(Debug, Serialize)]
pub(crate) struct Difference {
    pub(crate) at: Millis,
    /// How many instances were compared.
    pub(crate) checked: usize,
    pub(crate) open_without_instance: Vec<Found>,
    pub(crate) instance_without_span: Vec<Found>,
    pub(crate) differs: Vec<Found>,
}

/// One that differs.
#[derive(Debug, Serialize)]
pub(crate) struct Found {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) span: Option<String>,
    target: Target,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<Said>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<Said>,
    pub(crate) proposal: Event,
}

/// What the provider, or the span, says of an instance, as far as both differ.
#[derive(Debug, Serialize)]
struct Said {
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_usage: Option<Vec<Measured>>,
}

/// What distinguishes an instance and its customer, whatever the plan.
pub(crate) type Key = [String; 4];

/// The instances and the spans of one key.
#[derive(Default)]
struct Group<'a> {
    instances: Vec<&'a Instance>,
    /// The spans that ran at the time of the snapshot.
    ran: Vec<&'a SpanSeen>,
    /// A span begins later.
    is_later: bool,
    /// When the last span ended, of those that ended before.
    ended: Option<Millis>,
}

/// Compares the instances that ran at a time with the spans that are known. No start is dated before `floor`: it
/// would be refused.
pub(crate) fn compare<'a>(
    at: Millis,
    floor: Millis,
    instances: &'a [Instance],
    spans: impl IntoIterator<Item = &'a SpanSeen>,
) -> Difference {
    let mut groups: BTreeMap<Key, Group<'a>> = BTreeMap::new();
    for instance in instances {
        let group = groups.entry(key_of(&instance.target)).or_default();
        group.instances.push(instance);
    }
    for span in spans {
        let group = groups.entry(key_of(&span.target)).or_default();
        match span.end {
            _ if span.start > at => group.is_later = true,
            // A span of no length may have been started by the very event that would be proposed, and that
            // would be taken for a repeat.
            Some(end) if end <= at => {
                let end = end.saturating_add(i64::from(end == span.start));
                group.ended = group.ended.max(Some(end));
            }
            _ => group.ran.push(span),
        }
    }
    let mut difference = Difference {
        at,
        checked: instances.len(),
        open_without_instance: Vec::new(),
        instance_without_span: Vec::new(),
        differs: Vec::new(),
    };
    for group in groups.into_values() {
        difference.add(group, floor.min(at));
    }
    difference
}

impl Difference {
    /// All that differ, each with the meaning of its list.
    pub(crate) fn items(&self) -> impl Iterator<Item = (&'static str, &Found)> {
        let lists = [
            ("no longer runs", &self.open_without_instance),
            ("was not started", &self.instance_without_span),
            ("has changed", &self.differs),
        ];
        lists
            .into_iter()
            .flat_map(|(meaning, items)| items.iter().map(move |item| (meaning, item)))
    }

    fn add(&mut self, group: Group<'_>, floor: Millis) {
        let at = self.at;
        let has_run = !group.ran.is_empty();
        let (mut ran, mut alone) = (group.ran, Vec::new());
        for instance in group.instances {
            let is_same = |span: &&SpanSeen| span.target.plan_id == instance.target.plan_id;
            let Some(place) = ran.iter().position(is_same) else {
                alone.push(instance);
                continue;
            };
            let span = ran.swap_remove(place);
            let said = instance.measured_usage.as_deref();
            let kept = &span.measured_usage;
            let differs = said.is_some_and(|said| !are_equal(said, kept));
            if differs && span.end.is_none() {
                self.differs.push(Found::changed(span, instance, at));
            }
        }
        let is_settled = group.is_later || ran.iter().any(|span| span.end.is_some());
        if let ([span], [instance], false) = (&ran[..], &alone[..], is_settled) {
            self.differs.push(Found::changed(span, instance, at));
            return;
        }
        let open = ran.into_iter().filter(|span| span.end.is_none());
        self.open_without_instance
            .extend(open.map(|span| Found::gone(span, at)));
        if is_settled {
            return;
        }
        for instance in alone {
            let since = instance.since.filter(|_| !has_run);
            let since = since.map(|since| since.max(group.ended.unwrap_or(since)));
            let start = since.map_or(at, |since| since.max(floor).min(at));
            self.instance_without_span.push(Found::new(instance, start));
        }
    }
}

impl Found {
    /// An open span without an instance.
    fn gone(span: &SpanSeen, at: Millis) -> Self {
        Self {
            span: Some(span.id.clone()),
            start: Some(span.start),
            ..Self::proposing(Event::new("stop", span.target.clone(), at))
        }
    }

    /// An instance without a span.
    fn new(instance: &Instance, at: Millis) -> Self {
        let measures = instance.measured_usage.clone().unwrap_or_default();
        Self::proposing(Event::start(instance.target.clone(), at, measures))
    }

    /// A span with another plan or other measures than its instance.
    fn changed(span: &SpanSeen, instance: &Instance, at: Millis) -> Self {
        let (target, kept) = (&instance.target, &span.measured_usage);
        let (plan, before) = (&target.plan_id, &span.target.plan_id);
        let measures = instance.measured_usage.as_ref();
        let other = measures.filter(|it| !are_equal(it, kept));
        let has_other_plan = plan != before;
        let said = |plan: &String, measured_usage| Said {
            plan_id: has_other_plan.then(|| plan.clone()),
            measured_usage,
        };
        Self {
            span: Some(span.id.clone()),
            expected: Some(said(plan, other.cloned())),
            kept: Some(said(before, other.map(|_| kept.clone()))),
            ..Self::proposing(Event::update(
                &span.target,
                target.clone(),
                at,
                measures.unwrap_or(kept).clone(),
            ))
        }
    }

    fn proposing(event: Event) -> Self {
        Self {
            span: None,
            target: event.target.clone(),
            start: None,
            expected: None,
            kept: None,
            proposal: event.with_id(),
        }
    }
}

pub(crate) fn key_of(target: &Target) -> Key {
    [
        target.organization_id.clone(),
        target.space_id.clone(),
        target.consumer_id.clone(),
        target.resource_instance_id.clone(),
    ]
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
mod tests;
