//! From events to usages, by the provider's record.

use serde::Serialize;

use crate::Target;
use crate::events::{Event, EventKind};
use crate::moment::{InWords, Millis};
use crate::quantity::{self, Measure};

/// One continuous usage, by the provider's events.
#[derive(Clone, Debug, PartialEq)]
pub struct Used {
    pub target: Target,
    pub measures: Vec<Measure>,
    pub start: Millis,
    /// When it stopped; absent while it runs.
    pub end: Option<Millis>,
    pub start_id: Option<String>,
    /// The id of the stop event.
    pub end_id: Option<String>,
    /// The line of the start event.
    pub line: u64,
}

/// An event that does not go together with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Contradiction {
    pub line: u64,
    pub target: Target,
    /// A sentence for people.
    pub detail: String,
}

/// All usages of a file, and the events that contradict others; both in the order of the file.
#[derive(Debug, Default)]
pub struct History {
    pub used: Vec<Used>,
    pub contradictions: Vec<Contradiction>,
}

impl History {
    /// Works out the usages. The events of a target count in the order of their times; those of one time in the
    /// order of the file.
    pub fn of(mut events: Vec<Event>) -> Self {
        events.sort_by(|one, other| (&one.target, one.moment).cmp(&(&other.target, other.moment)));
        let (mut history, mut first) = (Self::default(), 0);
        for event in events {
            let last = history.used.last();
            if last.is_some_and(|last| last.target != event.target) {
                first = history.used.len();
            }
            history.add(first, event);
        }
        history.used.sort_by_key(|used| used.line);
        history.contradictions.sort_by_key(|it| it.line);
        history
    }

    /// Adds an event to the usages of its target, which begin at the place `first`.
    fn add(&mut self, first: usize, event: Event) {
        let earlier = &mut self.used[first..];
        if is_repeat(earlier, &event) {
            return;
        }
        if let Some(what) = contradiction(earlier, &event) {
            self.contradictions.push(Contradiction {
                line: event.line,
                target: event.target,
                detail: format!("line {}: {what}", event.line),
            });
            return;
        }
        match (event.kind, earlier.last_mut()) {
            (EventKind::Stop, Some(open)) => {
                (open.end, open.end_id) = (Some(event.moment), event.id);
            }
            // A stop without a start contradicts.
            (EventKind::Stop, None) => {}
            (EventKind::Start(measures), _) => self.used.push(Used {
                target: event.target,
                measures,
                start: event.moment,
                end: None,
                start_id: event.id,
                end_id: None,
                line: event.line,
            }),
        }
    }
}

impl Used {
    /// The id of its event of this kind.
    fn id_of(&self, kind: &EventKind) -> Option<&str> {
        match kind {
            EventKind::Start(_) => self.start_id.as_deref(),
            EventKind::Stop => self.end_id.as_deref(),
        }
    }

    /// Whether its event of the same kind has the same id, and says the same.
    fn is_told_by(&self, event: &Event) -> bool {
        let says_same = match &event.kind {
            EventKind::Start(measures) => {
                let measures = quantity::difference(&self.measures, measures);
                self.start == event.moment && measures.is_none()
            }
            EventKind::Stop => self.end == Some(event.moment),
        };
        says_same && self.id_of(&event.kind) == event.id.as_deref()
    }
}

/// Whether an event repeats an earlier one of its target. Without an id, it counts as a repeat where it would
/// otherwise contradict the earlier one.
fn is_repeat(earlier: &[Used], event: &Event) -> bool {
    if event.id.is_some() {
        return earlier.iter().any(|used| used.is_told_by(event));
    }
    let is_stop = matches!(event.kind, EventKind::Stop);
    let last = earlier.last().filter(|used| is_stop || used.end.is_none());
    last.is_some_and(|used| used.is_told_by(event))
}

fn contradiction(earlier: &[Used], event: &Event) -> Option<String> {
    let (kind, at) = (&event.kind, InWords(event.moment));
    if let Some(id) = event.id.as_deref()
        && earlier.iter().any(|used| used.id_of(kind) == Some(id))
    {
        return Some(format!(
            "the id {id:?} is that of another event of this target"
        ));
    }
    match (kind, earlier.last().filter(|used| used.end.is_none())) {
        (EventKind::Start(_), Some(open)) => {
            let line = open.line;
            Some(format!(
                "a start at {at}, but the one of line {line} was not stopped"
            ))
        }
        (EventKind::Stop, None) => Some(format!("a stop at {at} without a start before it")),
        _ => None,
    }
}
