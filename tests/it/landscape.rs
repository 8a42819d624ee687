//! A database, an Abacus, a receiver and workers, for one test.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use reqwest::{Client, Response};
use sampler_testkit::abacus::Options;
use sampler_testkit::abacus::StandInAbacus;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::program::Launch;
use sampler_testkit::{Program, TestDatabase, wait_until};
use serde_json::Value;

pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// How long anything may take that is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Landscape {
    pub(crate) database: TestDatabase,
    pub(crate) abacus: StandInAbacus,
    pub(crate) http: Client,
}

pub(crate) fn client() -> Client {
    Client::builder().timeout(PATIENCE).build().unwrap()
}

impl Landscape {
    pub(crate) async fn new(label: &str) -> Self {
        Self {
            database: TestDatabase::new(label).await,
            abacus: StandInAbacus::start(Options::default()).await.unwrap(),
            http: client(),
        }
    }

    /// A receiver that is about to be started.
    pub(crate) fn receiver(&self) -> Launch {
        Launch::new("sampler-receiver")
            .env("DB_URI", self.database.uri())
            .env("PROVISIONING_URL", self.abacus.base_url())
    }

    /// A worker that is about to be started. It samples by the hour.
    pub(crate) fn worker(&self) -> Launch {
        Launch::new("sampler-worker")
            .env("DB_URI", self.database.uri())
            .env("COLLECTOR_URL", self.abacus.base_url())
            .env("SAMPLER_DIMENSION", "hour")
            .env("PROCESS_SCHEDULE_INTERVAL", "20")
            .env("SAMPLER_RETRY_LIMIT", "1s")
    }

    /// A program that has said that it is ready.
    pub(crate) async fn ready(&self, launch: Launch) -> Program {
        let program = launch.start().await.unwrap();
        until_ready(&self.http, &program).await;
        program
    }

    /// A receiver that has said that it is ready.
    pub(crate) async fn ready_receiver(&self) -> Program {
        self.ready(self.receiver()).await
    }

    pub(crate) async fn spans(&self) -> Collection<Document> {
        self.database.database().await.collection("spans")
    }

    pub(crate) async fn post(&self, receiver: &Program, path: &str, event: &Value) -> Response {
        let url = format!("{}{path}", receiver.base_url());
        let sent = self.http.post(url).json(event).send().await;
        sent.unwrap_or_else(|error| {
            let (code, lines) = (receiver.exit_code(), receiver.lines());
            let last = lines.len().saturating_sub(20);
            panic!(
                "{error:?}, exit code {code:?}:\n{}",
                lines[last..].join("\n")
            )
        })
    }

    /// Sends an event that must be taken.
    pub(crate) async fn take(&self, receiver: &Program, path: &str, event: &Value) {
        let response = self.post(receiver, path, event).await;
        let status = response.status().as_u16();
        assert_eq!(status, 201, "{path}: {}", response.text().await.unwrap());
    }

    /// Uses a target from one moment to another one.
    pub(crate) async fn use_between(&self, receiver: &Program, target: u64, start: i64, end: i64) {
        let event = start_event(target, start);
        self.take(receiver, "/v1/events/start", &event).await;
        let event = stop_event(target, end);
        self.take(receiver, "/v1/events/stop", &event).await;
    }

    /// What a program answers to a read, which must succeed.
    pub(crate) async fn read(&self, program: &Program, path: &str) -> String {
        let url = format!("{}{path}", program.base_url());
        let answer = self.http.get(url).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        answer.text().await.unwrap()
    }

    pub(crate) async fn json(&self, program: &Program, path: &str) -> Value {
        serde_json::from_str(&self.read(program, path).await).unwrap()
    }

    /// Waits until no span that was stopped has anything left to do.
    pub(crate) async fn until_complete(&self, count: u64) {
        let spans = self.spans().await;
        wait_until("all stopped spans are complete", PATIENCE, async || {
            let complete = doc! { "processing.complete": true };
            spans.count_documents(complete).await.unwrap() == count
        })
        .await;
    }

    /// What was billed for an instance, in ms.
    pub(crate) fn billed(&self, instance: &str) -> i128 {
        let sums = self
            .abacus
            .duration_sum_by(|usage| usage.target()[5].to_owned());
        sums.get(instance).copied().unwrap_or(0)
    }

    /// The collection of the ledger.
    pub(crate) async fn usages(&self) -> Collection<Document> {
        self.database.database().await.collection("spans_usages")
    }

    /// Each entry is what Abacus counts, and the entries of each span add up to what the span was sampled since
    /// the first of them. Nothing is excluded. Says how many entries there are.
    pub(crate) async fn assert_ledger(&self) -> usize {
        let counted = self.abacus.counted();
        let counted: BTreeMap<&str, _> = counted
            .iter()
            .map(|counted| (counted.usage.dedup_id.as_str(), &counted.usage))
            .collect();
        let entries = all(&self.usages().await).await;
        for entry in &entries {
            let usage = counted[entry.get_str("_id").unwrap()];
            let number = |name: &str| entry.get_i64(name).unwrap();
            assert_eq!(i128::from(number("duration")), usage.duration(), "{entry}");
            assert_eq!(number("timestamp"), usage.end, "{entry}");
            assert_eq!(entry.get_i32("status").unwrap(), 202, "{entry}");
        }
        for span in all(&self.spans().await).await {
            assert_billed(&span, &entries);
        }
        entries.len()
    }
}

fn assert_billed(span: &Document, entries: &[Document]) {
    let of_span = entries
        .iter()
        .filter(|entry| entry.get("span") == span.get("_id"));
    let interval = |entry: &Document, end: &str| {
        let interval = entry.get_document("interval").unwrap();
        interval.get_i64(end).unwrap()
    };
    let since = of_span.clone().map(|entry| interval(entry, "start")).min();
    let billed: i64 = of_span.map(|it| it.get_i64("duration").unwrap()).sum();
    let processing = span.get_document("processing").unwrap();
    let last = processing.get_document("last_interval").unwrap();
    let Some(since) = since else { return };
    assert_eq!(last.get_i64("end").unwrap() - since, billed, "{span}");
}

async fn all(collection: &Collection<Document>) -> Vec<Document> {
    let found = collection.find(Document::new()).await.unwrap();
    found.try_collect().await.unwrap()
}

/// Waits until a program says that it is ready.
pub(crate) async fn until_ready(http: &Client, program: &Program) {
    wait_until("the program is ready", PATIENCE, async || {
        status(http, program, "/healthz/ready").await == 200
    })
    .await;
}

pub(crate) async fn status(http: &Client, program: &Program, path: &str) -> u16 {
    let url = format!("{}{path}", program.base_url());
    http.get(url)
        .send()
        .await
        .map_or(0, |response| response.status().as_u16())
}
