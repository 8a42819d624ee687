//! Changes of spans: by the version that was read, and each kept whole.

use std::collections::HashSet;

use futures_util::future::join_all;
use sampler_domain::{
    Action, CauseId, Change, ChangeKind, Changed, Contract, Driver, Failure, Granularities,
    Granularity, Memory, Remembered, Span, StopEvent, Terms, Timestamp,
};
use sampler_store::{NewStop, Resumption, StopOutcome};
use tokio::task::JoinSet;

use crate::random::{Random, processing};
use crate::support::{
    Changing, Shared, Store, acceptance, at, failed, failure, finished, kept, must_stop, new_stop,
    next, planned, postponed, recorded, refusal, run, started, suspended, target, terms,
};

const HOUR: i64 = 3_600_000;

/// When the courses of spans begin, which last for about four days.
const BEGIN: i64 = -96 * HOUR;

pub async fn a_change_is_made_for_the_version_that_was_read_alone(store: &Shared) {
    let store = &**store;
    let read = started(store, "a", "a", -HOUR).await;
    let made = store.must_make(&read, next(&read, 0)).await;
    assert_eq!(made.processing.version, read.processing.version + 1);
    let later = postponed(&read, at(1));
    assert_eq!(store.make(&read, later).await.unwrap(), None);
    assert_eq!(kept(store, "a").await, made);
}

pub async fn a_stop_shuts_out_what_was_decided_before_it(store: &Shared) {
    let store = &**store;
    let read = planned(store, "a", -HOUR).await;
    must_stop(store, None, "a", -1).await;
    for change in [recorded(&read, 0), failed(&read, refusal("no mapping", 0))] {
        assert_eq!(store.make(&read, change).await.unwrap(), None);
    }
    let ended = kept(store, "a").await;
    assert_eq!(ended.processing.version, read.processing.version + 1);
    let late = store.must_make(&ended, recorded(&ended, 0)).await;
    assert_eq!(kept(store, "a").await, late);
}

pub async fn a_change_of_an_operator_is_made_for_the_version_that_was_read(store: &Shared) {
    let store = &**store;
    let read = suspended(store, "a", 0).await;
    let skip = read.to_skip(None, at(1)).expect("it is suspended");
    let resume = read.to_resume(at(1)).expect("it is suspended");
    let ask = async |change| {
        let asked = store.change_by_operator(&read, change, at(1)).await;
        asked.unwrap()
    };
    assert_eq!(ask(&skip).await, Changed::Made);
    for change in [&skip, &resume] {
        assert_eq!(ask(change).await, Changed::Rejected);
    }
    assert_eq!(kept(store, "a").await, skip.after);
}

pub async fn a_span_that_is_gone_is_not_changed(store: &Shared) {
    let store = &**store;
    started(store, "a", "a", 0).await;
    must_stop(store, None, "a", 0).await;
    let span = kept(store, "a").await;
    let span = store.must_make(&span, next(&span, 0)).await;
    assert_eq!(store.remove(&[finished(&span)]).await.unwrap(), 1);
    let change = postponed(&span, at(1));
    assert_eq!(store.make(&span, change).await.unwrap(), None);
    assert_eq!(store.read(&span.id, &span.target).await.unwrap(), None);
}

pub async fn of_32_changes_of_one_span_one_is_made(store: &Shared) {
    let span = started(&**store, "a", "a", -HOUR).await;
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let (store, span) = (store.clone(), span.clone());
        tasks.spawn(async move {
            let change = postponed(&span, at(number));
            store.make(&span, change).await.expect("an answer")
        });
    }
    let answers = tasks.join_all().await;
    let made: Vec<_> = answers.into_iter().flatten().collect();
    assert_eq!(made, [kept(&**store, "a").await]);
}

/// Whatever its members are, and whatever they were before.
pub async fn whatever_is_known_of_a_span_is_kept_whole(store: &Shared) {
    let spans = (0..16).map(async |number: u64| {
        let name = number.to_string();
        let mut read = started(&**store, &name, &name, 0).await;
        let mut random = Random(number);
        for _ in 0..16 {
            let mut after = read.clone();
            after.processing = processing(&mut random, read.processing.version + 1);
            let kind = ChangeKind::Record;
            read = store.must_make(&read, Change { kind, after }).await;
            let kept = store.read(&read.id, &read.target).await.unwrap();
            assert_eq!(kept.as_ref(), Some(&read));
            let shown = store.span(&read.id.to_string(), None).await.unwrap();
            assert_eq!(shown, kept);
        }
    });
    join_all(spans).await;
}

/// Two workers, an operator and a provider do what they do in some order: the span is what the rules say.
pub async fn each_kind_of_change_makes_of_a_span_what_the_rules_say(store: &Shared) {
    let courses = (0..64).map(async |number| {
        let mut course = Course::new(&**store, number).await;
        for _ in 0..128 {
            course.go_on().await;
        }
        course.made
    });
    let made = join_all(courses).await.into_iter().flatten();
    let kinds: HashSet<ChangeKind> = made.collect();
    assert_eq!(kinds.len(), 15, "{kinds:?}");
}

struct Course<'s> {
    store: &'s dyn Store,
    name: String,
    random: Random,
    /// `millis` after the present.
    now: i64,
    /// As it should be kept.
    span: Span,
    workers: [(Option<Driver>, Remembered); 2],
    made: HashSet<ChangeKind>,
}

impl<'s> Course<'s> {
    async fn new(store: &'s dyn Store, number: u64) -> Self {
        let name = number.to_string();
        Self {
            store,
            random: Random(number),
            now: BEGIN,
            span: started(store, &name, &name, BEGIN).await,
            name,
            workers: Default::default(),
            made: HashSet::new(),
        }
    }

    async fn go_on(&mut self) {
        if self.random.flag() {
            self.now += self.random.below(2 * HOUR);
        }
        match self.random.below(16) {
            0 => self.stop(at(self.now)).await,
            1 if self.span.processing.planned.is_none() => self.stop(self.span.sampled_to()).await,
            1 => self.ask(self.span.to_resume(at(self.now))).await,
            2 => self.skip().await,
            3 => {
                let resend = self.span.to_resend(None, None, at(self.now));
                self.ask(resend).await;
            }
            4 => self.resume(true).await,
            5 => self.resume(false).await,
            6 => self.forget(),
            7 if self.span.suspension().is_some() => self.skip().await,
            number => {
                let worker = usize::from(number % 2 == 0);
                for _ in 0..=self.random.below(3) {
                    self.work(worker).await;
                }
            }
        }
    }

    /// After each call that may have changed it.
    async fn must_be_kept(&self) {
        let Span { id, target, .. } = &self.span;
        let kept = self.store.read(id, target).await.unwrap();
        assert_eq!(kept.as_ref(), Some(&self.span));
    }

    /// Some spans are stopped, once they have run for a day.
    async fn stop(&mut self, end: Timestamp) {
        if self.span.end.is_some() || self.now < BEGIN + 24 * HOUR || self.random.flag() {
            return;
        }
        let event = StopEvent {
            id: None,
            timestamp: end.max(self.span.start),
            target: target(&self.name),
        };
        self.span = self.span.clone().ended(&event, None);
        let stop = NewStop {
            event,
            ..new_stop(None, "", 0)
        };
        assert_eq!(self.store.stop(stop).await.unwrap(), StopOutcome::Ended);
        self.must_be_kept().await;
    }

    async fn skip(&mut self) {
        let hours = self.random.below(3);
        let planned = self.span.processing.planned.as_ref();
        let until = planned.map(|it| it.interval.end.plus(hours * HOUR));
        let skip = self.span.to_skip(until, at(self.now));
        self.ask(skip.ok()).await;
        let end = self.span.sampled_to().plus(-HOUR / 2);
        self.stop(end).await;
    }

    async fn ask(&mut self, change: Option<Change>) {
        if let Some(change) = change {
            let now = at(self.now);
            let made = self.store.change_by_operator(&self.span, &change, now);
            assert_eq!(made.await.unwrap(), Changed::Made);
            self.made.insert(change.kind);
            self.span = change.after;
            self.must_be_kept().await;
        }
    }

    async fn resume(&mut self, is_probe: bool) {
        let suspension = self.span.suspension();
        let resumption = Resumption {
            now: at(self.now),
            refusals: 1,
        };
        let Resumption { now, refusals } = resumption;
        if let Some(suspension) = suspension {
            let cause: CauseId = suspension.cause;
            if is_probe {
                assert!(self.store.probe(cause, resumption).await.unwrap());
            } else {
                let batch = self.store.resume_batch(cause, now, resumption, 9);
                assert_eq!(batch.await.unwrap(), 1);
            }
            self.span = self.span.resumed(refusals, is_probe, now);
            self.must_be_kept().await;
        }
    }

    /// A worker dies; or its drive ends, because the store has failed.
    fn forget(&mut self) {
        let dies = self.random.flag();
        let (driver, remembered) = &mut self.workers[0];
        if let Some(driver) = driver.take().filter(|_| !dies) {
            *remembered = driver.into_remembered();
        } else {
            *remembered = Remembered::default();
        }
    }

    async fn work(&mut self, worker: usize) {
        let (now, terms) = (at(self.now), self.terms(worker));
        let (driver, remembered) = std::mem::take(&mut self.workers[worker]);
        let mut driver =
            driver.unwrap_or_else(|| Driver::new(self.span.clone(), remembered, at(BEGIN)));
        match driver.action(now, &terms) {
            Action::Change(change) => self.change(&mut driver, *change).await,
            Action::Post { .. } => match self.random.below(8) {
                0 => driver.on_outdated(),
                1..5 => driver.on_accepted(acceptance(self.now, Some("https://abacus/1"))),
                _ => driver.on_failed(self.failure()),
            },
            Action::LookUp(_) => match self.random.below(8) {
                0 => driver.on_lookup_postponed(now.plus(HOUR)),
                1 => driver.on_found(acceptance(self.now, None)),
                2 => driver.on_failed(self.failure()),
                _ => driver.on_not_found(now, failure("settles", self.now, now), &terms),
            },
            Action::WriteEntry(_) => driver.on_entry_written(),
            Action::ResumeCause(_) => driver.on_cause_resumed(),
            Action::Reread => driver.on_reread(Some(self.span.clone())),
            Action::Done => return,
        }
        self.workers[worker].0 = Some(driver);
    }

    async fn change(&mut self, driver: &mut Driver, change: Change) {
        let read = driver.span().clone();
        let is_current = read.processing.version == self.span.processing.version;
        let changed = self.store.change(&read, &change, at(self.now)).await;
        match changed.unwrap() {
            Changed::Made => {
                // Another worker may have made it just so.
                assert!(is_current || change.after == self.span, "{change:?}");
                self.made.insert(change.kind);
                self.span = change.after.clone();
                driver.on_change_made(change);
            }
            Changed::Rejected => {
                assert!(!is_current, "{change:?}");
                driver.on_change_rejected();
            }
        }
        self.must_be_kept().await;
    }

    fn failure(&mut self) -> Failure {
        let retry_at: Timestamp = at(self.now);
        match self.random.below(4) {
            0 => failure("full", self.now, retry_at),
            1 => Failure {
                unanswered: true,
                ..failure("no answer", self.now, retry_at)
            },
            _ => refusal(&format!("no mapping for {}", self.name), self.now),
        }
    }

    /// By the hour, in the end by the day. The upstream of ten spans forgets within the hour.
    fn terms(&self, worker: usize) -> Terms {
        let mut terms = terms();
        terms.run = run(worker as u128 + 1);
        terms.suspend_after = 2;
        if self.now > BEGIN / 4 {
            terms.policy.granularities = Granularities::all(Granularity::Day);
        }
        if self.name.len() == 1 {
            terms.contract = Contract::Forgets(Memory {
                horizon: HOUR,
                settles: 1,
                post_timeout: 1_000,
            });
        }
        terms
    }
}
