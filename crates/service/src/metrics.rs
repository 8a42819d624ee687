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
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
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

/// The metrics of a program.
pub struct Metrics {
    registry: Registry,
    readers: Readers,
}

impl Metrics {
    /// The metrics that every program has.
    pub fn new(program: &'static str, version: &'static str, readers: Readers) -> Self {
        let mut registry = Registry::default();
        let build = Info::new(vec![("program", program), ("version", version)]);
        registry.register("sampler_build", "Which program this is", build);
        Self { registry, readers }
    }

    /// Adds a gauge that is read when somebody asks; it is left out while it has no value.
    pub fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Option<f64> + Send + Sync + 'static,
    ) {
        let read = Box::new(read);
        let gauge = Gauge { name, help, read };
        self.registry.register_collector(Box::new(gauge));
    }

    /// Adds a counter that is read when somebody asks. Its name gets the suffix `_total`.
    pub fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let read = Box::new(read);
        let counter = Counter { name, help, read };
        self.registry.register_collector(Box::new(counter));
    }

    /// The route that tells them.
    pub fn routes(self) -> Router {
        let basic = match self.readers {
            Readers::Anybody => None,
            Readers::Checked(check) => Some(check),
            Readers::Nobody => return Router::new(),
        };
        let registry = Arc::new(self.registry);
        let told = Told { registry, basic };
        Router::new()
            .route("/metrics", get(metrics))
            .with_state(told)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
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
    let mut body = String::new();
    match text::encode(&mut body, &told.registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], body).into_response(),
        Err(fmt::Error) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A gauge that is read when somebody asks.
struct Gauge {
    name: &'static str,
    help: &'static str,
    read: Box<dyn Fn() -> Option<f64> + Send + Sync>,
}

impl fmt::Debug for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gauge").field(&self.name).finish()
    }
}

impl Collector for Gauge {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(value) = (self.read)() else {
            return Ok(());
        };
        let gauge = ConstGauge::new(value);
        let metric = encoder.encode_descriptor(self.name, self.help, None, gauge.metric_type())?;
        gauge.encode(metric)
    }
}

/// A counter that is read when somebody asks.
struct Counter {
    name: &'static str,
    help: &'static str,
    read: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counter").field(&self.name).finish()
    }
}

impl Collector for Counter {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counter = ConstCounter::new((self.read)());
        let metric =
            encoder.encode_descriptor(self.name, self.help, None, counter.metric_type())?;
        counter.encode(metric)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn ask(metrics: Metrics) -> (StatusCode, String) {
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let response = metrics.routes().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn tells_what_there_is_and_leaves_out_what_has_no_value() {
        let mut metrics = Metrics::new("sampler-worker", "1.2.3", Readers::Anybody);
        metrics.gauge("sampler_known", "It is known", || Some(-1.5));
        metrics.gauge("sampler_unknown", "It is not", || None);
        let expected = "\
# HELP sampler_build Which program this is.
# TYPE sampler_build info
sampler_build_info{program=\"sampler-worker\",version=\"1.2.3\"} 1
# HELP sampler_known It is known
# TYPE sampler_known gauge
sampler_known -1.5
# EOF
";
        assert_eq!(ask(metrics).await, (StatusCode::OK, expected.to_owned()));
    }

    #[tokio::test]
    async fn is_not_served_where_nobody_could_check_who_asks() {
        let metrics = Metrics::new("sampler-worker", "1.2.3", Readers::Nobody);
        assert_eq!(ask(metrics).await.0, StatusCode::NOT_FOUND);
    }
}
