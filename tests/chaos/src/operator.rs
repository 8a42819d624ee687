//! Operators: they look at what is suspended, skip, resume and send again. They know what the API says, and
//! nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reqwest::Client;
use reqwest::header::ETAG;
use sampler_testkit::rng::Rng;
use serde_json::{Value, json};

use crate::fleet::Addresses;
use crate::journal::{Journal, RESENDS, RESUMES, SKIPS};
use crate::observer::Left;
use crate::sender::{Answer, received};
use crate::timeline::RESOURCE;

/// How long an operator waits for an answer: longer than a receiver does for the database, and not so
/// long that a run ends meanwhile.
const REQUEST_LIMIT: Duration = Duration::from_secs(12);
/// The longest pause between two actions, ms.
const PAUSE_MAX: i64 = 400;
/// How often an action is tried on one subject.
const ATTEMPTS: usize = 4;

const HOUR: i64 = 3_600_000;

/// What an operator does to a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Act {
    verb: &'static str,
    /// The condition of the list of spans to which it can be done.
    of: &'static str,
    counts: &'static str,
}

const SKIP: Act = Act {
    verb: "skip",
    of: "state=suspended",
    counts: SKIPS,
};
const RESUME: Act = Act {
    verb: "resume",
    of: "state=suspended",
    counts: RESUMES,
};
const RESEND: Act = Act {
    verb: "resend",
    of: "excluded=true",
    counts: RESENDS,
};

#[derive(Debug)]
pub(crate) struct Operator {
    client: Client,
    receivers: Arc<Addresses>,
    journal: Arc<Journal>,
    rng: Rng,
}

impl Operator {
    pub(crate) fn new(
        number: usize,
        seed: u64,
        receivers: Arc<Addresses>,
        journal: Arc<Journal>,
    ) -> Result<Self> {
        let client = Client::builder().timeout(REQUEST_LIMIT).no_proxy();
        Ok(Self {
            client: client.build().context("an HTTP client")?,
            receivers,
            journal,
            rng: Rng::new(seed, 2_000 + number as u64),
        })
    }

    /// Acts until the time is over.
    pub(crate) async fn run(mut self, until: Instant) {
        while Instant::now() < until {
            match self.rng.below(10) {
                0..5 => self.act_on_one(SKIP).await,
                5..7 => self.act_on_one(RESEND).await,
                7..9 => self.act_on_one(RESUME).await,
                _ => self.resume_cause().await,
            }
            let pause = self.rng.between(50, PAUSE_MAX).unsigned_abs();
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    fn url(&mut self, path: &str) -> String {
        let receiver = self.rng.below(self.receivers.count());
        format!("{}{path}", self.receivers.get(receiver))
    }

    /// One of the items of a list, if it is answered.
    async fn one_of(&mut self, path: &str) -> Option<Value> {
        let url = self.url(path);
        let answer = self.client.get(url).send().await.ok()?;
        let list: Value = answer.json().await.ok()?;
        let items = list["items"].as_array()?;
        (!items.is_empty()).then(|| items[self.rng.below(items.len())].clone())
    }

    async fn ask(&mut self, path: &str, tag: &str, body: &Value) -> Answer {
        let url = self.url(path);
        let request = self.client.post(url).json(body);
        let request = match tag {
            "" => request,
            tag => request.header("if-match", tag),
        };
        received(request.send().await).await.0
    }

    /// Does this to one of the spans to which it can be done.
    async fn act_on_one(&mut self, act: Act) {
        let list = format!("/v1/spans?{}&resource_id={RESOURCE}", act.of);
        if let Some(span) = self.one_of(&list).await {
            self.act_on_span(act, span["id"].as_str().unwrap_or_default())
                .await;
        }
    }

    async fn act_on_span(&mut self, act: Act, id: &str) {
        let path = format!("/v1/spans/{id}");
        for _ in 0..ATTEMPTS {
            // Without an answer, and where the span has changed, it is read again before anything else.
            let Some(answer) = self.act_once(&path, act).await else {
                return;
            };
            match answer.status() {
                Some(200) => return self.journal.count(act.counts, 1),
                Some(412) => {}
                _ if answer.is_refused() => return,
                _ => {}
            }
            answer.pause(300, &mut self.rng).await;
        }
    }

    /// One attempt; none where the span cannot be read.
    async fn act_once(&mut self, path: &str, act: Act) -> Option<Answer> {
        let url = self.url(path);
        let answer = self.client.get(url).send().await.ok()?;
        let tag = answer.headers().get(ETAG)?.to_str().ok()?.to_owned();
        let span: Value = answer.json().await.ok()?;
        let mut body = json!({ "reason": "An operator has looked at it." });
        if act == SKIP
            && self.rng.percent(50)
            && let Some(refused_to) = span["planned"]["end"].as_i64()
        {
            body["until"] = json!(refused_to + self.rng.between(1, 3) * HOUR);
        }
        Some(self.ask(&format!("{path}/{}", act.verb), &tag, &body).await)
    }

    async fn resume_cause(&mut self) {
        if let Some(cause) = self.one_of("/v1/suspended").await {
            let cause = cause["cause"].as_str().unwrap_or_default();
            let path = format!("/v1/suspended/{cause}/resume");
            let reason = json!({ "reason": "It is mended." });
            if self.ask(&path, "", &reason).await.status() == Some(202) {
                self.journal.count(RESUMES, 1);
            }
        }
    }

    /// Has all go on that is suspended, and all be sent again that does not count.
    pub(crate) async fn mend(&mut self, left: &Left) {
        self.resume_cause().await;
        for span in &left.excluded {
            self.act_on_span(RESEND, span).await;
        }
        for usage in &left.missing {
            let path = format!("/v1/unconfirmed/{usage}/resend");
            let reason = json!({ "reason": "It is mended." });
            if self.ask(&path, "", &reason).await.status() == Some(202) {
                self.journal.count(RESENDS, 1);
            }
        }
    }
}
