//! What hostile clients can make the receiver and the worker keep in memory: never more than the
//! manifest gives them. A snapshot is not measured here: the limits of its parts are in
//! `receiver/src/snapshot/`, and what the manifest gives the receiver beyond this is for that.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use sampler_testkit::build::{start_event, with, without};
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::landscape::{HOUR, Landscape, PATIENCE, client, until_ready};

/// What deploy/manifest.yml gives to a worker, and half of what it gives to a receiver, in KB.
const MANIFEST: u64 = 128 << 10;

const LIVE: &[u8] = b"GET /healthz/live HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Longer than anything may take.
const AGES: Duration = Duration::from_mins(1);

/// The most memory that the program has had, in KB.
fn peak(program: &Program) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

#[track_caller]
pub(crate) fn assert_fits(program: &Program, what: &str) {
    let peak = peak(program);
    eprintln!("{what}: {peak} KB at the most");
    assert!(peak < MANIFEST, "{what}: {peak} KB");
}

fn head(length: usize) -> String {
    head_of("/v1/events/start", length)
}

fn head_of(path: &str, length: usize) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    )
}

async fn connect(program: &Program) -> TcpStream {
    TcpStream::connect(program.address()).await.unwrap()
}

/// The status of the next answer; nothing where the server has closed.
async fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut answer = vec![0; 16 << 10];
    let read = timeout(AGES, stream.read(&mut answer))
        .await
        .expect("an answer")
        .ok()?;
    let text = String::from_utf8_lossy(&answer[..read]).into_owned();
    text.split(' ').nth(1)?.parse().ok()
}

/// 98 KB, and a hundred times that in memory.
fn of_many_values(target: u64) -> String {
    let lists: Vec<Value> = vec![json!([]); 48_900];
    let mut event = start_event(target, now_millis());
    event["measured_usage"] = json!([{ "measure": "memory", "quantity": lists }]);
    event.to_string()
}

/// The status that a body is answered with; nothing where the server has closed.
async fn send(address: &str, path: &str, body: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = head_of(path, body.len());
    stream.write_all(head.as_bytes()).await.unwrap();
    // A body that is turned away need not be read.
    let _ = stream.write_all(body.as_bytes()).await;
    status(&mut stream).await
}

/// An event of half a megabyte in one text.
fn of_a_long_text(target: u64) -> Value {
    let mut event = start_event(target, now_millis());
    event["measured_usage"] = json!([{ "measure": "m", "quantity": "x".repeat(490_000) }]);
    event
}

async fn long_texts(program: &Program, targets: Range<u64>) {
    let mut answers = JoinSet::new();
    for target in targets {
        let (body, address) = (
            of_a_long_text(target).to_string(),
            program.address().to_owned(),
        );
        answers.spawn(async move { send(&address, "/v1/events/start", &body).await });
    }
    while let Some(answer) = answers.join_next().await {
        assert!(matches!(answer.unwrap(), Some(201 | 429 | 503) | None));
    }
}

/// Clients that send their bodies one after the other, and read only the head of each answer. Says
/// how many were taken, with the first of the statuses that are allowed.
async fn keep_sending(
    program: &Program,
    clients: u64,
    (path, allowed): (&'static str, &'static [u16]),
    body: impl Fn(u64, u64) -> String + Copy + Send + 'static,
) -> usize {
    let until = Instant::now() + Duration::from_secs(8);
    let mut sending = JoinSet::new();
    for client in 0..clients {
        let address = program.address().to_owned();
        sending.spawn(async move {
            let mut taken = 0;
            for number in 0.. {
                if Instant::now() > until {
                    break;
                }
                let status = send(&address, path, &body(client, number)).await;
                assert!(status.is_none_or(|it| allowed.contains(&it)), "{status:?}");
                taken += usize::from(status == Some(allowed[0]));
            }
            taken
        });
    }
    sending.join_all().await.into_iter().sum()
}

/// Clients that send events of half a megabyte.
async fn never_without_long_texts(program: &Program, clients: u64) {
    let way = ("/v1/events/start", &[201, 429, 503][..]);
    keep_sending(program, clients, way, |client, number| {
        let mut event = of_a_long_text(10_000 + 1_000 * client + number);
        event["resource_id"] = json!(format!("resource {client}"));
        event.to_string()
    })
    .await;
}

/// What the batches of a client are made of.
#[derive(Clone, Copy)]
enum Batches {
    /// A thousand usual events.
    Usual,
    /// A thousand events with many values each, 4 MB together.
    ManyValues,
    /// The largest events that a batch can have.
    Largest,
}

impl Batches {
    const ALL: [Self; 3] = [Self::Usual, Self::ManyValues, Self::Largest];

    /// A batch that no other has the targets of.
    fn body(self, client: u64, number: u64) -> String {
        let events = if matches!(self, Self::Largest) {
            8
        } else {
            1_000
        };
        let first = 1_000_000 * (client + 1) + 1_000 * number;
        let events = (first..first + events).map(|target| {
            let mut event = start_event(target, now_millis());
            event["type"] = json!("start");
            event["resource_id"] = json!(format!("resource {client}"));
            let lists = match self {
                Self::Usual => 0,
                Self::ManyValues => 1_150,
                Self::Largest => 48_900,
            };
            if lists > 0 {
                let lists: Vec<Value> = vec![json!([]); lists];
                event["measured_usage"] = json!([{ "measure": "m", "quantity": lists }]);
            }
            event
        });
        events.collect::<Value>().to_string()
    }
}

/// Clients that send batches.
async fn never_without_batches(program: &Program, clients: u64) -> usize {
    let way = ("/v1/events", &[200, 408, 429, 503][..]);
    keep_sending(program, clients, way, |client, number| {
        let batches = Batches::ALL[usize::try_from(client % 3).unwrap()];
        batches.body(client, number)
    })
    .await
}

async fn many_values(program: &Program, targets: Range<u64>) {
    let mut answers = JoinSet::new();
    for target in targets {
        let (body, mut stream) = (of_many_values(target), connect(program).await);
        answers.spawn(async move {
            stream.write_all(head(body.len()).as_bytes()).await.unwrap();
            stream.write_all(body.as_bytes()).await.unwrap();
            status(&mut stream).await
        });
    }
    while let Some(answer) = answers.join_next().await {
        assert!(matches!(answer.unwrap(), Some(201 | 429 | 503)));
    }
}

async fn bodies_that_stop_short(program: &Program, bodies: usize) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..bodies {
        let mut stream = connect(program).await;
        let begun = format!("{}\"{}", head(499_000), "x".repeat(480_000));
        // A body that is turned away need not be read.
        let _ = stream.write_all(begun.as_bytes()).await;
        held.push(stream);
    }
    held
}

async fn readers_of_nothing(program: &Program, clients: usize) -> JoinSet<()> {
    let requests = "GET /v1/events/start HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(2_000);
    let mut sending = JoinSet::new();
    for _ in 0..clients {
        let (mut stream, requests) = (connect(program).await, requests.clone());
        sending.spawn(async move { while stream.write_all(requests.as_bytes()).await.is_ok() {} });
    }
    sending
}

/// Connections that hold as much as they can without a request.
async fn idle(program: &Program, count: usize, begun: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut stream = connect(program).await;
        stream.write_all(LIVE).await.unwrap();
        assert_eq!(status(&mut stream).await, Some(200));
        stream.write_all(begun.as_bytes()).await.unwrap();
        held.push(stream);
    }
    held
}

/// A health check is answered before the time limit of a head ends the first of those that hold up others.
async fn is_alive(program: &Program) {
    let began = Instant::now();
    let mut stream = connect(program).await;
    stream.write_all(LIVE).await.unwrap();
    assert_eq!(status(&mut stream).await, Some(200));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

async fn receiver(world: &Landscape) -> Program {
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    receiver
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_fit_into_what_the_manifest_gives() {
    let world = Landscape::new("hostile_bodies").await;
    let receiver = receiver(&world).await;
    many_values(&receiver, 0..20).await;
    assert_fits(&receiver, "20 bodies of 48,900 values");
    long_texts(&receiver, 1_000..1_120).await;
    assert_fits(&receiver, "120 texts of half a megabyte");
    let slow = bodies_that_stop_short(&receiver, 300).await;
    many_values(&receiver, 200..205).await;
    assert_fits(
        &receiver,
        "300 bodies of half a megabyte that stop short, and 5 of many values",
    );
    is_alive(&receiver).await;
    drop(slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_events_without_end_fit_into_what_the_manifest_gives() {
    let world = Landscape::new("large_events").await;
    let receiver = receiver(&world).await;
    // What was there before leaves its memory in pieces.
    drop(idle(&receiver, 4_200, &format!("{}{{", head(300))).await);
    many_values(&receiver, 0..20).await;
    assert_fits(
        &receiver,
        "4,200 bodies that are begun, then 20 of 48,900 values",
    );
    never_without_long_texts(&receiver, 60).await;
    assert_fits(&receiver, "60 clients that keep sending half a megabyte");
    is_alive(&receiver).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_without_end_fit_into_what_the_manifest_gives() {
    let world = Landscape::new("batches_without_end").await;
    let receiver = receiver(&world).await;
    let taken = never_without_batches(&receiver, 60).await;
    assert_fits(&receiver, "60 clients that keep sending batches");
    assert!(taken > 0, "no batch was taken");
    is_alive(&receiver).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_read_nothing_fit_into_what_the_manifest_gives() {
    let world = Landscape::new("readers_of_nothing").await;
    let receiver = receiver(&world).await;
    let sending = readers_of_nothing(&receiver, 300).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_fits(&receiver, "300 clients that read nothing");
    is_alive(&receiver).await;
    drop(sending);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_do_nothing_fit_into_what_the_manifest_gives_and_health_is_told() {
    let world = Landscape::new("idle_connections").await;
    let receiver = receiver(&world).await;
    let idlers = idle(&receiver, 4_200, "").await;
    assert_fits(&receiver, "4,200 connections that are idle");
    is_alive(&receiver).await;
    drop(idlers);
    let begun = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(15_000));
    let slow = idle(&receiver, 4_200, &begun).await;
    assert_fits(&receiver, "4,200 connections with heads that stop short");
    is_alive(&receiver).await;
    drop(slow);
}

/// A snapshot of 100,000 instances, of which the first 10,000 have spans.
async fn snapshot(receiver: &Program, at: i64) -> Value {
    let instance = |number: u64| {
        json!({
            "organization_id": "6f2d4b8a-1c3e-4d5f-8a9b-000000000000", "space_id": "s",
            "consumer_id": format!("service:instance-{number}"), "plan_id": "large",
            "resource_instance_id": format!("instance-{number}"),
            "measured_usage": [{ "measure": "memory", "quantity": 512 }],
        })
    };
    let http = client();
    for first in (0..10_000).step_by(1_000) {
        let starts: Value = (first..first + 1_000)
            .map(|number| {
                let mut start = instance(number);
                start["type"] = json!("start");
                start["timestamp"] = json!(at);
                start["resource_id"] = json!("postgres");
                start["id"] = json!("start");
                start
            })
            .collect();
        let batch = http.post(format!("{}/v1/events", receiver.base_url()));
        let answer: Value = batch
            .json(&starts)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert_eq!(answer["accepted"], 1_000);
    }
    let mut body = format!("{{\"resource_id\": \"postgres\", \"at\": {at}}}\n");
    body.extend((0..100_000).map(|number| format!("{}\n", instance(number))));
    let post = http.post(format!("{}/v1/snapshots", receiver.base_url()));
    let post = post
        .header("content-type", "application/x-ndjson")
        .timeout(3 * PATIENCE)
        .body(body);
    post.send().await.unwrap().json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_100_000_instances_fits_into_what_the_manifest_gives() {
    let world = Landscape::new("large_snapshot").await;
    let receiver = receiver(&world).await;
    let at = now_millis() - HOUR;
    let answer = snapshot(&receiver, at).await;
    assert_fits(&receiver, "a snapshot of 100,000 instances");
    assert_eq!(answer["checked"], 100_000);
    let count = |list: &str| answer[list].as_array().unwrap().len();
    let lists = ["open_without_instance", "instance_without_span", "differs"];
    assert_eq!(lists.map(count), [0, 90_000, 0]);
}

/// Open spans with two intervals to sample, half a megabyte of measures each.
async fn open_large_spans(world: &Landscape, receiver: &Program, spans: u64) {
    for target in 0..spans {
        let mut event = start_event(target, now_millis() - 2 * HOUR);
        event["id"] = json!("start");
        // Few values with long texts, or many that are short.
        event["measured_usage"] = if target % 4 == 0 {
            json!([{ "measure": "memory", "quantity": vec![json!([]); 48_900] }])
        } else {
            json!([{ "measure": "m", "quantity": "x".repeat(490_000) }])
        };
        world.take(receiver, "/v1/events/start", &event).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_spans_fit_into_what_the_manifest_gives_the_worker() {
    const SPANS: u64 = 160;
    let world = Landscape::new("large_spans").await;
    let receiver = receiver(&world).await;
    open_large_spans(&world, &receiver, SPANS).await;
    let worker = world.worker().start().await.unwrap();
    let spans = world.spans().await;
    wait_until("each span is sampled", 3 * PATIENCE, async || {
        let sampled = bson::doc! { "processing.totals.billed": { "$gte": HOUR } };
        spans.count_documents(sampled).await.unwrap() == SPANS
    })
    .await;
    assert_fits(&worker, "160 open spans of up to half a megabyte");
    assert_fits(&receiver, "160 starts of up to half a megabyte, one by one");
}

/// Sends all at the same time, and wants the span of each answer. Says how many events had which status.
async fn all_at_once(receiver: &Program, path: &str, bodies: Vec<Value>) -> BTreeMap<u64, usize> {
    let (http, url) = (client(), format!("{}{path}", receiver.base_url()));
    let mut sending = JoinSet::new();
    for body in bodies {
        let post = http.post(&url).header("prefer", "return=representation");
        sending.spawn(async move {
            let answer = post.json(&body).send().await.unwrap();
            let (status, body) = (answer.status(), answer.bytes().await.unwrap());
            let batch: Value = serde_json::from_slice(&body).unwrap_or_default();
            match batch["results"].as_array() {
                Some(results) => {
                    let statuses = results.iter().map(|result| result["status"].as_u64());
                    statuses.collect::<Option<_>>().unwrap()
                }
                None => vec![u64::from(status.as_u16())],
            }
        });
    }
    let mut counts = BTreeMap::new();
    for status in sending.join_all().await.into_iter().flatten() {
        *counts.entry(status).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn small_events_about_large_spans_fit_into_what_the_manifest_gives() {
    const SPANS: u64 = 128;
    let world = Landscape::new("about_large_spans").await;
    let opening = receiver(&world).await;
    open_large_spans(&world, &opening, SPANS).await;
    drop(opening);
    let receiver = receiver(&world).await;
    let (then, now) = (now_millis() - 3 * HOUR, now_millis());
    let outside_slack = now - 90 * 24 * HOUR;
    for (kind, id, at, in_batches, expected) in [
        ("start", "another", then, true, 409),
        ("start", "start", then, true, 409),
        ("start", "start", outside_slack, false, 409),
        ("update", "start", then, false, 409),
        ("stop", "stop", then, true, 422),
        ("stop", "stop", now, false, 201),
        ("stop", "stop", now, true, 201),
    ] {
        let events = (0..SPANS).map(|target| {
            let event = with(start_event(target, at), "id", id);
            match kind {
                "stop" => without(event, "measured_usage"),
                _ => event,
            }
        });
        let (path, bodies) = if in_batches {
            let batch: Value = events.map(|event| with(event, "type", kind)).collect();
            ("/v1/events".to_owned(), vec![batch.clone(), batch])
        } else {
            (format!("/v1/events/{kind}"), events.collect())
        };
        let what = format!("{path}: {kind}s of {SPANS} large spans, {id} at {at}");
        let statuses = all_at_once(&receiver, &path, bodies).await;
        assert_fits(&receiver, &what);
        assert!(statuses.get(&expected) > Some(&64), "{what}: {statuses:?}");
    }
}

/// An upstream that fails each post, and answers each find with as much as it likes.
async fn hostile_upstream() -> (String, Arc<AtomicUsize>) {
    let finds = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&finds);
    // Values that take many times their bytes where they are kept.
    let answer = format!("[{}{{}}]", "{\"id\":[{}]},".repeat(160_000));
    assert!(answer.len() < 2 << 20, "{}", answer.len());
    let router = Router::new()
        .route("/events", post(async || StatusCode::SERVICE_UNAVAILABLE))
        .fallback(async move || {
            seen.fetch_add(1, Ordering::Relaxed);
            answer
        });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, finds)
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_a_hostile_upstream_fit_into_what_the_manifest_gives_the_worker() {
    const FINDS: usize = 200;
    let world = Landscape::new("hostile_upstream").await;
    let receiver = receiver(&world).await;
    for target in 0..100 {
        let event = start_event(target, now_millis() - 2 * HOUR);
        world.take(&receiver, "/v1/events/start", &event).await;
    }
    let (upstream, finds) = hostile_upstream().await;
    let worker = world
        .worker()
        .env("COLLECTOR_URL", "")
        .env("SAMPLER_UPSTREAM", "cloudevents")
        .env("SAMPLER_UPSTREAM_URL", format!("{upstream}/events"))
        .env(
            "SAMPLER_UPSTREAM_FIND_URL",
            format!("{upstream}/find?id={{id}}"),
        )
        .env("SAMPLER_UPSTREAM_HORIZON", "3s")
        .env("SAMPLER_UPSTREAM_SETTLES", "0ms")
        .env("SAMPLER_POST_TIMEOUT", "1s")
        .env("SAMPLER_RETRY_FIRST", "100ms");
    let worker = worker.start().await.unwrap();
    wait_until("many finds are answered", 2 * PATIENCE, async || {
        finds.load(Ordering::Relaxed) >= FINDS
    })
    .await;
    assert_fits(&worker, "200 answers of 2 MB to finds");
}
