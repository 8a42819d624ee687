//! What running programs tell of themselves, and what dashboards and alerts make of it.

mod queries;

use std::collections::{BTreeMap, BTreeSet};

use sampler_metrics::{Metric, MetricKind, Values};
use sampler_receiver::settings::metrics as receiver_metrics;
use sampler_testkit::build::{start_event, stop_event, without};
use sampler_testkit::{Program, now_millis};
use sampler_worker::settings::metrics as worker_metrics;

use crate::landscape::{HOUR, Landscape, until_ready};

/// A line of an answer: a name, labels and a value.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads the text format. No label of ours has a quote or a comma in its value.
fn samples(text: &str) -> Vec<Sample> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(sample).collect()
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').expect(line);
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let label = |label: &str| {
        let (name, value) = label.split_once("=\"").expect(line);
        (name.to_owned(), value.trim_end_matches('"').to_owned())
    };
    let labels = labels.strip_suffix('}').expect(line).split("\",");
    let labels = labels.filter(|text| !text.is_empty()).map(label);
    Sample {
        name: name.to_owned(),
        labels: labels.collect(),
        value: value.parse().expect(line),
    }
}

async fn metrics(world: &Landscape, url: &str) -> Vec<Sample> {
    let response = world.http.get(format!("{url}/metrics")).send().await;
    samples(&response.unwrap().text().await.unwrap())
}

fn sum(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |sample: &&Sample| {
        let mut labels = labels.iter();
        sample.name == name
            && labels.all(|(label, value)| sample.labels.get(*label).is_some_and(|it| it == value))
    };
    samples.iter().filter(has).map(|sample| sample.value).sum()
}

/// Whether a sample with this name belongs to a metric.
fn is_of(metric: &Metric, name: &str) -> bool {
    let rest = name.strip_prefix(metric.name);
    rest == Some("")
        || (matches!(metric.kind, MetricKind::Histogram(_))
            && matches!(rest, Some("_bucket" | "_sum" | "_count")))
}

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Starts, repeats, refuses and stops; and asks for what there is not.
async fn make_events(world: &Landscape, receiver: &Program) {
    let began = now_millis() - 4 * HOUR;
    let (mut start, mut stop) = (start_event(1, began), stop_event(1, began + HOUR));
    start["id"] = "start".into();
    stop["id"] = "stop".into();
    for (path, event) in [
        ("/v1/events/start", &start),
        ("/v1/events/start", &start),
        ("/v1/events/stop", &stop),
    ] {
        world.take(receiver, path, event).await;
    }
    let wrong = without(start, "resource_id");
    let refused = world.post(receiver, "/v1/events/start", &wrong).await;
    assert_eq!(refused.status(), 400);
}

/// What a client can choose: methods, paths, hosts and headers.
async fn attack(world: &Landscape, program: &Program) {
    for number in 0..200 {
        for path in [
            format!("/{number}"),
            format!("/v1/{number}"),
            format!("/v1/spans/{number}?{number}={number}"),
            format!("/v1/events/start/{number}%22%7d%0a"),
        ] {
            let method = reqwest::Method::from_bytes(format!("M{number}").as_bytes()).unwrap();
            let request = world
                .http
                .request(method, format!("{}{path}", program.base_url()));
            let request = request.header("host", format!("host-{number}.localhost"));
            request.send().await.unwrap();
        }
    }
}

/// Each sample is one of a metric that the program's document has, with its labels and words.
fn assert_declared(declared: &[&Metric], samples: &[Sample]) {
    for sample in samples {
        let mut found = declared.iter().filter(|it| is_of(it, &sample.name));
        let metric = found.next().unwrap_or_else(|| panic!("{sample:?}"));
        let labels: BTreeSet<_> = sample.labels.keys().map(String::as_str).collect();
        let bucket = sample.name.ends_with("_bucket").then_some("le");
        let names = metric.labels.iter().map(|label| label.name);
        let names: BTreeSet<_> = names.chain(bucket).collect();
        assert_eq!(labels, names, "{sample:?}");
        for label in metric.labels {
            if let Values::Words(words) = label.values {
                let value = sample.labels[label.name].as_str();
                assert!(words.contains(&value), "{sample:?}");
            }
        }
    }
}

#[test]
fn each_name_is_there_once_and_says_its_kind() {
    for declared in [receiver_metrics(), worker_metrics()] {
        let mut seen = BTreeSet::new();
        for metric in declared {
            let (name, kind) = (metric.name, metric.kind);
            assert!(seen.insert(name), "{name} is there twice");
            let is_ours = name.starts_with("sampler_") || name.starts_with("process_");
            let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            assert!(is_ours && name.bytes().all(is_word), "{name}");
            let (is_counter, is_info) = (kind == MetricKind::Counter, kind == MetricKind::Info);
            assert_eq!(is_counter, name.ends_with("_total"), "{name}");
            assert_eq!(is_info, name.ends_with("_info"), "{name}");
            assert!(!metric.help.ends_with('.'), "{name}");
            if let MetricKind::Histogram(bounds) = kind {
                assert!(bounds.is_sorted_by(|a, b| a < b), "{name}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_programs_tell_what_is_declared_and_what_dashboards_ask_for() {
    let world = Landscape::new("metrics").await;
    let port = free_port().to_string();
    let receiver = world.receiver().env("SAMPLER_METRICS_PORT", port.as_str());
    let receiver = receiver.start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let worker = world.worker().env("SAMPLER_AUDIT_RATE", "100");
    let worker = worker.start().await.unwrap();
    make_events(&world, &receiver).await;
    world.until_complete(1).await;
    attack(&world, &receiver).await;
    attack(&world, &worker).await;
    let apart = format!("http://127.0.0.1:{port}");
    let of_receiver = metrics(&world, &apart).await;
    let of_worker = metrics(&world, &worker.base_url()).await;
    assert_declared(&receiver_metrics(), &of_receiver);
    assert_declared(&worker_metrics(), &of_worker);

    let events = |event, outcome| {
        let labels = [("event", event), ("outcome", outcome)];
        sum(&of_receiver, "sampler_events_total", &labels)
    };
    let counted = [
        events("start", "accepted"),
        events("start", "replayed"),
        events("start", "refused"),
        events("stop", "accepted"),
    ];
    assert_eq!(counted.map(|count| count as u64), [1, 1, 1, 1]);
    let all = sum(&of_receiver, "sampler_events_total", &[]);
    assert_eq!(all as u64, 4, "nothing else was counted");
    let posted = world.abacus.post_count();
    let accepted = sum(
        &of_worker,
        "sampler_usages_total",
        &[("outcome", "accepted")],
    );
    assert_eq!(accepted as u64, posted);
    assert_eq!(
        sum(&of_worker, "sampler_post_seconds_count", &[]) as u64,
        posted
    );
    assert!(
        world
            .abacus
            .posts()
            .iter()
            .all(|post| post.traceparent.is_none())
    );
    let writes = sum(&of_receiver, "sampler_commit_batch_events_sum", &[]);
    assert!(writes >= 3.0, "{writes}");
    assert!(sum(&of_worker, "sampler_commit_seconds_count", &[]) > 0.0);
    let attacks = [("method", "other")];
    let requests = |samples| sum(samples, "sampler_http_requests_total", &attacks) as u64;
    assert_eq!((requests(&of_receiver), requests(&of_worker)), (800, 800));
    let series = |samples: &[Sample]| {
        let is_request = |sample: &&Sample| sample.name == "sampler_http_requests_total";
        samples.iter().filter(is_request).count()
    };
    assert!(series(&of_receiver) < 30 && series(&of_worker) < 30);

    // On a port of their own there is nothing but metrics.
    let elsewhere = world.http.get(format!("{apart}/healthcheck")).send().await;
    assert_eq!(elsewhere.unwrap().status(), 404);
    let real: Vec<_> = of_receiver.iter().chain(&of_worker).collect();
    queries::assert_answerable(&real);

    // A span that somebody changes by hand is counted, then named.
    let violations =
        |samples: &[Sample]| sum(samples, "sampler_conservation_violations_total", &[]) as u64;
    assert_eq!(violations(&of_worker), 0);
    let spans = world.spans().await;
    let more = bson::doc! { "$inc": { "processing.totals.billed": 1_i64 } };
    let broken = spans.find_one_and_update(bson::doc! {}, more).await;
    let id = broken.unwrap().unwrap().get_object_id("_id").unwrap();
    let message = "a span, its totals and its entries in the ledger do not agree";
    let line = worker.until_logged(message, 1).await.remove(0);
    assert_eq!(
        (&line["code"], &line["span.id"]),
        (&"audit.difference".into(), &id.to_hex().into())
    );
    let of_worker = metrics(&world, &worker.base_url()).await;
    assert_eq!(violations(&of_worker), 1);
}
