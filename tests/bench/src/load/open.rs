//! The open loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::Semaphore;

use super::{Outcome, Record, Sender, Span, Timing, observe};
use crate::event::Feed;
use crate::process::WatchedProcesses;

/// The shortest time between two readings of the clock.
const TICK: Duration = Duration::from_micros(200);

/// When which event is to be sent.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    begin: Instant,
    per_second: f64,
    events: u64,
}

impl Schedule {
    fn new(per_second: f64, timing: Timing) -> Self {
        let length = timing.warm_up + timing.measured;
        Self {
            begin: Instant::now(),
            per_second,
            events: count(per_second * length.as_secs_f64()),
        }
    }

    fn moment_of(&self, index: u64) -> Instant {
        self.begin + Duration::from_secs_f64(index as f64 / self.per_second)
    }

    /// How many events are to have been sent by then.
    fn due_by(&self, moment: Instant) -> u64 {
        let elapsed = moment.saturating_duration_since(self.begin);
        count(elapsed.as_secs_f64() * self.per_second).min(self.events)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate times a time, both positive"
)]
fn count(events: f64) -> u64 {
    events as u64
}

/// How many events a run sends.
pub(crate) fn events_of(per_second: f64, timing: Timing) -> u64 {
    Schedule::new(per_second, timing).events
}

/// Sends events at a constant rate, each by the first free sender. An event for which none
/// is free waits, and the wait is part of its latency.
pub(crate) async fn run<S: Sender>(
    senders: Vec<S>,
    feed: Feed,
    per_second: f64,
    timing: Timing,
    watch: WatchedProcesses,
) -> Result<Outcome> {
    let span = Span::beginning_now(timing);
    let schedule = Schedule::new(per_second, timing);
    let feed = Arc::new(feed.at_most(schedule.events));
    let due = Arc::new(Semaphore::new(0));
    let start = |sender| {
        let (feed, due) = (Arc::clone(&feed), Arc::clone(&due));
        tokio::spawn(drive(sender, feed, due, schedule, span))
    };
    let tasks: Vec<_> = senders.into_iter().map(start).collect();
    let leave = tasks.len();
    // A thread of its own: the timers of the runtime are no finer than a millisecond.
    let pacer = std::thread::spawn(move || pace(&schedule, &due, leave));
    let outcome = observe(tasks, watch, span).await;
    let _ = pacer.join();
    outcome
}

/// Lets events go when their time has come; at the end, lets all senders find that there are none.
fn pace(schedule: &Schedule, due: &Semaphore, senders: usize) {
    let mut gone = 0;
    while gone < schedule.events {
        let now = Instant::now();
        let next = schedule.due_by(now);
        let more = usize::try_from(next - gone).unwrap_or(0);
        due.add_permits(more);
        gone = next;
        let wait = schedule.moment_of(gone + 1).saturating_duration_since(now);
        std::thread::sleep(wait.max(TICK));
    }
    due.add_permits(senders);
}

async fn drive<S: Sender>(
    mut sender: S,
    feed: Arc<Feed>,
    due: Arc<Semaphore>,
    schedule: Schedule,
    span: Span,
) -> Record {
    let mut record = Record::default();
    loop {
        let permit = due.acquire().await.expect("it is never closed");
        permit.forget();
        let Some((index, event)) = feed.next() else {
            return record;
        };
        if let Err(error) = sender.send(&[event]).await {
            record.refused = Some(error);
            return record;
        }
        let intended = schedule.moment_of(index);
        if span.holds(intended) {
            record.note(1, intended.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Mix};

    /// Answers after a while; the first answer takes much longer.
    struct Stutter(Option<Duration>);

    impl Sender for Stutter {
        async fn send(&mut self, _: &[Event]) -> Result<()> {
            if let Some(hang) = self.0.take() {
                tokio::time::sleep(hang).await;
            }
            Ok(())
        }
    }

    const TIMING: Timing = Timing::millis(0, 500);

    #[tokio::test]
    async fn a_stall_counts_against_all_that_it_kept_waiting() {
        let hang = Duration::from_millis(250);
        let feed = Feed::new(Mix::Starts, 0, 0, 0);
        let watch = WatchedProcesses::default();
        let senders = vec![Stutter(Some(hang))];
        let outcome = run(senders, feed, 200.0, TIMING, watch).await.unwrap();
        assert_eq!(outcome.events, 100);
        // A closed loop would have seen one slow answer among a hundred. Half the events were to
        // be sent during the stall, and the mean of those waited for half of it.
        assert!(
            outcome.latencies.millis_at(0.75) > 60.0,
            "{:?}",
            outcome.latencies
        );
        assert!(outcome.latencies.millis_at(0.99) > 200.0);
    }

    #[test]
    fn events_are_evenly_spaced() {
        let schedule = Schedule::new(1000.0, TIMING);
        assert_eq!(schedule.events, 500);
        let after = |millis| schedule.due_by(schedule.begin + Duration::from_millis(millis));
        assert_eq!((after(0), after(100), after(9_000)), (0, 100, 500));
        let moment = schedule.moment_of(250).duration_since(schedule.begin);
        assert_eq!(moment.as_millis(), 250);
    }
}
