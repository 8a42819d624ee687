//! The gate in front of Abacus: closed for everybody while Abacus says that it takes nothing.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Beat;

/// How long a wait at the gate goes without a sign of life: waiting as told is no standstill.
const BEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Open, or closed until some moment.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed_until: Mutex<Option<Instant>>,
}

impl Gate {
    /// Closes the gate for so long from now, unless it is closed for longer already.
    pub(crate) fn close_for(&self, length: Duration) {
        let until = Instant::now() + length;
        let mut closed_until = self.closed_until.lock().expect("nobody panics with it");
        if closed_until.is_none_or(|earlier| earlier < until) {
            *closed_until = Some(until);
        }
    }

    /// Waits until the gate is open; says whether it is, or the wait was ended by `stop`.
    pub(crate) async fn pass(&self, beat: &dyn Beat, stop: &CancellationToken) -> bool {
        while let Some(rest) = self.rest() {
            let wait = tokio::time::sleep(rest.min(BEAT_INTERVAL));
            if stop.run_until_cancelled(wait).await.is_none() {
                return false;
            }
            beat.beat();
        }
        true
    }

    /// How long the gate stays closed.
    fn rest(&self) -> Option<Duration> {
        let closed_until = *self.closed_until.lock().expect("nobody panics with it");
        closed_until?
            .checked_duration_since(Instant::now())
            .filter(|rest| !rest.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoBeat;

    #[tokio::test(start_paused = true)]
    async fn everybody_waits_for_the_longest_time_told() {
        let gate = Gate::default();
        let stop = CancellationToken::new();
        let began = Instant::now();
        assert!(gate.pass(&NoBeat, &stop).await);
        assert_eq!(began.elapsed(), Duration::ZERO);
        gate.close_for(Duration::from_secs(30));
        gate.close_for(Duration::from_secs(12));
        assert!(gate.pass(&NoBeat, &stop).await);
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_wait() {
        let gate = Gate::default();
        let stop = CancellationToken::new();
        gate.close_for(Duration::from_hours(1));
        stop.cancel();
        assert!(!gate.pass(&NoBeat, &stop).await);
    }
}
