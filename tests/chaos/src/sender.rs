//! Sends events until there is a definite answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, Response};
use sampler_testkit::now_millis;
use serde_json::{Value, json};

use crate::event::Kind;
use crate::fleet::Addresses;
use crate::history::{Answer, Attempt, Event, History, Record};
use crate::stats::Stats;
use crate::timeline::Outcome;
use sampler_testkit::rng::Rng;

/// The timeouts of clients, from the shortest to the longest. A receiver's own limits
/// lie in between, so that some clients see its answer and others come again before it.
const REQUEST_LIMITS: [Duration; 3] = [
    Duration::from_secs(2),
    Duration::from_secs(6),
    Duration::from_secs(20),
];
/// The longest pause before an event is sent again, whatever the answer asks for: there are many
/// faults to meet, and little time.
const PAUSE_MAX: i64 = 1_000;
/// The pause where it asks for none.
const PAUSE: i64 = 100;
/// With more stopped spans to work off than this, clients pause: it is faults that are looked for
/// here, not speed.
const BACKLOG_MAX: u64 = 400;

/// How often an event is sent in a batch, per cent.
const IN_BATCH: usize = 30;

/// How an event is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendMode {
    /// Again and again until there is a definite answer.
    Patient,
    /// The same, but the first time twice at once.
    Twice,
    /// Until the first answer, definite or not.
    GivesUp,
}

/// What all clients send with.
#[derive(Debug)]
pub(crate) struct Sender {
    clients: Vec<Client>,
    receivers: Arc<Addresses>,
    history: Arc<History>,
    stats: Arc<Stats>,
    /// When no answer will come any more.
    give_up: Instant,
}

impl Sender {
    pub(crate) fn new(
        receivers: Arc<Addresses>,
        history: Arc<History>,
        stats: Arc<Stats>,
        give_up: Instant,
    ) -> Result<Self> {
        let client = |limit: &Duration| {
            let client = Client::builder().timeout(*limit).no_proxy();
            client.build().context("an HTTP client")
        };
        Ok(Self {
            clients: REQUEST_LIMITS.iter().map(client).collect::<Result<_>>()?,
            receivers,
            history,
            stats,
            give_up,
        })
    }

    /// Waits while the backlog is too long.
    pub(crate) async fn wait_for_backlog(&self, until: Instant) {
        while self.stats.spans().stopped > BACKLOG_MAX && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Sends an event, or the two halves of an update, and repeats it as its mode says.
    pub(crate) async fn deliver(&self, halves: &[Event], mode: SendMode, rng: &mut Rng) -> Outcome {
        for event in halves {
            self.history.note(&Record::Event(event.clone()));
        }
        let began = Instant::now();
        let mut answer = if mode == SendMode::Twice {
            self.twice(halves, rng).await
        } else {
            self.attempt(halves, rng).await
        };
        while !answer.is_definite() && mode != SendMode::GivesUp && Instant::now() < self.give_up {
            pause(&answer, PAUSE, PAUSE_MAX, rng).await;
            self.stats.retries.add();
            answer = self.attempt(halves, rng).await;
        }
        if answer.is_definite() {
            self.stats.note_wait(began.elapsed());
        }
        self.count(&answer)
    }

    fn count(&self, answer: &Answer) -> Outcome {
        let (counter, outcome) = if answer.is_accepted() {
            (&self.stats.accepted, Outcome::Accepted)
        } else if answer.is_refused() {
            (&self.stats.refused, Outcome::Refused)
        } else {
            (&self.stats.unknown, Outcome::Unknown)
        };
        counter.add();
        outcome
    }

    /// Sends events again, in one batch, that were accepted before.
    pub(crate) async fn repeat(&self, events: &[Event], rng: &mut Rng) {
        for _ in events {
            self.stats.repeats.add();
        }
        let alone: Vec<&[Event]> = events.iter().map(std::slice::from_ref).collect();
        self.send(&alone, true, rng).await;
    }

    /// Sends new events in one batch, and repeats it as a whole until each has a definite answer.
    pub(crate) async fn deliver_batch(&self, events: &[Event], rng: &mut Rng) -> Vec<Outcome> {
        for event in events {
            self.history.note(&Record::Event(event.clone()));
        }
        let alone: Vec<&[Event]> = events.iter().map(std::slice::from_ref).collect();
        let mut answers = self.send(&alone, true, rng).await;
        let is_broken =
            answers.iter().any(Answer::is_accepted) && !answers.iter().all(Answer::is_definite);
        if is_broken {
            self.stats.broken_batches.add();
        }
        let is_whole = |answers: &[Answer]| answers.iter().all(Answer::is_definite);
        while !is_whole(&answers) && Instant::now() < self.give_up {
            let open = answers.iter().find(|answer| !answer.is_definite());
            pause(open.unwrap_or(&answers[0]), PAUSE, PAUSE_MAX, rng).await;
            self.stats.retries.add();
            answers = self.send(&alone, true, rng).await;
        }
        if is_broken && is_whole(&answers) {
            self.stats.mended_batches.add();
        }
        answers.iter().map(|answer| self.count(answer)).collect()
    }

    /// Sends an event twice at the same time; of two answers the definite one counts.
    async fn twice(&self, halves: &[Event], rng: &mut Rng) -> Answer {
        self.stats.repeats.add();
        let mut other = rng.clone();
        // Or both would go the same way.
        other.percent(1);
        let (one, other) =
            tokio::join!(self.attempt(halves, rng), self.attempt(halves, &mut other));
        if one.is_definite() { one } else { other }
    }

    /// Sends an event once: alone, or in a batch of one.
    async fn attempt(&self, halves: &[Event], rng: &mut Rng) -> Answer {
        let in_batch = rng.percent(IN_BATCH);
        let mut answers = self.send(&[halves], in_batch, rng).await;
        answers.swap_remove(0)
    }

    /// Sends events once, each one or the halves of an update, and notes what came back for each.
    async fn send(&self, all: &[&[Event]], in_batch: bool, rng: &mut Rng) -> Vec<Answer> {
        let receiver = rng.below(self.receivers.count());
        let client = &self.clients[rng.below(self.clients.len())];
        let (at, began) = (now_millis(), Instant::now());
        let address = self.receivers.get(receiver);
        let answers = if in_batch {
            let items: Value = all.iter().map(|halves| item(halves)).collect();
            post_batch(client, &format!("{address}/v1/events"), &items, all.len()).await
        } else {
            let (kind, body) = fields(all[0]);
            let url = format!("{address}/v1/events/{kind}");
            vec![post(client, &url, &body).await.0]
        };
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        for (halves, answer) in all.iter().zip(&answers) {
            if !answer.is_definite() {
                self.stats.error(&describe(answer));
            }
            for event in *halves {
                self.history.note(&Record::Attempt(Attempt {
                    event: event.name.clone(),
                    at,
                    took,
                    receiver,
                    answer: answer.clone(),
                }));
            }
        }
        answers
    }
}

/// Pauses for as long as the answer asks for, or else so long, ms, but no longer than `most`.
pub(crate) async fn pause(answer: &Answer, usual: i64, most: i64, rng: &mut Rng) {
    let asked = match answer {
        Answer::Status {
            retry_after: Some(seconds),
            ..
        } => i64::try_from(*seconds)
            .unwrap_or(most)
            .saturating_mul(1_000),
        _ => usual,
    };
    let pause = rng.between(50, asked.clamp(51, most));
    tokio::time::sleep(Duration::from_millis(pause.unsigned_abs())).await;
}

/// What an event is, and its fields. Halves of an update differ only in what the start has more.
fn fields(halves: &[Event]) -> (&'static str, Value) {
    match halves {
        [_, start] => ("update", start.body.clone()),
        [event, ..] if event.kind == Kind::Start => ("start", event.body.clone()),
        [event, ..] => ("stop", event.body.clone()),
        [] => ("none", Value::Null),
    }
}

/// An event as it is in a batch.
fn item(halves: &[Event]) -> Value {
    let (kind, mut body) = fields(halves);
    body["type"] = json!(kind);
    body
}

/// Posts a batch; says what came back for each of its events.
async fn post_batch(client: &Client, url: &str, items: &Value, count: usize) -> Vec<Answer> {
    let (answer, body) = post(client, url, items).await;
    if !matches!(answer, Answer::Status { status: 200, .. }) {
        return vec![answer; count];
    }
    let body = body.unwrap_or_default();
    let results = body["results"].as_array().map_or(&[][..], Vec::as_slice);
    if results.len() != count {
        // It broke off: the status says nothing of the events.
        let error = "a batch without its results".to_owned();
        return vec![Answer::Lost { error }; count];
    }
    let answer = |result: &Value| Answer::Status {
        status: u16::try_from(result["status"].as_u64().unwrap_or_default()).unwrap_or_default(),
        replayed: result["replayed"] == true,
        problem: result["problem"]["type"].as_str().map(str::to_owned),
        retry_after: result["retry_after"].as_u64(),
    };
    results.iter().map(answer).collect()
}

/// Posts a body; says what came back, and its body.
async fn post(client: &Client, url: &str, body: &Value) -> (Answer, Option<Value>) {
    let response = match client.post(url).json(body).send().await {
        Ok(response) => response,
        Err(error) => return (lost(error), None),
    };
    let mut answer = status_of(&response);
    // The status alone says the outcome of the event; an answer that breaks off after it counts.
    let body: Option<Value> = response.json().await.ok();
    if let (Answer::Status { problem, .. }, Some(body)) = (&mut answer, &body) {
        *problem = body["type"].as_str().map(str::to_owned);
    }
    (answer, body)
}

/// There was no response.
pub(crate) fn lost(error: reqwest::Error) -> Answer {
    let error = anyhow::Error::from(error.without_url());
    Answer::Lost {
        error: format!("{error:#}"),
    }
}

/// The response without what its body says.
pub(crate) fn status_of(response: &Response) -> Answer {
    let header = |name| {
        let value = response.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    Answer::Status {
        status: response.status().as_u16(),
        replayed: header("idempotency-replayed").is_some_and(|text| text == "true"),
        problem: None,
        retry_after: header(RETRY_AFTER.as_str()).and_then(|text| text.parse().ok()),
    }
}

fn describe(answer: &Answer) -> String {
    match answer {
        Answer::Status {
            status, problem, ..
        } => {
            format!("{status} {}", problem.as_deref().unwrap_or_default())
        }
        Answer::Lost { error } => error.clone(),
    }
}
