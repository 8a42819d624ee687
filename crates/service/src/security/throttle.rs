//! Lines in the log that anybody can cause, at a bounded rate.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines in one period; those beyond are counted.
const LINES: u32 = 20;

/// How long a period is.
const PERIOD: Duration = Duration::from_secs(10);

/// Allows so many log lines in a period.
#[derive(Debug)]
pub struct Throttle {
    lines: u32,
    length: Duration,
    period: Mutex<Option<Period>>,
}

#[derive(Debug)]
struct Period {
    began: Instant,
    lines: u32,
    suppressed: u64,
}

impl Default for Throttle {
    fn default() -> Self {
        Self::new(LINES, PERIOD)
    }
}

impl Throttle {
    /// Allows `lines` log lines in each period of this `length`.
    pub const fn new(lines: u32, length: Duration) -> Self {
        Self {
            lines,
            length,
            period: Mutex::new(None),
        }
    }

    /// Whether a line may be logged, and how many were not since the one before. To be called for
    /// each line.
    pub fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        let mut period = self.period.lock().unwrap_or_else(PoisonError::into_inner);
        let period = period.get_or_insert(Period {
            began: now,
            lines: 0,
            suppressed: 0,
        });
        if now.duration_since(period.began) >= self.length {
            (period.began, period.lines) = (now, 0);
        }
        if period.lines < self.lines {
            period.lines += 1;
            Some(std::mem::take(&mut period.suppressed))
        } else {
            period.suppressed += 1;
            None
        }
    }

    /// Whether a period has begun, and is not over.
    pub fn is_counting(&self) -> bool {
        let period = self.period.lock().unwrap_or_else(PoisonError::into_inner);
        period
            .as_ref()
            .is_some_and(|period| period.began.elapsed() < self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_a_few_lines_that_say_how_many_there_were() {
        let throttle = Throttle::default();
        let admitted = (0..1_000).filter(|_| throttle.admit() == Some(0)).count();
        assert_eq!(admitted, 20);
        tokio::time::advance(PERIOD).await;
        assert_eq!(throttle.admit(), Some(980));
        assert_eq!(throttle.admit(), Some(0));
    }
}
