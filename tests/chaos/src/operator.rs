//! One operator: looks at what is suspended or was set aside, and skips, resumes and sends again, at any
//! time. It knows what the API says, and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sampler_testkit::rng::Rng;
use serde_json::Value;

use crate::api::{Api, Asked, Found};
use crate::history::{ActKind, Answer};
use crate::sender::pause;
use crate::stats::Stats;

/// The longest pause between two acts, ms.
const PAUSE_MAX: i64 = 400;
/// The longest pause before an act is repeated, ms, whatever the answer asks for: there is little time.
const RETRY_MAX: i64 = 1_500;
/// How often an act is tried on one subject.
const ATTEMPTS: usize = 4;
/// In how many spans at most it looks for a usage to send again.
const LOOKED_AT_MAX: usize = 8;
/// How many organizations there are.
const ORGANIZATIONS: usize = 7;

#[derive(Debug)]
pub(crate) struct Operator {
    number: usize,
    rng: Rng,
    api: Arc<Api>,
    stats: Arc<Stats>,
    acts: usize,
    /// The spans of which it has skipped usages.
    skipped: Vec<String>,
}

/// What an operator does about a suspended span.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Remedy {
    Skip,
    Resume,
}

/// Has a usage sent again, unless that was done before: no run goes without. The operators know which
/// they have skipped.
pub(crate) async fn resend_one(operators: &mut [Operator], stats: &Stats, until: Instant) {
    while stats.resends.get() == 0 && Instant::now() < until {
        for operator in &mut *operators {
            operator.send_again().await;
        }
        tokio::time::sleep(Duration::from_millis(PAUSE_MAX.unsigned_abs())).await;
    }
}

impl Operator {
    pub(crate) fn new(number: usize, seed: u64, api: Arc<Api>, stats: Arc<Stats>) -> Self {
        Self {
            number,
            rng: Rng::new(seed, 2_000 + number as u64),
            api,
            stats,
            acts: 0,
            skipped: Vec::new(),
        }
    }

    /// Acts until the time is over. It skips nothing after `skips_until`: a skip takes its time.
    pub(crate) async fn run(&mut self, skips_until: Instant, until: Instant) {
        while Instant::now() < until {
            match self.rng.between(0, 99) {
                0..=59 if Instant::now() < skips_until => self.act_on_span(Remedy::Skip).await,
                0..=69 => self.act_on_span(Remedy::Resume).await,
                70..=74 => self.resume_cause().await,
                _ => self.send_again().await,
            }
            let pause = self.rng.between(50, PAUSE_MAX).unsigned_abs();
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Another reason each time, so that the trail tells the acts apart.
    fn reason(&mut self) -> String {
        self.acts += 1;
        format!("operator {} for the {}. time", self.number, self.acts)
    }

    async fn read(&mut self, path: &str) -> Option<Found> {
        self.api.read(path, &mut self.rng).await
    }

    /// The items of the first page of a list.
    async fn items(&mut self, path: &str) -> Vec<Value> {
        match self.read(path).await {
            Some(Found {
                body: Value::Object(mut body),
                ..
            }) => match body.remove("items") {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// One of the causes, by its id.
    async fn cause(&mut self) -> Option<String> {
        let causes = self.items("/v1/suspended").await;
        let cause = self.one_of(&causes)?;
        Some(cause["cause"].as_str()?.to_owned())
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        (!all.is_empty()).then(|| &all[self.rng.below(all.len())])
    }

    /// Skips the usage of one suspended span, or has the span go on.
    async fn act_on_span(&mut self, remedy: Remedy) {
        let mut path = "/v1/spans?state=suspended".to_owned();
        if self.rng.percent(50) {
            let Some(cause) = self.cause().await else {
                return;
            };
            path = format!("{path}&cause={cause}");
        }
        let spans = self.items(&path).await;
        let Some(id) = self.one_of(&spans).and_then(|span| span["id"].as_str()) else {
            return;
        };
        let id = id.to_owned();
        for _ in 0..ATTEMPTS {
            // Without an answer, and where the span has changed, it is read again before anything else.
            let Some(answer) = self.act_on(&id, remedy).await else {
                return;
            };
            if answer.has_status(200) {
                return self.note_done(&id, remedy);
            }
            if answer.is_definite() && !answer.has_status(412) {
                return;
            }
            self.pause(&answer).await;
        }
    }

    /// One attempt; none where there is nothing to do.
    async fn act_on(&mut self, id: &str, remedy: Remedy) -> Option<Answer> {
        let subject = format!("/v1/spans/{id}");
        let Found { body, tag, .. } = self.read(&subject).await?;
        if body["state"] != "suspended" {
            return None;
        }
        let kind = match remedy {
            Remedy::Skip => ActKind::Skip,
            Remedy::Resume => ActKind::Resume,
        };
        let usage = body["planned"]["usage_id"].as_str();
        let asked = Asked {
            kind,
            subject: &subject,
            usage: usage.filter(|_| remedy == Remedy::Skip),
            reason: self.reason(),
            tag: Some(&tag),
        };
        if self.rng.percent(10) {
            let again = Asked {
                reason: self.reason(),
                ..asked
            };
            let mut other = self.rng.clone();
            other.percent(1);
            let (one, other) = tokio::join!(
                self.api.ask(&asked, &mut self.rng),
                self.api.ask(&again, &mut other)
            );
            self.note(&other);
            self.note(&one);
            return Some(if one.has_status(200) { one } else { other });
        }
        let answer = self.api.ask(&asked, &mut self.rng).await;
        self.note(&answer);
        Some(answer)
    }

    fn note(&self, answer: &Answer) {
        if answer.has_status(412) {
            self.stats.outdated_acts.add();
        } else if !answer.is_definite() && !answer.has_status(200) && !answer.has_status(202) {
            self.stats.unknown_acts.add();
        }
    }

    fn note_done(&mut self, id: &str, remedy: Remedy) {
        match remedy {
            Remedy::Skip => {
                self.stats.skips.add();
                self.skipped.push(id.to_owned());
            }
            Remedy::Resume => self.stats.resumes.add(),
        }
    }

    async fn resume_cause(&mut self) {
        let Some(cause) = self.cause().await else {
            return;
        };
        let subject = format!("/v1/suspended/{cause}");
        let asked = Asked {
            kind: ActKind::ResumeCause,
            subject: &subject,
            usage: None,
            reason: self.reason(),
            tag: None,
        };
        let answer = self.api.ask(&asked, &mut self.rng).await;
        self.note(&answer);
        if answer.has_status(202) {
            self.stats.resumes.add();
        }
    }

    /// Has one usage sent again that was skipped or set aside.
    async fn send_again(&mut self) {
        for span in self.spans_to_look_at().await {
            let usages = self.items(&format!("/v1/spans/{span}/usages")).await;
            // What was withheld follows the usage that it takes back.
            let is_off = |usage: &&Value| {
                let state = &usage["state"];
                (state == "skipped" || state == "set_aside") && usage["withheld"] != true
            };
            let off: Vec<&Value> = usages.iter().filter(is_off).collect();
            if let Some(usage) = self.one_of(&off).and_then(|usage| usage["id"].as_str()) {
                return self.resend(usage).await;
            }
        }
    }

    /// Spans that may have usages to send again: one of which it has skipped a usage, or some of an
    /// organization.
    async fn spans_to_look_at(&mut self) -> Vec<String> {
        if self.rng.percent(50) {
            let skipped = self.skipped.clone();
            return self.one_of(&skipped).cloned().into_iter().collect();
        }
        let organization = self.rng.below(ORGANIZATIONS);
        let path = format!("/v1/spans?organization_id=organization-{organization}&limit=300");
        let spans = self.items(&path).await;
        let ids = spans.iter().filter_map(|span| span["id"].as_str());
        let ids: Vec<String> = ids.map(str::to_owned).collect();
        let picked = (0..LOOKED_AT_MAX).filter_map(|_| self.one_of(&ids).cloned());
        picked.collect()
    }

    async fn resend(&mut self, usage: &str) {
        let subject = format!("/v1/usages/{usage}");
        for _ in 0..ATTEMPTS {
            let asked = Asked {
                kind: ActKind::Resend,
                subject: &subject,
                usage: Some(usage),
                reason: self.reason(),
                tag: None,
            };
            let answer = self.api.ask(&asked, &mut self.rng).await;
            self.note(&answer);
            if answer.has_status(202) {
                return self.stats.resends.add();
            }
            if answer.is_definite() {
                return;
            }
            // To ask again for what is about to be posted changes nothing.
            self.pause(&answer).await;
        }
    }

    async fn pause(&mut self, answer: &Answer) {
        pause(answer, 300, RETRY_MAX, &mut self.rng).await;
    }
}
