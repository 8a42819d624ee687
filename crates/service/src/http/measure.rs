//! The number and the times of requests, and the span of each in a trace.
//!
//! The labels of a metric are the route, as the router knows it, the method, if it is one of HTTP's,
//! and the status. So whatever clients send, there are only as many series as routes, methods and
//! statuses.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{Method, StatusCode};
use metrics::{counter, histogram};
use tokio::time::Instant;
use tracing::Instrument;

use super::{browser, trace};
use crate::problem::Problem;

/// The route of a path that the program does not serve.
const UNKNOWN: &str = "unknown";

/// The name of a method of HTTP. Any other is a word that a client has chosen.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::CONNECT => "CONNECT",
        Method::TRACE => "TRACE",
        _ => "other",
    }
}

/// Answers a request, counts and times it, and traces it. Each line that is logged for it has the ids that it came
/// with. A handler that panics is answered 500: the panic hook has logged it.
pub(super) async fn observe(request: Request, next: Next) -> Response {
    let began = Instant::now();
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or(UNKNOWN, MatchedPath::as_str).to_owned();
    let method = method_name(request.method());
    let is_https = browser::is_forwarded_https(request.headers());
    let ids = trace::ids(request.headers());
    // Within the span of the ids: the log knows by that one which lines a request caused.
    let span = ids.in_scope(|| trace::request_span(&request, method, &route));
    let answering = AssertUnwindSafe(next.run(request)).catch_unwind();
    let answered = answering.instrument(span.clone()).instrument(ids).await;
    let answer = answered.unwrap_or_else(|_| Problem::internal().into_response());
    trace::note_answer(&span, answer.status());
    count(route, method, answer.status(), began.elapsed());
    browser::protect(answer, is_https)
}

fn count(route: String, method: &'static str, status: StatusCode, elapsed: Duration) {
    let seconds = histogram!("sampler_http_request_duration_seconds", "route" => route.clone());
    seconds.record(elapsed);
    let status = status.as_str().to_owned();
    counter!("sampler_http_requests_total", "route" => route, "method" => method, "status" => status)
        .increment(1);
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::routing::{any, get, post};

    use super::super::{answer, complete};
    use super::*;
    use crate::metrics::Metrics;

    struct World {
        router: Router,
        metrics: Metrics,
    }

    impl World {
        fn new(metrics: Metrics) -> Self {
            let router = Router::new()
                .route("/things/{id}", get(async || "a thing"))
                .route("/broken", post(async || -> () { panic!("on purpose") }))
                .route("/v1/{*rest}", any(async || StatusCode::UNAUTHORIZED));
            let router = complete(router);
            Self { router, metrics }
        }

        async fn send(&self, method: &str, path: &str) {
            let request = Request::builder().method(method).uri(path);
            let request = request.body(Body::empty()).unwrap();
            answer(self.router.clone(), request).await;
        }

        /// The samples of a metric, without its name.
        fn samples(&self, name: &str) -> Vec<String> {
            let text = self.metrics.render();
            let of_metric = text.lines().filter_map(|line| line.strip_prefix(name));
            let mut samples: Vec<_> = of_metric.map(str::to_owned).collect();
            samples.sort_unstable();
            samples
        }
    }

    const REQUESTS: &str = "sampler_http_requests_total";

    #[tokio::test]
    async fn a_request_is_counted_and_timed_by_its_route() {
        let (recorder, metrics) = Metrics::new("sampler-receiver", "1");
        let _counting = metrics::set_default_local_recorder(&recorder);
        let world = World::new(metrics);
        world.send("GET", "/things/1").await;
        world.send("GET", "/things/2?a=b").await;
        world.send("PUT", "/things/2").await;
        let expected = [
            r#"{route="/things/{id}",method="GET",status="200"} 2"#,
            r#"{route="/things/{id}",method="PUT",status="405"} 1"#,
        ];
        assert_eq!(world.samples(REQUESTS), expected);
        let count = world.samples("sampler_http_request_duration_seconds_count");
        assert_eq!(count, [r#"{route="/things/{id}"} 3"#]);
    }

    #[tokio::test]
    async fn a_panic_is_counted_as_what_it_is_answered_with() {
        let (recorder, metrics) = Metrics::new("sampler-receiver", "1");
        let _counting = metrics::set_default_local_recorder(&recorder);
        let world = World::new(metrics);
        world.send("POST", "/broken").await;
        let expected = [r#"{route="/broken",method="POST",status="500"} 1"#];
        assert_eq!(world.samples(REQUESTS), expected);
    }

    #[tokio::test]
    async fn whatever_clients_send_there_are_no_more_series() {
        let (recorder, metrics) = Metrics::new("sampler-receiver", "1");
        let _counting = metrics::set_default_local_recorder(&recorder);
        let world = World::new(metrics);
        for number in 0..500 {
            for path in [
                format!("/{number}"),
                format!("/things/{number}"),
                format!("/things/{number}/more"),
                format!("/v1/{number}/%0A%22"),
                format!("//{number}?{number}"),
            ] {
                world.send(&format!("GET{number}"), &path).await;
            }
        }
        let expected = [
            r#"{route="/things/{id}",method="other",status="405"} 500"#,
            r#"{route="/v1/{*rest}",method="other",status="401"} 500"#,
            r#"{route="unknown",method="other",status="404"} 1500"#,
        ];
        assert_eq!(world.samples(REQUESTS), expected);
    }
}
