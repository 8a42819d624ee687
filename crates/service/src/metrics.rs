//! `GET /metrics`: the metrics of a program, as `OpenMetrics`.
//!
//! Metrics are read at each request. If tokens are needed ([`MetricsAccess`]), a caller needs the scope
//! to read everything, or the credentials of the health check. A port of their own
//! ([`serve_apart`]) needs neither.

use std::fmt;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use sampler_metrics::Registry;
use sampler_oauth::BasicCheck;

use crate::http::{Port, serve};
use crate::lifecycle::Shutdown;
use crate::problem::Problem;
use crate::security::{Authenticator, credentials};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
pub enum MetricsAccess {
    /// Every caller that reaches the program.
    Anybody,
    /// Callers with a token or credentials that pass.
    Checked(Checks),
    /// No caller: credentials are needed, and the program cannot check them.
    Nobody,
}

/// The checks of tokens and credentials. There is at least one.
#[derive(Clone)]
pub struct Checks {
    pub tokens: Option<Authenticator>,
    /// Checks the credentials that the health check takes.
    pub credentials: Option<Arc<BasicCheck>>,
}

/// The route `GET /metrics`, or no route if no caller may read the metrics.
pub fn routes(registry: &Arc<Registry>, access: MetricsAccess) -> Router {
    let checks = match access {
        MetricsAccess::Anybody => None,
        MetricsAccess::Checked(checks) => Some(checks),
        MetricsAccess::Nobody => return Router::new(),
    };
    let registry = Arc::clone(registry);
    let state = RouteState { registry, checks };
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(state)
}

/// Serves the metrics on a port of their own, without credentials. Does nothing if there is no such
/// port.
pub async fn serve_apart(
    port: Option<Port>,
    registry: &Arc<Registry>,
    shutdown: &Shutdown,
) -> io::Result<()> {
    match port {
        Some(port) => serve(port, routes(registry, MetricsAccess::Anybody), shutdown).await,
        None => Ok(()),
    }
}

#[derive(Clone)]
struct RouteState {
    registry: Arc<Registry>,
    checks: Option<Checks>,
}

async fn metrics(State(state): State<RouteState>, headers: HeaderMap) -> Response {
    if let Some(checks) = &state.checks
        && let Err(problem) = checks.admit(&headers).await
    {
        return problem.into_response();
    }
    match state.registry.encode() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(fmt::Error) => Problem::internal().into_response(),
    }
}

impl Checks {
    /// Admits a request with a token that may read everything, or with the credentials.
    async fn admit(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match (&self.tokens, &self.credentials) {
            (Some(tokens), None) => read_by_token(tokens, headers).await,
            (Some(tokens), Some(_)) if shows_token(headers) => read_by_token(tokens, headers).await,
            (_, Some(check)) => credentials(headers, check).await,
            (None, None) => Err(Problem::internal()),
        }
    }
}

async fn read_by_token(tokens: &Authenticator, headers: &HeaderMap) -> Result<(), Problem> {
    tokens.refresh_if_old().await;
    tokens.grant(headers).await?.require_read_everything()
}

fn shows_token(headers: &HeaderMap) -> bool {
    headers
        .get(AUTHORIZATION)
        .and_then(|value| value.as_bytes().get(..7))
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(access: MetricsAccess) -> (StatusCode, String) {
        let registry = Arc::new(Registry::new("sampler-worker", "1.2.3"));
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let response = routes(&registry, access).oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn are_told_to_anybody_where_nothing_is_secured() {
        let (status, text) = ask(MetricsAccess::Anybody).await;
        assert_eq!(status, StatusCode::OK);
        let build = "sampler_build_info{program=\"sampler-worker\",version=\"1.2.3\"} 1\n";
        assert!(text.contains(build) && text.ends_with("# EOF\n"), "{text}");
    }

    #[tokio::test]
    async fn are_not_served_where_nobody_could_check_who_asks() {
        assert_eq!(ask(MetricsAccess::Nobody).await.0, StatusCode::NOT_FOUND);
    }
}
