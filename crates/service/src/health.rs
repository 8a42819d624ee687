//! The health of a program.
//!
//! There are two kinds of probes. A loop reports *progress* with a beat, which grows stale if the
//! loop hangs. A *check* is made at each request. Both are evaluated each time, so a program
//! becomes healthy again by itself.
//!
//! *Warnings* name defects that do not make the program unhealthy.
//!
//! - `GET /healthcheck` is `{"healthy":true}`, with the names of `warnings` if there are any, or a
//!   problem that names the probes that fail. It may need a token ([`Monitors`]).
//! - `GET /healthz/live` needs nothing but a program that still answers: only its failure is a
//!   reason to restart the program.
//! - `GET /healthz/ready` fails with the probes, too, and once the program was asked to stop. It
//!   needs no token, so it does not name the probes that fail.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use serde_json::json;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::lifecycle::Shutdown;
use crate::problem::{Problem, kinds};
use crate::security::Monitors;

/// How long a check may take before it counts as failed.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// All probes of a program. A clone has the probes that existed when it was cloned.
#[derive(Clone)]
pub struct Health {
    shutdown: Shutdown,
    probes: Vec<(&'static str, Probe)>,
    warnings: Vec<(&'static str, Warning)>,
}

/// Returns whether there is something that needs attention.
type Warning = Arc<dyn Fn() -> bool + Send + Sync>;

/// Something that can say whether it is well.
#[derive(Clone)]
enum Probe {
    Progress(Progress),
    Check(Arc<Check>),
}

impl Health {
    /// A program that is well as long as nothing else is said.
    pub fn new(shutdown: Shutdown) -> Self {
        Self {
            shutdown,
            probes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds a probe that is well for `threshold` after each beat of what is returned, and after
    /// now. The name is for the answers.
    pub fn progress(&mut self, name: &'static str, threshold: Duration) -> Progress {
        let progress = Progress {
            began: Instant::now(),
            last: Arc::default(),
            threshold,
        };
        self.probes.push((name, Probe::Progress(progress.clone())));
        progress
    }

    /// Adds a probe that is well where `check` yields true in time. At most one runs at a time,
    /// and one that takes too long is left to finish: it may be in the middle of something that
    /// must not be given up.
    pub fn check<C, F>(&mut self, name: &'static str, check: C)
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = bool> + Send + 'static,
    {
        let ask = Box::new(move || -> Asking { Box::pin(check()) });
        let check = Check {
            ask,
            running: Mutex::new(None),
        };
        self.probes.push((name, Probe::Check(Arc::new(check))));
    }

    /// Adds a warning, which is active while `check` yields true. It does not make the program
    /// unhealthy.
    pub fn warning(
        &mut self,
        name: &'static str,
        check: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        self.warnings.push((name, Arc::new(check)));
    }

    /// The names of the active warnings.
    pub fn standing(&self) -> Vec<&'static str> {
        let standing = self.warnings.iter().filter(|(_, stands)| stands());
        standing.map(|(name, _)| *name).collect()
    }

    pub async fn failing(&self) -> Vec<&'static str> {
        let asked = self.probes.iter().map(async |(name, probe)| {
            let well = match probe {
                Probe::Progress(progress) => progress.is_recent(),
                Probe::Check(check) => check.passes().await,
            };
            (!well).then_some(*name)
        });
        futures_util::future::join_all(asked)
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    /// The routes of the probes; `GET /healthcheck` is for `monitors` alone.
    pub fn routes(self, monitors: Monitors) -> Router {
        let named = Router::new()
            .route("/healthcheck", get(healthcheck))
            .with_state((self.clone(), monitors));
        Router::new()
            .route("/healthz/live", get(live))
            .route("/healthz/ready", get(ready))
            .with_state(self)
            .merge(named)
    }
}

/// Reports the progress of something that must never hang. Clones are the same. It goes by a clock
/// that does not step: a correction of the machine's clock is not a standstill, and hides none.
#[derive(Clone)]
pub struct Progress {
    began: Instant,
    /// The time of the last progress, in ms since it began.
    last: Arc<AtomicU64>,
    threshold: Duration,
}

impl Progress {
    pub fn beat(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    fn is_recent(&self) -> bool {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last) <= self.threshold
    }
}

/// The answer to a check, on its way.
type Asking = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A check, and its run that is not finished.
struct Check {
    ask: Box<dyn Fn() -> Asking + Send + Sync>,
    running: Mutex<Option<JoinHandle<bool>>>,
}

impl Check {
    async fn passes(&self) -> bool {
        let answer = async {
            let mut running = self.running.lock().await;
            let answer = running
                .get_or_insert_with(|| tokio::spawn((self.ask)()))
                .await;
            *running = None;
            // One that panicked has not passed.
            answer.unwrap_or(false)
        };
        timeout(CHECK_TIMEOUT, answer).await.unwrap_or(false)
    }
}

async fn healthcheck(
    State((health, monitors)): State<(Health, Monitors)>,
    headers: HeaderMap,
) -> Response {
    if let Err(problem) = monitors.admit_to_health(&headers).await {
        return problem.into_response();
    }
    match unhealthy(&health).await {
        None => Json(healthy(&health.standing())).into_response(),
        Some(problem) => problem.into_response(),
    }
}

/// Exactly the answer of the original Sampler, if there are no warnings.
fn healthy(warnings: &[&str]) -> sampler_api::Healthy {
    sampler_api::Healthy {
        healthy: true,
        warnings: warnings.iter().map(|&name| name.to_owned()).collect(),
    }
}

async fn live() -> Response {
    Json(json!({"status": "live"})).into_response()
}

async fn ready(State(health): State<Health>) -> Response {
    if health.shutdown.is_stopping() {
        let detail = "The program was asked to stop and takes in nothing new.";
        return Problem::new(&kinds::SHUTTING_DOWN, detail).into_response();
    }
    if health.failing().await.is_empty() {
        return Json(json!({"status": "ready"})).into_response();
    }
    let detail = "The program is unhealthy. The health check says more.";
    Problem::new(&kinds::UNHEALTHY, detail).into_response()
}

async fn unhealthy(health: &Health) -> Option<Problem> {
    let failing = health.failing().await;
    if failing.is_empty() {
        return None;
    }
    let detail = format!("These fail: {}.", failing.join(", "));
    let problem = Problem::new(&kinds::UNHEALTHY, detail);
    Some(problem.member("healthy", false).member("probes", failing))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tokio::time::advance;
    use tower::ServiceExt;

    use super::*;

    fn healthy() -> Health {
        Health::new(Shutdown::new())
    }

    async fn ask(health: &Health, path: &str) -> (u16, Value) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = health
            .clone()
            .routes(Monitors::Anybody)
            .oneshot(request)
            .await
            .unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn answers_as_the_original_does_where_all_is_well() {
        let mut health = healthy();
        let _progress = health.progress("planning", Duration::from_mins(1));
        health.check("database", async || true);
        assert_eq!(
            ask(&health, "/healthcheck").await,
            (200, json!({"healthy": true}))
        );
        assert_eq!(
            ask(&health, "/healthz/live").await,
            (200, json!({"status": "live"}))
        );
        assert_eq!(
            ask(&health, "/healthz/ready").await,
            (200, json!({"status": "ready"}))
        );
    }

    #[tokio::test]
    async fn a_warning_is_told_and_fails_nothing() {
        let mut health = healthy();
        let stands = Arc::new(AtomicBool::new(true));
        let asked = stands.clone();
        health.warning("clock", move || asked.load(Ordering::Relaxed));
        let told = json!({"healthy": true, "warnings": ["clock"]});
        assert_eq!(ask(&health, "/healthcheck").await, (200, told));
        assert_eq!(ask(&health, "/healthz/ready").await.0, 200);
        stands.store(false, Ordering::Relaxed);
        let nothing = json!({"healthy": true});
        assert_eq!(ask(&health, "/healthcheck").await, (200, nothing));
    }

    /// Paused, tokio's clock goes by hand. The clock of the machine has no say: it may step.
    #[tokio::test(start_paused = true)]
    async fn stale_progress_fails_and_recovers_with_the_next_beat() {
        let mut health = healthy();
        let progress = health.progress("planning", Duration::from_mins(1));
        let _other = health.progress("cleaning", Duration::from_mins(10));
        advance(Duration::from_mins(1)).await;
        assert_eq!(
            ask(&health, "/healthcheck").await.0,
            200,
            "the threshold itself is well"
        );
        advance(Duration::from_millis(1)).await;
        let (status, problem) = ask(&health, "/healthcheck").await;
        assert_eq!(status, 503);
        assert_eq!(problem["type"], "/problems/unhealthy");
        assert_eq!(problem["healthy"], false);
        assert_eq!(problem["probes"], json!(["planning"]));
        assert_eq!(ask(&health, "/healthz/ready").await.0, 503);
        assert_eq!(ask(&health, "/healthz/live").await.0, 200);
        progress.beat();
        assert_eq!(ask(&health, "/healthcheck").await.0, 200);
    }

    #[tokio::test]
    async fn a_check_is_asked_each_time() {
        let mut health = healthy();
        let well = Arc::new(AtomicBool::new(false));
        let answer = well.clone();
        health.check("database", move || {
            let answer = answer.clone();
            async move { answer.load(Ordering::Relaxed) }
        });
        let (status, problem) = ask(&health, "/healthcheck").await;
        assert_eq!((status, &problem["probes"]), (503, &json!(["database"])));
        assert_eq!(ask(&health, "/healthz/live").await.0, 200);
        well.store(true, Ordering::Relaxed);
        assert_eq!(ask(&health, "/healthcheck").await.0, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_that_hangs_fails_and_is_neither_given_up_nor_doubled() {
        let mut health = healthy();
        let (started, finished) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counters = (started.clone(), finished.clone());
        health.check("database", move || {
            let (started, finished) = counters.clone();
            async move {
                started.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(CHECK_TIMEOUT * 5 / 2).await;
                finished.fetch_add(1, Ordering::Relaxed);
                true
            }
        });
        assert_eq!(health.failing().await, ["database"]);
        assert_eq!(health.failing().await, ["database"]);
        assert_eq!(started.load(Ordering::Relaxed), 1);
        assert!(
            health.failing().await.is_empty(),
            "it answers in the third period"
        );
        assert_eq!(finished.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_check_that_panics_fails() {
        let mut health = healthy();
        health.check("database", async || panic!("on purpose"));
        assert_eq!(health.failing().await, ["database"]);
    }

    #[tokio::test]
    async fn who_was_asked_to_stop_is_not_ready_but_well() {
        let health = healthy();
        health.shutdown.begin();
        let (status, problem) = ask(&health, "/healthz/ready").await;
        assert_eq!(status, 503);
        assert_eq!(problem["type"], "/problems/shutting-down");
        assert_eq!(ask(&health, "/healthcheck").await.0, 200);
    }
}
