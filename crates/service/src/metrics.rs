//! `GET /metrics`: the metrics of a program, as `OpenMetrics`.
//!
//! Metrics are read at each request. They may need a token ([`Monitors`]).

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use sampler_metrics::Registry;

use crate::problem::Problem;
use crate::security::Monitors;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The route `GET /metrics`, for `monitors` alone.
pub fn routes(registry: &Arc<Registry>, monitors: Monitors) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .with_state((Arc::clone(registry), monitors))
}

async fn metrics(
    State((registry, monitors)): State<(Arc<Registry>, Monitors)>,
    headers: HeaderMap,
) -> Response {
    if let Err(problem) = monitors.admit_to_metrics(&headers).await {
        return problem.into_response();
    }
    match registry.encode() {
        Ok(text) => ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(fmt::Error) => Problem::internal().into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::{Request, StatusCode};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(access: Monitors) -> (StatusCode, String) {
        let registry = Arc::new(Registry::new("sampler-worker", "1.2.3"));
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let response = routes(&registry, access).oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn are_told_to_anybody_where_nothing_is_secured() {
        let (status, text) = ask(Monitors::Anybody).await;
        assert_eq!(status, StatusCode::OK);
        let build = "sampler_build_info{program=\"sampler-worker\",version=\"1.2.3\"} 1\n";
        assert!(text.contains(build) && text.ends_with("# EOF\n"), "{text}");
    }
}
