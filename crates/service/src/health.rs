//! The health of a program.
//!
//! A loop reports its *progress* with beats; where it hangs, the last one grows old. A *check* is made at each
//! request. Both are evaluated each time, so a program becomes healthy again by itself. *Warnings* name defects that
//! do not make the program unhealthy.
//!
//! - `GET /healthcheck` is `{"healthy":true}`, with the names of `warnings` if there are any, or a
//!   problem that names the probes that fail. It may need a token ([`Authenticator`]).
//! - `GET /healthz/live` needs nothing but a program that still answers.
//! - `GET /healthz/ready` fails with the probes, too, and once the program was asked to stop. It
//!   needs no token, so it does not name the probes that fail.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use futures_util::future::{BoxFuture, FutureExt, join_all, ready};
use http::HeaderMap;
use sampler_api::Healthy;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::lifecycle::Shutdown;
use crate::problem::{Problem, kinds};
use crate::security::Authenticator;

/// How long a probe may take before it counts as failed.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// All probes of a program. A clone has the probes that existed when it was cloned.
#[derive(Clone)]
pub struct Health {
    shutdown: Shutdown,
    probes: Vec<Probe>,
}

#[derive(Clone)]
struct Probe {
    /// For the answers.
    name: &'static str,
    is_well: Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>,
    is_warning: bool,
}

impl Health {
    /// A program that is well as long as nothing else is said.
    pub fn new(shutdown: Shutdown) -> Self {
        let probes = Vec::new();
        Self { shutdown, probes }
    }

    /// Adds a probe that is well for `threshold` after each beat of what is returned, and after now.
    pub fn progress(&mut self, name: &'static str, threshold: Duration) -> Progress {
        let progress = Progress(Arc::new(Mutex::new(Instant::now())));
        let reported = progress.clone();
        self.check(name, move || ready(reported.last().elapsed() <= threshold));
        progress
    }

    /// Adds a probe that is well where `is_well` yields true within two seconds. It may be dropped then.
    pub fn check<F>(&mut self, name: &'static str, is_well: impl Fn() -> F + Send + Sync + 'static)
    where
        F: Future<Output = bool> + Send + 'static,
    {
        self.probes.push(Probe {
            name,
            is_well: Arc::new(move || is_well().boxed()),
            is_warning: false,
        });
    }

    /// Adds a warning, which is active while `stands` yields true.
    pub fn warning(
        &mut self,
        name: &'static str,
        stands: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        self.probes.push(Probe {
            name,
            is_well: Arc::new(move || ready(!stands()).boxed()),
            is_warning: true,
        });
    }

    /// The names of the probes that fail, or of the warnings.
    async fn failing(&self, warnings: bool) -> Vec<&'static str> {
        let probes = self.probes.iter().filter(|it| it.is_warning == warnings);
        let asked = probes.map(async |probe| {
            let is_well = timeout(CHECK_TIMEOUT, (probe.is_well)()).await;
            (!is_well.unwrap_or(false)).then_some(probe.name)
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// The routes of the probes; `GET /healthcheck` is for `monitors` alone.
    pub fn routes(self, monitors: Authenticator) -> Router {
        let live = async || Json(json!({"status": "live"}));
        Router::new()
            .route("/healthcheck", get(healthcheck))
            .route("/healthz/live", get(live))
            .route("/healthz/ready", get(is_ready))
            .with_state((self, monitors))
    }
}

/// Reports the progress of something that must never hang. Clones are the same. It goes by a clock
/// that does not step: a correction of the machine's clock is not a standstill, and hides none.
#[derive(Clone)]
pub struct Progress(Arc<Mutex<Instant>>);

impl Progress {
    pub fn beat(&self) {
        *self.last() = Instant::now();
    }

    fn last(&self) -> MutexGuard<'_, Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn healthcheck(
    State((health, monitors)): State<(Health, Authenticator)>,
    headers: HeaderMap,
) -> Result<Json<Healthy>, Problem> {
    monitors.admit_to_health(&headers).await?;
    let failing = health.failing(false).await;
    if !failing.is_empty() {
        let detail = format!("These fail: {}.", failing.join(", "));
        let problem = Problem::new(&kinds::UNHEALTHY, detail);
        return Err(problem.member("healthy", false).member("probes", failing));
    }
    let warnings = health.failing(true).await;
    // Exactly the answer of the original Sampler, if there are no warnings.
    Ok(Json(Healthy {
        healthy: true,
        warnings: warnings.into_iter().map(str::to_owned).collect(),
    }))
}

async fn is_ready(
    State((health, _)): State<(Health, Authenticator)>,
) -> Result<Json<Value>, Problem> {
    if health.shutdown.is_stopping() {
        let detail = "The program was asked to stop and takes in nothing new.";
        return Err(Problem::new(&kinds::SHUTTING_DOWN, detail));
    }
    if !health.failing(false).await.is_empty() {
        let detail = "The program is unhealthy. The health check says more.";
        return Err(Problem::new(&kinds::UNHEALTHY, detail));
    }
    Ok(Json(json!({"status": "ready"})))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tokio::time::advance;
    use tower::ServiceExt;

    use super::*;

    fn healthy() -> Health {
        Health::new(Shutdown::default())
    }

    async fn ask(health: &Health, path: &str) -> (u16, Value) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = health
            .clone()
            .routes(Authenticator::none())
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
    async fn a_check_that_hangs_fails() {
        let mut health = healthy();
        health.check("database", std::future::pending);
        assert_eq!(health.failing(false).await, ["database"]);
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
