//! Which span of the API is which usage of the provider.

use std::collections::HashMap;

use crate::api::Span;
use crate::history::Used;
use crate::moment::Millis;

/// The greatest and the least likeness of a usage and a span that belong together.
const LIKENESS: std::ops::RangeInclusive<u8> = 3..=11;

/// The place of the usage that each span is. A usage is one span at most.
pub fn pairs(used: &[Used], spans: &[Span]) -> Vec<Option<usize>> {
    let mut pairs = Pairs {
        used,
        places: vec![None; spans.len()],
        is_taken: vec![false; used.len()],
    };
    // Nearly all have the start of their events; only what is left is compared with the whole instance.
    pairs.take(spans, |instance, start| (instance, Some(start)));
    pairs.take(spans, |instance, _| (instance, None));
    pairs.places
}

/// The usages that no span is.
pub fn left<'a>(used: &'a [Used], places: &[Option<usize>]) -> impl Iterator<Item = &'a Used> {
    let mut is_left = vec![true; used.len()];
    for place in places.iter().flatten() {
        is_left[*place] = false;
    }
    let left = used.iter().zip(is_left).filter(|(_, is_left)| *is_left);
    left.map(|(used, _)| used)
}

type Key<'a> = (&'a str, Option<Millis>);

struct Pairs<'a> {
    used: &'a [Used],
    places: Vec<Option<usize>>,
    is_taken: Vec<bool>,
}

impl<'a> Pairs<'a> {
    /// Pairs what has the same key, from what is most alike to what is least.
    fn take(&mut self, spans: &'a [Span], key: fn(&'a str, Millis) -> Key<'a>) {
        let mut by_key: HashMap<Key<'_>, Vec<usize>> = HashMap::new();
        for (place, used) in self.used.iter().enumerate() {
            if !self.is_taken[place] {
                let key = key(&used.target.resource_instance_id, used.start);
                by_key.entry(key).or_default().push(place);
            }
        }
        for wanted in LIKENESS.rev() {
            for (span, place) in spans.iter().zip(&mut self.places) {
                let key = key(&span.target.resource_instance_id, span.start);
                if let (None, Some(places)) = (&place, by_key.get(&key)) {
                    *place = places.iter().copied().find(|place| {
                        !self.is_taken[*place] && likeness(&self.used[*place], span) == wanted
                    });
                    if let Some(place) = place {
                        self.is_taken[*place] = true;
                    }
                }
            }
        }
    }
}

/// How much of a usage and a span is the same. A target alone is no likeness: it may run many times.
fn likeness(used: &Used, span: &Span) -> u8 {
    let same_id = used.start_id.is_some() && used.start_id == span.start_event_id;
    let (same_target, same_start) = (used.target == span.target, used.start == span.start);
    let same_end = used.end.is_some() && used.end == span.end;
    if !(same_id || same_start || same_target && same_end) {
        return 0;
    }
    4 * u8::from(same_id)
        + 3 * u8::from(same_target)
        + 3 * u8::from(same_start)
        + u8::from(same_end)
}
