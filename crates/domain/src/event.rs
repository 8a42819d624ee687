//! The events that providers report: a usage starts, stops (section 3 of the paper) or continues as
//! another.

use std::fmt;

use crate::{EventId, Measures, Span, Target, Timestamp};

#[derive(Clone, Debug, PartialEq)]
pub struct StartEvent {
    /// The id by which a repeat of this event is recognised.
    pub id: Option<EventId>,
    pub timestamp: Timestamp,
    pub target: Target,
    pub measures: Measures,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StopEvent {
    /// The id by which a repeat of this event is recognised.
    pub id: Option<EventId>,
    pub timestamp: Timestamp,
    pub target: Target,
}

/// At the same time the usage of one target stops and the usage of another one starts, or that of the
/// same one in another quantity. Both halves have the id of the update.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpdateEvent {
    /// The id by which a repeat is recognised, and completed if one half is missing.
    pub id: EventId,
    /// When both happens.
    pub timestamp: Timestamp,
    /// The target until then.
    pub previous: Target,
    pub target: Target,
    pub measures: Measures,
}

/// A field of an event, named as in its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// A field of the target, by its name.
    Target(&'static str),
    Timestamp,
    MeasuredUsage,
}

impl Field {
    pub fn name(self) -> &'static str {
        match self {
            Self::Target(name) => name,
            Self::Timestamp => "timestamp",
            Self::MeasuredUsage => "measured_usage",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl StartEvent {
    /// The fields in which this event differs from the one that `span` was started by; none for a
    /// true repeat.
    pub fn differences(&self, span: &Span) -> Vec<Field> {
        let mut fields = target_differences(&self.target, &span.target);
        if self.timestamp != span.start {
            fields.push(Field::Timestamp);
        }
        if !self.measures.same_as(&span.measures) {
            fields.push(Field::MeasuredUsage);
        }
        fields
    }
}

impl StopEvent {
    /// The fields in which this event differs from the one that `span` was stopped by; none for a
    /// true repeat.
    pub fn differences(&self, span: &Span) -> Vec<Field> {
        let mut fields = target_differences(&self.target, &span.target);
        if Some(self.timestamp) != span.end {
            fields.push(Field::Timestamp);
        }
        fields
    }
}

impl UpdateEvent {
    /// The half that ends the previous span.
    pub fn stop(&self) -> StopEvent {
        StopEvent {
            id: Some(self.id.clone()),
            timestamp: self.timestamp,
            target: self.previous.clone(),
        }
    }

    /// The half that starts the new span.
    pub fn start(&self) -> StartEvent {
        StartEvent {
            id: Some(self.id.clone()),
            timestamp: self.timestamp,
            target: self.target.clone(),
            measures: self.measures.clone(),
        }
    }
}

fn target_differences(one: &Target, other: &Target) -> Vec<Field> {
    let pairs = one.fields().into_iter().zip(other.fields());
    pairs
        .filter(|(a, b)| a.1 != b.1)
        .map(|((name, _), _)| Field::Target(name))
        .collect()
}
