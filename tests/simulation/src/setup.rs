//! What stays the same throughout a run: the scale of time, the processes, the settings.

use std::time::Duration;

use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularity, Memory, Slack, Timestamp};
use sampler_settings::{
    CleanupSettings, ConfirmSettings, DeliverySettings, DistressSettings, EventsSettings,
    LedgerRetention, LedgerSettings, LimitsSettings, ProcessingSettings, SamplingSettings,
    Settings, SlackSettings, SuspensionSettings,
};

use super::mutant::Mutant;
use sampler_testkit::rng::Rng;
use sampler_worker::Periods;

pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// Dates at which calendar code may fail; some runs cross them.
const CALENDAR_EDGES: [(i64, usize, i64); 9] = [
    (1970, 3, 1),
    (2000, 2, 29),
    (2000, 3, 1),
    (2024, 1, 1),
    (2024, 2, 29),
    (2024, 3, 1),
    (2026, 11, 1),
    (2100, 3, 1),
    (9998, 6, 1),
];

/// How long things take in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// The usual granularity.
    pub(crate) unit: Granularity,
    /// The granularity of some resources and some workers.
    pub(crate) coarse: Granularity,
    /// A window of `unit`, roughly, ms.
    pub(crate) length: i64,
    /// How often workers poll, ms.
    pub(crate) tick: i64,
    /// How long a slow call takes, ms.
    pub(crate) slow: i64,
    /// The length of the run, before all faults end, ms.
    pub(crate) horizon: i64,
    /// The largest error of a clock, ms.
    pub(crate) clock_error: i64,
}

impl Scale {
    fn draw(rng: &mut Rng) -> Self {
        let scale = |unit, coarse, length: i64, windows, clock_error| Self {
            unit,
            coarse,
            length,
            tick: length / 3,
            slow: length / 3,
            horizon: length * windows,
            clock_error,
        };
        match rng.below(10) {
            0..=3 => scale(
                Granularity::Minute,
                Granularity::Hour,
                MINUTE,
                24,
                2 * MINUTE,
            ),
            4..=6 => scale(Granularity::Hour, Granularity::Day, HOUR, 24, 40 * MINUTE),
            7..=8 => scale(Granularity::Day, Granularity::Month, DAY, 24, 3 * HOUR),
            _ => scale(
                Granularity::Month,
                Granularity::Month,
                30 * DAY,
                12,
                3 * HOUR,
            ),
        }
    }
}

/// A seed with this bit is of a run with an upstream that forgets.
pub const FORGETFUL: u64 = 1 << 63;

/// An upstream that says what it has, and forgets it, or is known never to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgetful {
    /// How long it recognises a repeat, ms.
    pub(crate) horizon: i64,
    /// How long after it has taken a usage it may not find it, ms.
    pub(crate) lag: i64,
    /// What workers are told: less than it promises, because their clocks differ.
    pub(crate) told: Memory,
    /// It never forgets, and workers are told so.
    pub(crate) is_forever: bool,
}

impl Forgetful {
    fn draw(rng: &mut Rng, scale: Scale) -> Self {
        let post_timeout = 4 * scale.slow + 1_000;
        let lag = *rng.pick(&[0, scale.slow / 2, 2 * scale.slow]);
        // The clock of the database jumps by twice its error, and an answer that tells it may be as old as a slow call.
        let apart = 4 * (scale.clock_error + scale.slow);
        let horizon = match rng.below(6) {
            0 => 0,
            1 => post_timeout,
            2 => 2 * post_timeout,
            3 => 3 * post_timeout,
            4 => 6 * post_timeout,
            _ => scale.horizon,
        };
        let told = Memory {
            horizon,
            settles: lag + scale.slow + apart,
            post_timeout,
        };
        let is_forever = rng.below(8) == 0;
        Self {
            horizon: if is_forever {
                i64::MAX / 4
            } else if horizon <= told.margin() {
                // Where each post is asked for, nothing need be remembered.
                0
            } else {
                horizon + apart
            },
            lag,
            told,
            is_forever,
        }
    }
}

/// What stays the same throughout a run.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a thing of its own that may be so"
)]
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) mutant: Mutant,
    pub(crate) scale: Scale,
    /// The upstream, where it is not Abacus.
    pub(crate) memory: Option<Forgetful>,
    /// When the run begins.
    pub(crate) base: Timestamp,
    pub(crate) receivers: usize,
    pub(crate) workers: usize,
    /// For each target whether its provider is well behaved: it sends only valid events, each until
    /// it is answered.
    pub(crate) well_behaved: Vec<bool>,
    pub(crate) slack: Slack,
    /// How long complete spans are kept, ms.
    pub(crate) retention: i64,
    /// The slack is so narrow that some events lie outside, and complete spans are removed.
    pub(crate) narrow_slack: bool,
    pub(crate) max_inflight: Option<usize>,
    /// Operators skip, resume and resend.
    pub(crate) has_operator: bool,
    /// How many of a hundred acts and changes an operator follows with an act at once.
    pub(crate) watchful: usize,
    /// How many of a hundred usages the upstream sets aside after it has accepted them.
    pub(crate) sets_aside: usize,
    /// Workers ask whether usages count.
    pub(crate) confirms: bool,
    /// No entry expires while the run lasts.
    keeps_entries: bool,
    /// How long the server may take for a command, ms.
    pub(crate) time_limit: i64,
    /// How long a worker counts as alive after a heartbeat, ms.
    pub(crate) worker_lifetime: i64,
}

impl Setup {
    pub(crate) fn new(seed: u64, mutant: Mutant) -> Self {
        let mut rng = Rng::new(seed, 0);
        let rng = &mut rng;
        let forgets = seed & FORGETFUL != 0;
        let mut scale = Scale::draw(rng);
        if forgets {
            scale.clock_error = scale.slow / 4;
        }
        let narrow_slack = rng.percent(25) || mutant == Mutant::RetentionUntold;
        let (past, future) = if narrow_slack {
            (4 * scale.length, 2 * scale.length)
        } else {
            (4 * scale.horizon, 4 * scale.horizon)
        };
        // A start may be sent again until its timestamp falls out of the slack. To see that it is
        // a repeat the span must be there, however long a request that was admitted before was held up.
        let retention = past + 2 * scale.clock_error + 4 * scale.length;
        // Some runs share the spans among the workers, in others each works on all of them.
        let is_shared = rng.percent(50);
        Self {
            seed,
            mutant,
            scale,
            memory: forgets.then(|| Forgetful::draw(rng, scale)),
            base: base(rng, scale),
            receivers: 1 + rng.below(3),
            workers: 1 + rng.below(3),
            well_behaved: (0..=rng.below(4)).map(|_| rng.percent(50)).collect(),
            slack: Slack { past, future },
            retention: if mutant == Mutant::RetentionUntold {
                1
            } else {
                retention
            },
            narrow_slack,
            max_inflight: rng.percent(15).then_some(2),
            has_operator: rng.percent(60),
            watchful: *rng.pick(&[0, 10, 40]),
            sets_aside: *rng.pick(&[0, 0, 3, 20]),
            confirms: rng.percent(50),
            keeps_entries: rng.percent(50),
            time_limit: scale.slow / 2,
            worker_lifetime: if is_shared { 5 * scale.length } else { 1 },
        }
    }

    pub(crate) fn heartbeat(&self) -> i64 {
        self.scale.length
    }

    /// How one process samples; most processes do it in the same way.
    fn sampling(&self, rng: &mut Rng) -> SamplingSettings {
        let Scale {
            unit,
            coarse,
            length,
            ..
        } = self.scale;
        let default = if rng.percent(75) { unit } else { coarse };
        let exception = GranularityOverride {
            resource_id: "resource-1".to_owned(),
            plan_id: rng.percent(50).then(|| "plan".to_owned()),
            granularity: *rng.pick(&[unit, coarse]),
        };
        let stop_grace = *rng.pick(&[0, 0, length / 4, length]);
        SamplingSettings {
            dimension: Some(default),
            dimension_overrides: Some(vec![exception]),
            stop_grace: millis(stop_grace),
        }
    }

    /// How long after it was sent a command is answered or can no longer be carried out; with a
    /// margin, as in the store for MongoDB.
    pub(crate) fn answered_within(&self) -> Duration {
        Duration::from_millis((self.time_limit + self.time_limit / 8).unsigned_abs())
    }

    /// How long a client waits for a post, before it sends nothing more, ms. Abacus need not forget, so
    /// nothing depends on it there.
    pub(crate) fn post_limit(&self) -> i64 {
        match self.memory {
            Some(_) => 2 * self.scale.slow,
            None => i64::MAX / 4,
        }
    }

    /// Whether no entry expires while the run lasts: what is missing upstream can be sent again.
    pub(crate) fn keeps_entries(&self) -> bool {
        self.sets_aside > 0 || self.keeps_entries
    }

    /// How long the ledger keeps an entry of this granularity, ms. In some runs, some expire while the run lasts.
    pub(crate) fn kept_for(&self, granularity: Granularity) -> i64 {
        let tick = self.scale.tick;
        let longer = i64::from(self.keeps_entries()) * (100 * self.scale.horizon + DAY);
        longer
            + match granularity {
                Granularity::Minute => 2 * tick,
                Granularity::Hour => 8 * tick,
                Granularity::Day => 400 * DAY,
                Granularity::Month => 800 * DAY,
            }
    }

    pub(crate) fn worker(&self, name: String, rng: &mut Rng) -> sampler_worker::Options {
        let tick = self.scale.tick;
        let kept = |granularity| millis(self.kept_for(granularity));
        let defaults = Settings::worker();
        sampler_worker::Options {
            name,
            settings: Settings {
                sampling: self.sampling(rng),
                delivery: DeliverySettings {
                    retry_limit: millis(4 * tick),
                    concurrency: 1 + rng.below(4),
                    timeout: self
                        .memory
                        .map_or(defaults.delivery.timeout, |it| millis(it.told.post_timeout)),
                    ..defaults.delivery
                },
                processing: ProcessingSettings {
                    concurrency: 1 + rng.below(6),
                    batch_size: 2 + rng.below(8),
                    interval: millis(tick),
                    ..defaults.processing
                },
                cleanup: CleanupSettings {
                    batch_size: 1 + rng.below(4),
                    interval: millis(4 * tick),
                    retention: millis(self.retention),
                    ..defaults.cleanup
                },
                ledger: LedgerSettings {
                    retention: LedgerRetention {
                        minute: kept(Granularity::Minute),
                        hour: kept(Granularity::Hour),
                        day: kept(Granularity::Day),
                        month: kept(Granularity::Month),
                    },
                },
                distress: self.distress(rng),
                suspension: SuspensionSettings {
                    after: 1 + rng.below(2),
                    probe_interval: millis(2 * tick),
                },
                confirm: ConfirmSettings {
                    enabled: self.confirms,
                    // Later than the upstream decides, whatever the clocks say.
                    timeout: millis(8 * tick + 4 * self.scale.clock_error),
                },
                ..defaults
            },
            // Nobody steers here.
            periods: Periods {
                heartbeat: millis(self.heartbeat()),
                confirmation: millis(tick / 4),
                causes: millis(tick),
                confirmations: millis(tick),
                steering: millis(4 * tick),
                controller: millis(4 * tick),
                backlog: millis(4 * tick),
                event_margin: millis(self.retention - self.slack.past),
                notice: millis(tick),
                paused: millis(tick),
            },
        }
    }

    /// One worker in four pauses after a heartbeat that took seconds, which in long scales many do.
    fn distress(&self, rng: &mut Rng) -> DistressSettings {
        let default = Settings::worker().distress;
        let commit_upper = if rng.percent(25) {
            default.commit_upper
        } else {
            millis(self.scale.horizon)
        };
        DistressSettings {
            commit_upper,
            ..default
        }
    }

    pub(crate) fn receiver(&self, rng: &mut Rng) -> sampler_receiver::Options {
        let slack = SlackSettings {
            past: millis(self.slack.past),
            future: millis(self.slack.future),
        };
        sampler_receiver::Options {
            settings: Settings {
                limits: LimitsSettings {
                    payload: 10_000,
                    inflight: self.max_inflight,
                },
                events: EventsSettings {
                    // It answers 201 to what was not kept, which is its purpose.
                    lenient_repeats: false,
                },
                slack,
                sampling: self.sampling(rng),
                ..Settings::receiver()
            },
            unknown_for: Duration::from_secs(21),
        }
    }
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}

/// When a run begins: in the years 2020 to 2030, or so that it crosses one of the dates at which
/// calendar code may fail.
fn base(rng: &mut Rng, scale: Scale) -> Timestamp {
    if rng.percent(50) {
        return Timestamp::clamped(rng.between(midnight(2020, 1, 1), midnight(2030, 1, 1)));
    }
    let (year, month, day) = *rng.pick(&CALENDAR_EDGES);
    let before = rng.between(0, scale.horizon.min(50 * DAY));
    let edge = Timestamp::clamped(midnight(year, month, day)).plus(-before);
    // A run is over before the end of all time, at which no clock advances.
    edge.min(Timestamp::MAX.plus(-100 * scale.horizon))
}

/// The moment at the start of a day of the calendar, in ms since 1970.
fn midnight(year: i64, month: usize, day: i64) -> i64 {
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let years: i64 = (1970..year)
        .map(|year| 365 + i64::from(is_leap(year)))
        .sum();
    let february = 28 + i64::from(is_leap(year));
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months: i64 = months[..month - 1].iter().sum();
    (years + months + day - 1) * DAY
}
