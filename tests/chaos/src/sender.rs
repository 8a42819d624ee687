//! Sends events until there is a definite answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reqwest::Client;
use reqwest::header::RETRY_AFTER;
use sampler_testkit::now_millis;
use serde_json::Value;

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
/// With more stopped spans to work off than this, clients pause: it is faults that are looked for
/// here, not speed.
const BACKLOG_MAX: u64 = 400;

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

    /// Sends an event, and repeats it as its mode says.
    pub(crate) async fn deliver(&self, event: &Event, mode: SendMode, rng: &mut Rng) -> Outcome {
        self.history.note(&Record::Event(event.clone()));
        let began = Instant::now();
        let mut answer = if mode == SendMode::Twice {
            self.twice(event, rng).await
        } else {
            self.attempt(event, rng).await
        };
        while !answer.is_definite() && mode != SendMode::GivesUp && Instant::now() < self.give_up {
            self.pause(&answer, rng).await;
            self.stats.retries.add();
            answer = self.attempt(event, rng).await;
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

    /// Sends an event again that was accepted before.
    pub(crate) async fn repeat(&self, event: &Event, rng: &mut Rng) {
        self.stats.repeats.add();
        self.attempt(event, rng).await;
    }

    /// Sends an event twice at the same time; of two answers the definite one counts.
    async fn twice(&self, event: &Event, rng: &mut Rng) -> Answer {
        self.stats.repeats.add();
        let mut other = rng.clone();
        // Or both would go the same way.
        other.percent(1);
        let (one, other) = tokio::join!(self.attempt(event, rng), self.attempt(event, &mut other));
        if one.is_definite() { one } else { other }
    }

    async fn attempt(&self, event: &Event, rng: &mut Rng) -> Answer {
        let receiver = rng.below(self.receivers.count());
        let client = &self.clients[rng.below(self.clients.len())];
        let (at, began) = (now_millis(), Instant::now());
        let url = format!("{}{}", self.receivers.get(receiver), event.kind.path());
        let answer = post(client, &url, &event.body).await;
        if !answer.is_definite() {
            self.stats.error(&describe(&answer));
        }
        self.history.note(&Record::Attempt(Attempt {
            event: event.name.clone(),
            at,
            took: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            receiver,
            answer: answer.clone(),
        }));
        answer
    }

    async fn pause(&self, answer: &Answer, rng: &mut Rng) {
        let asked = match answer {
            Answer::Status {
                retry_after: Some(seconds),
                ..
            } => i64::try_from(*seconds)
                .unwrap_or(PAUSE_MAX)
                .saturating_mul(1_000),
            _ => 100,
        };
        let pause = rng.between(50, asked.min(PAUSE_MAX));
        tokio::time::sleep(Duration::from_millis(pause.unsigned_abs())).await;
    }
}

async fn post(client: &Client, url: &str, body: &Value) -> Answer {
    let lost = |error: reqwest::Error| {
        let error = anyhow::Error::from(error.without_url());
        Answer::Lost {
            error: format!("{error:#}"),
        }
    };
    let response = match client.post(url).json(body).send().await {
        Ok(response) => response,
        Err(error) => return lost(error),
    };
    let header = |name| {
        let value = response.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let replayed = header("idempotency-replayed").is_some_and(|text| text == "true");
    let retry_after = header(RETRY_AFTER.as_str()).and_then(|text| text.parse().ok());
    let status = response.status().as_u16();
    // The status alone says what became of the event; an answer that breaks off after it counts.
    let problem: Option<Value> = response.json().await.ok();
    let problem = problem.and_then(|problem| problem["type"].as_str().map(str::to_owned));
    Answer::Status {
        status,
        replayed,
        problem,
        retry_after,
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
