//! Which span of the API is which usage of the provider.

use std::collections::HashMap;

use crate::api::Span;
use crate::history::Used;
use crate::moment::Millis;

/// Deals out spans to usages, each to one.
#[derive(Debug)]
pub struct Matcher {
    used: Vec<Used>,
    is_taken: Vec<bool>,
    by_start: HashMap<(String, Millis), Vec<usize>>,
    /// Those that are left, by instance; made when it is first needed.
    left: Option<HashMap<String, Vec<usize>>>,
}

impl Matcher {
    pub fn new(used: Vec<Used>) -> Self {
        let mut by_start: HashMap<_, Vec<usize>> = HashMap::new();
        for (place, used) in used.iter().enumerate() {
            let instance = used.target.resource_instance_id.clone();
            by_start
                .entry((instance, used.start))
                .or_default()
                .push(place);
        }
        Self {
            is_taken: vec![false; used.len()],
            used,
            by_start,
            left: None,
        }
    }

    /// Spans, each with the place of the usage that it is: first those whose target and start are the
    /// same, then those that are similar.
    pub fn pairs(&mut self, spans: Vec<Span>) -> Vec<(Span, Option<usize>)> {
        let (mut pairs, mut others) = (Vec::new(), Vec::new());
        for span in spans {
            match self.take(&span) {
                Some(place) => pairs.push((span, Some(place))),
                None => others.push(span),
            }
        }
        for span in others {
            let place = self.take_similar(&span);
            pairs.push((span, place));
        }
        pairs
    }

    pub fn used(&self, place: usize) -> &Used {
        &self.used[place]
    }

    /// The usage of the same target and start, if one is left: best of the same id and end.
    pub fn take(&mut self, span: &Span) -> Option<usize> {
        let key = (span.target.resource_instance_id.clone(), span.start);
        let places = self.by_start.get(&key)?.iter().copied();
        let ranked = places
            .filter(|place| !self.is_taken[*place])
            .filter_map(|place| {
                let used = &self.used[place];
                let same_id = used.start_id == span.start_event_id;
                let may_be = same_id || used.start_id.is_none() || span.start_event_id.is_none();
                let rank = (!same_id, used.end != span.end, place);
                (used.target == span.target && may_be).then_some(rank)
            });
        let (.., place) = ranked.min()?;
        self.is_taken[place] = true;
        Some(place)
    }

    /// For a span for which [`Matcher::take`] found nothing: a similar usage of the same instance, so
    /// that the differences can be named. To be called after `take` was called for all spans.
    pub fn take_similar(&mut self, span: &Span) -> Option<usize> {
        let left = self.left.get_or_insert_with(|| {
            let mut left: HashMap<_, Vec<usize>> = HashMap::new();
            let places = (0..self.used.len()).filter(|place| !self.is_taken[*place]);
            for place in places {
                let instance = self.used[place].target.resource_instance_id.clone();
                left.entry(instance).or_default().push(place);
            }
            left
        });
        let places = left.get(&span.target.resource_instance_id)?.iter().copied();
        let ranked = places
            .filter(|place| !self.is_taken[*place])
            .filter_map(|place| Some((likeness(&self.used[place], span)?, place)));
        let (_, place) = ranked.min()?;
        self.is_taken[place] = true;
        Some(place)
    }

    /// The usages that no span was found for.
    pub fn left(&self) -> Vec<usize> {
        let places = 0..self.used.len();
        places.filter(|place| !self.is_taken[*place]).collect()
    }

    pub fn all(&self) -> &[Used] {
        &self.used
    }
}

/// How much a usage is like a span; 0 is most, `None` not at all.
fn likeness(used: &Used, span: &Span) -> Option<u8> {
    let same_id = used.start_id.is_some() && used.start_id == span.start_event_id;
    let (same_target, same_start) = (used.target == span.target, used.start == span.start);
    match (same_id, same_target, same_start) {
        (true, true, _) => Some(0),
        (true, false, true) => Some(1),
        (false, true, true) => Some(2),
        (false, false, true) => Some(3),
        (true, false, false) => Some(4),
        (false, true, false) => (used.end.is_some() && used.end == span.end).then_some(5),
        (false, false, false) => None,
    }
}
