//! The real trace: 8,152 pods through the real programs, compared with what the file alone gives.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use mongodb::options::ReadConcern;
use sampler_testkit::program::{CLI, binary};
use sampler_testkit::{Program, now_millis, wait_until, workspace_dir};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::process::Command;

use crate::landscape::{DAY, Landscape, until_ready};

const MEASURES: [&str; 4] = ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli"];

/// A pod: when it was there, in ms, and what it held.
struct Pod {
    name: String,
    start: i64,
    end: i64,
    held: [i64; 4],
}

fn file() -> PathBuf {
    workspace_dir().join("../shared/traces/openb_pod_list_default.csv")
}

/// The pods, with their times moved so that the last one ends an hour ago; and by how much, in ms.
fn pods() -> Option<(Vec<Pod>, i64)> {
    let mut reader = csv::Reader::from_path(file()).ok()?;
    let columns = reader.headers().unwrap().clone();
    let column = |name: &str| columns.iter().position(|column| column == name).unwrap();
    let (name, start, end) = (
        column("name"),
        column("creation_time"),
        column("deletion_time"),
    );
    let held = MEASURES.map(column);
    let mut pods: Vec<Pod> = reader
        .records()
        .map(|record| {
            let record = record.unwrap();
            let number = |column: usize| record[column].parse::<i64>().unwrap();
            Pod {
                name: record[name].to_owned(),
                start: number(start) * 1_000,
                end: number(end) * 1_000,
                held: held.map(number),
            }
        })
        .collect();
    let last = pods.iter().map(|pod| pod.end).max().unwrap();
    // An odd number, so that boundaries fall anywhere.
    let shift = now_millis() - 3_600_001 - last;
    for pod in &mut pods {
        pod.start += shift;
        pod.end += shift;
    }
    Some((pods, shift))
}

/// Duration times measure, by day and measure, straight from the file.
fn expected(pods: &[Pod]) -> BTreeMap<(i64, &'static str), i128> {
    let mut sums = BTreeMap::new();
    for pod in pods {
        let mut from = pod.start;
        while from < pod.end {
            let day = from.div_euclid(DAY);
            let until = pod.end.min((day + 1) * DAY);
            for (measure, held) in MEASURES.into_iter().zip(pod.held) {
                *sums.entry((day, measure)).or_default() +=
                    i128::from(until - from) * i128::from(held);
            }
            *sums.entry((day, "duration")).or_default() += i128::from(until - from);
            from = until;
        }
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

fn billed(world: &Landscape) -> BTreeMap<(i64, &'static str), i128> {
    let mut sums = BTreeMap::new();
    for (day, amounts) in world.abacus.amounts_per_day() {
        for measure in MEASURES.into_iter().chain(["duration"]) {
            let amount = amounts.get(measure).copied().unwrap_or(0);
            if amount != 0 {
                sums.insert((day, measure), amount);
            }
        }
    }
    sums
}

fn event(pod: &Pod, timestamp: i64) -> Value {
    json!({
        "id": format!("{}-{timestamp}", pod.name),
        "timestamp": timestamp,
        "organization_id": "cluster",
        "space_id": "default",
        "consumer_id": pod.name,
        "resource_id": "pod",
        "plan_id": "standard",
        "resource_instance_id": pod.name,
    })
}

fn start_of(pod: &Pod) -> Value {
    let measured = MEASURES.into_iter().zip(pod.held);
    let measured: Vec<Value> = measured
        .map(|(measure, held)| json!({ "measure": measure, "quantity": held }))
        .collect();
    let mut start = event(pod, pod.start);
    start["measured_usage"] = Value::from(measured);
    start
}

/// Starts a pod, and stops it.
async fn replay(world: &Landscape, receiver: &Program, pod: &Pod) {
    world
        .take(receiver, "/v1/events/start", &start_of(pod))
        .await;
    world
        .take(receiver, "/v1/events/stop", &event(pod, pod.end))
        .await;
}

/// What dry runs show of the first pods, before anything is kept, is byte by byte what is posted.
#[tokio::test(flavor = "multi_thread")]
async fn the_real_trace_is_billed_to_the_millisecond_and_as_dry_runs_show_it() {
    let Some((pods, shift)) = pods() else {
        eprintln!("skipped: the trace is not at {}", file().display());
        return;
    };
    assert_eq!(pods.len(), 8_152);
    let world = Arc::new(Landscape::new("trace").await);
    let slack = (400 * DAY).to_string();
    let receiver = world.receiver().env("SAMPLER_SLACK_PAST_INTERVAL", "300d");
    let receiver = receiver
        .env("SAMPLER_DIMENSION", "day")
        .start()
        .await
        .unwrap();
    until_ready(&world.http, &receiver).await;
    let (first, others) = pods.split_at(500);
    let foreseen = foreseen(&world, &receiver, first).await;
    let spans = world.spans().await;
    assert_eq!(spans.count_documents(bson::doc! {}).await.unwrap(), 0);
    let replay_all = async |pods: &[Pod]| {
        let pods = stream::iter(pods);
        pods.for_each_concurrent(64, |pod| replay(&world, &receiver, pod))
            .await;
    };
    // Each has its stop before a worker sees it.
    replay_all(first).await;
    let worker = |world: &Landscape| {
        let worker = world.worker().env("SAMPLER_DIMENSION", "day");
        worker.env("SAMPLER_RETENTION", &slack)
    };
    let workers = [
        worker(&world).start().await.unwrap(),
        worker(&world).start().await.unwrap(),
    ];
    let count = pods.len() as u64;
    replay_all(others).await;
    wait_until("all pods are billed", Duration::from_mins(4), async || {
        let complete = bson::doc! { "processing.complete": true };
        // The verifier reads what a majority has.
        let count_complete = spans.count_documents(complete);
        let count_complete = count_complete.read_concern(ReadConcern::majority());
        count_complete.await.unwrap() == count
    })
    .await;
    assert_eq!(billed(&world), expected(&pods));
    let names: BTreeSet<&str> = first.iter().map(|pod| pod.name.as_str()).collect();
    let posts = world.abacus.posts().into_iter();
    let of_first = posts.filter(|post| {
        let usage = post.json();
        names.contains(usage["consumer_id"].as_str().unwrap())
    });
    let posted = of_first.map(|post| String::from_utf8(post.body.to_vec()).unwrap());
    assert_eq!(posted.collect::<BTreeSet<_>>(), foreseen);
    verify(&receiver, shift, count).await;
    drop(workers);
}

/// The verifier, which reads the file and the API by itself, finds nothing.
async fn verify(receiver: &Program, shift: i64, count: u64) {
    let mut command = Command::new(binary(CLI).await.unwrap());
    command.arg("verify").arg(file()).env_clear();
    command.args(["--url", &receiver.base_url(), "--granularity", "day"]);
    command.args(["--offset", &format!("{shift}ms"), "--kept", "400d"]);
    command.args(["--strict", "--json", "--concurrency", "2"]);
    let ended = command.output().await.unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && errors.is_empty(),
        "{}: {errors}{}",
        ended.status,
        String::from_utf8_lossy(&ended.stdout)
    );
    let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(report["totals"]["spans"], count);
    let duration = &report["totals"]["duration"];
    assert_eq!(duration["used"], duration["billed"]);
    assert_ne!(duration["used"], 0);
}

/// As they are in a batch: a start and a stop of each pod.
fn batch(pods: &[Pod]) -> Value {
    let events = pods.iter().flat_map(|pod| {
        let (mut start, mut stop) = (start_of(pod), event(pod, pod.end));
        start["type"] = json!("start");
        stop["type"] = json!("stop");
        [start, stop]
    });
    events.collect()
}

/// The usages that dry runs show, as they are written.
async fn foreseen(world: &Landscape, receiver: &Program, pods: &[Pod]) -> BTreeSet<String> {
    let mut usages = BTreeSet::new();
    for some in pods.chunks(50) {
        let path = "/v1/events?dry_run=true";
        let answer = world.post(receiver, path, &batch(some)).await;
        assert_eq!(answer.status().as_u16(), 200);
        let text = answer.text().await.unwrap();
        let all: Vec<Value> = serde_json::from_str(&text).unwrap();
        // What the start alone would come to is shown with it; with the stop, all that is posted.
        for stopped in all.iter().skip(1).step_by(2) {
            assert_eq!(
                (&stopped["would"], stopped.get("more")),
                (&json!(201), None)
            );
            for usage in stopped["usages"].as_array().unwrap() {
                let written = usage.to_string();
                assert!(text.contains(&written), "not as it is written: {written}");
                assert!(usages.insert(written));
            }
        }
    }
    usages
}
