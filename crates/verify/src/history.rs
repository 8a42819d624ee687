//! From events to usages, by the provider's record.

use std::collections::HashMap;

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
        let mut history = Self::default();
        for events in events.chunk_by(|one, other| one.target == other.target) {
            history.add(events);
        }
        history.used.sort_by_key(|used| used.line);
        history.contradictions.sort_by_key(|it| it.line);
        history
    }

    /// Adds the events of one target, in the order of their times.
    fn add(&mut self, events: &[Event]) {
        let mut by_id: HashMap<(bool, &str), &Event> = HashMap::new();
        let mut open: Option<Used> = None;
        let mut last: [Option<&Event>; 2] = [None; 2];
        for event in events {
            let is_stop = event.kind == EventKind::Stop;
            let last = &mut last[usize::from(is_stop)];
            // Without an id, it counts as a repeat where it would otherwise contradict the earlier one.
            let earlier = match &event.id {
                Some(id) => by_id.get(&(is_stop, &**id)).copied(),
                None => last.filter(|it| is_same(it, event) && is_stop == open.is_none()),
            };
            if earlier.is_some_and(|earlier| is_same(earlier, event)) {
                continue;
            }
            *last = Some(event);
            if let Some(what) = contradiction(earlier, open.as_ref(), event) {
                self.contradictions.push(Contradiction {
                    line: event.line,
                    target: event.target.clone(),
                    detail: format!("line {}: {what}", event.line),
                });
                continue;
            }
            by_id.extend(event.id.as_deref().map(|id| ((is_stop, id), event)));
            match &event.kind {
                EventKind::Start(measures) => {
                    open = Some(Used {
                        target: event.target.clone(),
                        measures: measures.clone(),
                        start: event.moment,
                        end: None,
                        start_id: event.id.clone(),
                        end_id: None,
                        line: event.line,
                    });
                }
                EventKind::Stop => self.used.extend(open.take().map(|used| Used {
                    end: Some(event.moment),
                    end_id: event.id.clone(),
                    ..used
                })),
            }
        }
        self.used.extend(open);
    }
}

/// Whether two events of one target and kind say the same.
fn is_same(one: &Event, other: &Event) -> bool {
    let has_same_measures = match (&one.kind, &other.kind) {
        (EventKind::Start(one), EventKind::Start(other)) => {
            quantity::difference(one, other).is_none()
        }
        (one, other) => one == other,
    };
    has_same_measures && one.id == other.id && one.moment == other.moment
}

/// What contradicts an event: another one of its id, or the usage that is open or not.
fn contradiction(of_id: Option<&Event>, open: Option<&Used>, event: &Event) -> Option<String> {
    let at = InWords(event.moment);
    match (of_id, &event.kind, open) {
        (Some(Event { id: Some(id), .. }), ..) => Some(format!(
            "the id {id:?} is that of another event of this target"
        )),
        (_, EventKind::Start(_), Some(Used { line, .. })) => Some(format!(
            "a start at {at}, but the one of line {line} was not stopped"
        )),
        (_, EventKind::Stop, None) => Some(format!("a stop at {at} without a start before it")),
        _ => None,
    }
}
