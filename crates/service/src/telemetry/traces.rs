//! Traces by OTLP: spans with the target [`TRACE`] go to a collector. Without an endpoint nothing of
//! this is installed, and such a span costs a comparison.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry::global;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use sampler_metrics::{Limiter, TRACE};
use sampler_oauth::HttpOptions;
use sampler_oauth::http::describe;
use tracing::level_filters::LevelFilter;
use tracing::{Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;
use url::Url;

use crate::platform::Identity;

/// How long one request to the collector may take.
pub(crate) const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// A collector that is away is worth a line in this time.
const FAILURE_PERIOD: Duration = Duration::from_mins(1);

/// How long a program that ends waits for the last spans to be taken. They are worth less than an
/// orderly end.
const LAST_EXPORT: Duration = Duration::from_millis(500);

pub struct TraceOptions {
    /// The collector; paths are appended to it.
    pub endpoint: Url,
    /// The name of the service in traces, unless `OTEL_SERVICE_NAME` gives another.
    pub service: &'static str,
    pub version: &'static str,
    pub http: HttpOptions,
}

/// Sends spans to a collector, those at the end too.
#[derive(Debug)]
pub(super) struct Traces(SdkTracerProvider);

impl Traces {
    /// Sets up what sends spans, in a thread of its own. Must not be called within a runtime.
    pub(super) fn new(options: &TraceOptions, identity: &Identity) -> anyhow::Result<Self> {
        let client = sampler_oauth::http::blocking_client(&options.http);
        let client = Client {
            client: client.context("the HTTP client for traces cannot be set up")?,
            failures: Limiter::new(1, FAILURE_PERIOD),
        };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(traces_of(&options.endpoint))
            .with_timeout(options.http.timeout)
            .build()
            .context("traces cannot be set up")?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource(options, identity))
            .build();
        global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Self(provider))
    }

    /// The layer that makes spans of the program spans of a trace.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + Send + Sync
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let only_traces = Targets::new().with_target(TRACE, LevelFilter::TRACE);
        tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("sampler"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(only_traces)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // A collector that does not answer was reported before.
        let _ = self.0.shutdown_with_timeout(LAST_EXPORT);
    }
}

fn traces_of(endpoint: &Url) -> String {
    format!("{}/v1/traces", endpoint.as_str().trim_end_matches('/'))
}

/// The sender of the spans. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` come first.
fn resource(options: &TraceOptions, identity: &Identity) -> Resource {
    let of_environment = Resource::builder().build();
    let ours = identity.marks().into_iter().map(|(name, value)| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        KeyValue::new(name, text)
    });
    let fixed = [
        KeyValue::new("service.name", options.service),
        KeyValue::new("service.version", options.version),
    ];
    let missing: Vec<_> = fixed
        .into_iter()
        .chain(ours)
        .filter(|it| !has(&of_environment, &it.key))
        .collect();
    Resource::builder().with_attributes(missing).build()
}

/// Whether the environment gives this attribute. A service without a name gets one from the library.
fn has(of_environment: &Resource, key: &Key) -> bool {
    match of_environment.get_ref(key) {
        Some(name) if key.as_str() == "service.name" => {
            !name.as_str().starts_with("unknown_service")
        }
        given => given.is_some(),
    }
}

/// The client of the exporter. It is asked in the exporter's own thread.
struct Client {
    client: reqwest::blocking::Client,
    failures: Limiter<()>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let response = self.client.execute(request.try_into()?).map_err(describe)?;
        let status = response.status();
        let body = response.bytes().map_err(describe)?;
        let response = Response::builder().status(status).body(body)?;
        if !status.is_success() {
            self.report(&format!("the collector answered {status}"));
        }
        Ok(response)
    }

    fn report(&self, error: &str) {
        if let Some(suppressed) = self.failures.admit(()) {
            warn!(
                code = "traces.not_exported",
                error, suppressed, "traces could not be exported"
            );
        }
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.send(request);
        if let Err(error) = &sent {
            self.report(&error.to_string());
        }
        sent
    }
}
