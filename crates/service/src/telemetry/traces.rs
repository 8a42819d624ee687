//! Traces by OTLP: spans with the target [`TRACE`] go to a collector. Without an endpoint nothing of
//! this is installed, and such a span costs a comparison.

use std::time::Duration;

use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{KeyValue, global};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use sampler_store::TRACE;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;
use url::Url;

/// How long one request to the collector may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a program that ends waits for the last spans to be taken. They are worth less than an
/// orderly end.
const LAST_EXPORT: Duration = Duration::from_millis(500);

/// Sends spans to a collector, those at the end too.
#[derive(Debug)]
#[must_use = "spans are exported as long as it is there"]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Sets up what sends spans to this collector, in a thread of its own; paths are appended to its address. Must not
    /// be called within a runtime. `service` is the name in traces, unless `OTEL_SERVICE_NAME` gives another.
    pub fn new(
        endpoint: &Url,
        service: &'static str,
        version: &'static str,
    ) -> anyhow::Result<Self> {
        let endpoint = endpoint.as_str().trim_end_matches('/');
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .context("traces cannot be set up")?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource(service, version))
            .build();
        global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Self(provider))
    }

    /// The layer that makes spans of the program spans of a trace.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + Send + Sync + use<S>
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

/// The sender of the spans. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` come first.
fn resource(service: &'static str, version: &'static str) -> Resource {
    let of_environment = Resource::builder().build();
    let name = of_environment.get_ref(&"service.name".into());
    let is_named = name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let own_name = KeyValue::new("service.name", service);
    Resource::builder()
        .with_attribute(KeyValue::new("service.version", version))
        .with_attributes((!is_named).then_some(own_name))
        .build()
}
