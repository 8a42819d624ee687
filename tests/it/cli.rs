//! The command line against the real programs.

use std::path::Path;
use std::process::Output;

use sampler_testkit::build::without;
use sampler_testkit::program::{CLI, binary};
use sampler_testkit::{Program, now_millis};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::landscape::{HOUR, Landscape};

/// The command line, as somebody uses it who has set the address of a receiver.
pub(crate) struct Cli {
    program: std::path::PathBuf,
    url: String,
}

impl Cli {
    pub(crate) async fn of(receiver: &Program) -> Self {
        Self {
            program: binary(CLI).await.unwrap(),
            url: receiver.base_url(),
        }
    }

    /// What it prints, if it ends like that.
    pub(crate) async fn run(&self, code: i32, arguments: &[&str]) -> String {
        self.both(code, arguments).await.0
    }

    /// Prints these parts, and succeeds.
    pub(crate) async fn says(&self, arguments: &[&str], parts: &[&str]) -> String {
        let text = self.run(0, arguments).await;
        for part in parts {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        text
    }

    /// Ends like that, and complains of this.
    pub(crate) async fn complains(&self, code: i32, arguments: &[&str], of: &str) {
        let (_, complaint) = self.both(code, arguments).await;
        assert!(complaint.contains(of), "{arguments:?}: {complaint}");
    }

    /// What it prints to its output and its errors, if it ends like that.
    async fn both(&self, code: i32, arguments: &[&str]) -> (String, String) {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_clear();
        command.env("SAMPLER_URL", &self.url);
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().await.unwrap();
        let (text, errors) = (String::from_utf8(stdout), String::from_utf8(stderr));
        let (text, errors) = (text.unwrap(), errors.unwrap());
        assert_eq!(status.code(), Some(code), "{arguments:?}: {errors}{text}");
        (text, errors)
    }

    pub(crate) async fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let text = self.run(code, &[arguments, &["--json"]].concat()).await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

pub(crate) fn event(kind: &str, instance: &str, timestamp: i64) -> Value {
    let mut event = json!({
        "type": kind, "id": format!("{kind}-{instance}"), "timestamp": timestamp,
        "organization_id": "o", "space_id": "s", "consumer_id": "c",
        "resource_id": "postgres", "plan_id": "p", "resource_instance_id": instance,
    });
    if kind == "start" {
        event["measured_usage"] = json!([{ "measure": "memory", "quantity": 512 }]);
    }
    event
}

pub(crate) fn write(path: &Path, events: &[Value]) -> String {
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    std::fs::write(path, lines.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The arguments of a line.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn counts(report: &Value) -> [u64; 3] {
    ["accepted", "replayed", "refused"].map(|name| report[name].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_sent_looked_at_and_verified() {
    let world = Landscape::new("cli").await;
    let receiver = world.receiver().env("SAMPLER_DIMENSION", "hour");
    let receiver = world.ready(receiver).await;
    let worker = world.worker().start().await.unwrap();
    let cli = Cli::of(&receiver).await;
    let folder = tempfile::tempdir().unwrap();
    let (began, ended) = (now_millis() - 30 * HOUR, now_millis() - 4 * HOUR);

    let mut events: Vec<Value> = (0..40)
        .flat_map(|number| {
            let instance = format!("db-{number}");
            let began = began + number * 1_000;
            [
                event("start", &instance, began),
                event("stop", &instance, ended),
            ]
        })
        .collect();
    let good = write(&folder.path().join("good.ndjson"), &events);
    // A wrong event is not in the way of others.
    events.insert(5, event("stop", "nobody", ended));
    let all = write(&folder.path().join("all.ndjson"), &events);

    let sent = cli
        .json(0, &["events", "send", &good, "--batch", "7"])
        .await;
    assert_eq!(counts(&sent), [80, 0, 0], "{sent}");
    let again = ["events", "send", &all, "--batch", "30"];
    let report = cli.json(1, &again).await;
    assert_eq!(counts(&report), [0, 80, 1], "{report:#}");
    assert_eq!(report["refusals"][0]["line"], 6);
    assert_eq!(report["refusals"][0]["status"], 422);
    // One without an id is: nothing of its file is sent.
    events.push(without(event("start", "nameless", began), "id"));
    let nameless = write(&folder.path().join("nameless.ndjson"), &events);
    let all = ["events", "send", &nameless];
    cli.complains(2, &all, "line 82: the event has no \"id\"")
        .await;
    world.until_complete(40).await;

    let query = words("spans --resource-id postgres --state complete --limit 7");
    let spans = cli.json(0, &query).await;
    let spans = spans["items"].as_array().unwrap();
    assert_eq!(spans.len(), 7);
    let id = spans[0]["id"].as_str().unwrap();
    let parts = ["difference 0 ms", "  202  "];
    cli.says(&["span", id], &parts).await;
    let verified = ["verify", &good, "--granularity", "hour", "--strict"];
    let one = ["--resource-instance-id", "db-7"];
    let report = cli.json(0, &[&verified[..], &one[..]].concat()).await;
    assert_eq!(
        report["totals"]["duration"]["billed"],
        ended - began - 7_000
    );
    let sums = ["usages", "--window", "all", "--group-by", "plan_id"];
    let sums = cli.json(0, &[&sums[..], &one[..]].concat()).await;
    assert_eq!(
        sums["items"][0]["duration"],
        ended - began - 7_000,
        "{sums:#}"
    );
    assert_eq!(sums["items"][0]["group"]["plan_id"], "p");
    drop(worker);
}

/// What a person does by hand: a plan is mapped, an instance starts, changes and stops, by its name.
#[tokio::test(flavor = "multi_thread")]
async fn one_instance_is_metered_by_hand() {
    let world = Landscape::new("cli-hand").await;
    let receiver = world.receiver().env("SAMPLER_DIMENSION", "hour");
    let receiver = world.ready(receiver).await;
    let cli = Cli::of(&receiver).await;

    let mapping = words(
        "mapping --resource-id postgres --plan-id large \
         --metering-plan m --rating-plan r --pricing-plan p",
    );
    let text = cli.run(0, &mapping).await;
    assert_eq!(text, "The plan large of postgres is mapped.\n");
    cli.run(1, &mapping).await;

    let target = words(
        "--organization-id o --space-id s --consumer-id c \
         --resource-id postgres --plan-id large --measure memory=512",
    );
    let began = (now_millis() - 5 * HOUR).to_string();
    let start = [&["start", "orders-db"][..], &target, &["--at", &began]].concat();
    let started = cli.json(0, &start).await;
    let repeated = cli.json(0, &start).await;
    assert_eq!(
        (&started["replayed"], &repeated["replayed"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(started["span"], repeated["span"]);
    let id = started["span"].as_str().unwrap();
    cli.says(&["span", "orders-db"], &[id]).await;

    let update = words("update orders-db --plan-id larger --at -3h");
    cli.run(0, &update).await;
    for part in ["an instance with 2 spans", id] {
        cli.complains(2, &["span", "orders-db"], part).await;
    }
    cli.run(0, &["stop", "orders-db", "--at", "-2h"]).await;
    let stop = ["stop", "orders-db"];
    cli.complains(2, &stop, "has no open span").await;
    let query = words("spans --organization-id o --from -1d");
    let spans = cli.json(0, &query).await;
    let plans = [0, 1].map(|at| spans["items"][at]["target"]["plan_id"].clone());
    assert_eq!(plans, [json!("larger"), json!("large")], "{spans:#}");
    assert_eq!(
        spans["items"][0]["measured_usage"],
        spans["items"][1]["measured_usage"]
    );
    cli.complains(2, &["spans"], "organization_id").await;
    let stop = ["stop", id, "--at", "now"];
    cli.complains(1, &stop, "is answered 422").await;
}
