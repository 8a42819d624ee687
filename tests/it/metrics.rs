//! What running programs tell of themselves, and that dashboards and alerts ask for nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use sampler_testkit::build::{start_event, stop_event, without};
use sampler_testkit::{Program, now_millis, workspace_dir};

use crate::landscape::{HOUR, Landscape};

/// A line of an answer: a name, labels and a value.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// Reads the text format. No label of ours has a quote or a comma in its value.
fn samples(text: &str) -> Vec<Sample> {
    let is_sample = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines = text.lines().filter(is_sample);
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
    let text = response.unwrap().text().await.unwrap();
    assert!(!text.contains("# EOF"), "the classic format: {text}");
    samples(&text)
}

fn sum(samples: &[Sample], name: &str, labels: &[(&str, &str)]) -> f64 {
    let has = |sample: &&Sample| {
        let mut labels = labels.iter();
        sample.name == name
            && labels.all(|(label, value)| sample.labels.get(*label).is_some_and(|it| it == value))
    };
    samples.iter().filter(has).map(|sample| sample.value).sum()
}

/// The metrics that the document of a program names, each with its labels.
fn documented(program: &str) -> BTreeMap<String, BTreeSet<String>> {
    let page = workspace_dir().join(format!("docs/metrics-{program}.md"));
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    rows.map(|cells| {
        let name = cells[0].trim_start_matches("| ").trim_matches('`');
        let parts = cells[2]
            .split("; ")
            .filter_map(|part| part.split_once("`: "));
        let labels = parts.map(|(label, _)| label.trim_start_matches('`').to_owned());
        (name.to_owned(), labels.collect())
    })
    .collect()
}

/// The documented metric that a sample belongs to.
fn metric_of(documented: &BTreeMap<String, BTreeSet<String>>, sample: &str) -> Option<String> {
    let suffixes = ["", "_bucket", "_sum", "_count"].into_iter();
    let mut names = suffixes.filter_map(|suffix| sample.strip_suffix(suffix));
    names
        .find(|name| documented.contains_key(*name))
        .map(str::to_owned)
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

/// Each sample is one of a metric that the program's document has, with its labels.
fn assert_documented(program: &str, samples: &[Sample]) {
    let documented = documented(program);
    for sample in samples {
        let metric = metric_of(&documented, &sample.name).unwrap_or_else(|| panic!("{sample:?}"));
        let labels = sample.labels.keys().filter(|label| *label != "le");
        let labels: BTreeSet<String> = labels.cloned().collect();
        assert_eq!(labels, documented[&metric], "{sample:?}");
    }
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_are_documented() {
    let mut known = documented("receiver");
    known.extend(documented("worker"));
    for file in ["deploy/alerts.yml", "deploy/grafana.json"] {
        let text = fs::read_to_string(workspace_dir().join(file)).unwrap();
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let words = text.split(|letter| !is_word(letter));
        let asked: BTreeSet<_> = words.filter(|word| word.starts_with("sampler_")).collect();
        assert!(asked.len() > 10, "{file}: {asked:?}");
        for name in asked {
            assert!(metric_of(&known, name).is_some(), "{file}: {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_programs_tell_what_is_documented() {
    let world = Landscape::new("metrics").await;
    let port = free_port().to_string();
    let receiver = world.receiver().env("SAMPLER_METRICS_PORT", port.as_str());
    let receiver = world.ready(receiver).await;
    let worker = world.worker().start().await.unwrap();
    make_events(&world, &receiver).await;
    world.until_complete(1).await;
    attack(&world, &receiver).await;
    attack(&world, &worker).await;
    let apart = format!("http://127.0.0.1:{port}");
    let of_receiver = metrics(&world, &apart).await;
    let of_worker = metrics(&world, &worker.base_url()).await;
    assert_documented("receiver", &of_receiver);
    assert_documented("worker", &of_worker);

    let events = |event, outcome| {
        let labels = [("event", event), ("outcome", outcome)];
        sum(&of_receiver, "sampler_events_total", &labels)
    };
    for (event, outcome) in [
        ("start", "accepted"),
        ("start", "replayed"),
        ("start", "refused"),
        ("stop", "accepted"),
    ] {
        assert_eq!(events(event, outcome) as u64, 1, "{event} {outcome}");
    }
    let all = sum(&of_receiver, "sampler_events_total", &[]);
    assert_eq!(all as u64, 4, "nothing else was counted");
    let posted = world.abacus.post_count();
    let accepted = [("outcome", "accepted")];
    let accepted = sum(&of_worker, "sampler_usages_total", &accepted);
    let timed = sum(&of_worker, "sampler_post_seconds_count", &[]);
    assert_eq!([accepted as u64, timed as u64], [posted; 2]);
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
}
