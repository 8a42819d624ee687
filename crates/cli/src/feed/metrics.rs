//! The metrics of a feed that runs on.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use sampler_verify::moment::Millis;
use tokio::net::TcpListener;

use super::usage_event::Record;
use crate::clock;
use crate::failure::Failure;

const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Debug, Default)]
pub(super) struct Metrics(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    /// By the platform's name and by what followed.
    events: BTreeMap<(String, &'static str), u64>,
    /// The time up to which each list is read, in ms.
    read: BTreeMap<Record, Millis>,
}

impl Metrics {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, kind: &str, outcome: &'static str) {
        let mut numbers = self.numbers();
        *numbers
            .events
            .entry((kind.to_owned(), outcome))
            .or_default() += 1;
    }

    /// All events of a list that were made before this are read.
    pub(super) fn has_read(&self, record: Record, until: Millis) {
        self.numbers().read.insert(record, until);
    }

    /// How long ago the oldest event can have been made that is not read, in seconds.
    pub(super) fn lag_seconds(&self, now: Millis) -> i64 {
        let oldest = self.numbers().read.values().min().copied();
        oldest.map_or(0, |oldest| (now - oldest).max(0) / 1_000)
    }

    pub(super) async fn serve(&self, port: u16) -> Result<String, Failure> {
        let bound = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await;
        let (port, listener) = bound
            .and_then(|listener| Ok((listener.local_addr()?.port(), listener)))
            .map_err(|error| Failure::Input(format!("--metrics-port {port}: {error}")))?;
        let metrics = self.clone();
        let show = async move || ([(CONTENT_TYPE, MEDIA_TYPE)], metrics.text(clock::now()));
        let router = Router::new().route("/metrics", get(show));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(format!("http://127.0.0.1:{port}/metrics"))
    }

    fn text(&self, now: Millis) -> String {
        let mut text =
            "# HELP sampler_feed_events_total Usage events of the platform, by its name for them \
                        and what followed\n# TYPE sampler_feed_events_total counter\n"
                .to_owned();
        for ((kind, outcome), count) in &self.numbers().events {
            let kind = kind
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let _ = writeln!(
                text,
                "sampler_feed_events_total{{kind=\"{kind}\",outcome=\"{outcome}\"}} {count}"
            );
        }
        let _ = writeln!(
            text,
            "# HELP sampler_feed_lag_seconds Age of the oldest usage event that may not be read yet\n\
             # TYPE sampler_feed_lag_seconds gauge\n\
             sampler_feed_lag_seconds {}",
            self.lag_seconds(now)
        );
        text
    }
}

#[cfg(test)]
#[path = "../../tests/feed/metrics_tests.rs"]
mod tests;
