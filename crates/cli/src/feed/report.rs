//! What was read, and what followed: for people, for machines, and for metrics.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use sampler_verify::moment::{InWords, Millis};
use sampler_verify::words::counted;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::state::{Bound, Refused, Step, Unknown};
use super::usage_event::Record;
use crate::failure::Failure;
use crate::moment;
use crate::output::printable;

const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// The label of what follows from a list or a look-up.
const ASIDE: &str = "snapshot";

/// Counts since the command was started.
#[derive(Clone, Debug, Default)]
pub(super) struct Report(Arc<Mutex<Numbers>>);

#[derive(Debug, Default)]
struct Numbers {
    /// By the platform's name and by what followed.
    events: BTreeMap<(String, &'static str), u64>,
    /// The time up to which each list is read, in ms.
    read: BTreeMap<Record, Millis>,
    unknown: usize,
}

impl Numbers {
    /// How many events there were of these kinds, and with these outcomes.
    fn count(&self, is_meant: impl Fn(&str, &str) -> bool) -> u64 {
        let counts = self.events.iter();
        let meant = counts.filter(|((kind, outcome), _)| is_meant(kind, outcome));
        meant.map(|(_, count)| count).sum()
    }

    /// How many events of the platform this followed from.
    fn of(&self, outcome: &str) -> u64 {
        self.count(|kind, followed| kind != ASIDE && followed == outcome)
    }

    /// How many events were refused, also those that follow from a list.
    fn refused(&self) -> u64 {
        self.count(|_, followed| followed == "refused")
    }

    fn read(&self) -> u64 {
        self.count(|kind, _| kind != ASIDE)
    }
}

impl Report {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, step: &Step, refused: &Refused) {
        let mut numbers = self.numbers();
        numbers.unknown += step.unknown(refused).count();
        for change in &step.changes {
            let kind = change.body.as_ref().and_then(|body| body["type"].as_str());
            let followed = match (kind, &change.state) {
                (Some(_), _) if change.refusal(refused).is_some() => "refused",
                (Some("start"), _) => "started",
                (Some("stop"), _) => "stopped",
                (Some(_), _) => "updated",
                (None, Some(_)) => "ignored",
                // What a list shows that is known already.
                (None, None) => continue,
            };
            let state = change.state.as_deref().unwrap_or(ASIDE).to_owned();
            *numbers.events.entry((state, followed)).or_default() += 1;
        }
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

    pub(super) fn is_good(&self) -> bool {
        self.numbers().refused() == 0
    }

    /// For machines.
    pub(super) fn document(&self, unknown: &[Unknown]) -> Value {
        let numbers = self.numbers();
        let counts = numbers.events.iter();
        let ignored = counts.filter(|((_, followed), _)| *followed == "ignored");
        let ignored: BTreeMap<_, _> = ignored.map(|((kind, _), count)| (kind, count)).collect();
        json!({
            "read": numbers.read(), "started": numbers.of("started"), "stopped": numbers.of("stopped"),
            "updated": numbers.of("updated"), "ignored": ignored, "refused": numbers.refused(),
            "unknown": unknown,
        })
    }

    /// For people.
    pub(super) fn words(&self, now: Millis) -> String {
        let lag = self.lag_seconds(now);
        let numbers = self.numbers();
        let [started, stopped, updated, ignored] =
            ["started", "stopped", "updated", "ignored"].map(|name| numbers.of(name));
        format!(
            "{} read: {started} started, {stopped} stopped, {updated} updated, {ignored} ignored, {} refused, {} \
             unknown; {lag} s behind\n",
            counted(numbers.read(), "event"),
            numbers.refused(),
            numbers.unknown,
        )
    }

    /// Serves metrics. Returns their address.
    pub(super) async fn serve(&self, port: u16) -> Result<String, Failure> {
        let failed = |error| Failure::Input(format!("--metrics-port {port}: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await;
        let listener = listener.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let report = self.clone();
        let show = async move || ([(CONTENT_TYPE, MEDIA_TYPE)], report.metrics(moment::now()));
        let router = Router::new().route("/metrics", get(show));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(format!("http://127.0.0.1:{port}/metrics"))
    }

    /// For Prometheus.
    pub(super) fn metrics(&self, now: Millis) -> String {
        let lag = self.lag_seconds(now);
        let numbers = self.numbers();
        let counts = numbers.events.iter().map(|((kind, outcome), count)| {
            let kind = printable(kind).replace('\\', "\\\\").replace('"', "\\\"");
            format!("sampler_feed_events_total{{kind=\"{kind}\",outcome=\"{outcome}\"}} {count}\n")
        });
        let counts: String = counts.collect();
        format!(
            "# HELP sampler_feed_events_total Usage events of the platform, by its name for them and what followed\n\
             # TYPE sampler_feed_events_total counter\n{counts}\
             # HELP sampler_feed_lag_seconds Age of the oldest usage event that may not be read yet\n\
             # TYPE sampler_feed_lag_seconds gauge\nsampler_feed_lag_seconds {lag}\n"
        )
    }
}

/// An unknown bound in a line of the log.
pub(super) fn sentence(unknown: &Unknown) -> String {
    let bound = match unknown.what {
        Bound::Start => "start",
        Bound::End => "end",
    };
    let (target, to) = (printable(&unknown.target.to_string()), InWords(unknown.to));
    let when = match unknown.from {
        Some(from) => format!("between {} and {to}", InWords(from)),
        None => format!("not after {to}"),
    };
    format!("the {bound} of {target} is not recorded: {when}")
}

#[cfg(test)]
#[path = "../../tests/feed/report_tests.rs"]
mod tests;
