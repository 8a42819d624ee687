//! What every router answers where none of its routes does.

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::trace;
use crate::problem::{Problem, ProblemType};

/// The same router, complete: paths it does not know, methods it does not offer, and handlers
/// that panic are answered with problem documents; and each line that is logged for a request has
/// the ids that it came with. Layers added afterwards see those answers, too.
pub fn with_fallbacks(router: Router) -> Router {
    router
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(middleware::from_fn(catch_panic))
        .layer(middleware::from_fn(trace::with_ids))
}

pub(crate) async fn not_found() -> Problem {
    Problem::new(
        ProblemType::NotFound,
        "None of the addresses that are served here is this one.",
    )
}

/// The router adds `Allow`: it knows what the path offers.
pub(crate) async fn method_not_allowed() -> Problem {
    let detail = "This address does not offer the method; the header Allow names those it does.";
    Problem::new(ProblemType::MethodNotAllowed, detail)
}

/// A handler that panics costs one answer, not the connection. The panic hook has logged it.
async fn catch_panic(request: Request, next: Next) -> Response {
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    answer.unwrap_or_else(|_| Problem::internal().into_response())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::{get, post};
    use http_body_util::BodyExt;
    use serde_json::Value;
    use tower::ServiceExt;

    use super::*;

    async fn answer(method: &str, path: &str) -> (Response, Value) {
        let router = Router::new()
            .route("/two", get(async || "got").post(async || "posted"))
            .route("/broken", post(async || -> () { panic!("on purpose") }));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::empty())
            .unwrap();
        let (parts, body) = with_fallbacks(router)
            .oneshot(request)
            .await
            .unwrap()
            .into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let json = serde_json::from_slice(&bytes).unwrap_or_default();
        (Response::from_parts(parts, Body::empty()), json)
    }

    #[tokio::test]
    async fn what_is_served_is_left_alone() {
        let (response, _) = answer("POST", "/two").await;
        assert_eq!(response.status(), 200);
    }

    #[tokio::test]
    async fn an_unknown_path_is_a_problem() {
        let (response, problem) = answer("GET", "/three").await;
        assert_eq!(response.status(), 404);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(problem["type"], "urn:sampler:problem:not-found");
    }

    #[tokio::test]
    async fn a_method_that_is_not_offered_is_a_problem_that_names_those_that_are() {
        let (response, problem) = answer("DELETE", "/two").await;
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers()["allow"], "GET,HEAD,POST");
        assert_eq!(problem["type"], "urn:sampler:problem:method-not-allowed");
    }

    #[tokio::test]
    async fn a_panic_is_a_problem_that_reveals_nothing() {
        let (response, problem) = answer("POST", "/broken").await;
        assert_eq!(response.status(), 500);
        assert_eq!(problem["type"], "urn:sampler:problem:internal");
        assert!(!problem.to_string().contains("purpose"), "{problem}");
    }
}
