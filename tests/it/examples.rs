//! The examples for providers, also where what stands between them and the receiver answers amiss.

use std::net::Ipv4Addr;
use std::process::Output;

use sampler_testkit::build::without;
use sampler_testkit::{now_millis, workspace_dir};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use crate::cli::event;
use crate::landscape::{HOUR, Landscape};

const KEPT: &str = r#"{"accepted":2,"replayed":0,"refused":0,"failed":0,"results":[
    {"index":0,"status":201,"replayed":false,"span":"s"},{"index":1,"status":201,"replayed":false}]}"#;
const PAGE: &str = "<html><h1>Bad Gateway</h1></html>";

/// What a program prints that is told where the receiver is, and its exit code.
async fn run(url: &str, command: &[&str], instance: &str) -> (Option<i32>, String) {
    let mut program = Command::new(command[0]);
    program.args(&command[1..]).arg(instance);
    program.current_dir(workspace_dir()).kill_on_drop(true);
    program.env("SAMPLER_URL", url);
    let Output {
        status,
        stdout,
        stderr,
    } = program.output().await.unwrap();
    let text = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    (status.code(), text.concat())
}

/// Sends its events; sends them again; is told what is refused. Sends them again, too, where an answer is amiss.
async fn works(label: &str, command: &[&str]) {
    let world = Landscape::new(label).await;
    let receiver = world.ready_receiver().await;
    let url = receiver.base_url();
    let spans = world.spans().await;
    let hours_since = |began: i64| u64::try_from(now_millis() / HOUR - began / HOUR).unwrap();
    let began = now_millis();
    for _ in 0..2 {
        let (code, text) = run(&url, command, "db-1").await;
        assert_eq!(code, Some(0), "{text}");
        let is_told = text.starts_with("0: 201 ") && text.contains("\n1: 201");
        assert!(is_told, "{text}");
        let stopped = bson::doc! { "end": { "$ne": null } };
        // Within an hour the second time is a repeat.
        let count = spans.count_documents(stopped).await.unwrap();
        assert!((1..=1 + hours_since(began)).contains(&count), "{count}");
    }
    // Its start lies within another usage.
    let mut other = event("start", "db-2", now_millis() - 3 * HOUR);
    other["organization_id"] = json!("org-1");
    other["space_id"] = json!("space-1");
    other["consumer_id"] = json!("service:db-2");
    other["plan_id"] = json!("large");
    let other = without(other, "type");
    world.take(&receiver, "/v1/events/start", &other).await;
    let (code, text) = run(&url, command, "db-2").await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("0: 409 /problems/open-span"), "{text}");
    sends_again(command).await;
}

/// Sends the same batch again until an answer says the outcome of each event.
async fn sends_again(command: &[&str]) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // The second one breaks off.
    let answers = [
        ("502 Bad Gateway", PAGE, PAGE.len()),
        ("200 OK", &KEPT[..60], 1_000),
        ("200 OK", PAGE, PAGE.len()),
        ("200 OK", KEPT, KEPT.len()),
    ];
    let serving = tokio::spawn(async move {
        let mut bodies = Vec::new();
        for (status, body, length) in answers {
            let (mut connection, _) = listener.accept().await.unwrap();
            bodies.push(take(&mut connection).await);
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n");
            let answer = format!("{head}connection: close\r\n\r\n{body}");
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
        bodies
    });
    let (code, text) = run(&url, command, "db-1").await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("0: 201 s\n1: 201"), "{text}");
    let bodies = serving.await.unwrap();
    assert!(bodies.iter().all(|body| *body == bodies[0]));
}

/// Takes one request, and returns its body.
async fn take(connection: &mut TcpStream) -> Vec<u8> {
    let mut reader = BufReader::new(connection);
    let (mut line, mut length) = (String::new(), 0);
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).await.unwrap();
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_in_shell_works() {
    works("example_sh", &["examples/send.sh"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_in_python_works() {
    works("example_py", &["python3", "examples/send.py"]).await;
}
