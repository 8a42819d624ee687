//! The intervals that were planned, found by what a run asks for at each change: it must not look at all
//! of them each time, because a run can have a hundred thousand.

use std::collections::BTreeMap;

use sampler_domain::{Interval, SpanId};

/// An interval that was planned.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Plan {
    pub(crate) span: SpanId,
    pub(crate) interval: Interval,
    /// Abacus has taken its usage, whatever came of that.
    pub(crate) accepted: bool,
    /// Abacus counts its usage.
    pub(crate) counted: bool,
    /// It was set aside at least once.
    pub(crate) was_set_aside: bool,
    /// The span says that it was executed or skipped.
    pub(crate) noted: bool,
    /// The span has said that it was skipped.
    pub(crate) skipped: bool,
    /// It takes back what never counted, and is not posted before that is.
    pub(crate) withheld: bool,
    /// The usages that it takes back, of those that the ledger said were billed when it was planned.
    pub(crate) believed: Vec<String>,
}

/// All intervals that were planned, by the ids of their usages.
#[derive(Default)]
pub(crate) struct Plans {
    all: BTreeMap<String, Plan>,
    of_spans: BTreeMap<SpanId, OfSpan>,
}

/// What is known of the plans of one span.
#[derive(Default)]
struct OfSpan {
    /// What is noted and does not count, ms.
    missing: i64,
    /// The intervals that go forwards, with the ids of their usages, in their order.
    forward: Vec<(Interval, String)>,
}

impl Plan {
    /// What is noted of it and does not count, ms.
    fn missing(&self) -> i64 {
        if self.noted && !self.counted {
            self.interval.duration()
        } else {
            0
        }
    }
}

impl Plans {
    /// Adds a plan; says whether its usage is new.
    pub(crate) fn insert(&mut self, guid: &str, plan: Plan) -> bool {
        let of_span = self.of_spans.entry(plan.span.clone()).or_default();
        if plan.interval.duration() > 0 {
            let place = of_span
                .forward
                .partition_point(|(before, _)| before.start <= plan.interval.start);
            let named = (plan.interval, guid.to_owned());
            of_span.forward.insert(place, named);
        }
        of_span.missing += plan.missing();
        let earlier = self.all.insert(guid.to_owned(), plan);
        earlier.is_none()
    }

    pub(crate) fn get(&self, guid: &str) -> Option<&Plan> {
        self.all.get(guid)
    }

    /// Changes a plan, if it is there.
    pub(crate) fn change<T>(
        &mut self,
        guid: &str,
        change: impl FnOnce(&mut Plan) -> T,
    ) -> Option<T> {
        let plan = self.all.get_mut(guid)?;
        let before = plan.missing();
        let result = change(plan);
        let of_span = self.of_spans.entry(plan.span.clone()).or_default();
        of_span.missing += plan.missing() - before;
        Some(result)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Plan)> {
        self.all.iter()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Plan> + Clone {
        self.all.values()
    }

    /// What of a span is noted and does not count, ms.
    pub(crate) fn missing_of(&self, span: &SpanId) -> i64 {
        self.of_spans.get(span).map_or(0, |it| it.missing)
    }

    /// The usages of a span whose intervals go forwards and have a part in an interval that goes
    /// backwards.
    pub(crate) fn taken_back_by(
        &self,
        span: &SpanId,
        back: Interval,
    ) -> impl Iterator<Item = &String> {
        let forward = self.of_spans.get(span).map_or(&[][..], |it| &it.forward);
        let until = forward.partition_point(|(interval, _)| interval.start < back.start);
        // What begins earlier ends earlier.
        let reached = forward[..until].iter().rev();
        let parts = reached.take_while(move |(interval, _)| interval.end > back.end);
        parts.map(|(_, guid)| guid)
    }
}
