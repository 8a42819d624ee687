//! `GET /metrics`: what a program measures, as `OpenMetrics`.
//!
//! Metrics are read when somebody asks. Where tokens are needed ([`Readers`]), they are for those
//! who may read the health.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use sampler_metrics::Registry;
use sampler_oauth::BasicCheck;

use crate::security::credentials;

/// The media type of `OpenMetrics`.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Who may read the metrics.
#[derive(Clone)]
pub enum Readers {
    /// Anybody who reaches the program.
    Anybody,
    /// Those who show credentials that pass.
    Checked(Arc<BasicCheck>),
    /// Nobody: credentials are needed, and nobody could check them.
    Nobody,
}

/// The route that tells the metrics to those who may read them.
pub fn routes(registry: &Arc<Registry>, readers: Readers) -> Router {
    let basic = match readers {
        Readers::Anybody => None,
        Readers::Checked(check) => Some(check),
        Readers::Nobody => return Router::new(),
    };
    let registry = Arc::clone(registry);
    let told = Told { registry, basic };
    Router::new()
        .route("/metrics", get(metrics))
        .with_state(told)
}

/// What the route needs.
#[derive(Clone)]
struct Told {
    registry: Arc<Registry>,
    basic: Option<Arc<BasicCheck>>,
}

async fn metrics(State(told): State<Told>, headers: HeaderMap) -> Response {
    if let Some(basic) = &told.basic
        && let Err(problem) = credentials(&headers, basic).await
    {
        return problem.into_response();
    }
    match told.registry.encode() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(fmt::Error) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(readers: Readers) -> (StatusCode, String) {
        let registry = Arc::new(Registry::new("sampler-worker", "1.2.3"));
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let response = routes(&registry, readers).oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn are_told_to_anybody_where_nothing_is_secured() {
        let (status, text) = ask(Readers::Anybody).await;
        assert_eq!(status, StatusCode::OK);
        let build = "sampler_build_info{program=\"sampler-worker\",version=\"1.2.3\"} 1\n";
        assert!(text.contains(build) && text.ends_with("# EOF\n"), "{text}");
    }

    #[tokio::test]
    async fn are_not_served_where_nobody_could_check_who_asks() {
        assert_eq!(ask(Readers::Nobody).await.0, StatusCode::NOT_FOUND);
    }
}
