//! The database's clock: the one clock by which all instances decide.

use std::sync::{Arc, Mutex};

use sampler_domain::Timestamp;
use sampler_service::environment::Clock;
use sampler_store::{Operating, StoreError};
use tokio::time::Instant;

/// If the clock of the machine has gone on by so much more or less than the one that never steps, the machine
/// has slept, or its clock was set, ms.
const SLEPT: i64 = 5_000;

/// The time of the database, as its answers have told it. Between two answers it goes on by a clock that never
/// steps.
pub struct DatabaseClock {
    own: Arc<dyn Clock>,
    began: Instant,
    reading: Mutex<Option<Reading>>,
}

#[derive(Clone, Copy)]
struct Reading {
    /// The database's time less the time since `began`, ms since epoch.
    offset: i64,
    received: Instant,
    /// What the clock of the machine showed then.
    own: Timestamp,
}

impl DatabaseClock {
    /// Shows the time of the machine until the database has told its own.
    pub fn new(own: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            own,
            began: Instant::now(),
            reading: Mutex::default(),
        })
    }

    /// Notes what the database answered to a request that was sent then. The answer may be as old as the
    /// request. Where that leaves room, the time stays as it is; otherwise it is corrected no further than is
    /// sure, and at first the answer counts as new: a time that is late does no harm.
    pub fn note(&self, sent: Instant, now: Timestamp) {
        let received = Instant::now();
        let offset_at = |at: Instant| now.as_millis() - millis_between(self.began, at);
        let (least, most) = (offset_at(received), offset_at(sent));
        let mut reading = self.reading.lock().expect("nobody panics with it");
        *reading = Some(Reading {
            offset: reading.map_or(least, |last| last.offset.clamp(least, most)),
            received,
            own: self.own.now(),
        });
    }

    /// Asks the database.
    pub async fn read(&self, store: &dyn Operating) -> Result<(), StoreError> {
        let sent = Instant::now();
        let now = store.time().await?;
        self.note(sent, now);
        Ok(())
    }

    /// Whether the database has told its time, and the machine has not slept since.
    pub fn is_sure(&self) -> bool {
        self.reading().is_some_and(|last| {
            let by_own = self.own.now().since(last.own);
            let passed = millis_between(last.received, Instant::now());
            (by_own - passed).abs() < SLEPT
        })
    }

    fn reading(&self) -> Option<Reading> {
        *self.reading.lock().expect("nobody panics with it")
    }
}

impl Clock for DatabaseClock {
    /// No clock shows [`Timestamp::MAX`], which stands for "never".
    fn now(&self) -> Timestamp {
        let now = self.reading().map_or_else(
            || self.own.now(),
            |last| {
                let passed = millis_between(self.began, Instant::now());
                Timestamp::clamped(last.offset.saturating_add(passed))
            },
        );
        now.min(Timestamp::MAX.plus(-1))
    }
}

fn millis_between(from: Instant, to: Instant) -> i64 {
    let length = to.saturating_duration_since(from);
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::time::Duration;

    use super::*;

    const NOON: Timestamp = Timestamp::clamped(1_773_144_000_000);

    /// The clock of the machine.
    struct Own {
        began: Instant,
        ahead: AtomicI64,
    }

    impl Clock for Own {
        fn now(&self) -> Timestamp {
            let passed = millis_between(self.began, Instant::now());
            NOON.plus(passed + self.ahead.load(Ordering::Relaxed))
        }
    }

    fn clocks(ahead: i64) -> (Arc<Own>, Arc<DatabaseClock>) {
        let own = Arc::new(Own {
            began: Instant::now(),
            ahead: AtomicI64::new(ahead),
        });
        let clock = DatabaseClock::new(Arc::clone(&own) as Arc<dyn Clock>);
        (own, clock)
    }

    async fn pass(millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_the_machine_counts_for_nothing_once_the_database_has_answered() {
        let (own, clock) = clocks(3_600_000);
        assert!(!clock.is_sure());
        assert_eq!(clock.now(), NOON.plus(3_600_000));
        clock.note(Instant::now(), NOON);
        pass(1_000).await;
        own.ahead.store(-86_400_000, Ordering::Relaxed);
        assert_eq!(clock.now(), NOON.plus(1_000));
        assert!(!clock.is_sure(), "it may have slept");
        clock.note(Instant::now(), NOON.plus(1_000));
        assert!(clock.is_sure());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_took_long_corrects_no_more_than_is_sure() {
        let (_, clock) = clocks(0);
        let sent = Instant::now();
        pass(400).await;
        clock.note(sent, NOON.plus(100));
        assert_eq!(clock.now(), NOON.plus(100), "at first it is late");
        let sent = Instant::now();
        pass(1_000).await;
        clock.note(sent, NOON.plus(1_350));
        assert_eq!(clock.now(), NOON.plus(1_350), "at least so late");
        let sent = Instant::now();
        pass(1_000).await;
        clock.note(sent, NOON.plus(1_500));
        assert_eq!(clock.now(), NOON.plus(2_350), "that may be so");
        clock.note(Instant::now(), NOON);
        assert_eq!(clock.now(), NOON, "it was set");
    }
}
