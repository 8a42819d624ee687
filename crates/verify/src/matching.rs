//! Which span of the API is which usage of the provider.

use std::collections::{HashMap, VecDeque};

use crate::Target;
use crate::api::Span;
use crate::history::Used;
use crate::moment::Millis;

/// The instance, the target, the start, the id of the start and the end, as far as they must be the same.
type Key<'a> = (
    &'a str,
    Option<&'a Target>,
    Option<Millis>,
    Option<&'a str>,
    Option<Millis>,
);

/// What must be the same, from what says most to what says least. A usage of a file may have no id. A target alone says
/// nothing: it may run many times.
const LIKENESS: [fn(Key<'_>) -> Option<Key<'_>>; 7] = [
    |(instance, target, start, id, end)| id.map(|_| (instance, target, start, id, end)),
    |(instance, target, start, id, _)| id.map(|_| (instance, target, start, id, None)),
    |(instance, _, _, id, _)| id.map(|_| (instance, None, None, id, None)),
    |(instance, target, start, _, end)| Some((instance, target, start, None, end)),
    |(instance, target, start, _, _)| Some((instance, target, start, None, None)),
    |(instance, _, start, _, _)| Some((instance, None, start, None, None)),
    |(instance, target, _, _, end)| end.map(|_| (instance, target, None, None, end)),
];

/// The usage that each span is, and the usages that are none. A usage is one span at most.
pub fn pairs<'a>(used: &'a [Used], spans: &[Span]) -> (Vec<Option<&'a Used>>, Vec<&'a Used>) {
    let mut pairs = vec![None; spans.len()];
    let mut left: Vec<&Used> = used.iter().collect();
    for likeness in LIKENESS {
        let mut alike: HashMap<Key<'_>, VecDeque<&Used>> = HashMap::new();
        let mut others = Vec::new();
        for used in left {
            match likeness(key(
                &used.target,
                used.start,
                used.start_id.as_deref(),
                used.end,
            )) {
                Some(key) => alike.entry(key).or_default().push_back(used),
                None => others.push(used),
            }
        }
        let spans = spans.iter().zip(&mut pairs);
        for (span, pair) in spans.filter(|(_, pair)| pair.is_none()) {
            let key = key(
                &span.target,
                span.start,
                span.start_event_id.as_deref(),
                span.end,
            );
            *pair = likeness(key).and_then(|key| alike.get_mut(&key)?.pop_front());
        }
        left = alike.into_values().flatten().chain(others).collect();
        left.sort_by_key(|used| used.line);
    }
    (pairs, left)
}

fn key<'a>(target: &'a Target, start: Millis, id: Option<&'a str>, end: Option<Millis>) -> Key<'a> {
    let instance = &target.resource_instance_id;
    (instance, Some(target), Some(start), id, end)
}
