//! The controller of starts over three days, with starts and sampling, a minute at a time.
//!
//! Each day has a peak in which more is due than Abacus takes. There is a spike on the second evening,
//! and on the third morning Abacus takes half as much as usual. Each instance runs for ten minutes and
//! is sampled by hours: an interval at its stop, and one for each hour that ends while it runs. A start
//! that is turned away is repeated each minute with its own timestamp, so nothing becomes less: what is
//! admitted later is due at once. Which starts are admitted is decided as receivers decide it.

use sampler_domain::{
    ControllerMemory, ControllerSettings, EventId, Load, Percent, StartPlace, Target, Timestamp,
};

/// What is simulated, in minutes.
const MINUTES: usize = 3 * DAY;
const DAY: usize = 24 * HOUR;
const HOUR: usize = 60;

/// How long an instance runs.
const RUNS: usize = 10;

/// The backlog and the rate at the end of a minute.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Moment {
    /// How long the backlog needs, s.
    needed_seconds: f64,
    /// How many of the starts are admitted, %.
    rate: f64,
    /// Starts that were turned away and come again.
    waiting: usize,
}

/// What has become of all starts.
#[derive(Debug, Default)]
struct Outcome {
    moments: Vec<Moment>,
    /// Starts that came, and intervals that their instances make.
    starts: usize,
    intervals: usize,
    /// Intervals that fell due.
    sampled: usize,
}

/// Starts that come in a minute.
fn starts(minute: usize) -> usize {
    let hour = (minute % DAY) as f64 / HOUR as f64;
    let distance = (hour - 13.0) / 5.0;
    let peak = 200.0 * (1.0 - distance * distance).max(0.0);
    let spike = DAY + 20 * HOUR..DAY + 20 * HOUR + 10;
    let spike = if spike.contains(&minute) { 600 } else { 0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 200"
    )]
    let peak = peak as usize;
    120 + peak + spike
}

/// Intervals that Abacus takes in a minute.
fn capacity(minute: usize) -> usize {
    let slow = 2 * DAY + 4 * HOUR..2 * DAY + 6 * HOUR;
    if slow.contains(&minute) { 150 } else { 300 }
}

/// A start that was turned away.
struct Waiting {
    place: StartPlace,
    started: usize,
}

/// Goes through the three days.
fn run(controller: Option<ControllerSettings>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut due_at = vec![0_usize; MINUTES + DAY];
    let (mut waiting, mut backlog): (Vec<Waiting>, usize) = (Vec::new(), 0);
    let (mut memory, mut rate) = (ControllerMemory::default(), Percent::ALL);
    for minute in 0..MINUTES {
        let now = moment(minute);
        for number in 0..starts(minute) {
            outcome.starts += 1;
            outcome.intervals += intervals(minute).len();
            let place = place(&format!("start-{minute}-{number}"));
            let started = minute;
            waiting.push(Waiting { place, started });
        }
        waiting.retain(|start| {
            let is_in = start.place.admitted_at(now, rate) == Some(now);
            if is_in {
                for due in intervals(start.started) {
                    due_at[due.max(minute)] += 1;
                }
            }
            !is_in
        });
        backlog += due_at[minute];
        outcome.sampled += due_at[minute];
        backlog -= backlog.min(capacity(minute));
        let speed = capacity(minute) as f64 / 60.0;
        outcome.moments.push(Moment {
            needed_seconds: backlog as f64 / speed,
            rate: 100.0 * rate.share(),
            waiting: waiting.len(),
        });
        if let Some(settings) = &controller {
            let load = Load {
                due: backlog as f64,
                at_least: false,
                rate: speed,
            };
            let step = settings.step(memory, load, 60.0);
            (memory, rate) = (step.memory, step.rate);
        }
    }
    outcome.sampled += due_at[MINUTES..].iter().sum::<usize>();
    outcome
}

/// When the intervals of an instance that starts in this minute fall due.
fn intervals(started: usize) -> Vec<usize> {
    let stop = started + RUNS;
    let hours = started / HOUR + 1..=stop / HOUR;
    let boundaries = hours.map(|hour| hour * HOUR).filter(|at| *at < stop);
    boundaries.chain([stop]).collect()
}

fn moment(minute: usize) -> Timestamp {
    let minute = i64::try_from(minute).unwrap_or(i64::MAX / 60_000);
    Timestamp::clamped(1_773_100_800_000 + minute * 60_000)
}

fn place(id: &str) -> StartPlace {
    let target = Target::from_store(["o", "s", "c", "r", "p", "i"]);
    StartPlace::of(Some(&EventId::from_store(id)), &target)
}

fn controlled() -> (Outcome, Outcome) {
    let settings = ControllerSettings {
        enabled: true,
        ..ControllerSettings::default()
    };
    (run(None), run(Some(settings)))
}

/// How often the rate turns, by at least a quarter of all starts.
fn turns(moments: &[Moment]) -> usize {
    let (mut turns, mut extreme, mut direction) = (0, moments[0].rate, 0.0);
    for moment in moments {
        let change = moment.rate - extreme;
        if change.abs() >= 25.0 && change * direction <= 0.0 {
            (turns, direction) = (turns + 1, change.signum());
        }
        if change * direction > 0.0 || change.abs() >= 25.0 {
            extreme = moment.rate;
        }
    }
    turns
}

#[test]
fn the_controller_keeps_the_backlog_near_its_target_and_does_not_swing() {
    let (without, with) = controlled();
    let most = |outcome: &Outcome| {
        let needed = outcome.moments.iter().map(|moment| moment.needed_seconds);
        needed.fold(0.0, f64::max)
    };
    assert!(most(&without) > 3_000.0, "{}", most(&without));
    // What falls due at the end of an hour comes on top: ten minutes of starts, which is as much
    // again as the target.
    assert!(most(&with) < 2.0 * 600.0, "{}", most(&with));
    for day in 0..3 {
        let peak = &with.moments[day * DAY + 12 * HOUR..day * DAY + 18 * HOUR];
        let sum: f64 = peak.iter().map(|moment| moment.needed_seconds).sum();
        let mean = sum / peak.len() as f64;
        assert!((300.0..=750.0).contains(&mean), "{mean} on day {day}");
        let turns = turns(&with.moments[day * DAY..(day + 1) * DAY]);
        assert!(turns <= 5, "{turns} on day {day}");
    }
}

#[test]
fn everything_is_let_in_again_soon_after_a_peak() {
    let (_, with) = controlled();
    for day in 0..3 {
        let is_open = |minute: usize| with.moments[minute].rate >= 100.0;
        let begin = day * DAY + 18 * HOUR;
        let open = (begin..begin + 6 * HOUR).find(|minute| (*minute..minute + 30).all(is_open));
        let open = open.expect("it is open again on the same evening");
        assert!(open - begin <= 90, "{} minutes", open - begin);
        assert_eq!(with.moments[open + 30].waiting, 0);
    }
}

#[test]
fn nothing_is_lost_by_being_turned_away() {
    let (without, with) = controlled();
    assert_eq!(with.moments.last().map(|moment| moment.waiting), Some(0));
    for outcome in [&without, &with] {
        assert_eq!(outcome.sampled, outcome.intervals);
    }
    assert_eq!(without.starts, with.starts);
}
