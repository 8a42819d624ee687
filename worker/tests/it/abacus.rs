//! The upstream of these tests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Contract, Memory, Timestamp, Usage};
use sampler_upstream::{
    Answer, Details, LookupAnswer, LookupResult, Lookups, Posted, Promises, Sought, Upstream,
};
use tokio::time::Instant;

use crate::world::{NOON, elapsed};

/// How an answer is dated, given what time it is there; none where it has no date.
type Dates = Box<dyn FnMut(Timestamp) -> Option<Timestamp> + Send>;

type Script = Box<dyn FnMut(&Usage) -> Option<Answer> + Send>;

/// What is known of the usage with this id.
type Documents = Box<dyn FnMut(&str) -> LookupAnswer + Send>;

/// An Abacus that counts each usage once, and answers as configured.
pub(crate) struct Abacus {
    began: Instant,
    pub(crate) posts: Mutex<Vec<(Instant, String)>>,
    pub(crate) counted: Arc<Mutex<BTreeMap<(String, i64), Usage>>>,
    /// Answers to give instead of taking the usage.
    script: Mutex<Option<Script>>,
    /// The usage of each question.
    pub(crate) asked: Mutex<Vec<String>>,
    documents: Mutex<Option<Documents>>,
    promises: Mutex<Promises>,
    /// The status of its answers to posts; that of the answer where it is none.
    pub(crate) status: Mutex<Option<u16>>,
    in_flight: Mutex<BTreeSet<String>>,
    pub(crate) most_in_flight: AtomicUsize,
    /// How long each post takes.
    pub(crate) latency: Mutex<Duration>,
    dates: Mutex<Option<Dates>>,
}

impl Abacus {
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            began,
            posts: Mutex::default(),
            counted: Arc::default(),
            script: Mutex::default(),
            asked: Mutex::default(),
            documents: Mutex::default(),
            promises: Mutex::new(Promises::ABACUS),
            status: Mutex::default(),
            in_flight: Mutex::default(),
            most_in_flight: AtomicUsize::default(),
            latency: Mutex::default(),
            dates: Mutex::default(),
        }
    }

    /// Dates its answers so from now on.
    pub(crate) fn date(&self, dates: impl FnMut(Timestamp) -> Option<Timestamp> + Send + 'static) {
        *self.dates.lock().unwrap() = Some(Box::new(dates));
    }

    fn dated(&self) -> Option<Timestamp> {
        let now = NOON.plus(elapsed(self.began));
        let date = match self.dates.lock().unwrap().as_mut() {
            Some(dates) => dates(now),
            None => Some(now),
        };
        date.map(|date| Timestamp::clamped(date.as_millis().div_euclid(1_000) * 1_000))
    }

    /// Asks `script` before each usage; it is taken and counted where that answers none.
    pub(crate) fn answer(&self, script: impl FnMut(&Usage) -> Option<Answer> + Send + 'static) {
        *self.script.lock().unwrap() = Some(Box::new(script));
    }

    /// Answers so where it is asked whether a usage counts. Without this no answer has a `Location`.
    pub(crate) fn know(&self, documents: impl FnMut(&str) -> LookupAnswer + Send + 'static) {
        *self.documents.lock().unwrap() = Some(Box::new(documents));
    }

    /// It is another upstream: usages are found by their ids.
    pub(crate) fn find_by_id(&self) {
        let settles = Duration::ZERO;
        self.promises.lock().unwrap().lookups = Lookups::ById { settles };
    }

    /// It forgets usages after so many ms, and finds them by their ids.
    pub(crate) fn forget_after(&self, horizon: i64) {
        self.find_by_id();
        self.promises.lock().unwrap().contract = Contract::Forgets(Memory {
            horizon,
            settles: 0,
            post_timeout: 30_000,
        });
    }

    /// How often it was asked whether a usage counts.
    pub(crate) fn asked_count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// Answers with these, one after the other, then takes all.
    pub(crate) fn answer_first(&self, answers: impl Into<VecDeque<Answer>>) {
        let mut answers = answers.into();
        self.answer(move |_| answers.pop_front());
    }

    /// Signed durations that count for an instance.
    pub(crate) fn durations(&self, instance: &str) -> Vec<i64> {
        let counted = self.counted.lock().unwrap();
        let of = |usage: &&Usage| usage.target.resource_instance_id.as_str() == instance;
        counted.values().filter(of).map(duration).collect()
    }

    pub(crate) fn sum(&self, instance: &str) -> i64 {
        self.durations(instance).iter().sum()
    }

    /// The bodies of the posts that hold this, in their order.
    pub(crate) fn bodies(&self, text: &str) -> Vec<String> {
        let posts = self.posts.lock().unwrap().clone();
        let bodies = posts.into_iter().map(|(_, body)| body);
        bodies.filter(|body| body.contains(text)).collect()
    }

    pub(crate) fn post_count(&self) -> usize {
        self.posts.lock().unwrap().len()
    }
}

/// Abacus refuses a usage.
pub(crate) fn refusal(error: &str) -> Answer {
    let error = error.to_owned();
    Answer::Refused { error }
}

/// It could not take a usage, for no fault of the usage.
pub(crate) fn try_again(error: &str) -> Answer {
    let error = error.to_owned();
    Answer::TryAgain { after: None, error }
}

pub(crate) fn duration(usage: &Usage) -> i64 {
    let measure = usage.measured_usage.last().unwrap();
    assert_eq!(measure.measure.as_str(), "duration");
    measure.quantity.as_json().as_i64().unwrap()
}

#[async_trait]
impl Upstream for Abacus {
    fn promises(&self) -> Promises {
        *self.promises.lock().unwrap()
    }

    async fn post(&self, usage: &Usage, _now: Timestamp) -> Posted {
        let answer = self.take(usage).await;
        let date = self.dated();
        let is_known = self.documents.lock().unwrap().is_some();
        let location = || format!("https://abacus/{}", usage.dedup_id);
        let of_answer = match answer {
            Answer::Accepted => Some(202),
            Answer::Refused { .. } => Some(400),
            Answer::Wait { .. } => Some(429),
            Answer::TryAgain { .. } => None,
        };
        let details = Details {
            status: self.status.lock().unwrap().or(of_answer),
            location: is_known.then(location),
            ..Details::default()
        };
        Posted {
            answer,
            date,
            details,
        }
    }

    async fn look_up(&self, sought: Sought<'_>, _now: Timestamp) -> LookupResult {
        let usage_guid = sought.usage_guid;
        if self.promises().lookups == Lookups::ByLocation {
            assert_eq!(sought.location, format!("https://abacus/{usage_guid}"));
        }
        self.asked.lock().unwrap().push(usage_guid.to_owned());
        let latency = *self.latency.lock().unwrap();
        tokio::time::sleep(latency).await;
        let mut documents = self.documents.lock().unwrap();
        LookupResult {
            answer: documents.as_mut().unwrap()(usage_guid),
            status: None,
        }
    }
}

impl Abacus {
    async fn take(&self, usage: &Usage) -> Answer {
        let body = serde_json::to_string(usage).unwrap();
        self.posts.lock().unwrap().push((Instant::now(), body));
        let id = usage.dedup_id.clone();
        self.in_flight.lock().unwrap().insert(id.clone());
        let count = self.in_flight.lock().unwrap().len();
        self.most_in_flight.fetch_max(count, Ordering::Relaxed);
        let latency = *self.latency.lock().unwrap();
        tokio::time::sleep(latency).await;
        self.in_flight.lock().unwrap().remove(&id);
        let mut script = self.script.lock().unwrap();
        if let Some(answer) = script.as_mut().and_then(|script| script(usage)) {
            return answer;
        }
        assert_ne!(duration(usage), 0, "a usage of no length");
        let key = (id, usage.end.as_millis());
        self.counted.lock().unwrap().insert(key, usage.clone());
        Answer::Accepted
    }
}
