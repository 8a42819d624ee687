//! Lines in the log for what was refused: the first ones in full, at a bounded rate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sampler_domain::ClientId;
use sampler_service::security::Throttle;

/// Lines of one client about one problem in one period. Those beyond are counted, and the first line
/// of the next period has their number.
const LINES: u32 = 20;

/// How long a period is.
const PERIOD: Duration = Duration::from_mins(1);

/// Pairs of a client and a problem that have lines of their own. All others share theirs.
const PAIRS: usize = 1_000;

/// The client, if it has a token, and the name of the problem.
type Pair = (Option<String>, &'static str);

/// The lines of each client about each problem.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<BTreeMap<Pair, Arc<Throttle>>>);

impl RefusalLog {
    /// To be called for each line. `None` if it must not be logged; otherwise how many like it were
    /// left out since the last one.
    pub(crate) fn admit(&self, client: Option<&ClientId>, problem: &'static str) -> Option<u64> {
        let client = client.map(|client| client.as_str().to_owned());
        self.of((client, problem)).admit()
    }

    fn of(&self, pair: Pair) -> Arc<Throttle> {
        let mut throttles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if throttles.len() >= PAIRS && !throttles.contains_key(&pair) {
            throttles.retain(|_, throttle| throttle.is_counting());
        }
        let has_room = throttles.len() < PAIRS || throttles.contains_key(&pair);
        let pair = if has_room { pair } else { (None, "") };
        let throttle = || Arc::new(Throttle::new(LINES, PERIOD));
        Arc::clone(throttles.entry(pair).or_insert_with(throttle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_client_and_problem_has_lines_of_its_own() {
        let refusals = RefusalLog::default();
        let noisy = ClientId::new("noisy").unwrap();
        let lines = |client, problem| {
            let admitted = (0..1_000).filter(|_| refusals.admit(client, problem) == Some(0));
            admitted.count()
        };
        assert_eq!(lines(Some(&noisy), "not-found"), 20);
        assert_eq!(lines(Some(&noisy), "conflict"), 20);
        assert_eq!(lines(None, "not-found"), 20);
        tokio::time::advance(PERIOD).await;
        assert_eq!(refusals.admit(Some(&noisy), "not-found"), Some(980));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_pairs_are_remembered() {
        let refusals = RefusalLog::default();
        for _ in 0..2 {
            for number in 0..3 * PAIRS {
                let client = ClientId::new(&format!("client {number}")).unwrap();
                refusals.admit(Some(&client), "conflict");
            }
            assert!(refusals.0.lock().unwrap().len() <= PAIRS + 1);
            tokio::time::advance(PERIOD).await;
        }
    }
}
