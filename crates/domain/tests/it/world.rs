//! One span, two runs of workers that carry out what the driver says, an operator, and an upstream that
//! recognises repeats for ever. Everything may fail at any time.

use std::collections::{BTreeMap, BTreeSet};

use sampler_domain::{
    Acceptance, Action, Change, Contract, Delivery, Driver, Excluded, Failure, Granularity,
    Interval, Remembered, RunId, Span, Terms, Timestamp,
};
use uuid::Uuid;

use crate::support::{moment, policy};

/// The outcome of one action of a worker: of a post, or of a call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A post is accepted, a change is made.
    Done,
    /// A post is refused.
    Refused,
    /// Done, and the answer is lost.
    DoneUnanswered,
    /// Not done, and no answer.
    Lost,
    /// Done later, and no answer.
    Late,
}

/// What may still be carried out.
#[derive(Clone, Debug)]
enum Abandoned {
    Post(Delivery),
    Change(Box<(Span, Change)>),
}

/// A run of a worker.
struct Run {
    id: RunId,
    driver: Option<Driver>,
    remembered: Remembered,
}

impl Run {
    fn new(id: u128) -> Self {
        Self {
            id: RunId(Uuid::from_u128(id)),
            driver: None,
            remembered: Remembered::default(),
        }
    }
}

pub(crate) struct World {
    pub(crate) span: Span,
    pub(crate) now: Timestamp,
    pub(crate) granularity: Granularity,
    pub(crate) counted: BTreeMap<String, Interval>,
    pub(crate) ledger: BTreeMap<String, Interval>,
    runs: [Run; 2],
    runs_begun: u128,
    abandoned: Vec<Abandoned>,
}

impl World {
    pub(crate) fn new(span: Span, granularity: Granularity) -> Self {
        Self {
            now: span.start,
            span,
            granularity,
            counted: BTreeMap::new(),
            ledger: BTreeMap::new(),
            runs: [Run::new(1), Run::new(2)],
            runs_begun: 2,
            abandoned: Vec::new(),
        }
    }

    fn terms(&self, run: usize) -> Terms {
        Terms {
            run: self.runs[run].id,
            policy: policy(self.granularity, 0),
            contract: Contract::Forever,
            suspend_after: 2,
        }
    }

    /// One run takes its next step. Says whether there was anything to do.
    pub(crate) fn work(&mut self, run: usize, outcome: Outcome) -> bool {
        let terms = self.terms(run);
        let now = self.now;
        let Some(mut driver) = self.runs[run].driver.take() else {
            let remembered = std::mem::take(&mut self.runs[run].remembered);
            let driver = Driver::new(self.span.clone(), remembered, Timestamp::MIN);
            let is_idle = driver.action(now, &terms) == Action::Done;
            self.runs[run].driver = (!is_idle).then_some(driver);
            return !is_idle;
        };
        match driver.action(now, &terms) {
            Action::Change(change) => return self.change(run, driver, *change, outcome),
            Action::Post { delivery, .. } => self.post(&mut driver, delivery, outcome),
            Action::WriteEntry(entry) => {
                if outcome == Outcome::Lost {
                    self.runs[run].remembered = driver.into_remembered();
                    return true;
                }
                self.ledger
                    .entry(entry.usage_guid)
                    .or_insert(entry.interval);
                driver.on_entry_written();
            }
            Action::ResumeCause(_) => driver.on_cause_resumed(),
            Action::Reread => driver.on_reread(Some(self.span.clone())),
            Action::LookUp(_) => unreachable!("the upstream forgets nothing"),
            Action::Done => return true,
        }
        self.runs[run].driver = Some(driver);
        true
    }

    fn post(&mut self, driver: &mut Driver, delivery: Delivery, outcome: Outcome) {
        let now = self.now;
        let is_over = delivery.interval.end <= now || delivery.interval.duration() < 0;
        assert!(is_over, "{delivery:?} is posted before its end");
        let failure = |unanswered: bool| Failure {
            at: now,
            retry_at: now,
            error: "no".to_owned(),
            status: None,
            blames_usage: !unanswered,
            is_post: true,
            unanswered,
        };
        match outcome {
            Outcome::Done => {
                self.count(delivery);
                driver.on_accepted(Acceptance {
                    at: now,
                    status: Some(202),
                    location: None,
                });
            }
            Outcome::Refused => driver.on_failed(failure(false)),
            Outcome::DoneUnanswered => {
                self.count(delivery);
                driver.on_failed(failure(true));
            }
            Outcome::Lost => driver.on_failed(failure(true)),
            Outcome::Late => {
                self.abandoned.push(Abandoned::Post(delivery));
                driver.on_failed(failure(true));
            }
        }
    }

    fn count(&mut self, delivery: Delivery) {
        let counted = self.counted.insert(delivery.usage_guid, delivery.interval);
        assert!(counted.is_none_or(|before| before == delivery.interval));
    }

    /// The store makes a change, if the version is the one that was read.
    fn make(&mut self, read: &Span, change: &Change) -> bool {
        let is_same = self.span.processing.version == read.processing.version;
        assert_eq!(
            change.after.processing.version,
            read.processing.version + 1,
            "{:?}",
            change.kind
        );
        if is_same {
            self.span = change.after.clone();
        }
        is_same
    }

    fn change(&mut self, run: usize, mut driver: Driver, change: Change, outcome: Outcome) -> bool {
        let read = driver.span().clone();
        let is_made =
            outcome != Outcome::Lost && outcome != Outcome::Late && self.make(&read, &change);
        match outcome {
            Outcome::Done | Outcome::Refused => {
                if is_made {
                    driver.on_change_made(change);
                } else {
                    driver.on_change_rejected();
                }
                self.runs[run].driver = Some(driver);
            }
            Outcome::DoneUnanswered | Outcome::Lost => {
                self.runs[run].remembered = driver.into_remembered();
            }
            Outcome::Late => {
                self.abandoned
                    .push(Abandoned::Change(Box::new((read, change))));
                self.runs[run].remembered = driver.into_remembered();
            }
        }
        if self.runs[run]
            .driver
            .as_ref()
            .is_some_and(|driver| driver.action(self.now, &self.terms(run)) == Action::Done)
        {
            self.runs[run].driver = None;
        }
        true
    }

    /// A run dies. A post of it may be under way, and its change, too.
    pub(crate) fn die(&mut self, run: usize, abandons: bool) {
        let terms = self.terms(run);
        if let Some(driver) = self.runs[run].driver.take().filter(|_| abandons) {
            match driver.action(self.now, &terms) {
                Action::Post { delivery, .. } => self.abandoned.push(Abandoned::Post(delivery)),
                Action::Change(change) => {
                    let change = (driver.span().clone(), *change);
                    self.abandoned.push(Abandoned::Change(Box::new(change)));
                }
                _ => {}
            }
        }
        self.runs_begun += 1;
        self.runs[run] = Run::new(self.runs_begun);
    }

    /// Something that had no answer is carried out, or is lost.
    pub(crate) fn arrive(&mut self, which: usize, takes_effect: bool) {
        if self.abandoned.is_empty() {
            return;
        }
        let which = which % self.abandoned.len();
        match self.abandoned.remove(which) {
            Abandoned::Post(delivery) if takes_effect => self.count(delivery),
            Abandoned::Change(change) if takes_effect => _ = self.make(&change.0, &change.1),
            _ => {}
        }
    }

    pub(crate) fn stop(&mut self, at: Timestamp) {
        if self.span.end.is_none() && at >= self.span.start {
            let event = sampler_domain::StopEvent {
                id: None,
                timestamp: at,
                target: self.span.target.clone(),
            };
            self.span = self.span.clone().ended(&event, None);
        }
    }

    pub(crate) fn operate(&mut self, change: Option<Change>) -> bool {
        let read = self.span.clone();
        change.is_some_and(|change| self.make(&read, &change))
    }

    /// All goes well: two runs work on, an operator resumes, and sends again what is left.
    pub(crate) fn end_well(&mut self) {
        while !self.abandoned.is_empty() {
            self.arrive(0, true);
            self.check();
        }
        for _ in 0..100_000 {
            let worked = self.work(0, Outcome::Done);
            let worked = self.work(1, Outcome::Done) || worked;
            self.check();
            let resumed = self.operate(self.span.to_resume(self.now));
            let resent = self.operate(self.span.to_resend(None, None, self.now));
            if !worked && !resumed && !resent {
                return;
            }
        }
        panic!("it does not end");
    }

    /// The law, moment by moment: what counts is what the span says is billed. It may differ in the planned
    /// interval, in the first of `again`, and in what is flagged `unanswered`. And nothing counts twice, nor
    /// less than nothing.
    pub(crate) fn check(&self) {
        let processing = &self.span.processing;
        let legs = |range: &Excluded| [Some(range.interval), range.way_back()];
        let mut open: Vec<Interval> = Vec::new();
        open.extend(processing.planned.as_ref().map(|it| it.interval));
        let first = processing.again.first();
        open.extend(first.map(|it| it.range.interval));
        let again = processing.again.iter().map(|it| &it.range);
        let flagged = processing.excluded.iter().chain(again.clone());
        let flagged = flagged.filter(|it| it.unanswered).map(|it| it.interval);
        open.extend(flagged);
        let mut claimed: Vec<(Interval, i64)> = vec![(
            Interval {
                start: self.span.start,
                end: self.span.sampled_to(),
            },
            1,
        )];
        for range in &processing.excluded {
            claimed.extend(legs(range).into_iter().flatten().map(|leg| (leg, -1)));
        }
        for it in &processing.again {
            let [forward, way_back] = legs(&it.range);
            let forward = forward.filter(|_| !it.is_way_back);
            let left = [forward, way_back].into_iter().flatten();
            claimed.extend(left.map(|leg| (leg, -1)));
        }
        let counted: Vec<(Interval, i64)> = self.counted.values().map(|it| (*it, 1)).collect();
        let bounds: BTreeSet<i64> = claimed
            .iter()
            .chain(&counted)
            .map(|(interval, _)| *interval)
            .chain(open.iter().copied())
            .flat_map(|it| [it.start.as_millis(), it.end.as_millis()])
            .collect();
        let net = |all: &[(Interval, i64)], at: i64| -> i64 {
            let sign = |it: &Interval| {
                let (start, end) = (it.start.as_millis(), it.end.as_millis());
                i64::from(start <= at && at < end) - i64::from(end <= at && at < start)
            };
            all.iter().map(|(it, weight)| sign(it) * weight).sum()
        };
        for at in bounds {
            let counts = net(&counted, at);
            let from = moment(at);
            assert!((0..=1).contains(&counts), "{from}: counts {counts} times");
            let is_open = open.iter().any(|it| {
                let (low, high) = (it.start.min(it.end), it.start.max(it.end));
                low <= from && from < high
            });
            let claim = net(&claimed, at);
            assert!(
                is_open || counts == claim,
                "{from}: counts {counts}, the span says {claim}: {:?}",
                self.span.processing
            );
        }
        for guid in self.ledger.keys() {
            assert!(
                self.counted.contains_key(guid),
                "an entry of what does not count"
            );
        }
        assert!(processing.again.is_empty() || !processing.complete);
    }

    pub(crate) fn sum(&self) -> i64 {
        self.counted.values().map(|it| it.duration()).sum()
    }
}
