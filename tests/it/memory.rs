//! What hostile clients can make the programs keep in memory: never more than the manifest gives them.

use std::fs;
use std::time::Duration;

use sampler_testkit::build::{start_event, with};
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::landscape::{HOUR, Landscape, PATIENCE};

/// What deploy/manifest.yml gives to a worker, and at least to a receiver, in KB.
const MANIFEST: u64 = 128 << 10;

/// The most memory that the program has had.
#[track_caller]
fn assert_fits(program: &Program, what: &str) {
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = line.unwrap().trim().trim_end_matches(" kB");
    let peak: u64 = peak.parse().unwrap();
    eprintln!("{what}: {peak} KB at the most");
    assert!(peak < MANIFEST, "{what}: {peak} KB");
}

/// 98 KB of values, and a hundred times that in memory; or half a megabyte in one text.
fn large_start(target: u64, at: i64) -> Value {
    let quantity = match target % 4 {
        0 => json!(vec![json!([]); 48_900]),
        _ => json!("x".repeat(490_000)),
    };
    let measured = json!([{ "measure": "memory", "quantity": quantity }]);
    with(start_event(target, at), "measured_usage", measured)
}

/// A thousand usual events, a thousand of many values, or the largest events that a batch can have.
fn batch(client: u64, number: u64) -> Value {
    let (events, lists) = [(1_000, 0), (1_000, 1_150), (8, 48_900)][client as usize % 3];
    let first = 1_000_000 * (client + 1) + 1_000 * number;
    let events = (first..first + events).map(|target| {
        let event = with(start_event(target, now_millis()), "type", "start");
        let event = with(event, "resource_id", format!("resource {client}"));
        let measured = json!([{ "measure": "m", "quantity": vec![json!([]); lists] }]);
        match lists {
            0 => event,
            _ => with(event, "measured_usage", measured),
        }
    });
    events.collect()
}

/// The status of the next answer; nothing where the server has closed.
async fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut answer = vec![0; 16 << 10];
    let read = timeout(PATIENCE, stream.read(&mut answer)).await;
    let read = read.expect("an answer").ok()?;
    let text = String::from_utf8_lossy(&answer[..read]).into_owned();
    text.split(' ').nth(1)?.parse().ok()
}

/// Reads only the head of the answer.
async fn send(address: &str, path: &str, body: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A body that is turned away need not be read.
    let _ = stream.write_all(body.as_bytes()).await;
    status(&mut stream).await
}

/// 60 clients that send bodies one after the other for 8 s. Says how many were taken.
async fn keep_sending(program: &Program, path: &'static str, body: fn(u64, u64) -> Value) -> usize {
    let until = Instant::now() + Duration::from_secs(8);
    let mut sending = JoinSet::new();
    for client in 0..60 {
        let address = program.address().to_owned();
        sending.spawn(async move {
            let mut taken = 0;
            for number in 0.. {
                if Instant::now() > until {
                    break;
                }
                let status = send(&address, path, &body(client, number).to_string()).await;
                let is_allowed = matches!(status, Some(200 | 201 | 408 | 429 | 503) | None);
                assert!(is_allowed, "{status:?}");
                taken += usize::from(matches!(status, Some(200 | 201)));
            }
            taken
        });
    }
    sending.join_all().await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_events_and_batches_without_end_fit_into_what_the_manifest_gives() {
    let world = Landscape::new("without_end").await;
    let receiver = world.ready_receiver().await;
    let large = |client: u64, number| {
        let event = large_start(10_000 + 1_000 * client + number, now_millis());
        with(event, "resource_id", format!("resource {client}"))
    };
    let taken = keep_sending(&receiver, "/v1/events/start", large).await;
    assert_fits(&receiver, "60 clients that keep sending large events");
    assert!(taken > 0, "no event was taken");
    let taken = keep_sending(&receiver, "/v1/events", batch).await;
    assert_fits(&receiver, "60 clients that keep sending batches");
    assert!(taken > 0, "no batch was taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_with_heads_that_stop_short_fit_into_what_the_manifest_gives() {
    let world = Landscape::new("idle_connections").await;
    let receiver = world.ready_receiver().await;
    let begun = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(15_000));
    let mut held = Vec::new();
    for _ in 0..3_000 {
        let mut stream = TcpStream::connect(receiver.address()).await.unwrap();
        let live = b"GET /healthz/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(live).await.unwrap();
        assert_eq!(status(&mut stream).await, Some(200));
        stream.write_all(begun.as_bytes()).await.unwrap();
        held.push(stream);
    }
    assert_fits(&receiver, "3,000 connections with heads that stop short");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_spans_fit_into_what_the_manifest_gives_to_both_programs() {
    const SPANS: u64 = 160;
    let world = Landscape::new("large_spans").await;
    let opening = world.ready_receiver().await;
    for target in 0..SPANS {
        let event = large_start(target, now_millis() - 2 * HOUR);
        world.take(&opening, "/v1/events/start", &event).await;
    }
    drop(opening);
    let receiver = world.ready_receiver().await;
    // Small events, each of which is compared with what is kept.
    let others = (0..SPANS).map(|target| {
        let event = with(start_event(target, now_millis() - HOUR), "id", "another");
        with(event, "type", "start")
    });
    let others: Value = others.collect();
    let answer = world.post(&receiver, "/v1/events", &others).await;
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["refused"], SPANS, "{answer}");
    assert_fits(&receiver, "160 small events about large spans");
    let worker = world.worker().start().await.unwrap();
    wait_until("each span is sampled", 3 * PATIENCE, async || {
        let billed = world
            .abacus
            .duration_sum_by(|usage| usage.target()[5].to_owned());
        billed.len() as u64 == SPANS && billed.values().all(|length| *length >= i128::from(HOUR))
    })
    .await;
    assert_fits(&worker, "160 open spans of up to half a megabyte");
}
