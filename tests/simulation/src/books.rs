//! The books of the stand-in for the upstream: what it has taken, what of that counts, and what it has set aside.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use sampler_domain::{Id, Timestamp, Usage};
use sampler_testkit::rng::{Rng, mix};
use sampler_upstream::LookupAnswer;

use super::world::World;

/// The key by which Abacus recognises a repeat; space and measures are not part of it.
type Key = (String, Timestamp, Timestamp, [Id; 5]);

/// Errors for which usages are set aside after they were accepted.
const ERRORS: [&str; 3] = ["emplannotfound", "retriesexhausted", "epriceplannotfound"];

/// All that the upstream has.
#[derive(Default)]
pub(crate) struct StandIn(Mutex<Books>);

#[derive(Default)]
struct Books {
    taken: BTreeMap<Key, Taken>,
    /// By `Location`. A repeat has none.
    documents: BTreeMap<String, Document>,
    /// How many usages were answered 202.
    answers: u64,
}

/// A usage that the upstream has taken.
struct Taken {
    usage: Usage,
    /// When.
    at: Timestamp,
    set_aside: Option<&'static str>,
    /// Until then a repeat is passed over, whatever comes of the usage.
    decided_at: Timestamp,
    /// How often it was set aside and came again.
    rounds: u64,
}

/// What a `GET` on a `Location` shows.
struct Document {
    usage_guid: String,
    set_aside: Option<&'static str>,
    /// Until then there is none.
    decided_at: Timestamp,
}

/// What became of a usage that reached the upstream.
#[derive(Clone, Debug)]
pub(crate) struct Taking {
    pub(crate) location: String,
    /// It was recognised as a repeat, and passed over.
    pub(crate) is_repeat: bool,
}

impl StandIn {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().expect("nobody panics with it")
    }

    /// All usages that count.
    pub(crate) fn counted(&self) -> Vec<Usage> {
        let books = self.books();
        let counted = books.taken.values().filter(|it| it.set_aside.is_none());
        counted.map(|taken| taken.usage.clone()).collect()
    }

    /// All usages that were set aside, and do not count.
    pub(crate) fn set_aside(&self) -> Vec<Usage> {
        let books = self.books();
        let aside = books.taken.values().filter(|it| it.set_aside.is_some());
        aside.map(|taken| taken.usage.clone()).collect()
    }

    /// The answer to a lookup of a usage, of an upstream that knows what it had then, by its id.
    pub(crate) fn look_up(&self, usage_guid: &str, then: Timestamp) -> LookupAnswer {
        let books = self.books();
        let is_there = |taken: &&Taken| {
            taken.usage.dedup_id == usage_guid && taken.at <= then && taken.set_aside.is_none()
        };
        match books.taken.values().find(is_there) {
            Some(_) => LookupAnswer::Counts,
            None => LookupAnswer::NotFound,
        }
    }

    /// The answer to a question for a usage, of an upstream that knows those to which it gave a `Location`.
    pub(crate) fn ask(&self, location: &str, usage_guid: &str, now: Timestamp) -> LookupAnswer {
        match self.books().documents.get(location) {
            Some(document) if document.usage_guid != usage_guid => LookupAnswer::Mismatch {
                error: "another usage".to_owned(),
            },
            Some(document) if document.decided_at <= now => match document.set_aside {
                Some(error) => LookupAnswer::SetAside {
                    error: error.to_owned(),
                },
                None => LookupAnswer::Counts,
            },
            _ => LookupAnswer::NotFound,
        }
    }
}

/// The signed duration that a usage stands for.
pub(crate) fn duration(usage: &Usage) -> i64 {
    let measure = usage
        .measured_usage
        .last()
        .expect("the duration comes last");
    assert_eq!(measure.measure.as_str(), "duration");
    measure.quantity.as_json().as_i64().expect("whole ms")
}

fn key(usage: &Usage) -> Key {
    let target = &usage.target;
    let ids = [
        target.organization_id.clone(),
        target.resource_instance_id.clone(),
        target.consumer_id.clone(),
        target.resource_id.clone(),
        target.plan_id.clone(),
    ];
    (usage.dedup_id.clone(), usage.end, usage.start, ids)
}

impl World {
    /// The upstream receives a usage, and takes it unless it is a repeat: it counts, or is set aside later. A
    /// usage that was set aside is taken again.
    pub(crate) fn take(&self, usage: &Usage) -> Taking {
        let (key, now) = (key(usage), self.now());
        let mut books = self.books.books();
        books.answers += 1;
        let location = format!("/v1/metering/collected/usage/{}", books.answers);
        let mut rounds = 0;
        if let Some(first) = books.taken.get(&key) {
            rounds = first.rounds + 1;
            if first.usage != *usage {
                self.report_violation(format!(
                    "{} was posted again with other content",
                    usage.dedup_id
                ));
            }
            if self.remembers(first, now) {
                let is_repeat = true;
                return Taking {
                    location,
                    is_repeat,
                };
            }
            if first.set_aside.is_none() {
                let guid = &usage.dedup_id;
                self.report_violation(format!("the usage {guid} counts for the second time"));
            }
        }
        let (set_aside, decided_at) = self.decide(usage, rounds);
        let document = Document {
            usage_guid: usage.dedup_id.clone(),
            set_aside,
            decided_at,
        };
        books.documents.insert(location.clone(), document);
        let taken = Taken {
            usage: usage.clone(),
            at: now,
            set_aside,
            decided_at,
            rounds,
        };
        books.taken.insert(key, taken);
        drop(books);
        self.log("upstream", || {
            let what = set_aside.unwrap_or("counts");
            format!("takes {} {}: {what}", usage.dedup_id, duration(usage))
        });
        if set_aside.is_some() {
            self.count("usages set aside");
        }
        self.note_accepted(usage);
        Taking {
            location,
            is_repeat: false,
        }
    }

    /// Whether a repeat of a usage is recognised. An upstream that forgets knows what it has stored, for a
    /// while after the first time.
    fn remembers(&self, first: &Taken, now: Timestamp) -> bool {
        match self.setup.memory {
            Some(memory) => first.set_aside.is_none() && now < first.at.plus(memory.horizon),
            None => first.set_aside.is_none() || now < first.decided_at,
        }
    }

    /// Whether a usage is set aside, and when that is decided. None is once all faults have ended.
    fn decide(&self, usage: &Usage, round: u64) -> (Option<&'static str>, Timestamp) {
        let row = usage.dedup_id.bytes();
        let row = row.fold(round, |all, byte| mix(all ^ u64::from(byte)));
        let rng = &mut Rng::new(self.setup.seed ^ row, 11);
        let fails = !self.is_over() && rng.percent(self.setup.sets_aside);
        let set_aside = fails.then(|| *rng.pick(&ERRORS));
        let delay = rng.log_uniform(self.setup.scale.tick);
        (set_aside, self.now().plus(delay))
    }
}
