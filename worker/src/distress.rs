//! Pauses of sampling while the database cannot keep up. Sampling can wait; events cannot.

use std::sync::Mutex;
use std::time::Duration;

use tracing::{info, warn};

use crate::{Worker, error_chain};

/// The last measurements of the database, and the pauses that follow from them.
#[derive(Debug, Default)]
pub(crate) struct Distress(Mutex<Measurements>);

#[derive(Clone, Copy, Debug, Default)]
struct Measurements {
    /// How far a majority is behind, s.
    lag: Option<f64>,
    /// How long a write took, s.
    commit: Option<f64>,
    pauses_for_lag: bool,
    pauses_for_commit: bool,
}

impl Measurements {
    fn pauses(self) -> bool {
        self.pauses_for_lag || self.pauses_for_commit
    }
}

impl Distress {
    pub(crate) fn pauses(&self) -> bool {
        self.seen().pauses()
    }

    /// Why sampling pauses; nothing while the database keeps up.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &'static str> {
        let seen = self.seen();
        let lag = seen.pauses_for_lag.then_some("replication-lag");
        let commit = seen.pauses_for_commit.then_some("commit-time");
        lag.into_iter().chain(commit)
    }

    /// How far a majority is behind, s.
    pub(crate) fn lag(&self) -> Option<f64> {
        self.seen().lag
    }

    fn seen(&self) -> Measurements {
        *self.0.lock().expect("nobody panics with it")
    }

    /// Notes what is seen now, and returns it if that begins or ends a pause.
    fn note(&self, change: impl FnOnce(&mut Measurements)) -> Option<Measurements> {
        let mut seen = self.0.lock().expect("nobody panics with it");
        let before = seen.pauses();
        change(&mut seen);
        (seen.pauses() != before).then_some(*seen)
    }
}

impl Worker {
    /// Reads the majority commit lag again and again.
    pub(crate) async fn watch_lag(&self) {
        let bounds = self.settings.distress.lag();
        while !self.stop.is_cancelled() {
            match self.parts.replication.commit_lag().await {
                Ok(lag) => {
                    let lag = lag.map(|millis| millis as f64 / 1_000.0);
                    let changed = self.distress.note(|seen| {
                        seen.pauses_for_lag = bounds.pauses(seen.pauses_for_lag, lag);
                        seen.lag = lag;
                    });
                    log_change(changed);
                }
                Err(error) if self.steering.may_report("distress.lag_unknown") => warn!(
                    code = "distress.lag_unknown",
                    error = error_chain(&error),
                    "the database did not say how far its majority is behind"
                ),
                Err(_) => {}
            }
            self.sleep(self.periods.lag).await;
        }
    }

    /// Notes how long a write took until a majority had it, or until it failed. One that fails
    /// fast does not count.
    pub(crate) fn note_commit(&self, took: Duration, has_failed: bool) {
        let bounds = self.settings.distress.commit();
        let took = took.as_secs_f64();
        if has_failed && took <= bounds.upper {
            return;
        }
        let changed = self.distress.note(|seen| {
            seen.pauses_for_commit = bounds.pauses(seen.pauses_for_commit, Some(took));
            seen.commit = Some(took);
        });
        log_change(changed);
    }
}

/// Logs that a pause has begun or ended.
fn log_change(changed: Option<Measurements>) {
    match changed {
        Some(seen) if seen.pauses() => warn!(
            code = "distress.begun",
            lag_seconds = seen.lag,
            commit_seconds = seen.commit,
            "sampling pauses, because the database cannot keep up"
        ),
        Some(seen) => info!(
            lag_seconds = seen.lag,
            commit_seconds = seen.commit,
            "the database keeps up again: sampling resumes"
        ),
        None => {}
    }
}
