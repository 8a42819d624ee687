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

/// All usages of a file, and the events that contradict others.
#[derive(Debug, Default)]
pub struct History {
    /// The usages, in the order of their starts in the file.
    pub used: Vec<Used>,
    /// Events that do not go together with the others of their target.
    pub contradictions: Vec<Contradiction>,
    /// How many events were repeats of others.
    pub repeats: usize,
}

impl History {
    /// Works out the usages. The events of a target count in the order of their times; those of
    /// one time in the order of the file.
    pub fn of(events: Vec<Event>) -> Self {
        let mut by_target: HashMap<Target, Vec<Event>> = HashMap::new();
        for event in events {
            by_target
                .entry(event.target.clone())
                .or_default()
                .push(event);
        }
        let mut history = Self::default();
        for (_, mut events) in by_target {
            events.sort_by_key(|event| event.moment);
            let first = history.used.len();
            for event in events {
                history.add(first, event);
            }
        }
        history.used.sort_by_key(|used| used.line);
        history.contradictions.sort_by_key(|it| it.line);
        history
    }

    /// Adds an event to the usages of its target, which begin at the place `first`.
    fn add(&mut self, first: usize, event: Event) {
        let earlier = &self.used[first..];
        if is_repeat(earlier, &event) {
            self.repeats += 1;
            return;
        }
        if let Some(detail) = contradiction(earlier, &event) {
            let (line, target) = (event.line, event.target);
            self.contradictions.push(Contradiction {
                line,
                target,
                detail,
            });
            return;
        }
        match event.kind {
            EventKind::Start(measures) => self.used.push(Used {
                target: event.target,
                measures,
                start: event.moment,
                end: None,
                start_id: event.id,
                end_id: None,
                line: event.line,
            }),
            EventKind::Stop => {
                let open = self
                    .used
                    .last_mut()
                    .expect("a stop contradicts where none is open");
                open.end = Some(event.moment);
                open.end_id = event.id;
            }
        }
    }
}

/// Whether an event repeats an earlier one of its target. Without an id, it counts as a repeat where it
/// would otherwise contradict the earlier one.
fn is_repeat(earlier: &[Used], event: &Event) -> bool {
    let id = event.id.as_deref();
    if id.is_some() {
        let mut earlier = earlier.iter();
        return earlier.any(|used| id_of(used, &event.kind) == id && says_same(used, event));
    }
    let is_stop = matches!(event.kind, EventKind::Stop);
    earlier.last().is_some_and(|used| {
        let is_last = is_stop || used.end.is_none();
        is_last && id_of(used, &event.kind).is_none() && says_same(used, event)
    })
}

/// The id of the event of this kind that a usage comes from.
fn id_of<'a>(used: &'a Used, kind: &EventKind) -> Option<&'a str> {
    match kind {
        EventKind::Start(_) => used.start_id.as_deref(),
        EventKind::Stop => used.end_id.as_deref(),
    }
}

/// Whether the event of the same kind that a usage comes from says the same.
fn says_same(used: &Used, event: &Event) -> bool {
    match &event.kind {
        EventKind::Start(measures) => {
            used.start == event.moment && quantity::difference(&used.measures, measures).is_none()
        }
        EventKind::Stop => used.end == Some(event.moment),
    }
}

fn contradiction(earlier: &[Used], event: &Event) -> Option<String> {
    let (at, line) = (InWords(event.moment), event.line);
    let open = earlier.last().filter(|used| used.end.is_none());
    let is_start = matches!(event.kind, EventKind::Start(_));
    let of_other = event.id.as_deref().filter(|id| {
        let mut earlier = earlier.iter();
        earlier.any(|used| id_of(used, &event.kind) == Some(*id))
    });
    match (of_other, open) {
        (Some(id), _) => Some(format!(
            "line {line}: the id {id:?} is that of another event of this target"
        )),
        (None, Some(open)) if is_start => {
            let before = open.line;
            Some(format!(
                "line {line}: a start at {at}, but the one of line {before} was not stopped"
            ))
        }
        (None, None) if !is_start => Some(format!(
            "line {line}: a stop at {at} without a start before it"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Quantity;

    fn target(instance: &str) -> Target {
        Target::from_ids(["o", "s", "c", "r", "p", instance].map(str::to_owned))
    }

    fn event(line: u64, kind: EventKind, id: &str, moment: Millis) -> Event {
        Event {
            line,
            kind,
            target: target("i"),
            id: (!id.is_empty()).then(|| id.to_owned()),
            moment,
        }
    }

    fn start(quantity: i128) -> EventKind {
        EventKind::Start(vec![Measure {
            measure: "m".to_owned(),
            quantity: Quantity::Integer(quantity),
        }])
    }

    fn spans(history: &History) -> Vec<(Millis, Option<Millis>)> {
        history
            .used
            .iter()
            .map(|used| (used.start, used.end))
            .collect()
    }

    #[test]
    fn starts_and_stops_make_usages_in_any_order_of_the_file() {
        let history = History::of(vec![
            event(1, EventKind::Stop, "b", 20),
            event(2, start(1), "a", 10),
            event(3, start(2), "c", 20),
            event(4, EventKind::Stop, "d", 20),
            event(5, start(3), "e", 30),
        ]);
        assert_eq!(
            spans(&history),
            [(10, Some(20)), (20, Some(20)), (30, None)]
        );
        assert!(history.contradictions.is_empty(), "{history:?}");
    }

    #[test]
    fn repeats_count_once() {
        let history = History::of(vec![
            event(1, start(1), "a", 10),
            event(2, start(1), "a", 10),
            event(3, EventKind::Stop, "b", 20),
            event(4, EventKind::Stop, "b", 20),
            event(5, start(1), "", 30),
            event(6, start(1), "", 30),
            event(7, EventKind::Stop, "", 40),
            event(8, EventKind::Stop, "", 40),
        ]);
        assert_eq!(spans(&history), [(10, Some(20)), (30, Some(40))]);
        assert_eq!((history.repeats, history.contradictions.len()), (4, 0));
    }

    #[test]
    fn contradictions_are_named_with_their_lines() {
        let history = History::of(vec![
            event(1, EventKind::Stop, "x", 5),
            event(2, start(1), "a", 10),
            event(3, start(1), "b", 15),
            event(4, EventKind::Stop, "c", 20),
            event(5, start(2), "a", 30),
        ]);
        assert_eq!(spans(&history), [(10, Some(20))]);
        let lines: Vec<u64> = history.contradictions.iter().map(|it| it.line).collect();
        assert_eq!(lines, [1, 3, 5]);
        let texts: Vec<&str> = history
            .contradictions
            .iter()
            .map(|it| it.detail.as_str())
            .collect();
        assert!(texts[0].contains("without a start"), "{texts:?}");
        assert!(texts[1].contains("line 2 was not stopped"), "{texts:?}");
        assert!(
            texts[2].contains("\"a\" is that of another event"),
            "{texts:?}"
        );
    }

    #[test]
    fn targets_do_not_meet() {
        let mut other = event(1, start(1), "a", 10);
        other.target = target("j");
        let history = History::of(vec![other, event(2, start(1), "a", 10)]);
        assert_eq!(spans(&history), [(10, None), (10, None)]);
    }
}
