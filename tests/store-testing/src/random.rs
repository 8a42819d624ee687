//! Random values, from fixed seeds. No crate is needed for that.

use sampler_domain::{
    Acceptance, Again, Cause, CauseId, Cut, Excluded, FailureState, Granularity, Interval, Planned,
    Processing, RunId, SUSPENDED_DUE_AT, Suspension, Timestamp,
};
use uuid::Uuid;

use crate::support::{at, target};

/// A row of numbers (splitmix64), by its seed.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// From 0 to `limit - 1`.
    pub fn below(&mut self, limit: i64) -> i64 {
        let limit = u64::try_from(limit).expect("a positive limit");
        i64::try_from(self.number() % limit).expect("less than the limit")
    }

    pub fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| value(self))
    }

    fn list<T>(&mut self, mut value: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let length = self.below(4);
        (0..length).map(|_| value(self)).collect()
    }

    fn count(&mut self) -> u32 {
        u32::try_from(self.below(100)).expect("a small number")
    }

    fn text(&mut self) -> String {
        let texts = ["", "$no.mapping", "größer \u{1F600}", "a longer text"];
        texts[usize::try_from(self.below(4)).expect("a small number")].to_owned()
    }

    fn time(&mut self) -> Timestamp {
        match self.below(10) {
            0 => Timestamp::MIN,
            1 => Timestamp::MAX,
            _ => at(self.below(1 << 40)),
        }
    }

    fn interval(&mut self) -> Interval {
        let (start, end) = (self.time(), self.time());
        Interval { start, end }
    }

    fn run(&mut self) -> RunId {
        RunId(Uuid::from_u64_pair(self.number(), self.number()))
    }

    fn cause(&mut self) -> CauseId {
        Cause::of(&target(&self.text()), None, &self.text()).id()
    }
}

/// What might be known of a span, were there no rules.
pub fn processing(random: &mut Random, version: i64) -> Processing {
    Processing {
        complete: random.flag(),
        last: random.interval(),
        planned: random.maybe(planned),
        version,
        due_at: random.maybe(Random::time).unwrap_or(SUSPENDED_DUE_AT),
        cuts: random.list(|random| Cut {
            from: random.time(),
            granularity: Granularity::ALL[usize::from(random.flag()) + 1],
        }),
        failure: random.maybe(failure),
        probe: random.maybe(Random::cause),
        excluded: random.list(excluded),
        again: random.list(again),
    }
}

fn planned(random: &mut Random) -> Planned {
    Planned {
        interval: random.interval(),
        usage_guid: random.text(),
        planned_at: random.time(),
        by: random.maybe(Random::run),
        unanswered: random.flag(),
        posts_end_by: random.maybe(Random::time),
    }
}

fn failure(random: &mut Random) -> FailureState {
    FailureState {
        attempts: random.count(),
        refusals: random.count(),
        at: random.time(),
        status: random.maybe(|_| 503),
        error: random.text(),
        suspension: random.maybe(|random| Suspension {
            cause: random.cause(),
            since: random.time(),
        }),
    }
}

fn excluded(random: &mut Random) -> Excluded {
    Excluded {
        interval: random.interval(),
        back_to: random.maybe(Random::time),
        unanswered: random.flag(),
        usage_guid: random.maybe(Random::text),
        error: random.maybe(Random::text),
    }
}

fn again(random: &mut Random) -> Again {
    Again {
        range: excluded(random),
        at: random.time(),
        by: random.maybe(Random::run),
        attempts: random.count(),
        posts_end_by: random.maybe(Random::time),
        accepted: random.maybe(|random| Acceptance {
            at: random.time(),
            status: random.maybe(|_| 202),
            location: random.maybe(Random::text),
        }),
        is_way_back: random.flag(),
    }
}
