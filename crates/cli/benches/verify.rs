//! What `sampler verify` needs for a million usages: `cargo bench -p sampler-cli --bench verify` says how long it
//! takes, and its most memory at a time (on Linux). A stand-in on this machine answers as the API does.

use std::error::Error;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use axum::extract::Path;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Spans, and usages of each, one an hour: as many as are asked for at once.
const SPANS: i64 = 1_000;
const USAGES: i64 = 1_000;
const HOUR: i64 = 3_600_000;
/// 2026-11-20T00:00:00 UTC, when all spans end.
const END: i64 = 1_795_132_800_000;
const START: i64 = END - USAGES * HOUR;
/// How often the memory is read.
const POLL: Duration = Duration::from_millis(10);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let router = Router::new()
        .route("/v1/spans", get(spans))
        .route("/v1/spans/{id}/usages", get(usages));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async { axum::serve(listener, router).await });
    let mut events = tempfile::Builder::new().suffix(".ndjson").tempfile()?;
    for span in 0..SPANS {
        let [start, stop] =
            [("start", START), ("stop", END)].map(|(kind, at)| event(span, kind, at));
        writeln!(events, "{start}\n{stop}")?;
    }
    let begin = Instant::now();
    let mut verify = Command::new(env!("CARGO_BIN_EXE_sampler"))
        .arg("verify")
        .arg(events.path())
        .args(["--url", &url, "--granularity", "hour", "--now"])
        .arg((END + HOUR).to_string())
        .stdin(Stdio::null())
        .spawn()?;
    let mut memory = None;
    let status = loop {
        memory = most_memory(verify.id()).or(memory);
        if let Some(status) = verify.try_wait()? {
            break status;
        }
        thread::sleep(POLL);
    };
    let (seconds, memory) = (begin.elapsed().as_secs_f64(), memory.unwrap_or_default());
    println!("{} usages: {seconds:.1} s, {memory}", SPANS * USAGES);
    let is_done = status.success().then_some(());
    is_done.ok_or_else(|| status.to_string().into())
}

/// The most memory that a process has had at a time, as the kernel writes it.
fn most_memory(process: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let mut lines = status.lines();
    let most = lines.find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(most.trim().to_owned())
}

fn target(span: i64) -> Value {
    json!({
        "organization_id": "acme", "space_id": "prod", "consumer_id": "shop",
        "resource_id": "postgres", "plan_id": "large", "resource_instance_id": format!("db-{span}"),
    })
}

fn event(span: i64, kind: &str, timestamp: i64) -> Value {
    let mut event = target(span);
    event["type"] = json!(kind);
    event["id"] = json!(format!("{kind}-{span}"));
    event["timestamp"] = json!(timestamp);
    event["measured_usage"] = json!([{ "measure": "memory", "quantity": 512 }]);
    event
}

async fn spans() -> Json<Value> {
    let length = END - START;
    let spans = (0..SPANS).map(|span| {
        json!({
            "id": span.to_string(), "target": target(span), "start": START, "end": END,
            "measured_usage": [{ "measure": "memory", "quantity": 512 }], "state": "complete",
            "start_event_id": format!("start-{span}"), "sampled_to": END,
            "proof": { "used": length, "billed": length, "skipped": 0, "unanswered": 0 },
        })
    });
    let spans: Vec<Value> = spans.collect();
    Json(json!({ "items": spans }))
}

async fn usages(Path(span): Path<i64>) -> Json<Value> {
    let usages = (0..USAGES).map(|usage| {
        let start = START + usage * HOUR;
        json!({
            "id": format!("ad1f2853-43e0-5cbf-{span:04}-{usage:012}"), "span": span.to_string(),
            "interval": { "start": start, "end": start + HOUR }, "timestamp": start + HOUR / 2,
            "duration": HOUR, "accepted_at": start + HOUR + 59, "status": 202,
            "measured_usage": [{ "measure": "memory", "quantity": 512 }, { "measure": "duration", "quantity": HOUR }],
            "location": "https://abacus.example/v1/metering/collected/usage/t/1",
        })
    });
    let usages: Vec<Value> = usages.collect();
    Json(json!({ "items": usages }))
}
