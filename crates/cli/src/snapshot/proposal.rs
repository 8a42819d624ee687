//! What differs, with the events that would make the spans agree. Each can be sent as it is.

use std::collections::BTreeMap;

use sampler_api::Target;
use sampler_verify::moment::{InWords, Millis};
use serde::Serialize;
use uuid::Uuid;

use super::comparison::{Instance, SpanSeen};
use crate::event::{Measured, are_equal};
use crate::show::{target, text};

/// The result of a comparison.
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
    pub(crate) target: Target,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<Millis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<Said>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<Said>,
    pub(crate) proposal: Proposal,
}

/// What the provider and the span say of an instance, as far as both differ.
#[derive(Debug, Serialize)]
pub(crate) struct Said {
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_usage: Option<Vec<Measured>>,
}

/// An event.
#[derive(Debug, Serialize)]
pub(crate) struct Proposal {
    pub(crate) r#type: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) id: String,
    pub(crate) timestamp: Millis,
    #[serde(flatten)]
    pub(crate) target: Target,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured_usage: Option<Vec<Measured>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<BTreeMap<&'static str, String>>,
}

impl Difference {
    pub(crate) fn of(at: Millis, checked: usize) -> Self {
        Self {
            at,
            checked,
            open_without_instance: Vec::new(),
            instance_without_span: Vec::new(),
            differs: Vec::new(),
        }
    }

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
}

impl Found {
    /// An open span without an instance.
    pub(crate) fn gone(span: &SpanSeen, at: Millis) -> Self {
        Self {
            span: Some(span.id.clone()),
            start: Some(span.start),
            ..Self::proposing(Proposal::new("stop", &span.target, at))
        }
    }

    /// An instance without a span.
    pub(crate) fn new(instance: &Instance, at: Millis) -> Self {
        let measured_usage = instance.measured_usage.clone().unwrap_or_default();
        Self::proposing(Proposal {
            measured_usage: Some(measured_usage),
            ..Proposal::new("start", &instance.target, at)
        })
    }

    /// A span with another plan or other measures than its instance.
    pub(crate) fn changed(span: &SpanSeen, instance: &Instance, at: Millis) -> Self {
        let (target, before) = (&instance.target, &span.target.plan_id);
        let measures = instance.measured_usage.as_ref();
        let other = measures.filter(|it| !are_equal(it, &span.measured_usage));
        let has_other_plan = target.plan_id != *before;
        let proposal = Proposal {
            measured_usage: Some(measures.unwrap_or(&span.measured_usage).clone()),
            previous: has_other_plan.then(|| BTreeMap::from([("plan_id", before.clone())])),
            ..Proposal::new("update", target, at)
        };
        Self {
            span: Some(span.id.clone()),
            expected: Some(Said {
                plan_id: has_other_plan.then(|| target.plan_id.clone()),
                measured_usage: other.cloned(),
            }),
            kept: Some(Said {
                plan_id: has_other_plan.then(|| before.clone()),
                measured_usage: other.map(|_| span.measured_usage.clone()),
            }),
            ..Self::proposing(proposal)
        }
    }

    fn proposing(proposal: Proposal) -> Self {
        Self {
            span: None,
            target: proposal.target.clone(),
            start: None,
            expected: None,
            kept: None,
            proposal: proposal.with_id(),
        }
    }

    /// A row of the table for people.
    pub(crate) fn row(&self, meaning: &str, line: u64) -> [String; 5] {
        let proposal = &self.proposal;
        let (kind, at) = (proposal.r#type, InWords(proposal.timestamp));
        [
            line.to_string(),
            target(&proposal.target),
            meaning.to_owned(),
            format!("{kind} at {at}"),
            text(self.span.as_ref()),
        ]
    }
}

impl Proposal {
    fn new(r#type: &'static str, target: &Target, timestamp: Millis) -> Self {
        Self {
            r#type,
            id: String::new(),
            timestamp,
            target: target.clone(),
            measured_usage: None,
            previous: None,
        }
    }

    /// The id follows from all else that the event says, so proposing the same again is a repeat.
    fn with_id(self) -> Self {
        let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, self.body().as_bytes());
        Self {
            id: format!("snapshot-{}", digest.simple()),
            ..self
        }
    }

    pub(crate) fn body(&self) -> String {
        serde_json::to_string(self).expect("texts, numbers and lists of these")
    }
}
