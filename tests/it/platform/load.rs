//! Resource providers that start and stop usages without a pause, and repeat nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::Client;
use sampler_testkit::build::{start_event, stop_event, with};
use sampler_testkit::now_millis;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::landscape::{HOUR, MINUTE, client};

/// Providers at work at the same time.
const PROVIDERS: usize = 4;

/// What was sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// How long each instance of a resource was used, in ms.
    pub(super) durations: BTreeMap<String, i128>,
    /// Whatever was not answered 201.
    pub(super) failures: Vec<String>,
}

pub(super) struct Load {
    stop: CancellationToken,
    providers: JoinSet<Sent>,
}

struct Provider {
    http: Client,
    url: String,
    token: String,
    numbers: Arc<AtomicU64>,
    sent: Sent,
}

impl Load {
    pub(super) fn start(url: &str, token: &str) -> Self {
        let (stop, mut providers) = (CancellationToken::new(), JoinSet::new());
        let numbers = Arc::default();
        for _ in 0..PROVIDERS {
            let provider = Provider {
                http: client(),
                url: url.to_owned(),
                token: token.to_owned(),
                numbers: Arc::clone(&numbers),
                sent: Sent::default(),
            };
            providers.spawn(provider.work(stop.clone()));
        }
        Self { stop, providers }
    }

    /// Lets the providers come to an end, and says what they have sent.
    pub(super) async fn stop(self) -> Sent {
        self.stop.cancel();
        let mut all = Sent::default();
        for sent in self.providers.join_all().await {
            all.durations.extend(sent.durations);
            all.failures.extend(sent.failures);
        }
        all
    }
}

impl Provider {
    async fn work(mut self, stop: CancellationToken) -> Sent {
        while !stop.is_cancelled() {
            self.use_something().await;
        }
        self.sent
    }

    /// Uses something for one and a half hours and some ms, a while ago.
    async fn use_something(&mut self) {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let start = now_millis() - 3 * HOUR;
        let duration = 90 * MINUTE + i64::try_from(number % 1_000).unwrap();
        let id = |what: &str| format!("{what}-{number}");
        let event = with(start_event(number, start), "id", id("start"));
        self.post("start", &event).await;
        let event = with(stop_event(number, start + duration), "id", id("stop"));
        self.post("stop", &event).await;
        let instance = event["resource_instance_id"].as_str().unwrap().to_owned();
        self.sent.durations.insert(instance, duration.into());
    }

    async fn post(&mut self, path: &str, event: &Value) {
        let url = format!("{}/v1/events/{path}", self.url);
        let request = self.http.post(url).json(event).bearer_auth(&self.token);
        let failure = match request.send().await {
            Ok(answer) if answer.status() == 201 => return,
            Ok(answer) => format!(
                "{}: {}",
                answer.status(),
                answer.text().await.unwrap_or_default()
            ),
            Err(error) => format!("{error:?}"),
        };
        self.sent
            .failures
            .push(format!("{path} {}: {failure}", event["id"]));
    }
}
