//! `GET /metrics`: the metrics of a program, in Prometheus's classic text format.
//!
//! Whoever measures something counts it with the macros of the crate `metrics`, under a name that the
//! table (`table.rs`) declares. What is only looked up when somebody asks is set by a reading ([`Metrics::read`]).

mod table;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use metrics::{
    Label, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
    with_local_recorder,
};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use tokio::time::sleep;

use crate::security::Authenticator;
use table::{METRICS, Metric, MetricKind, Values};

const CLASSIC_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How often what histograms have gathered is sorted into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// A counter that the system keeps.
const CPU_SECONDS: &str = "process_cpu_seconds_total";

/// The beginning of the document for operators.
const HEAD: &str = "
`GET /metrics` serves them in Prometheus's text format: see [operations.md](operations.md#metrics) for who may read \
them. Each instance reports its own numbers; add them up where they are collected. A histogram is stored as \
`…_bucket`, by the upper bounds below, `…_sum` and `…_count`.

No label has a value that a client chose: there are as many series as the table says, whatever is sent.

| Metric | Type | Labels | What it is |
| --- | --- | --- | --- |
";

/// The metrics of a program.
pub struct Metrics {
    program: &'static str,
    version: &'static str,
    counted: PrometheusHandle,
    readings: Vec<Box<dyn Fn() + Send + Sync>>,
}

impl Metrics {
    /// Counts from now on what the program measures. Once per process.
    pub fn install(program: &'static str, version: &'static str) -> anyhow::Result<Self> {
        let (recorder, metrics) = Self::new(program, version);
        metrics::set_global_recorder(recorder)
            .ok()
            .context("metrics are counted already")?;
        Ok(metrics)
    }

    /// The metrics of a program, and what counts them.
    pub fn new(program: &'static str, version: &'static str) -> (PrometheusRecorder, Self) {
        let recorder = recorder();
        with_local_recorder(&recorder, || {
            of_program(program)
                .filter(|metric| metric.name != CPU_SECONDS)
                .for_each(begin);
        });
        let metrics = Self {
            program,
            version,
            counted: recorder.handle(),
            readings: Vec::new(),
        };
        (recorder, metrics)
    }

    /// Adds a reading: it sets gauges whenever somebody asks. One that it does not set has no value then, and is
    /// left out.
    pub fn read(&mut self, reading: impl Fn() + Send + Sync + 'static) {
        self.readings.push(Box::new(reading));
    }

    /// All of them, as text.
    pub fn render(&self) -> String {
        let (now, mut cpu) = (recorder(), None);
        with_local_recorder(&now, || {
            of_program(self.program).for_each(describe);
            gauge!("sampler_build_info", "program" => self.program, "version" => self.version)
                .set(1);
            // What the system does not tell is left out.
            cpu = read_process();
            for read in &self.readings {
                read();
            }
        });
        self.counted.render() + &now.handle().render() + &cpu.unwrap_or_default()
    }

    /// Keeps histograms small, for ever.
    pub async fn keep_up(&self) {
        loop {
            sleep(UPKEEP).await;
            self.counted.run_upkeep();
        }
    }
}

fn of_program(program: &str) -> impl Iterator<Item = &'static Metric> {
    let is_its = move |metric: &&Metric| metric.of.is_none_or(|of| of == program);
    METRICS.iter().filter(is_its)
}

/// An empty recorder, with the buckets of all histograms.
fn recorder() -> PrometheusRecorder {
    let mut builder = PrometheusBuilder::new();
    for metric in METRICS {
        if let MetricKind::Histogram(bounds) = metric.kind {
            let matcher = Matcher::Full(metric.name.to_owned());
            let buckets = builder.set_buckets_for_metric(matcher, bounds);
            builder = buckets.expect("a histogram has buckets");
        }
    }
    builder.build_recorder()
}

/// Begins all series of a metric whose labels are known, so that none appears only with its first event.
fn begin(metric: &'static Metric) {
    describe(metric);
    for labels in combinations(metric) {
        match metric.kind {
            MetricKind::Counter => counter!(metric.name, labels).absolute(0),
            MetricKind::Histogram(_) => drop(histogram!(metric.name, labels)),
            MetricKind::Gauge => {}
        }
    }
}

fn describe(metric: &'static Metric) {
    match metric.kind {
        MetricKind::Counter => describe_counter!(metric.name, metric.help),
        MetricKind::Gauge => describe_gauge!(metric.name, metric.help),
        MetricKind::Histogram(_) => describe_histogram!(metric.name, metric.help),
    }
}

/// All combinations of the values of a metric's labels; none where a label has others than known words.
fn combinations(metric: &'static Metric) -> Vec<Vec<Label>> {
    let mut all: Vec<Vec<Label>> = vec![Vec::new()];
    for (name, values) in metric.labels {
        let Values::Words(words) = values else {
            return Vec::new();
        };
        let mut longer = Vec::new();
        for labels in all {
            for word in *words {
                let label = Label::from_static_parts(name, word);
                longer.push([&labels[..], &[label]].concat());
            }
        }
        all = longer;
    }
    all
}

/// Sets the standard metrics of a process, as Prometheus's client libraries name them. Returns that of its processor
/// time as text: a counter of the crate `metrics` has no fractions.
#[cfg(target_os = "linux")]
fn read_process() -> Option<String> {
    use procfs::process::{LimitValue, Process};

    let process = Process::myself().ok()?;
    let stat = process.stat().ok()?;
    gauge!("process_resident_memory_bytes").set((stat.rss * procfs::page_size()) as f64);
    if let Ok(open) = process.fd_count() {
        gauge!("process_open_fds").set(open as f64);
    }
    if let Ok(limits) = process.limits()
        && let LimitValue::Value(most) = limits.max_open_files.soft_limit
    {
        gauge!("process_max_fds").set(most as f64);
    }
    let ticks = procfs::ticks_per_second();
    if let Ok(booted) = procfs::boot_time_secs() {
        let started = booted + stat.starttime / ticks;
        gauge!("process_start_time_seconds").set(started as f64);
    }
    let seconds = (stat.utime + stat.stime) as f64 / ticks as f64;
    Some(format!(
        "# TYPE {CPU_SECONDS} counter\n{CPU_SECONDS} {seconds}\n"
    ))
}

#[cfg(not(target_os = "linux"))]
fn read_process() -> Option<String> {
    None
}

/// The route `GET /metrics`, for `monitors` alone.
pub fn routes(metrics: &Arc<Metrics>, monitors: Authenticator) -> Router {
    Router::new()
        .route("/metrics", get(show))
        .with_state((Arc::clone(metrics), monitors))
}

async fn show(
    State((metrics, monitors)): State<(Arc<Metrics>, Authenticator)>,
    headers: HeaderMap,
) -> Response {
    if let Err(problem) = monitors.admit_to_metrics(&headers).await {
        return problem.into_response();
    }
    ([(CONTENT_TYPE, CLASSIC_TEXT)], metrics.render()).into_response()
}

/// The metrics of a program in Markdown.
pub fn document(program: &str) -> String {
    let mut text = format!("# Metrics of `{program}`\n{HEAD}");
    for metric in of_program(program) {
        let (name, help) = (metric.name, metric.help);
        let kind = match metric.kind {
            MetricKind::Counter => "counter".to_owned(),
            MetricKind::Gauge => "gauge".to_owned(),
            MetricKind::Histogram(bounds) => {
                let bounds: Vec<_> = bounds.iter().map(ToString::to_string).collect();
                format!("histogram: {}", bounds.join(", "))
            }
        };
        let labels: Vec<_> = metric.labels.iter().map(label).collect();
        let labels = labels.join("; ");
        let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
    }
    text
}

fn label((name, values): &(&str, Values)) -> String {
    let values = match values {
        Values::Words(words) => format!("`{}`", words.join("`, `")),
        Values::Bounded(what) => (*what).to_owned(),
    };
    format!("`{name}`: {values}")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http::header::ACCEPT;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    fn samples(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[tokio::test]
    async fn whatever_is_asked_for_the_answer_is_the_classic_text() {
        let (_recorder, metrics) = Metrics::new("sampler-worker", "1.2.3");
        let router = routes(&Arc::new(metrics), Authenticator::none());
        for accept in [
            "*/*",
            "text/plain",
            "application/openmetrics-text; version=1.0.0",
        ] {
            let request = Request::get("/metrics").header(ACCEPT, accept);
            let request = request.body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(response.headers()["content-type"], CLASSIC_TEXT);
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert!(
                text.contains("# TYPE sampler_usages_total counter\n"),
                "{text}"
            );
            let build = "sampler_build_info{program=\"sampler-worker\",version=\"1.2.3\"} 1\n";
            assert!(text.contains(build) && !text.contains("# EOF"), "{text}");
        }
    }

    #[test]
    fn counters_are_there_from_the_start_and_histograms_with_their_buckets() {
        let (recorder, metrics) = Metrics::new("sampler-receiver", "1.2.3");
        with_local_recorder(&recorder, || {
            counter!("sampler_events_total", "event" => "start", "outcome" => "refused")
                .increment(1);
            histogram!("sampler_commit_seconds").record(0.003);
        });
        let text = metrics.render();
        for sample in [
            "sampler_events_total{event=\"start\",outcome=\"refused\"} 1",
            "sampler_events_total{event=\"stop\",outcome=\"failed\"} 0",
            "sampler_commit_seconds_bucket{le=\"0.0025\"} 0",
            "sampler_commit_seconds_bucket{le=\"0.005\"} 1",
            "sampler_commit_seconds_bucket{le=\"+Inf\"} 1",
            "sampler_commit_seconds_count 1",
            "sampler_commit_batch_events_count 0",
        ] {
            assert!(samples(&text).contains(&sample), "{sample}: {text}");
        }
        assert!(
            !text.contains("sampler_usages_total"),
            "the worker's: {text}"
        );
    }

    #[test]
    fn a_gauge_without_a_value_is_left_out() {
        let (_recorder, mut metrics) = Metrics::new("sampler-worker", "1.2.3");
        let value = Arc::new(std::sync::Mutex::new(Some(-1.5)));
        let kept = Arc::clone(&value);
        metrics.read(move || {
            if let Some(value) = *kept.lock().unwrap() {
                gauge!("sampler_clock_offset_seconds").set(value);
            }
        });
        let name = "sampler_clock_offset_seconds";
        assert!(samples(&metrics.render()).contains(&"sampler_clock_offset_seconds -1.5"));
        *value.lock().unwrap() = None;
        assert!(!metrics.render().contains(name));
    }

    #[test]
    fn the_system_tells_of_the_process() {
        let (_recorder, metrics) = Metrics::new("sampler-worker", "1");
        let text = metrics.render();
        for (name, least) in [
            ("process_cpu_seconds_total", 0.0),
            ("process_resident_memory_bytes", 1e6),
            ("process_open_fds", 3.0),
            ("process_max_fds", 3.0),
            ("process_start_time_seconds", 1.7e9),
        ] {
            let of_it = |line: &&str| line.starts_with(name);
            let found: Vec<_> = samples(&text).into_iter().filter(of_it).collect();
            let [sample] = found[..] else {
                panic!("{name}: {text}");
            };
            let (_, value) = sample.split_once(' ').unwrap();
            assert!(value.parse::<f64>().unwrap() >= least, "{sample}");
        }
    }
}
