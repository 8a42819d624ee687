//! A scenario of the model: the events, the clock, the settings, and the planted bug.

use sampler_domain::{
    Contract, EventId, Granularities, Granularity, Id, IntakeRules, Measures, Memory, Policy,
    Slack, StartEvent, StopEvent, Target, Timestamp,
};

/// The moment that the seconds of a scenario count from: 2026-03-10T12:00:00 UTC.
const ORIGIN: i64 = 1_773_144_000_000;

/// `seconds` after the origin.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::clamped(ORIGIN + seconds * 1_000)
}

/// What a provider reports.
#[derive(Clone, Debug)]
pub enum Event {
    /// The usage starts.
    Start(StartEvent),
    /// The usage stops.
    Stop(StopEvent),
}

/// A planted bug of the protocol. The model must find each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Changes do not require the version that the span was read with.
    IgnoresVersion,
    /// Changes do not require the end that the span was read with.
    IgnoresEnd,
    /// Each attempt to post draws a new id for the usage.
    GuidPerAttempt,
    /// Each attempt to post works out the timestamps again, from the clock.
    TimestampPerAttempt,
    /// A span is complete as soon as it has an end and no plan, wherever sampling stands.
    CompletesWithoutComparingEnd,
    /// The usage is posted before its plan is kept.
    PostsBeforePlanning,
    /// A worker executes only what it has planned itself.
    IgnoresPlansOfOthers,
    /// A start is inserted without unique indexes: nothing is compared with what is there.
    StartsWithoutIndexes,
    /// The entry of a usage is written after its execution was recorded.
    EntryAfterNote,
    /// What executions come to is kept in a change of its own.
    TotalsApart,
    /// Entries expire before their span is complete.
    ExpiresBeforeCompletion,
    /// A usage that is posted again says something else.
    ResendsOtherBytes,
    /// A span that is resumed stays out of the workers' way.
    ResumedStaysAway,
    /// A worker puts a span out of the way that was suspended when it read it, and was resumed since.
    PutsAwayWhatWasResumed,
    /// A span is suspended because no answer came.
    SuspendsWhatWaits,
    /// A usage that is skipped is posted, too.
    PostsWhatIsSkipped,
    /// What is skipped counts as billed.
    BillsWhatIsSkipped,
    /// What is sent again by an operator says something else.
    ResentSaysMore,
    /// The mark of a resend goes before the totals are corrected.
    ResentBeforeTotals,
    /// Totals are corrected whether they count the resend already or not.
    ResentCountsTwice,
    /// A usage is sent again before its span has recorded that it is skipped.
    ResendsBeforeTheNote,
    /// What takes back a usage that never counted is posted.
    PostsWhatIsWithheld,
    /// What was withheld is sent before the usage that it takes back.
    ResendsWithheldFirst,
    /// That Abacus has set a usage aside is recorded on its entry alone, not on its span.
    SetAsideUnknownToSpan,
    /// A usage is posted without asking, though the upstream may have forgotten an earlier post.
    PostsWithoutAsking,
    /// That a usage is not there is not recorded on its span before it is posted.
    NotThereUnnoted,
}

/// What happens in a model.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the provider reports.
    pub events: Vec<Event>,
    /// Whether it sends each event only once the one before was answered, as it must, or all of
    /// them at once.
    pub in_order: bool,
    /// The moments that the clock goes through.
    pub moments: Vec<Timestamp>,
    /// How many workers there are.
    pub workers: usize,
    /// How spans are sampled.
    pub policy: Policy,
    /// How far events may lie from the clock.
    pub slack: Slack,
    /// How long complete spans are kept, ms.
    pub retention: i64,
    /// How long a receiver may take, at the most, from looking at the clock to its call of the
    /// store, ms; one that takes longer has died.
    pub request_limit: i64,
    /// How often in a row a failure to deliver an interval is recorded.
    pub failures_max: u32,
    /// How long a span waits after such a failure, ms.
    pub retry: i64,
    /// How many refusals in a row suspend a span; none is ever refused where this is 0.
    pub suspend_after: u32,
    /// Whether an operator may skip a usage that is refused.
    pub may_skip: bool,
    /// How often Abacus sets a usage aside that it has accepted.
    pub asides_max: u8,
    /// How often an operator has a usage sent again that was skipped or set aside.
    pub resends_max: u8,
    /// How long an upstream that forgets recognises a repeat, ms; none where it does so for ever. A usage is
    /// found from the next moment on.
    pub horizon: Option<i64>,
    /// What is broken.
    pub mutant: Option<Mutant>,
}

impl Scenario {
    /// Which events its receivers keep.
    pub(crate) fn rules(&self) -> IntakeRules {
        IntakeRules {
            slack: self.slack,
            lenient_repeats: false,
        }
    }

    /// All scenarios, by name.
    pub fn all() -> [(&'static str, Self); 10] {
        [
            ("update", Self::update()),
            ("disorder", Self::disorder()),
            ("outage", Self::outage()),
            ("refusal", Self::refusal()),
            ("skip", Self::skip()),
            ("resend", Self::resend()),
            ("aside", Self::aside()),
            ("rounds", Self::rounds()),
            ("forgets", Self::forgets()),
            ("horizon", Self::horizon()),
        ]
    }

    /// One target that is started, updated (a stop and a start at one moment) and stopped: late,
    /// in time or ahead of time. Two workers; complete spans are removed while there is still
    /// something going on.
    pub fn update() -> Self {
        Self {
            events: vec![
                start("first start", 30),
                stop("update's stop", 90),
                start("update's start", 90),
                stop("last stop", 100),
            ],
            in_order: true,
            moments: [30, 90, 120, 150, 180].map(at).to_vec(),
            workers: 2,
            policy: Policy {
                granularities: Granularities::all(Granularity::Minute),
                stop_grace: 0,
            },
            slack: Slack {
                past: 30_000,
                future: 60_000,
            },
            retention: 60_000,
            request_limit: 30_000,
            failures_max: 0,
            retry: 30_000,
            suspend_after: 0,
            may_skip: false,
            asides_max: 0,
            resends_max: 0,
            horizon: None,
            mutant: None,
        }
    }

    /// The same from a provider that does not wait for answers, so that its events come in any
    /// order.
    pub fn disorder() -> Self {
        Self {
            in_order: false,
            ..Self::update()
        }
    }

    /// One target that is started and stopped, with more time, a grace for late stops, and workers
    /// that record up to two failures of Abacus in a row.
    pub fn outage() -> Self {
        Self {
            events: vec![start("start", 30), stop("stop", 90)],
            moments: [30, 80, 130, 190, 260].map(at).to_vec(),
            policy: Policy {
                granularities: Granularities::all(Granularity::Minute),
                stop_grace: 10_000,
            },
            slack: Slack {
                past: 100_000,
                future: 10_000,
            },
            retention: 160_000,
            request_limit: 60_000,
            failures_max: 2,
            ..Self::update()
        }
    }

    /// One target that is started and stopped, and an Abacus that refuses its usages, or does not
    /// answer. A refusal suspends the span; then it is probed, and continues. One worker drives the
    /// span, and another looks after causes; with two that drive there are too many states.
    pub fn refusal() -> Self {
        Self {
            moments: [30, 80, 190].map(at).to_vec(),
            retention: 90_000,
            workers: 1,
            suspend_after: 1,
            ..Self::outage()
        }
    }

    /// The same, and an operator gives up what is refused. Failures are not recorded: what an operator
    /// does makes states enough.
    pub fn skip() -> Self {
        Self {
            failures_max: 1,
            may_skip: true,
            ..Self::refusal()
        }
    }

    /// The same, and later an operator has that sent again, while a worker continues with the span or
    /// after it is complete.
    pub fn resend() -> Self {
        Self {
            resends_max: 1,
            ..Self::skip()
        }
    }

    /// One target that is started and stopped late, and an Abacus that sets a usage aside which it had
    /// accepted. A worker learns that, and an operator has the usage sent again.
    pub fn aside() -> Self {
        Self {
            moments: [30, 80, 190].map(at).to_vec(),
            retention: 90_000,
            workers: 1,
            failures_max: 0,
            asides_max: 1,
            resends_max: 1,
            ..Self::outage()
        }
    }

    /// The same with one interval to sample, and one to take back. Abacus sets the usage aside once more after
    /// that.
    pub fn rounds() -> Self {
        Self {
            events: vec![start("start", 150), stop("stop", 170)],
            moments: [150, 190, 270].map(at).to_vec(),
            asides_max: 2,
            ..Self::aside()
        }
    }

    /// One target that is started and stopped, and an upstream that remembers nothing: each usage is looked
    /// up before each post. Two workers, of which either may sleep or die anywhere.
    pub fn forgets() -> Self {
        Self {
            moments: [30, 80, 190].map(at).to_vec(),
            retention: 90_000,
            failures_max: 1,
            horizon: Some(0),
            ..Self::outage()
        }
    }

    /// The same with an upstream that remembers a usage until the last moment. Before that it is posted
    /// without asking, and repeats arrive; at the last moment each usage of before is looked up.
    pub fn horizon() -> Self {
        Self {
            horizon: Some(100_000),
            ..Self::forgets()
        }
    }

    /// What the upstream promises: a post takes effect, and is found, within less than the time from one
    /// moment to the next.
    pub(crate) fn contract(&self) -> Contract {
        match self.horizon {
            Some(horizon) if !self.is_broken(Mutant::PostsWithoutAsking) => {
                Contract::Forgets(Memory {
                    horizon,
                    settles: 1_000,
                    post_timeout: 1_000,
                })
            }
            _ => Contract::Forever,
        }
    }

    /// Whether the upstream forgets.
    pub fn forgets_usages(&self) -> bool {
        self.horizon.is_some()
    }

    /// The same with something broken.
    #[must_use]
    pub fn broken(mut self, mutant: Mutant) -> Self {
        self.mutant = Some(mutant);
        self
    }

    pub fn is_broken(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The moment after `now`; none at the end of the scenario.
    pub fn moment_after(&self, now: Timestamp) -> Option<Timestamp> {
        self.moments.iter().copied().find(|moment| *moment > now)
    }
}

/// A start event of the one target.
pub fn start(id: &str, seconds: i64) -> Event {
    Event::Start(StartEvent {
        id: Some(event_id(id)),
        timestamp: at(seconds),
        target: target(),
        measures: Measures::default(),
    })
}

/// A stop event of the one target.
pub fn stop(id: &str, seconds: i64) -> Event {
    Event::Stop(StopEvent {
        id: Some(event_id(id)),
        timestamp: at(seconds),
        target: target(),
    })
}

fn event_id(text: &str) -> EventId {
    Id::from_store(text)
}

fn target() -> Target {
    Target::from_store(["o", "s", "c", "r", "p", "i"])
}
