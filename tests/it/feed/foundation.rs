//! A foundation, a receiver, and the feed between them, for the tests.

use std::fs;
use std::path::{Path, PathBuf};

use sampler_testkit::Program;
use sampler_testkit::cloud_foundry::{CLIENT, StandInCloudFoundry};
use sampler_testkit::program::{CLI, Launch, binary};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::landscape::Landscape;

/// Events of the tests are older, unless they are to be left unread.
const MIN_AGE: &str = "2s";

/// A foundation, a receiver, and the feed between them.
pub(super) struct Foundation {
    pub(super) world: Landscape,
    pub(super) receiver: Program,
    pub(super) platform: StandInCloudFoundry,
    pub(super) folder: TempDir,
}

/// How a run of the feed has ended.
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) output: String,
    pub(super) errors: String,
}

impl Ended {
    pub(super) fn document(&self) -> Value {
        let parsed = serde_json::from_str(&self.output);
        parsed.unwrap_or_else(|error| panic!("{error}: {} {}", self.output, self.errors))
    }
}

pub(super) async fn run_with(arguments: &[String], secret: &str) -> Ended {
    let mut command = Command::new(binary(CLI).await.unwrap());
    command.args(arguments).env_clear();
    command.env("SAMPLER_CF_CLIENT_SECRET", secret);
    let output = command.output().await.unwrap();
    Ended {
        code: output.status.code().unwrap(),
        output: String::from_utf8(output.stdout).unwrap(),
        errors: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Foundation {
    /// With a feed that has caught up: what happens from now on is recorded.
    pub(super) async fn new(label: &str) -> Self {
        let foundation = Self::unread(label).await;
        let report = foundation.once(0, &[]).await;
        assert_eq!(report["read"], 0, "{report:#}");
        foundation
    }

    pub(super) async fn unread(label: &str) -> Self {
        let world = Landscape::new(label).await;
        let receiver = world.receiver().env("SAMPLER_DIMENSION", "hour");
        let receiver = world.ready(receiver).await;
        let platform = StandInCloudFoundry::start().await.unwrap();
        platform.world().space("o", "s");
        Self {
            world,
            receiver,
            platform,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(super) fn state(&self) -> PathBuf {
        self.folder.path().join("feed.json")
    }

    pub(super) fn arguments(&self, more: &[&str]) -> Vec<String> {
        self.arguments_of(&self.receiver.base_url(), &self.state(), more)
    }

    pub(super) fn arguments_of(&self, url: &str, state: &Path, more: &[&str]) -> Vec<String> {
        let api = self.platform.api();
        let own = [
            "feed",
            "cloud-foundry",
            "--cf-api",
            &api,
            "--cf-client-id",
            CLIENT.0,
            "--url",
            url,
            "--state",
            state.to_str().unwrap(),
            "--min-age",
            MIN_AGE,
        ];
        let own = own.iter().chain(more);
        own.map(|word| (*word).to_owned()).collect()
    }

    pub(super) async fn run(&self, more: &[&str]) -> Ended {
        self.run_as(CLIENT.1, more).await
    }

    pub(super) async fn run_as(&self, secret: &str, more: &[&str]) -> Ended {
        run_with(&self.arguments(more), secret).await
    }

    /// With another platform.
    pub(super) async fn run_at(&self, api: &str, more: &[&str]) -> Ended {
        // The state says of which platform it is.
        let mut state: Value = serde_json::from_slice(&fs::read(self.state()).unwrap()).unwrap();
        state["platform"] = format!("{api}/").into();
        fs::write(self.state(), state.to_string()).unwrap();
        let mut arguments = self.arguments(more);
        let own = arguments
            .iter()
            .position(|word| *word == self.platform.api());
        api.clone_into(&mut arguments[own.unwrap()]);
        run_with(&arguments, CLIENT.1).await
    }

    /// Runs the feed until it has caught up; it ends like this.
    pub(super) async fn once(&self, code: i32, more: &[&str]) -> Value {
        let ended = self.run(&[&["--once", "--json"], more].concat()).await;
        assert_eq!(ended.code, code, "{}{}", ended.errors, ended.output);
        ended.document()
    }

    /// A feed that runs on.
    pub(super) async fn follow(&self, more: &[&str]) -> Program {
        let mut launch = Launch::new(CLI).env("SAMPLER_CF_CLIENT_SECRET", CLIENT.1);
        for argument in self.arguments(more) {
            launch = launch.arg(argument);
        }
        launch.spawn().await.unwrap()
    }

    /// The spans of an instance, oldest first.
    pub(super) async fn spans(&self, instance: &str) -> Vec<Value> {
        let path = format!("/v1/spans?resource_instance_id={instance}&limit=100");
        let found = self.world.json(&self.receiver, &path).await;
        let mut spans = found["items"].as_array().unwrap().clone();
        spans.sort_by_key(|span| {
            (
                span["start"].as_i64(),
                span["end"].as_i64().unwrap_or(i64::MAX),
            )
        });
        spans
    }

    /// What Abacus counts of a measure, by instance and plan: of the duration its sum, of others that of their products
    /// with it.
    pub(super) fn billed(&self, instance: &str, plan: &str, measure: &str) -> i128 {
        let counted = self.world.abacus.counted();
        let counted = counted.iter().map(|it| &it.usage);
        let of_it = counted.filter(|it| it.resource_instance_id == instance && it.plan_id == plan);
        let amounts = of_it.map(|usage| {
            let quantity = usage.quantity(measure).and_then(Value::as_i64).unwrap();
            let is_duration = measure == "duration";
            usage.duration() * if is_duration { 1 } else { i128::from(quantity) }
        });
        amounts.sum()
    }
}

/// How often each outcome is in a report.
pub(super) fn counts(report: &Value) -> [u64; 4] {
    ["started", "stopped", "updated", "refused"].map(|name| report[name].as_u64().unwrap())
}

pub(super) fn second(at: i64) -> i64 {
    at / 1_000 * 1_000
}
