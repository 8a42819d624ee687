//! The upstream as one worker sees it: Abacus, or one that forgets. It fails as its conditions say. What it has is
//! in its books ([`super::books`]).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Contract, Timestamp, Usage};
use sampler_testkit::rng::Rng;
use sampler_upstream::{
    Answer, Details, LookupAnswer, LookupResult, Lookups, Posted, Promises, Sought, Upstream,
};

use super::books::Taking;
use super::conditions::{CallRng, PostOutcome, Transfer};
use super::lifecycle::Lifecycle;
use super::mutant::Mutant;
use super::setup::{DAY, MINUTE};
use super::world::{World, pause};

/// What an answer may say although the usage was taken. Whatever stands in its body, it says nothing.
const UNCLEAR: [Option<u16>; 5] = [None, Some(207), Some(302), Some(500), Some(502)];

/// Reasons for refusals; spans that share one are suspended together.
const REFUSALS: [&str; 2] = ["emplannotfound", "einvalid"];

/// The upstream as one worker sees it.
pub(crate) struct SimUpstream {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) call_rng: CallRng,
}

impl SimUpstream {
    fn has(&self, mutant: Mutant) -> bool {
        self.world.setup.mutant == mutant
    }

    /// A usage as it is sent; a planted bug may change it.
    fn as_sent(&self, usage: &Usage, now: Timestamp, rng: &mut Rng) -> Usage {
        let mut usage = usage.clone();
        match self.world.setup.mutant {
            Mutant::GuidPerAttempt => usage.dedup_id = format!("{:016x}", rng.u64()),
            Mutant::TimestampPerAttempt => (usage.start, usage.end) = (now, now),
            Mutant::ResendsOtherBytes if self.world.was_accepted(&usage.dedup_id) => {
                usage.measured_usage.remove(0);
            }
            _ => {}
        }
        usage
    }

    /// The upstream takes what was posted, or not. Returns what it did, if it did something before the answer.
    async fn carry_out(
        &self,
        usage: &Usage,
        transfer: Transfer<PostOutcome>,
        rng: &mut Rng,
    ) -> Option<Taking> {
        let (world, usage) = (Arc::clone(&self.world), usage.clone());
        // What forgets need not wait for what comes after the time limit of a post.
        let latest = match self.world.setup.memory {
            Some(_) => 0,
            None => 4 * self.world.setup.scale.length,
        };
        let lateness = rng.wait(latest);
        let take = async move { world.take(&usage) };
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
                Some(sent.await.expect("the upstream does not panic"))
            }
            PostOutcome::Late => {
                tokio::spawn(async move {
                    pause(transfer.request_delay + transfer.reply_delay + lateness).await;
                    take.await
                });
                None
            }
            PostOutcome::Unsent
            | PostOutcome::Failed
            | PostOutcome::Busy
            | PostOutcome::Refused => {
                pause(transfer.request_delay).await;
                None
            }
        }
    }

    /// The answer to a post, without the date.
    fn answer(
        &self,
        outcome: PostOutcome,
        taking: Option<&Taking>,
        rng: &mut Rng,
    ) -> (Answer, Details) {
        let error = format!("{outcome:?}");
        let mut seconds = |most| Duration::from_secs(1 + rng.log_uniform(most).unsigned_abs());
        let after = seconds(self.world.setup.scale.tick / 1_000);
        let wait = seconds(60);
        let try_again = |after| Answer::TryAgain {
            after,
            error: error.clone(),
        };
        let details = |status: Option<u16>| Details {
            status,
            ..Details::default()
        };
        match outcome {
            PostOutcome::Accepted | PostOutcome::Sent => {
                let by_id = self.world.setup.memory.is_some();
                if by_id && taking.is_some_and(|it| it.is_repeat) && rng.percent(30) {
                    return (Answer::Refused { error }, details(Some(409)));
                }
                let location = taking.map(|taking| taking.location.clone());
                let details = Details {
                    location: location.filter(|_| !by_id),
                    ..details(Some(202))
                };
                (Answer::Accepted, details)
            }
            PostOutcome::Unanswered | PostOutcome::Late => {
                let status = *rng.pick(&UNCLEAR);
                let error_name = status.map(|_| "Internal Server Error".to_owned());
                let details = Details {
                    error_name,
                    ..details(status)
                };
                (try_again(None), details)
            }
            PostOutcome::Unsent => {
                let details = Details {
                    unsent: true,
                    ..Details::default()
                };
                (try_again(None), details)
            }
            PostOutcome::Failed => (try_again(Some(after)), details(Some(503))),
            PostOutcome::Busy => (Answer::Wait { after: wait }, details(Some(429))),
            PostOutcome::Refused => {
                let details = Details {
                    error_name: Some((*rng.pick(&REFUSALS)).to_owned()),
                    ..details(Some(400))
                };
                (Answer::Refused { error }, details)
            }
        }
    }

    /// The answer as the worker receives it; a planted bug may change it.
    fn as_heard(&self, answer: Answer) -> Answer {
        match answer {
            Answer::TryAgain { .. } if self.has(Mutant::FailureCountsAsAccepted) => {
                Answer::Accepted
            }
            Answer::TryAgain { error, .. } if self.has(Mutant::SuspendsWhatWaits) => {
                Answer::Refused { error }
            }
            answer => answer,
        }
    }

    /// The date of an answer, which stops nothing: now and then it is wrong.
    fn date(&self, rng: &mut Rng) -> Option<Timestamp> {
        if !rng.percent(75) {
            return None;
        }
        let error = if rng.percent(3) {
            rng.between(-2 * DAY, 2 * DAY)
        } else {
            rng.between(-MINUTE / 6, MINUTE / 6)
        };
        let now = self.world.now().plus(error);
        Some(Timestamp::clamped(now.as_millis() / 1_000 * 1_000))
    }

    /// A post that never leaves the client: it has slept through its time limit.
    fn unsent() -> Posted {
        Posted {
            answer: Answer::TryAgain {
                after: None,
                error: "it took too long".to_owned(),
            },
            date: None,
            details: Details {
                unsent: true,
                ..Details::default()
            },
        }
    }

    /// What the upstream says of a usage.
    fn found(&self, sought: &Sought<'_>, rng: &mut Rng) -> LookupAnswer {
        let now = self.world.now();
        match self.world.setup.memory {
            Some(memory) => {
                let lag = rng.between(0, memory.lag);
                let then = now.plus(-lag);
                self.world.books.look_up(sought.usage_guid, then)
            }
            None => self
                .world
                .books
                .ask(sought.location, sought.usage_guid, now),
        }
    }
}

#[async_trait]
impl Upstream for SimUpstream {
    fn promises(&self) -> Promises {
        let Some(memory) = self.world.setup.memory else {
            return Promises::ABACUS;
        };
        let mut told = memory.told;
        if self.has(Mutant::BelievesAtOnce) {
            told.settles = 0;
        }
        let is_forever = memory.is_forever || self.has(Mutant::PostsWithoutAsking);
        Promises {
            contract: if is_forever {
                Contract::Forever
            } else {
                Contract::Forgets(told)
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
        let transfer = self.world.upstream_conditions().post(&mut rng, slow);
        pause(transfer.request_delay).await;
        let error = format!("{:?}", transfer.outcome);
        let failed = |after| LookupAnswer::Failed {
            after,
            error: error.clone(),
        };
        let answer = match transfer.outcome {
            _ if self.has(Mutant::ResendsWithoutAsking)
                && self.world.is_resent(sought.usage_guid) =>
            {
                LookupAnswer::NotFound
            }
            // What refuses usages knows those that it has.
            PostOutcome::Accepted | PostOutcome::Sent | PostOutcome::Refused => {
                self.found(&sought, &mut rng)
            }
            // An answer that is not clear.
            PostOutcome::Late if self.world.setup.memory.is_some() => {
                if self.has(Mutant::BelievesNoAnswer) {
                    LookupAnswer::NotFound
                } else {
                    LookupAnswer::Mismatch {
                        error: error.clone(),
                    }
                }
            }
            PostOutcome::Unanswered | PostOutcome::Late | PostOutcome::Unsent => failed(None),
            PostOutcome::Failed => failed(Some(Duration::from_secs(1))),
            PostOutcome::Busy => LookupAnswer::Wait {
                after: Duration::from_secs(1),
            },
        };
        pause(transfer.reply_delay).await;
        self.life.checkpoint().await;
        self.world.count("questions");
        self.world.log(&self.name, || {
            format!("asks for {}: {answer:?}", sought.usage_guid)
        });
        LookupResult {
            answer,
            status: None,
        }
    }

    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted {
        self.world.note_posted(usage);
        let called = self.world.elapsed();
        self.life.checkpoint().await;
        if self.world.elapsed() - called > self.world.setup.post_limit() {
            return Self::unsent();
        }
        self.world.count("posts");
        let mut rng = self.call_rng.of("post", self.world.now());
        let usage = self.as_sent(usage, now, &mut rng);
        let slow = self.world.setup.scale.slow;
        let transfer = self.world.upstream_conditions().post(&mut rng, slow);
        let outcome = transfer.outcome;
        self.world.log(&self.name, || {
            format!("posts {} ({outcome:?})", usage.dedup_id)
        });
        let taking = self.carry_out(&usage, transfer, &mut rng).await;
        pause(transfer.reply_delay).await;
        self.life.checkpoint().await;
        let is_late = taking.is_none() && outcome == PostOutcome::Accepted;
        let heard = if is_late {
            PostOutcome::Unanswered
        } else {
            outcome
        };
        let (answer, details) = self.answer(heard, taking.as_ref(), &mut rng);
        if matches!(answer, Answer::Refused { .. }) {
            self.world.note_usage_refused(&usage);
        }
        self.world
            .log(&self.name, || format!("hears {answer:?} {details:?}"));
        Posted {
            answer: self.as_heard(answer),
            date: self.date(&mut rng),
            details,
        }
    }
}
