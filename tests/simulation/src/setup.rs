//! What stays the same throughout a run: the scale of time, the processes, the settings.

use std::time::Duration;

use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularity, Memory, Slack, Timestamp};
use sampler_settings::receiver::{EventsSettings, LimitsSettings};
use sampler_settings::worker::{
    CleanupSettings, ConfirmSettings, DeliverySettings, LedgerSettings, ProcessingSettings,
    SuspensionSettings,
};
use sampler_settings::{
    DistressSettings, LedgerRetention, MonthSettings, ReceiverSettings, SamplingSettings,
    SlackSettings, WorkerSettings,
};

use super::mutant::Mutant;
use crate::calendar::{DAY, HOUR, MINUTE, midnight};
use sampler_testkit::rng::Rng;
use sampler_worker::Periods;

/// Dates at which calendar code may fail; some runs cross them.
const CALENDAR_EDGES: [(i64, i64, i64); 9] = [
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

/// How many intervals of one span are delivered in the slack of a month in any case.
const BACKLOG_MOST: i64 = 60;

impl Scale {
    /// The length of an interval at the least, ms.
    fn window(self) -> i64 {
        match self.unit {
            Granularity::Minute => MINUTE,
            Granularity::Hour => HOUR,
            Granularity::Day => DAY,
            Granularity::Month => 28 * DAY,
        }
    }

    /// Of a run in which a month closes: minutes count, so workers poll often.
    fn draw_closing(rng: &mut Rng) -> Self {
        let (unit, coarse, length) = match rng.below(10) {
            0..=4 => (Granularity::Minute, Granularity::Hour, MINUTE),
            5..=6 => (Granularity::Hour, Granularity::Day, 5 * MINUTE),
            7..=8 => (Granularity::Day, Granularity::Month, 5 * MINUTE),
            _ => (Granularity::Month, Granularity::Month, 5 * MINUTE),
        };
        Self {
            unit,
            coarse,
            length,
            tick: 10_000,
            slow: 2_000,
            horizon: 27 * MINUTE,
            clock_error: 2 * MINUTE,
        }
    }

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

/// The month that Abacus closes during a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    /// The first moment of the next month.
    pub(crate) month_end: Timestamp,
    /// The longest time from a start to its report that leaves enough of the slack to deliver all
    /// intervals, ms.
    pub(crate) backlog_most: i64,
}

impl Closing {
    /// How long into the next month Abacus takes usages for this one, ms.
    const SLACK: i64 = 10 * MINUTE;

    /// How long into the next month there may be severe faults, ms. What is known by then must be
    /// delivered in the rest of the slack, in which few calls fail and no process crashes or
    /// freezes.
    const TROUBLE: i64 = 3 * MINUTE;

    /// The moment from which there are no severe faults until the month is closed.
    pub(crate) fn quiet_from(self) -> Timestamp {
        self.month_end.plus(Self::TROUBLE)
    }

    /// The last moment at which Abacus takes usages for the month.
    pub(crate) fn closes_at(self) -> Timestamp {
        self.month_end.plus(Self::SLACK)
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
        // The clocks of two workers differ by twice the error of one.
        let apart = 4 * scale.clock_error;
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
                i64::MAX
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
    /// The month that Abacus closes, if it closes one.
    pub(crate) closing: Option<Closing>,
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
    /// Abacus puts usages of the future aside. Then the workers' clocks are never ahead, unless it
    /// dates its answers.
    pub(crate) puts_future_aside: bool,
    /// Operators skip, resume and resend.
    pub(crate) has_operator: bool,
    /// How many of a hundred acts and changes an operator follows with an act at once.
    pub(crate) watchful: usize,
    /// How many of a hundred usages Abacus sets aside after it has accepted them.
    pub(crate) sets_aside: usize,
    /// Workers ask whether usages count.
    pub(crate) confirms: bool,
    /// Abacus dates its answers, so that workers can tell that their clocks are ahead.
    pub(crate) dates_answers: bool,
    /// How long the server may take for a command, ms.
    pub(crate) time_limit: i64,
    /// The factor by which the store's clock, which ages heartbeats, is slow: a heartbeat lives for
    /// 20 s, but in a run heartbeats are far apart.
    pub(crate) heartbeat_slowdown: i64,
}

impl Setup {
    pub(crate) fn new(seed: u64, mutant: Mutant) -> Self {
        let mut rng = Rng::new(seed, 0);
        let rng = &mut rng;
        let forgets = seed & FORGETFUL != 0;
        let closes = rng.percent(35) && !forgets;
        let mut scale = if closes {
            Scale::draw_closing(rng)
        } else {
            Scale::draw(rng)
        };
        if forgets {
            scale.clock_error = scale.slow / 4;
        }
        let narrow_slack = rng.percent(25) || mutant == Mutant::RetentionUntold;
        let past = if narrow_slack {
            4 * scale.length
        } else if closes {
            // A start may be dated at the beginning of its month.
            62 * DAY
        } else {
            4 * scale.horizon
        };
        // What ends so far ahead is waited for.
        let future = if narrow_slack {
            2 * scale.length
        } else if closes {
            scale.horizon
        } else {
            4 * scale.horizon
        };
        // A start may be sent again until its timestamp falls out of the slack. To see that it is
        // a repeat the span must be there, whatever the clocks say and however long a request that
        // was admitted before was held up.
        let retention = past + 2 * scale.clock_error + 4 * scale.length;
        // Of rows of their own, so that runs without operators or confirmation stay as they were. What is
        // skipped waits, too long for a month that closes; and a span is not removed before its usages are
        // resent.
        let has_operator = !closes && !narrow_slack && Rng::new(seed, 6).percent(50);
        let aside = &mut Rng::new(seed, 8);
        let shared = !closes && rng.percent(50);
        let (base, closing) = if closes {
            let month_end = month_end(rng);
            let base = month_end.plus(-rng.between(5 * MINUTE, 13 * MINUTE));
            let closing = Closing {
                month_end,
                backlog_most: BACKLOG_MOST * scale.window(),
            };
            (base, Some(closing))
        } else {
            (base(rng, scale), None)
        };
        Self {
            seed,
            mutant,
            scale,
            memory: forgets.then(|| Forgetful::draw(&mut Rng::new(seed, 12), scale)),
            closing,
            base,
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
            puts_future_aside: rng.percent(40),
            has_operator,
            watchful: *Rng::new(seed, 9).pick(&[0, 10, 40]),
            sets_aside: *aside.pick(&[0, 0, 3, 20]),
            confirms: aside.percent(50),
            dates_answers: rng.percent(75) || forgets,
            time_limit: scale.slow / 2,
            heartbeat_slowdown: if shared {
                (scale.horizon / 6 * 5 / 2 / 20_000).max(1)
            } else {
                1
            },
        }
    }

    pub(crate) fn heartbeat(&self) -> i64 {
        match self.closing {
            Some(_) => 10_000,
            None => self.scale.horizon / 6,
        }
    }

    /// How often workers probe Abacus's clock, ms.
    fn clock_interval(&self) -> i64 {
        match self.closing {
            Some(_) => 20_000,
            None => (4 * self.scale.tick).max(20_000),
        }
    }

    /// How long the date of an answer counts for a worker, ms.
    pub(crate) fn dates_held_for(&self) -> i64 {
        15 * self.clock_interval()
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
        let stop_grace = match self.closing {
            Some(_) => *rng.pick(&[0, 0, MINUTE / 2, MINUTE]),
            None => *rng.pick(&[0, 0, length / 4, length]),
        };
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

    pub(crate) fn worker(&self, name: String, rng: &mut Rng) -> sampler_worker::Options {
        let tick = self.scale.tick;
        // What operators resend must still be there, also after the run.
        let is_resent = self.has_operator || self.sets_aside > 0;
        let kept = i64::from(is_resent) * (16 * self.scale.horizon + DAY);
        sampler_worker::Options {
            name,
            settings: WorkerSettings {
                sampling: self.sampling(rng),
                month: MonthSettings {
                    month_slack: millis(*rng.pick(&[600_000, 3 * DAY])),
                },
                delivery: DeliverySettings {
                    retry_limit: millis(4 * tick),
                    concurrency: 1 + rng.below(4),
                    ..DeliverySettings::default()
                },
                processing: ProcessingSettings {
                    concurrency: 1 + rng.below(6),
                    batch_size: 2 + rng.below(8),
                    interval: millis(tick),
                    ..ProcessingSettings::default()
                },
                cleanup: CleanupSettings {
                    batch_size: 1 + rng.below(4),
                    interval: millis(4 * tick),
                    retention: millis(self.retention),
                    ..CleanupSettings::default()
                },
                // Some entries expire while the run lasts, some do not.
                ledger: LedgerSettings {
                    retention: LedgerRetention {
                        minute: millis(2 * tick + kept),
                        hour: millis(8 * tick + kept),
                        day: millis(400 * DAY + kept),
                        month: millis(800 * DAY + kept),
                    },
                },
                distress: self.distress(rng),
                // While a month closes a span must not wait for long because of chance refusals.
                suspension: SuspensionSettings {
                    after: 2 + rng.below(2) - usize::from(self.closing.is_none()),
                    probe_interval: millis(2 * tick),
                },
                confirm: ConfirmSettings {
                    enabled: self.confirms,
                    // Later than Abacus decides, whatever the clocks say.
                    timeout: millis(8 * tick + 4 * self.scale.clock_error),
                },
                ..WorkerSettings::default()
            },
            // Nobody steers here.
            periods: Periods {
                heartbeat: millis(self.heartbeat()),
                confirmation: millis(tick / 4),
                clock: millis(self.clock_interval()),
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

    /// One worker in four pauses after a heartbeat that took seconds, which in long scales many do. None
    /// does while a month closes.
    fn distress(&self, rng: &mut Rng) -> DistressSettings {
        let pauses = rng.percent(25) && self.closing.is_none();
        let commit_upper = if pauses {
            DistressSettings::default().commit_upper
        } else {
            Duration::from_millis(self.scale.horizon.unsigned_abs())
        };
        DistressSettings {
            commit_upper,
            ..DistressSettings::default()
        }
    }

    pub(crate) fn receiver(&self, rng: &mut Rng) -> sampler_receiver::Options {
        let slack = SlackSettings {
            past: millis(self.slack.past),
            future: millis(self.slack.future),
        };
        sampler_receiver::Options {
            settings: ReceiverSettings {
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
                ..ReceiverSettings::default()
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

/// The end of the month that is closed during the run.
fn month_end(rng: &mut Rng) -> Timestamp {
    let year = *rng.pick(&[1970, 2000, 2023, 2024, 2026, 2100]);
    Timestamp::clamped(midnight(year, rng.between(2, 12), 1))
}
