//! The stand-in for Abacus: it counts as the real one does, and answers as the weather is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sampler_abacus::{Answer, Collector, Dated, Posted};
use sampler_domain::{Id, Interval, Timestamp, Usage};

use super::dice::{Dice, Fates};
use super::life::Life;
use super::mutant::Mutant;
use super::op::Kind;
use super::setup::Closing;
use super::weather::PostFate;
use super::world::{Tally, World, pause};
use crate::calendar::{DAY, MINUTE};

/// By what Abacus recognises a repeat: neither the space nor the measures are looked at.
type Key = (String, Timestamp, Timestamp, [Id; 5]);

/// All that counts.
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
    /// Abacus gets a usage: it counts it, unless it has counted it before.
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
                self.blame(format!(
                    "{} was posted again with other content",
                    usage.dedup_id
                ));
            }
            return;
        }
        let today = self.now().as_millis().div_euclid(DAY);
        if self.setup.strict && usage.end.as_millis() >= (today + 1) * DAY {
            self.blame(format!(
                "{} was put aside: it lies after today",
                usage.dedup_id
            ));
            return;
        }
        if !self.takes_for_its_month(usage) {
            self.blame(format!(
                "{} was put aside: its month is closed",
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
    /// Whether Abacus takes a usage for the month in which it lies. A month that is closed takes
    /// none; but what nobody could deliver in time counts here all the same, so that the law can
    /// be checked for it as well.
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

    /// Whether the store learned too late what the usage is for: of the start, or of the stop that
    /// its interval leads to. Or the start was reported so late that its backlog is too long, or an
    /// original Sampler has planned an interval that ends too late.
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

/// The line from one worker to Abacus.
pub(crate) struct Line {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
    pub(crate) life: Arc<Life>,
    pub(crate) fates: Fates,
    /// When a date was last wrong, in ms since the run began, and by how much.
    pub(crate) wrong_date: Mutex<Option<(i64, i64)>>,
}

impl Line {
    /// A usage as it is sent, by a planted bug perhaps not as it should be.
    fn as_sent(&self, usage: &Usage, now: Timestamp, dice: &mut Dice) -> Usage {
        let mut usage = usage.clone();
        match self.world.setup.mutant {
            Mutant::GuidPerAttempt => {
                usage.dedup_id = format!("{:016x}", dice.u64());
            }
            Mutant::TimestampPerAttempt => (usage.start, usage.end) = (now, now),
            _ => {}
        }
        usage
    }

    /// Abacus dates its answers, where it does, to the second; now and then wrongly.
    fn dated(&self, fate: PostFate, dice: &mut Dice) -> Dated {
        match fate {
            PostFate::Unanswered | PostFate::Late | PostFate::NotTaken => return Dated::NoAnswer,
            _ if !self.world.setup.dated => return Dated::Undated,
            _ => {}
        }
        let date = self.world.now().plus(self.date_error(dice));
        let seconds = date.as_millis().div_euclid(1_000);
        Dated::At(Timestamp::clamped(seconds * 1_000))
    }

    /// How wrong the date of an answer is, ms. One is wrong at the most among those that a worker
    /// holds against each other; by a planted bug all that follow count as much as that one.
    fn date_error(&self, dice: &mut Dice) -> i64 {
        let now = self.world.elapsed();
        let mut wrong = self.wrong_date.lock().expect("nobody panics with it");
        if let Some((at, error)) = *wrong
            && now - at <= self.world.setup.dates_held_for()
        {
            let decides = self.world.setup.mutant == Mutant::OneDateDecides;
            return if decides { error } else { 0 };
        }
        if !dice.percent(3) {
            return 0;
        }
        let size = dice.between(MINUTE, 2 * DAY);
        let error = if dice.percent(50) { size } else { -size };
        *wrong = Some((now, error));
        self.world
            .log(&self.name, || format!("is given a date off by {error} ms"));
        error
    }

    /// What the worker hears, by a planted bug perhaps not what was said.
    fn as_heard(&self, answer: Answer) -> Answer {
        match answer {
            Answer::TryAgain { .. } if self.world.setup.mutant == Mutant::SilenceIsConsent => {
                Answer::Accepted
            }
            answer => answer,
        }
    }

    fn answer(&self, fate: PostFate, dice: &mut Dice) -> Answer {
        let mut seconds = |most| Duration::from_secs(1 + dice.spread(most).unsigned_abs());
        let error = || format!("{fate:?}");
        match fate {
            PostFate::Taken | PostFate::Sent => Answer::Accepted,
            PostFate::Unanswered | PostFate::Late | PostFate::NotTaken => Answer::TryAgain {
                after: None,
                error: error(),
            },
            PostFate::Overloaded => Answer::TryAgain {
                after: Some(seconds(self.world.setup.scale.tick / 1_000)),
                error: error(),
            },
            PostFate::Busy => Answer::Wait { after: seconds(60) },
            PostFate::Refused => Answer::Refused { error: error() },
        }
    }
}

#[async_trait]
impl Collector for Line {
    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted {
        self.life.pass().await;
        Tally::add(&self.world.tally.posts);
        let mut dice = self.fates.of("post", self.world.now());
        let usage = self.as_sent(usage, now, &mut dice);
        let slow = self.world.setup.scale.slow;
        let course = self.world.abacus_weather().post(&mut dice, slow);
        let fate = course.fate;
        self.world.log(&self.name, || {
            format!("posts {} ({fate:?})", usage.dedup_id)
        });
        match fate {
            PostFate::Taken | PostFate::Unanswered => {
                pause(course.there).await;
                self.life.pass().await;
                self.world.count(&usage);
            }
            PostFate::Sent => {
                let world = Arc::clone(&self.world);
                let sent = tokio::spawn(async move {
                    pause(course.there).await;
                    world.count(&usage);
                });
                sent.await.expect("Abacus does not panic");
            }
            PostFate::Late => {
                let world = Arc::clone(&self.world);
                tokio::spawn(async move {
                    pause(course.there + course.back).await;
                    world.count(&usage);
                });
            }
            PostFate::NotTaken | PostFate::Overloaded | PostFate::Busy | PostFate::Refused => {
                pause(course.there).await;
            }
        }
        let dated = self.dated(fate, &mut dice);
        pause(course.back).await;
        self.life.pass().await;
        let answer = self.answer(fate, &mut dice);
        self.world.log(&self.name, || format!("hears {answer:?}"));
        let answer = self.as_heard(answer);
        Posted { answer, dated }
    }

    async fn probe(&self) -> Result<Dated, String> {
        self.life.pass().await;
        let mut dice = self.fates.of("probe", self.world.now());
        let slow = self.world.setup.scale.slow;
        let course = self.world.abacus_weather().post(&mut dice, slow);
        pause(course.there).await;
        let dated = self.dated(course.fate, &mut dice);
        pause(course.back).await;
        self.life.pass().await;
        match dated {
            Dated::NoAnswer => Err("no answer".to_owned()),
            dated => Ok(dated),
        }
    }
}
