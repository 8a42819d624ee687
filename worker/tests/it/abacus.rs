//! An Abacus that counts each usage once, and answers as a test configures it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
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
    /// Each question for a document: when, and of which usage.
    pub(crate) asked: Mutex<Vec<(Instant, String)>>,
    documents: Mutex<Option<Documents>>,
    promises: Mutex<Promises>,
    /// The status of its answers to posts; that of the answer where it is none.
    pub(crate) status: Mutex<Option<u16>>,
    in_flight: Mutex<BTreeSet<String>>,
    pub(crate) most_in_flight: Mutex<usize>,
    /// How long each post takes.
    pub(crate) latency: Mutex<Duration>,
    /// How far its clock is behind, ms.
    pub(crate) behind: AtomicI64,
    dates: Mutex<Option<Dates>>,
    /// Nothing is answered.
    pub(crate) is_away: AtomicBool,
    /// Failures are those of a request that was not sent.
    pub(crate) is_unsent: AtomicBool,
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
            most_in_flight: Mutex::default(),
            latency: Mutex::default(),
            behind: AtomicI64::default(),
            dates: Mutex::default(),
            is_away: AtomicBool::default(),
            is_unsent: AtomicBool::default(),
        }
    }

    /// What time it is there.
    pub(crate) fn now(&self) -> Timestamp {
        NOON.plus(elapsed(self.began) - self.behind.load(Ordering::Relaxed))
    }

    /// Dates its answers so from now on.
    pub(crate) fn date(&self, dates: impl FnMut(Timestamp) -> Option<Timestamp> + Send + 'static) {
        *self.dates.lock().unwrap() = Some(Box::new(dates));
    }

    fn dated(&self) -> Option<Timestamp> {
        if self.is_away.load(Ordering::Relaxed) {
            return None;
        }
        let now = self.now();
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

    /// How many posts were made for instances whose name holds this, after the first `skipped`.
    pub(crate) fn posts_of(&self, name: &str, skipped: usize) -> usize {
        let posts = self.posts.lock().unwrap();
        let of = |post: &&(Instant, String)| post.1.contains(name);
        posts.iter().skip(skipped).filter(of).count()
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
            unsent: self.is_unsent.load(Ordering::Relaxed),
            ..Details::default()
        };
        Posted {
            answer,
            date,
            details,
        }
    }

    async fn look_up(&self, sought: Sought<'_>, _now: Timestamp) -> LookupResult {
        let Sought {
            usage_guid,
            location,
        } = sought;
        if self.promises().lookups == Lookups::ByLocation {
            assert_eq!(location, format!("https://abacus/{usage_guid}"));
        }
        let question = (Instant::now(), usage_guid.to_owned());
        self.asked.lock().unwrap().push(question);
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
        self.in_flight
            .lock()
            .unwrap()
            .insert(usage.dedup_id.clone());
        let count = self.in_flight.lock().unwrap().len();
        let latency = *self.latency.lock().unwrap();
        {
            let mut most = self.most_in_flight.lock().unwrap();
            *most = count.max(*most);
        }
        tokio::time::sleep(latency).await;
        self.in_flight.lock().unwrap().remove(&usage.dedup_id);
        let told = self
            .script
            .lock()
            .unwrap()
            .as_mut()
            .and_then(|script| script(usage));
        if let Some(answer) = told {
            return answer;
        }
        if self.is_away.load(Ordering::Relaxed) {
            let error = "connection refused".into();
            return Answer::TryAgain { after: None, error };
        }
        assert_ne!(duration(usage), 0, "a usage of no length");
        let key = (usage.dedup_id.clone(), usage.end.as_millis());
        self.counted.lock().unwrap().insert(key, usage.clone());
        Answer::Accepted
    }
}
