//! The metrics of a feed that runs on.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use sampler_verify::moment::Millis;
use tokio::net::TcpListener;

use super::usage_event::Record;
use crate::clock;
use crate::failure::Failure;

const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    kind: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    events: Family<Labels, Counter>,
    lag: Gauge,
    /// The time up to which each list is read, in ms.
    read: Arc<Mutex<BTreeMap<Record, Millis>>>,
}

impl Metrics {
    pub(super) fn count(&self, kind: &str, outcome: &'static str, count: u64) {
        let kind = kind.to_owned();
        let labels = Labels { kind, outcome };
        self.events.get_or_create(&labels).inc_by(count);
    }

    /// All events of a list that were made before this are read.
    pub(super) fn has_read(&self, record: Record, until: Millis) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(record, until);
    }

    /// How long ago the oldest event can have been made that is not read, in seconds.
    pub(super) fn lag_seconds(&self) -> i64 {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        lag_at(&read, clock::now())
    }

    pub(super) async fn serve(&self, port: u16) -> Result<String, Failure> {
        let bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await;
        let (port, listener) = bound
            .and_then(|listener| Ok((listener.local_addr()?.port(), listener)))
            .map_err(|error| Failure::Input(format!("--metrics-port {port}: {error}")))?;
        let mut registry = Registry::default();
        registry.register(
            "sampler_feed_events",
            "Usage events of the platform, by its name for them and what followed",
            self.events.clone(),
        );
        registry.register(
            "sampler_feed_lag_seconds",
            "Age of the oldest usage event that may not be read yet",
            self.lag.clone(),
        );
        let shared = Arc::new((registry, self.clone()));
        let router = Router::new()
            .route("/metrics", get(show))
            .with_state(shared);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(format!("http://127.0.0.1:{port}/metrics"))
    }
}

fn lag_at(read: &BTreeMap<Record, Millis>, now: Millis) -> i64 {
    let oldest = read.values().min();
    oldest.map_or(0, |oldest| (now - oldest).max(0) / 1_000)
}

async fn show(State(shared): State<Arc<(Registry, Metrics)>>) -> impl IntoResponse {
    let (registry, metrics) = &*shared;
    metrics.lag.set(metrics.lag_seconds());
    let mut text = String::new();
    let status = match encode(&mut text, registry) {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, [(CONTENT_TYPE, MEDIA_TYPE)], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_that_of_the_list_that_is_behind() {
        let metrics = Metrics::default();
        metrics.has_read(Record::Apps, 90_000);
        metrics.has_read(Record::Services, 40_000);
        let read = metrics.read.lock().unwrap().clone();
        assert_eq!(lag_at(&read, 100_999), 60);
        assert_eq!(lag_at(&read, 39_000), 0);
        metrics.has_read(Record::Services, 95_000);
        let read = metrics.read.lock().unwrap().clone();
        assert_eq!(lag_at(&read, 100_999), 10);
    }
}
