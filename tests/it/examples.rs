//! The examples for providers.

use std::process::Output;

use sampler_testkit::build::without;
use sampler_testkit::{Program, now_millis, workspace_dir};
use serde_json::json;
use tokio::process::Command;

use crate::cli::event;
use crate::examples_amiss::sends_again;
use crate::landscape::{HOUR, Landscape, until_ready};

/// Whether the machine has a program; says that a test is skipped if not.
async fn has(program: &str, argument: &str) -> bool {
    let ran = Command::new(program).arg(argument).output().await;
    let is_there = ran.is_ok_and(|ran| ran.status.success());
    if !is_there {
        eprintln!("skipped: this machine has no {program}");
    }
    is_there
}

/// What a program prints that is told where the receiver is, and its exit code.
async fn run(receiver: &Program, command: &[&str]) -> (Option<i32>, String) {
    let mut program = Command::new(command[0]);
    program.args(&command[1..]).current_dir(workspace_dir());
    program.env("SAMPLER_URL", receiver.base_url());
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
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let spans = world.spans().await;
    let mine = [command, &["db-1"]].concat();
    let hours_since = |began: i64| u64::try_from(now_millis() / HOUR - began / HOUR).unwrap();
    let began = now_millis();
    for _ in 0..2 {
        let (code, text) = run(&receiver, &mine).await;
        assert_eq!(code, Some(0), "{text}");
        assert!(
            text.starts_with("0: 201 ") && text.contains("\n1: 201"),
            "{text}"
        );
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
    let (code, text) = run(&receiver, &[command, &["db-2"]].concat()).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("0: 409 /problems/open-span"), "{text}");
    sends_again(command).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_in_shell_works() {
    if has("curl", "--version").await && has("jq", "--version").await {
        works("example_sh", &["examples/send.sh"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_in_python_works() {
    if has("python3", "--version").await {
        works("example_py", &["python3", "examples/send.py"]).await;
    }
}
