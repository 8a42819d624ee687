//! The books of the stand-in for Abacus: what it has taken, what of that counts, and what it has set
//! aside.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use sampler_domain::{Id, Interval, Timestamp, Usage};
use sampler_testkit::rng::{Rng, mix};
use sampler_upstream::LookupAnswer;

use super::op::Kind;
use super::setup::Closing;
use super::world::{Tally, World};
use crate::calendar::DAY;

/// The key by which Abacus recognises a repeat; space and measures are not part of it.
type Key = (String, Timestamp, Timestamp, [Id; 5]);

/// Errors for which usages are set aside after they were accepted.
const ERRORS: [&str; 3] = ["emplannotfound", "retriesexhausted", "epriceplannotfound"];

/// The error of a usage whose month was closed when it came.
const MONTH_CLOSED: &str = "monthclosed";

/// All that Abacus has.
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

/// A usage that Abacus has taken.
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

impl StandIn {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().expect("nobody panics with it")
    }

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

    /// Whether a `Location` is that of a usage, not of a repeat.
    pub(crate) fn has_document(&self, location: &str) -> bool {
        self.books().documents.contains_key(location)
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

    /// The answer to a question for a usage.
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
    /// Whether Abacus has a usage of this id.
    pub(crate) fn has_counted(&self, usage: &Usage) -> bool {
        let plans = &self.truth.facts().plans;
        plans.get(&usage.dedup_id).is_some_and(|plan| plan.counted)
    }

    /// Abacus receives a usage, and takes it unless it is a repeat: it counts, or is set aside later. A
    /// usage that was set aside is taken again. Returns the `Location` that Abacus answers, and whether it
    /// has taken the usage.
    pub(crate) fn take(&self, usage: &Usage) -> (String, bool) {
        let (key, now) = (key(usage), self.now());
        let mut books = self.abacus.books();
        books.answers += 1;
        let location = format!("/v1/metering/collected/usage/{}", books.answers);
        let mut rounds = 0;
        if let Some(first) = books.taken.get(&key) {
            rounds = first.rounds + 1;
            let (same, is_repeat) = (first.usage == *usage, self.remembers(first, now));
            if !same {
                self.report_violation(format!(
                    "{} was posted again with other content",
                    usage.dedup_id
                ));
            }
            if is_repeat {
                return (location, false);
            }
        }
        let today = now.as_millis().div_euclid(DAY);
        if self.setup.puts_future_aside && usage.end.as_millis() >= (today + 1) * DAY {
            self.report_violation(format!(
                "{} was set aside: it lies after today",
                usage.dedup_id
            ));
            return (location, false);
        }
        let Some(is_closed) = self.takes_for_its_month(usage) else {
            self.report_violation(format!(
                "{} was set aside: its month is closed",
                usage.dedup_id
            ));
            return (location, false);
        };
        let (set_aside, decided_at) = self.decide(usage, rounds, is_closed);
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
        let length = duration(usage);
        let what = set_aside.unwrap_or("counts");
        self.log("Abacus", || {
            format!("takes {} {length}: {what}", usage.dedup_id)
        });
        if set_aside.is_none() {
            self.note_counted(usage, length);
            self.check_window(&usage.dedup_id);
        } else {
            Tally::add(&self.tally.set_aside);
            self.note_set_aside(usage, length);
        }
        (location, true)
    }

    /// Whether a repeat of a usage is recognised. An upstream that forgets knows what it has stored, for a
    /// while after the first time.
    fn remembers(&self, first: &Taken, now: Timestamp) -> bool {
        match self.setup.memory {
            Some(memory) => first.set_aside.is_none() && now < first.at.plus(memory.horizon),
            None => first.set_aside.is_none() || now < first.decided_at,
        }
    }

    /// Whether a usage is set aside, and when that is decided. A closed month takes none, and in some runs
    /// others fail, too, until all faults end.
    fn decide(
        &self,
        usage: &Usage,
        round: u64,
        is_closed: bool,
    ) -> (Option<&'static str>, Timestamp) {
        let row = usage.dedup_id.bytes();
        let row = row.fold(round, |all, byte| mix(all ^ u64::from(byte)));
        let rng = &mut Rng::new(self.setup.seed ^ row, 11);
        let fails = !self.is_over() && rng.percent(self.setup.sets_aside);
        let set_aside = if is_closed && self.setup.sets_aside > 0 {
            Some(MONTH_CLOSED)
        } else {
            fails.then(|| *rng.pick(&ERRORS))
        };
        let delay = rng.log_uniform(self.setup.scale.tick);
        (set_aside, self.now().plus(delay))
    }

    /// Whether a usage comes for a closed month; `None` if it should have come in time. One that nobody
    /// could deliver in time counts in some runs all the same, so that the law can be checked for it,
    /// too.
    fn takes_for_its_month(&self, usage: &Usage) -> Option<bool> {
        let Some(closing) = self.setup.closing else {
            return Some(false);
        };
        let now = self.now();
        if usage.end >= closing.month_end || now < closing.month_end {
            return Some(false);
        }
        if now <= closing.closes_at() {
            Tally::add(&self.tally.closing);
            return Some(false);
        }
        let excused = self.is_known_late(usage, closing);
        if excused {
            Tally::add(&self.tally.excused);
        }
        excused.then_some(true)
    }

    /// Whether the store learned too late of the start, or of the stop that the interval leads to.
    /// Or the start was reported so late that its backlog is too long, or the usage was withheld.
    fn is_known_late(&self, usage: &Usage, closing: Closing) -> bool {
        let facts = self.truth.facts();
        let Some(plan) = facts.plans.get(&usage.dedup_id) else {
            return false;
        };
        let kept = facts.kept.iter().filter(|kept| kept.span == plan.span);
        let span_start = self.store.with(|table| Some(table.find(&plan.span)?.start));
        let backlog = kept
            .clone()
            .find(|kept| kept.kind == Kind::Start)
            .map_or(0, |kept| {
                kept.kept_at.since(span_start.unwrap_or(kept.kept_at))
            });
        // What was withheld waits for an operator to send again what it takes back.
        if backlog > closing.backlog_most || plan.withheld {
            return true;
        }
        let mut late = kept.filter(|kept| kept.kept_at > closing.quiet_from());
        let end = self.store.with(|table| table.find(&plan.span)?.end);
        let Interval { start, end: until } = plan.interval;
        let by_stop = until < start || Some(until) == end;
        late.any(|kept| kept.kind == Kind::Start || by_stop)
    }
}
