//! The examples for providers, and the nightly comparison of docs/brokers.md, as they stand there.

use std::path::Path;
use std::process::Output;

use sampler_testkit::build::without;
use sampler_testkit::{Program, now_millis, workspace_dir};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cli::event;
use crate::examples_amiss::sends_again;
use crate::landscape::{HOUR, Landscape, until_ready};

/// Whether the machine has a program; says that a test is skipped if not.
pub(crate) async fn has(program: &str, argument: &str) -> bool {
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
        let stopped = bson::doc! { "end_is_set": true };
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

#[tokio::test(flavor = "multi_thread")]
async fn the_example_in_go_works() {
    if has("go", "version").await {
        works("example_go", &["go", "run", "examples/send.go"]).await;
    }
}

/// The commands of docs/brokers.md that compare all instances with the spans.
fn nightly() -> String {
    let page = std::fs::read_to_string(workspace_dir().join("docs/brokers.md")).unwrap();
    let (_, section) = page.split_once("## Reconcile nightly").unwrap();
    let (_, commands) = section.split_once("```\n").unwrap();
    let (commands, _) = commands.split_once("```").unwrap();
    assert!(commands.lines().count() <= 10, "{commands}");
    commands.to_owned()
}

/// Runs them; says what they print.
async fn compare(receiver: &Program, folder: &Path, instances: &[Value]) -> (Option<i32>, String) {
    compare_list(receiver, folder, instances, "cat instances").await
}

/// The same with a query of this command.
async fn compare_list(
    receiver: &Program,
    folder: &Path,
    instances: &[Value],
    query: &str,
) -> (Option<i32>, String) {
    let lines: String = instances.iter().map(|one| format!("{one}\n")).collect();
    std::fs::write(folder.join("instances"), lines).unwrap();
    let script = format!("list-instances() {{ {query}; }}\n{}", nightly());
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(folder);
    shell
        .env("RECEIVER", receiver.base_url())
        .env("TOKEN", "any");
    let ran = shell.output().await.unwrap();
    let text = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
    (ran.status.code(), text.concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_reconciles_nightly() {
    for program in ["bash", "curl", "jq"] {
        if !has(program, "--version").await {
            return;
        }
    }
    let world = Landscape::new("nightly").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let began = now_millis() - 5 * HOUR;
    for name in ["same", "gone", "plan"] {
        let start = without(event("start", name, began), "type");
        world.take(&receiver, "/v1/events/start", &start).await;
    }
    let instance = |name: &str, plan: &str| {
        json!({ "organization_id": "o", "space_id": "s", "consumer_id": "c", "plan_id": plan,
            "resource_instance_id": name, "since": began })
    };
    let mut instances = vec![instance("same", "p"), instance("new", "p")];
    let folder = tempfile::tempdir().unwrap();
    let (code, text) = compare(&receiver, folder.path(), &instances).await;
    assert_eq!((code, text.as_str()), (Some(0), ""));
    let spans = world.spans().await;
    let open = bson::doc! { "end_is_set": { "$ne": true } };
    assert_eq!(spans.count_documents(open.clone()).await.unwrap(), 2);
    let (code, text) = compare(&receiver, folder.path(), &instances).await;
    assert_eq!((code, text.as_str()), (Some(0), ""));
    // A list that lacks most instances, or has far too many, stops nothing and starts nothing.
    instances.extend((0..101).map(|number| instance(&format!("more-{number}"), "p")));
    let (code, text) = compare(&receiver, folder.path(), &instances).await;
    assert_eq!(
        (code, text.as_str()),
        (Some(1), "look at the proposals first\n")
    );
    // Nor does one whose query fails near its end.
    instances.truncate(2);
    let query = "head -n 1 instances; echo the database has gone >&2; return 3";
    let (code, text) = compare_list(&receiver, folder.path(), &instances, query).await;
    assert_eq!((code, text.as_str()), (Some(3), "the database has gone\n"));
    // What is refused is said.
    instances.push(json!({ "organization_id": "o" }));
    let (code, text) = compare(&receiver, folder.path(), &instances).await;
    assert!(code == Some(22) && text.contains("400"), "{code:?} {text}");
    assert_eq!(spans.count_documents(open).await.unwrap(), 2);
}
