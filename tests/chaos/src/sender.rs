//! Sends events until there is a definite answer.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Response};
use sampler_testkit::rng::Rng;
use serde_json::Value;

use crate::fleet::Addresses;
use crate::journal::{ACCEPTED, Journal, REFUSED, REPEATS, RETRIES};
use crate::timeline::item;

/// The timeouts of clients, from the shortest to the longest. A receiver's own limits
/// lie in between, so that some clients see its answer and others come again before it.
const REQUEST_LIMITS: [Duration; 3] = [
    Duration::from_secs(2),
    Duration::from_secs(6),
    Duration::from_secs(20),
];
/// The longest pause before an event is sent again, whatever the answer asks for: there are many
/// faults to meet, and little time.
const PAUSE_MAX: u64 = 1_000;
/// How often a single event is sent in a batch, per cent.
const IN_BATCH: usize = 30;

/// An event that is sent, each time the same.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// `start`, `stop` or `update`.
    pub(crate) kind: &'static str,
    pub(crate) body: Value,
    /// Whether it must be taken; otherwise it must be refused.
    pub(crate) is_right: bool,
}

/// What came back for an event or an action.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// A response, and the seconds to wait that it asks for.
    Status {
        status: u16,
        problem: String,
        retry_after: Option<u64>,
    },
    /// None.
    Lost(String),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status {
                status, problem, ..
            } => write!(f, "{status} {problem}"),
            Self::Lost(error) => f.write_str(error),
        }
    }
}

impl Answer {
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(*status),
            Self::Lost(_) => None,
        }
    }

    fn is_accepted(&self) -> bool {
        self.status() == Some(201)
    }

    /// Whether it is refused, and not only for the moment.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.status(), Some(400..=499)) && !matches!(self.status(), Some(408 | 429))
    }

    /// Pauses for as long as it asks for, or else so long, ms.
    pub(crate) async fn pause(&self, usual: u64, rng: &mut Rng) {
        let asked = match self {
            Self::Status {
                retry_after: Some(seconds),
                ..
            } => seconds.saturating_mul(1_000),
            _ => usual,
        };
        let longest = i64::try_from(asked.clamp(51, PAUSE_MAX)).unwrap_or(51);
        let pause = rng.between(50, longest).unsigned_abs();
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// What all clients send with.
#[derive(Debug)]
pub(crate) struct Sender {
    clients: Vec<Client>,
    receivers: Arc<Addresses>,
    journal: Arc<Journal>,
    /// When no answer will come any more.
    give_up: Instant,
}

impl Sender {
    pub(crate) fn new(
        receivers: Arc<Addresses>,
        journal: Arc<Journal>,
        give_up: Instant,
    ) -> Result<Self> {
        let client = |limit: &Duration| {
            let client = Client::builder().timeout(*limit).no_proxy();
            client.build().context("an HTTP client")
        };
        Ok(Self {
            clients: REQUEST_LIMITS.iter().map(client).collect::<Result<_>>()?,
            receivers,
            journal,
            give_up,
        })
    }

    /// Sends events, together where there are several, and repeats them as a whole until each is taken,
    /// or one that is wrong is refused. Whether it was as it must be.
    pub(crate) async fn deliver(&self, items: &[Item], twice: bool, rng: &mut Rng) -> bool {
        let mut answers = if twice {
            self.twice(items, rng).await
        } else {
            self.send(items, rng).await
        };
        while Instant::now() < self.give_up {
            match judge(items, &answers) {
                Some(Ok(())) => {
                    self.settled(items);
                    return true;
                }
                Some(Err(mistake)) => {
                    self.journal.mistake(mistake);
                    return false;
                }
                None => {}
            }
            if let Some(open) = answers.iter().find(|answer| !answer.is_accepted()) {
                self.journal.error(&format!("{open}"));
                open.pause(100, rng).await;
            }
            self.journal.count(RETRIES, 1);
            answers = self.send(items, rng).await;
        }
        let mistake = format!("no definite answer to {items:?}");
        self.journal.mistake(mistake);
        false
    }

    fn settled(&self, items: &[Item]) {
        for item in items {
            if item.is_right {
                self.journal.count(ACCEPTED, 1);
                self.journal.accepted(line(item));
            } else {
                self.journal.count(REFUSED, 1);
            }
        }
    }

    /// Sends events again, in one batch, that were accepted before.
    pub(crate) async fn repeat(&self, items: &[Item], rng: &mut Rng) {
        self.journal.count(REPEATS, items.len());
        let answers = self.post_batch(items, rng).await;
        for (item, answer) in items.iter().zip(answers) {
            if answer.is_refused() {
                let mistake = format!("a repeat is refused: {answer} to {item:?}");
                self.journal.mistake(mistake);
            }
        }
    }

    /// Sends the same twice at the same time; of two answers the definite one counts.
    async fn twice(&self, items: &[Item], rng: &mut Rng) -> Vec<Answer> {
        self.journal.count(REPEATS, items.len());
        let mut other = rng.clone();
        // Or both would go the same way.
        other.percent(1);
        let (one, other) = tokio::join!(self.send(items, rng), self.send(items, &mut other));
        if judge(items, &one).is_some() {
            one
        } else {
            other
        }
    }

    async fn send(&self, items: &[Item], rng: &mut Rng) -> Vec<Answer> {
        match items {
            [item] if !rng.percent(IN_BATCH) => {
                let path = format!("/v1/events/{}", item.kind);
                vec![self.post(&path, &item.body, rng).await.0]
            }
            _ => self.post_batch(items, rng).await,
        }
    }

    /// Posts a batch; says what came back for each of its events.
    async fn post_batch(&self, items: &[Item], rng: &mut Rng) -> Vec<Answer> {
        let batch: Value = items.iter().map(line).collect();
        let (answer, body) = self.post("/v1/events", &batch, rng).await;
        if answer.status() != Some(200) {
            return vec![answer; items.len()];
        }
        let results = body["results"].as_array().map_or(&[][..], Vec::as_slice);
        if results.len() != items.len() {
            // It broke off: the status says nothing of the events.
            return vec![Answer::Lost("a batch without its results".to_owned()); items.len()];
        }
        let answer = |result: &Value| Answer::Status {
            status: u16::try_from(result["status"].as_u64().unwrap_or_default())
                .unwrap_or_default(),
            problem: result["problem"].to_string(),
            retry_after: result["retry_after"].as_u64(),
        };
        results.iter().map(answer).collect()
    }

    async fn post(&self, path: &str, body: &Value, rng: &mut Rng) -> (Answer, Value) {
        let address = self.receivers.get(rng.below(self.receivers.count()));
        let client = &self.clients[rng.below(self.clients.len())];
        let request = client.post(format!("{address}{path}")).json(body);
        received(request.send().await).await
    }
}

/// Whether the answers are final, and right then. Nothing where the events are to be sent again.
fn judge(items: &[Item], answers: &[Answer]) -> Option<Result<(), String>> {
    let mut is_open = false;
    for (item, answer) in items.iter().zip(answers) {
        let wrong = || Some(Err(format!("{answer} to {item:?}")));
        if item.is_right {
            // The first half of an update may be kept alone, and what follows an event that is not
            // kept yet is out of order.
            if answer.is_refused() && item.kind != "update" && !is_open {
                return wrong();
            }
            is_open |= !answer.is_accepted();
        } else {
            if answer.is_accepted() {
                return wrong();
            }
            is_open |= !answer.is_refused();
        }
    }
    (!is_open).then_some(Ok(()))
}

fn line(event: &Item) -> Value {
    item(event.kind, &event.body)
}

/// What a response says, and its body.
pub(crate) async fn received(response: reqwest::Result<Response>) -> (Answer, Value) {
    let response = match response {
        Ok(response) => response,
        Err(error) => {
            let error = anyhow::Error::from(error.without_url());
            return (Answer::Lost(format!("{error:#}")), Value::Null);
        }
    };
    let status = response.status().as_u16();
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    // The status alone says the outcome of an event; an answer that breaks off after it counts.
    let body: Value = response.json().await.unwrap_or_default();
    let problem = body["type"].as_str().unwrap_or_default().to_owned();
    let answer = Answer::Status {
        status,
        problem,
        retry_after,
    };
    (answer, body)
}
