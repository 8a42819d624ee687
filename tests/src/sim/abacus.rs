//! The stand-in for Abacus: it counts as the real one does, and fails as its conditions say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sampler_abacus::{Answer, AnswerDate, Asked, Collector, Confirmer, Details, Posted};
use sampler_domain::{Id, Interval, Timestamp, Usage};
use sampler_testkit::rng::Rng;

use super::conditions::PostOutcome;
use super::lifecycle::Lifecycle;
use super::mutant::Mutant;
use super::op::Kind;
use super::rng::CallRng;
use super::setup::Closing;
use super::world::{Tally, World, pause};
use crate::calendar::{DAY, MINUTE};

/// The key by which Abacus recognises a repeat; space and measures are not part of it.
type Key = (String, Timestamp, Timestamp, [Id; 5]);

/// All usages that count.
#[derive(Default)]
pub(crate) struct StandIn {
    counted: Mutex<BTreeMap<Key, Usage>>,
}

impl StandIn {
    /// All usages that count.
    pub(crate) fn counted(&self) -> Vec<Usage> {
        let counted = self.counted.lock().expect("nobody panics with it");
        counted.values().cloned().collect()
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

impl World {
    /// Whether Abacus has a usage of this id.
    fn has_counted(&self, usage: &Usage) -> bool {
        let plans = &self.truth.facts().plans;
        plans.get(&usage.dedup_id).is_some_and(|plan| plan.counted)
    }

    /// Abacus receives a usage, and counts it unless it is a repeat.
    pub(crate) fn count(&self, usage: &Usage) {
        let target = &usage.target;
        let ids = [
            target.organization_id.clone(),
            target.resource_instance_id.clone(),
            target.consumer_id.clone(),
            target.resource_id.clone(),
            target.plan_id.clone(),
        ];
        let key = (usage.dedup_id.clone(), usage.end, usage.start, ids);
        let mut counted = self.abacus.counted.lock().expect("nobody panics with it");
        if let Some(first) = counted.get(&key) {
            if first != usage {
                self.report_violation(format!(
                    "{} was posted again with other content",
                    usage.dedup_id
                ));
            }
            return;
        }
        let today = self.now().as_millis().div_euclid(DAY);
        if self.setup.puts_future_aside && usage.end.as_millis() >= (today + 1) * DAY {
            self.report_violation(format!(
                "{} was set aside: it lies after today",
                usage.dedup_id
            ));
            return;
        }
        if !self.takes_for_its_month(usage) {
            self.report_violation(format!(
                "{} was set aside: its month is closed",
                usage.dedup_id
            ));
            return;
        }
        self.log("Abacus", || {
            format!("counts {} {}", usage.dedup_id, duration(usage))
        });
        counted.insert(key, usage.clone());
        drop(counted);
        self.note_counted(usage, duration(usage));
    }
}

impl World {
    /// Whether Abacus takes a usage for its month. A closed month takes none. But a usage that
    /// nobody could deliver in time counts here all the same, so that the law can be checked for
    /// it, too.
    fn takes_for_its_month(&self, usage: &Usage) -> bool {
        let Some(closing) = self.setup.closing else {
            return true;
        };
        let now = self.now();
        if usage.end >= closing.month_end || now < closing.month_end {
            return true;
        }
        if now <= closing.closes_at() {
            Tally::add(&self.tally.closing);
            return true;
        }
        let excused = self.is_known_late(usage, closing);
        if excused {
            Tally::add(&self.tally.excused);
        }
        excused
    }

    /// Whether the store learned too late of the start, or of the stop that the interval leads to.
    /// Or the start was reported so late that its backlog is too long, or an original Sampler has
    /// planned an interval that ends too late.
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
        if backlog > closing.backlog_most {
            return true;
        }
        let mut late = kept.filter(|kept| kept.kept_at > closing.quiet_from());
        let end = self.store.with(|table| table.find(&plan.span)?.end);
        let Interval { start, end: until } = plan.interval;
        let by_stop = until < start || Some(until) == end;
        facts.late_plans.contains(&plan.span)
            || late.any(|kept| kept.kind == Kind::Start || by_stop)
    }
}

/// Abacus's collector as one worker sees it.
pub(crate) struct SimCollector {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) call_rng: CallRng,
    /// When a date was last wrong, in ms since the run began, and by how much.
    pub(crate) wrong_date: Mutex<Option<(i64, i64)>>,
}

impl SimCollector {
    /// A usage as it is sent; a planted bug may change it.
    fn as_sent(&self, usage: &Usage, now: Timestamp, rng: &mut Rng) -> Usage {
        let mut usage = usage.clone();
        match self.world.setup.mutant {
            Mutant::GuidPerAttempt => {
                usage.dedup_id = format!("{:016x}", rng.u64());
            }
            Mutant::TimestampPerAttempt => (usage.start, usage.end) = (now, now),
            Mutant::ResendsOtherBytes
                if self.world.has_counted(&usage) || self.world.was_skipped(&usage.dedup_id) =>
            {
                usage.measured_usage.remove(0);
            }
            _ => {}
        }
        usage
    }

    /// The date of an answer, to the second, if Abacus dates its answers. Now and then it is wrong.
    fn date(&self, outcome: PostOutcome, rng: &mut Rng) -> AnswerDate {
        match outcome {
            PostOutcome::Unanswered | PostOutcome::Late | PostOutcome::Failed => {
                return AnswerDate::NoAnswer;
            }
            _ if !self.world.setup.dates_answers => return AnswerDate::Undated,
            _ => {}
        }
        let now = self.world.now().plus(self.date_error(rng));
        let seconds = now.as_millis().div_euclid(1_000);
        AnswerDate::At(Timestamp::clamped(seconds * 1_000))
    }

    /// The error of the date of an answer, ms. At most one of those that a worker compares is
    /// wrong; with a planted bug all later ones are, too.
    fn date_error(&self, rng: &mut Rng) -> i64 {
        let now = self.world.elapsed();
        let mut wrong = self.wrong_date.lock().expect("nobody panics with it");
        if let Some((at, error)) = *wrong
            && now - at <= self.world.setup.dates_held_for()
        {
            let decides = self.world.setup.mutant == Mutant::SingleDateDecides;
            return if decides { error } else { 0 };
        }
        if !rng.percent(3) {
            return 0;
        }
        let size = rng.between(MINUTE, 2 * DAY);
        let error = if rng.percent(50) { size } else { -size };
        *wrong = Some((now, error));
        self.world
            .log(&self.name, || format!("is given a date off by {error} ms"));
        error
    }

    /// The answer as the worker receives it; a planted bug may change it.
    fn as_heard(&self, answer: Answer) -> Answer {
        match answer {
            Answer::TryAgain { .. }
                if self.world.setup.mutant == Mutant::FailureCountsAsAccepted =>
            {
                Answer::Accepted
            }
            Answer::TryAgain { error, .. }
                if self.world.setup.mutant == Mutant::SuspendsWhatWaits =>
            {
                Answer::Refused { error }
            }
            answer => answer,
        }
    }

    fn answer(&self, outcome: PostOutcome, rng: &mut Rng) -> Answer {
        let mut seconds = |most| Duration::from_secs(1 + rng.log_uniform(most).unsigned_abs());
        let error = || format!("{outcome:?}");
        match outcome {
            PostOutcome::Accepted | PostOutcome::Sent => Answer::Accepted,
            PostOutcome::Unanswered | PostOutcome::Late | PostOutcome::Failed => Answer::TryAgain {
                after: None,
                error: error(),
            },
            PostOutcome::Overloaded => Answer::TryAgain {
                after: Some(seconds(self.world.setup.scale.tick / 1_000)),
                error: error(),
            },
            PostOutcome::Busy => Answer::Wait { after: seconds(60) },
            PostOutcome::Refused => Answer::Refused { error: error() },
        }
    }
}

/// Nobody asks here whether usages count.
pub(crate) struct NeverAsked;

#[async_trait]
impl Confirmer for NeverAsked {
    async fn ask(&self, _: &str, _: &str, _: Timestamp) -> Asked {
        Asked::Unknown
    }
}

#[async_trait]
impl Collector for SimCollector {
    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted {
        self.life.checkpoint().await;
        Tally::add(&self.world.tally.posts);
        let mut rng = self.call_rng.of("post", self.world.now());
        let usage = self.as_sent(usage, now, &mut rng);
        let slow = self.world.setup.scale.slow;
        let transfer = self.world.abacus_conditions().post(&mut rng, slow);
        let outcome = transfer.outcome;
        self.world.log(&self.name, || {
            format!("posts {} ({outcome:?})", usage.dedup_id)
        });
        match outcome {
            PostOutcome::Accepted | PostOutcome::Unanswered => {
                pause(transfer.request_delay).await;
                self.life.checkpoint().await;
                self.world.count(&usage);
            }
            PostOutcome::Sent => {
                let world = Arc::clone(&self.world);
                let sent = tokio::spawn(async move {
                    pause(transfer.request_delay).await;
                    world.count(&usage);
                });
                sent.await.expect("Abacus does not panic");
            }
            PostOutcome::Late => {
                let world = Arc::clone(&self.world);
                tokio::spawn(async move {
                    pause(transfer.request_delay + transfer.reply_delay).await;
                    world.count(&usage);
                });
            }
            PostOutcome::Failed | PostOutcome::Overloaded | PostOutcome::Busy => {
                pause(transfer.request_delay).await;
            }
            PostOutcome::Refused => {
                pause(transfer.request_delay).await;
                self.world.note_usage_refused(&usage);
            }
        }
        let date = self.date(outcome, &mut rng);
        pause(transfer.reply_delay).await;
        self.life.checkpoint().await;
        let answer = self.answer(outcome, &mut rng);
        self.world.log(&self.name, || format!("hears {answer:?}"));
        let answer = self.as_heard(answer);
        let status = match answer {
            Answer::Accepted => Some(202),
            Answer::Refused { .. } => Some(400),
            Answer::Wait { .. } | Answer::TryAgain { .. } => None,
        };
        let details = Details {
            status,
            ..Details::default()
        };
        Posted {
            answer,
            dated: date,
            details,
        }
    }

    async fn probe(&self) -> Result<AnswerDate, String> {
        self.life.checkpoint().await;
        let mut rng = self.call_rng.of("probe", self.world.now());
        let slow = self.world.setup.scale.slow;
        let transfer = self.world.abacus_conditions().post(&mut rng, slow);
        pause(transfer.request_delay).await;
        let date = self.date(transfer.outcome, &mut rng);
        pause(transfer.reply_delay).await;
        self.life.checkpoint().await;
        match date {
            AnswerDate::NoAnswer => Err("no answer".to_owned()),
            date => Ok(date),
        }
    }
}
