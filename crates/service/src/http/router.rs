//! The answers of every router, whatever its routes are.

use axum::Router;
use axum::body::{Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use axum::{BoxError, middleware};
use tower::ServiceExt;

use super::measure;
use crate::problem::{Problem, kinds};

/// The same router, complete: paths that it does not know and methods that it does not offer are answered with
/// problem documents, too; requests are counted, timed and traced; and a handler that panics costs one answer, not
/// the connection.
pub fn complete(router: Router) -> Router {
    router
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(middleware::from_fn(measure::observe))
}

/// Answers a request as `router` does.
pub async fn answer<B>(router: Router, request: Request<B>) -> Response
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    match router.oneshot(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    }
}

pub async fn not_found() -> Problem {
    Problem::new(&kinds::NOT_FOUND, "There is nothing at this address.")
}

/// The router adds `Allow`: it knows what the path offers.
pub(crate) async fn method_not_allowed() -> Problem {
    let detail = "This address does not support the method; the header Allow lists those it does.";
    Problem::new(&kinds::METHOD_NOT_ALLOWED, detail)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::{get, post};
    use http_body_util::BodyExt;
    use serde_json::Value;

    use super::*;

    async fn answered(method: &str, path: &str) -> (Response, Value) {
        let router = Router::new()
            .route("/two", get(async || "got").post(async || "posted"))
            .route("/broken", post(async || -> () { panic!("on purpose") }));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::empty())
            .unwrap();
        let (parts, body) = answer(complete(router), request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let json = serde_json::from_slice(&bytes).unwrap_or_default();
        (Response::from_parts(parts, Body::empty()), json)
    }

    #[tokio::test]
    async fn what_is_served_is_left_alone() {
        let (response, _) = answered("POST", "/two").await;
        assert_eq!(response.status(), 200);
    }

    #[tokio::test]
    async fn an_unknown_path_is_a_problem() {
        let (response, problem) = answered("GET", "/three").await;
        assert_eq!(response.status(), 404);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(problem["type"], "/problems/not-found");
    }

    #[tokio::test]
    async fn a_method_that_is_not_offered_is_a_problem_that_names_those_that_are() {
        let (response, problem) = answered("DELETE", "/two").await;
        assert_eq!(response.status(), 405);
        assert_eq!(response.headers()["allow"], "GET,HEAD,POST");
        assert_eq!(problem["type"], "/problems/method-not-allowed");
    }

    #[tokio::test]
    async fn a_panic_is_a_problem_that_reveals_nothing() {
        let (response, problem) = answered("POST", "/broken").await;
        assert_eq!(response.status(), 500);
        assert_eq!(problem["type"], "/problems/internal");
        assert!(!problem.to_string().contains("purpose"), "{problem}");
    }
}
