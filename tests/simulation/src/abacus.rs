//! Abacus, or an upstream that forgets, as one worker sees it: it fails as its conditions say. What it has is in its books
//! ([`super::books`]).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Contract, Timestamp, Usage};
use sampler_testkit::rng::Rng;
use sampler_upstream::{
    Answer, AnswerDate, Details, LookupAnswer, LookupResult, Lookups, Posted, Promises, Sought,
    Upstream,
};

use super::conditions::{PostOutcome, Transfer};
use super::lifecycle::Lifecycle;
use super::mutant::Mutant;
use super::posts::{Ticket, Told};
use super::rng::CallRng;
use super::world::{Tally, World, pause};
use crate::calendar::{DAY, MINUTE};

/// The upstream as one worker sees it.
pub(crate) struct SimUpstream {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) call_rng: CallRng,
    /// When a date was last wrong, in ms since the run began, and by how much.
    pub(crate) wrong_date: Mutex<Option<(i64, i64)>>,
}

impl SimUpstream {
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

impl SimUpstream {
    /// Abacus takes what was posted, or not. Returns the `Location` of its answer, where it takes it at
    /// once.
    async fn carry_out(
        &self,
        usage: &Usage,
        transfer: Transfer<PostOutcome>,
        ticket: Ticket,
    ) -> Option<String> {
        let (world, usage) = (Arc::clone(&self.world), usage.clone());
        let take = async move {
            let (location, is_taken) = world.take(&usage);
            if is_taken {
                world.note_taken(&ticket);
            }
            location
        };
        match transfer.outcome {
            PostOutcome::Accepted | PostOutcome::Unanswered => {
                // Where a death in between leaves no trace, a sleep there is one before the post.
                let begun = self.world.elapsed();
                pause(transfer.request_delay).await;
                self.life.checkpoint().await;
                if self.world.elapsed() - begun > self.world.setup.post_limit() {
                    return None;
                }
                Some(take.await)
            }
            PostOutcome::Sent => {
                let sent = tokio::spawn(async move {
                    pause(transfer.request_delay).await;
                    take.await
                });
                Some(sent.await.expect("Abacus does not panic"))
            }
            PostOutcome::Late => {
                tokio::spawn(async move {
                    pause(transfer.request_delay + transfer.reply_delay).await;
                    take.await
                });
                None
            }
            PostOutcome::Failed
            | PostOutcome::Overloaded
            | PostOutcome::Busy
            | PostOutcome::Refused => {
                pause(transfer.request_delay).await;
                None
            }
        }
    }
}

#[async_trait]
impl Upstream for SimUpstream {
    fn promises(&self) -> Promises {
        let setup = &self.world.setup;
        let Some(memory) = setup.memory else {
            return Promises::ABACUS;
        };
        let mut told = memory.told;
        if setup.mutant == Mutant::BelievesAtOnce {
            told.settles = 0;
        }
        Promises {
            contract: match setup.mutant {
                Mutant::PostsWithoutAsking => Contract::Forever,
                _ if memory.is_forever => Contract::Forever,
                _ => Contract::Forgets(told),
            },
            lookups: Lookups::ById {
                settles: Duration::from_millis(told.settles.unsigned_abs()),
            },
        }
    }

    async fn look_up(&self, sought: Sought<'_>, _: Timestamp) -> LookupResult {
        self.life.checkpoint().await;
        let mut rng = self.call_rng.of("ask", self.world.now());
        let slow = self.world.setup.scale.slow;
        let transfer = self.world.abacus_conditions().post(&mut rng, slow);
        pause(transfer.request_delay).await;
        let error = format!("{:?}", transfer.outcome);
        let answer = match transfer.outcome {
            // What refuses usages knows those that it has.
            PostOutcome::Accepted | PostOutcome::Sent | PostOutcome::Refused => {
                let now = self.world.now();
                if let Some(memory) = self.world.setup.memory {
                    let lag = rng.between(0, memory.lag);
                    self.world.abacus.look_up(sought.usage_guid, now.plus(-lag))
                } else {
                    let (location, guid) = (sought.location, sought.usage_guid);
                    self.world.abacus.ask(location, guid, now)
                }
            }
            // An answer that is not clear.
            PostOutcome::Late if self.world.setup.memory.is_some() => {
                let is_believed = self.world.setup.mutant == Mutant::BelievesNoAnswer;
                if is_believed {
                    LookupAnswer::NotFound
                } else {
                    LookupAnswer::Mismatch { error }
                }
            }
            PostOutcome::Unanswered | PostOutcome::Late | PostOutcome::Failed => {
                LookupAnswer::Failed { after: None, error }
            }
            PostOutcome::Overloaded => LookupAnswer::Failed {
                after: Some(Duration::from_secs(1)),
                error,
            },
            PostOutcome::Busy => LookupAnswer::Wait {
                after: Duration::from_secs(1),
            },
        };
        pause(transfer.reply_delay).await;
        self.life.checkpoint().await;
        Tally::add(&self.world.tally.finds);
        self.world.log(&self.name, || {
            format!("asks for {}: {answer:?}", sought.usage_guid)
        });
        LookupResult {
            answer,
            status: None,
        }
    }

    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted {
        let called = self.world.elapsed();
        self.life.checkpoint().await;
        // A client that has slept through its time limit sends nothing.
        if self.world.elapsed() - called > self.world.setup.post_limit() {
            return Posted {
                answer: Answer::TryAgain {
                    after: None,
                    error: "it took too long".to_owned(),
                },
                dated: AnswerDate::NoAnswer,
                details: Details::default(),
            };
        }
        Tally::add(&self.world.tally.posts);
        let mut rng = self.call_rng.of("post", self.world.now());
        let usage = self.as_sent(usage, now, &mut rng);
        let slow = self.world.setup.scale.slow;
        let transfer = self.world.abacus_conditions().post(&mut rng, slow);
        let outcome = transfer.outcome;
        self.world.log(&self.name, || {
            format!("posts {} ({outcome:?})", usage.dedup_id)
        });
        let ticket = self.world.note_post(&usage.dedup_id, &self.life);
        let location = self.carry_out(&usage, transfer, ticket.clone()).await;
        let is_late = location.is_none() && outcome == PostOutcome::Accepted;
        if outcome == PostOutcome::Refused {
            self.world.note_usage_refused(&usage);
        }
        let date = self.date(outcome, &mut rng);
        pause(transfer.reply_delay).await;
        self.life.checkpoint().await;
        let outcome = if is_late {
            PostOutcome::Unanswered
        } else {
            outcome
        };
        let answer = self.answer(outcome, &mut rng);
        self.world.log(&self.name, || format!("hears {answer:?}"));
        let answer = self.as_heard(answer);
        self.world.note_told(&ticket, Told::of(&answer));
        let status = match answer {
            Answer::Accepted => Some(202),
            Answer::Refused { .. } => Some(400),
            Answer::TryAgain { .. } if outcome == PostOutcome::Overloaded => Some(503),
            Answer::Wait { .. } | Answer::TryAgain { .. } => None,
        };
        let details = Details {
            status,
            location: location.filter(|_| status == Some(202) && self.world.setup.memory.is_none()),
            unsent: outcome == PostOutcome::Failed,
            ..Details::default()
        };
        Posted {
            answer,
            dated: date,
            details,
        }
    }

    async fn ask_time(&self) -> Result<AnswerDate, String> {
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
