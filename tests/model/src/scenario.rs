//! The scenarios: how large the world is, and what can happen in it.

use sampler_domain::{Contract, Granularities, Granularity, Memory, Policy, Timestamp};

use crate::planted::Planted;
use crate::stretch::at;

/// The scenarios that the tests go through: a name, and what differs from the least, which is half a window without
/// operators ([`Scenario::of`]).
pub const SMALL: [(&str, &str); 12] = [
    ("window", "start=0 acts=3"),
    ("probe", "acts=2 suspend=2 probes"),
    ("unclear", "acts=2 unclear"),
    ("foreign", "start=0 acts=2 foreign"),
    ("time", "now=1 acts=2"),
    ("silence", "acts=2 lost"),
    ("late", "acts=2 lost late"),
    ("windows", "reach=4"),
    ("parts", "reach=3 acts=2 parts"),
    ("dimension", "start=3 reach=6 coarser"),
    ("forgets", "acts=1 horizon=0 ticks=1"),
    ("horizon", "acts=2 horizon=1 ticks=1"),
];

/// The scenarios that are too large for tests.
pub const LARGE: [(&str, &str); 13] = [
    ("four acts", "start=0 acts=4"),
    ("three acts in parts", "reach=4 acts=3 parts"),
    ("three acts and probes", "start=0 acts=3 suspend=2 probes"),
    ("three acts, foreign", "start=0 acts=3 foreign parts"),
    ("three acts, late", "start=0 acts=3 lost late"),
    ("two windows", "start=0 reach=4 acts=2 parts"),
    ("two windows, late", "reach=3 acts=1 lost late"),
    ("hours, then days", "start=3 reach=6 acts=2 coarser"),
    ("days, then hours", "reach=6 acts=1 finer"),
    ("never remembers", "acts=2 horizon=0 ticks=2"),
    ("never remembers, silence", "horizon=0 ticks=2 lost"),
    ("remembers for a while", "acts=2 horizon=2 ticks=3"),
    ("remembers for a while, late", "horizon=2 ticks=2 lost late"),
];

/// From a tick of the clock to the next, ms. By then each post has landed or is lost, and a read of before is too
/// old for a post.
const TICK: i64 = 3 * 60_000;
/// How long a post may take, and until a usage is found, ms.
const SETTLES: i64 = 1_000;

/// What can happen to the one span.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is something that may happen"
)]
pub struct Scenario {
    /// Sampling goes from this place.
    pub start: u8,
    /// To this place.
    pub reach: u8,
    /// Where the clock stands at first.
    pub now: u8,
    /// How often the clock ticks behind the last place.
    pub ticks: u8,
    /// How many actions of operators there may be.
    pub acts: u8,
    pub suspend_after: u32,
    /// Operators skip up to a later boundary, too, and send single intervals again.
    pub parts: bool,
    /// Suspended spans are probed, too.
    pub probes: bool,
    /// Answers of the database are lost.
    pub lost: bool,
    /// A change without an answer may be made later.
    pub late: bool,
    /// The upstream gives refusals that do not say whether the usage counts.
    pub unclear: bool,
    /// For how many ticks, up to 2, an upstream that forgets recognises a repeat; none where it does so for ever.
    pub horizon: Option<u8>,
    /// How time is cut, at first and later.
    pub settings: [Granularity; 2],
    /// Another program has planned the first interval, under an id of its own.
    pub foreign: bool,
    /// The bug that is planted.
    pub planted: Option<Planted>,
}

impl Scenario {
    /// The scenario of this name, or what differs from the least.
    ///
    /// # Panics
    /// Where nothing is called so.
    pub fn of(text: &str) -> Self {
        let mut all = SMALL.iter().chain(&LARGE);
        let text = all.find(|(name, _)| *name == text).map_or(text, |it| it.1);
        let mut scenario = Self {
            start: 1,
            reach: 2,
            now: u8::MAX,
            ticks: 0,
            acts: 0,
            suspend_after: 1,
            parts: false,
            probes: false,
            lost: false,
            late: false,
            unclear: false,
            horizon: None,
            settings: [Granularity::Hour; 2],
            foreign: false,
            planted: None,
        };
        for word in text.split(' ') {
            scenario.set(word);
        }
        scenario.now = scenario.now.min(scenario.reach);
        scenario
    }

    fn set(&mut self, word: &str) {
        let (name, number) = word.split_once('=').unwrap_or((word, "1"));
        let number: u8 = number.parse().expect("a number");
        match name {
            "start" => self.start = number,
            "reach" => self.reach = number,
            "now" => self.now = number,
            "ticks" => self.ticks = number,
            "acts" => self.acts = number,
            "suspend" => self.suspend_after = number.into(),
            "parts" => self.parts = true,
            "probes" => self.probes = true,
            "lost" => self.lost = true,
            "late" => self.late = true,
            "unclear" => self.unclear = true,
            "horizon" => self.horizon = Some(number),
            "coarser" => self.settings[1] = Granularity::Day,
            "finer" => self.settings[0] = Granularity::Day,
            "foreign" => self.foreign = true,
            _ => panic!("nothing is called {name:?}"),
        }
    }

    #[must_use]
    pub fn with(self, planted: Planted) -> Self {
        Self {
            planted: Some(planted),
            ..self
        }
    }

    pub(crate) fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    pub(crate) fn clock(&self, now: u8) -> Timestamp {
        let ticks = now.saturating_sub(self.reach);
        at(now.min(self.reach)).plus(i64::from(ticks) * TICK)
    }

    pub(crate) fn policy(&self, is_set_anew: bool) -> Policy {
        Policy {
            granularities: Granularities::all(self.settings[usize::from(is_set_anew)]),
            stop_grace: 0,
        }
    }

    /// A post is safe without a lookup for a little less than the ticks for which the upstream surely remembers.
    pub(crate) fn contract(&self) -> Contract {
        match self.horizon {
            None => Contract::Forever,
            Some(ticks) => Contract::Forgets(Memory {
                horizon: i64::from(ticks) * TICK,
                settles: SETTLES,
                post_timeout: SETTLES,
            }),
        }
    }

    pub(crate) fn forgets(&self) -> bool {
        self.horizon.is_some()
    }
}
