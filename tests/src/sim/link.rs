//! The link from one process to the store, on which calls get lost, late or slow.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use sampler_domain::{Change, Changed, EventId, Policy, Span, SpanId, Target, Timestamp};
use sampler_store::group::{CommandResult, Group, Resolution, WriteResult, Writes, write_results};
use sampler_store::{
    Adopted, DuePages, DueQuery, Events, Finished, Membership, NewSpan, NewStop, Started, Stopped,
    StoreError, Upkeep, Work,
};
use tokio::time::Instant;

use super::dice::Fates;
use super::life::Life;
use super::mutant::Mutant;
use super::server::{Changing, Ending, Failed, Made, Opening, Statement, Timetable};
use super::weather::CallFate;
use super::world::{Tally, World, pause};

/// The way from one process to the server behind the store.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
    pub(crate) life: Arc<Life>,
    pub(crate) fates: Arc<Fates>,
    /// How far the clock of the process is ahead, ms.
    pub(crate) clock_error: Arc<AtomicI64>,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The link from one process to the store: starts, stops and changes share commands by the real
/// group commit.
#[derive(Clone)]
pub(crate) struct Link {
    wire: Wire,
    starts: Group<Grouped<Opening>>,
    stops: Group<Grouped<Ending>>,
    changes: Group<Grouped<Changing>>,
}

impl Link {
    pub(crate) fn new(wire: Wire) -> Self {
        let patience = wire.world.setup.answered_within();
        Self {
            starts: Group::new(Grouped::new(&wire), patience),
            stops: Group::new(Grouped::new(&wire), patience),
            changes: Group::new(Grouped::new(&wire), patience),
            wire,
        }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.wire.world.setup.mutant == mutant
    }
}

/// Writes of one kind, as the group commit makes them.
#[derive(Debug)]
struct Grouped<S> {
    wire: Wire,
    of: PhantomData<fn() -> S>,
}

impl<S> Grouped<S> {
    fn new(wire: &Wire) -> Self {
        Self {
            wire: wire.clone(),
            of: PhantomData,
        }
    }
}

#[async_trait]
impl<S: Statement> Writes for Grouped<S> {
    type Write = S;
    type Answer = S::Answer;
    type Failure = Failed;

    fn size(_: &S) -> usize {
        500
    }

    fn carried_out_within(&self) -> Duration {
        self.wire.world.setup.answered_within()
    }

    fn outlasts_late_commands(answer: &S::Answer) -> bool {
        S::outlasts(answer)
    }

    async fn write(&self, batch: &[Arc<S>], send_by: Instant) -> CommandResult<Self> {
        let made = self.wire.command(batch, send_by).await;
        let made = made.map_err(|failed| match failed {
            Failed::Lost if self.wire.world.setup.mutant == Mutant::BelievesRefusals => {
                Failed::Over
            }
            failed => failed,
        })?;
        let tried = made.iter().filter(|made| !matches!(made, Made::Before(_)));
        let tried: Vec<&Made<S::Answer>> = tried.collect();
        let done = |made: &Made<S::Answer>| match made {
            Made::Done(answer) => Some(answer.clone()),
            _ => None,
        };
        let matched = tried.iter().filter_map(|made| done(made)).count();
        let refused = tried.iter().enumerate();
        let refused = refused.filter(|(_, made)| S::REFUSED_BY_INDEX && done(made).is_none());
        let refused: Vec<_> = refused
            .map(|(place, _)| (place, Failed::Duplicate))
            .collect();
        let count = tried.len();
        let mut told =
            write_results(matched, refused, count, |index| done(tried[index])).into_iter();
        let mut result = |made: &Made<S::Answer>| match made {
            Made::Before(answer) => WriteResult::Unless(answer.clone()),
            _ => match told.next().expect("one for each that was tried") {
                WriteResult::Settled(Some(answer)) => WriteResult::Settled(answer),
                WriteResult::Refused(failed) => WriteResult::Refused(failed),
                _ => WriteResult::Unresolved,
            },
        };
        Ok(made.iter().map(&mut result).collect())
    }

    async fn resolve(&self, batch: &[Arc<S>]) -> Result<Vec<Resolution<S::Answer>>, Failed> {
        let (world, batch) = (Arc::clone(&self.wire.world), batch.to_vec());
        let looked = self.wire.call("look", String::new, async move {
            let look = |statement: &Arc<S>| statement.resolve(&world);
            Ok(Looked(batch.iter().map(look).collect()))
        });
        match looked.await {
            Ok(Looked(seen)) => Ok(seen.into_iter().map(|seen| seen.map(Ok)).collect()),
            Err(StoreError::Unavailable(_)) => Err(Failed::NotSent),
            Err(_) => Err(Failed::Lost),
        }
    }
}

/// What became of it of each write.
struct Looked<A>(Vec<Option<A>>);

/// A page of a search, if there was one, and where the search goes on.
struct DuePage(Option<Vec<Span>>, DuePages);

/// What a call comes to, in the log.
trait Brief {
    fn brief(&self) -> String;
}

impl Wire {
    /// Sends a command of some writes, and waits for its answer.
    async fn command<S: Statement>(
        &self,
        batch: &[Arc<S>],
        send_by: Instant,
    ) -> Result<Vec<Made<S::Answer>>, Failed> {
        self.life.pass().await;
        if Instant::now() >= send_by {
            return Err(Failed::NotSent);
        }
        Tally::add(&self.world.tally.calls);
        let setup = &self.world.setup;
        let mut dice = self.fates.of(S::KIND, self.world.now());
        let course = self.world.store_weather().call(&mut dice, setup.scale.slow);
        let times = Timetable::draw(&self.world, &mut dice, course.fate, batch.len());
        let sent = self.carry_out(batch, course.there, times);
        let made = match course.fate {
            CallFate::Unavailable => {
                pause(course.there).await;
                Err(Failed::NotSent)
            }
            CallFate::NotDone => {
                pause(course.there).await;
                Err(Failed::Lost)
            }
            CallFate::Done => {
                pause(course.there).await;
                self.life.pass().await;
                tokio::spawn(sent).await.expect("the store does not panic")
            }
            CallFate::Sent => tokio::spawn(sent).await.expect("the store does not panic"),
            CallFate::Unanswered | CallFate::Late => {
                tokio::spawn(sent);
                // What is lost was there before anybody could know.
                pause(course.there).await;
                Err(Failed::Lost)
            }
        };
        pause(course.back).await;
        self.life.pass().await;
        made
    }

    /// What the server does with a command that is under way to it for so long.
    fn carry_out<S: Statement>(
        &self,
        batch: &[Arc<S>],
        there: Duration,
        times: Timetable,
    ) -> impl Future<Output = Result<Vec<Made<S::Answer>>, Failed>> + use<S> {
        let (world, name, batch) = (Arc::clone(&self.world), self.name.clone(), batch.to_vec());
        async move {
            pause(there).await;
            let made = world.carry_out(&batch, times).await;
            world.log(&name, || format!("{} {batch:?} -> {made:?}", S::KIND));
            made.ok_or(Failed::Lost)
        }
    }

    /// Makes a call: `work` is what the store does, `what` describes it in the log.
    async fn call<T: Brief + Send + 'static>(
        &self,
        kind: &'static str,
        what: impl Fn() -> String + Send + 'static,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.life.pass().await;
        Tally::add(&self.world.tally.calls);
        let slow = self.world.setup.scale.slow;
        let mut dice = self.fates.of(kind, self.world.now());
        let course = self.world.store_weather().call(&mut dice, slow);
        let (world, name) = (Arc::clone(&self.world), self.name.clone());
        let done = async move {
            let result = work.await;
            world.log(&name, || match &result {
                Ok(done) => format!("{kind}{} -> {}", what(), done.brief()),
                Err(error) => format!("{kind}{} -> {error}", what()),
            });
            result
        };
        let result = match course.fate {
            CallFate::Done | CallFate::Unanswered => {
                pause(course.there).await;
                self.life.pass().await;
                done.await
            }
            CallFate::Sent => {
                let sent = tokio::spawn(async move {
                    pause(course.there).await;
                    done.await
                });
                sent.await.expect("the store does not panic")
            }
            CallFate::Late => {
                tokio::spawn(async move {
                    pause(course.there + course.back).await;
                    done.await
                });
                Err(StoreError::Unknown("it may come later".into()))
            }
            CallFate::Unavailable => {
                pause(course.there).await;
                Err(StoreError::Unavailable("nothing was sent".into()))
            }
            CallFate::NotDone => {
                pause(course.there).await;
                Err(StoreError::Unknown("it was lost".into()))
            }
        };
        pause(course.back).await;
        self.life.pass().await;
        if course.fate == CallFate::Unanswered {
            return Err(StoreError::Unknown("the answer was lost".into()));
        }
        result
    }
}

#[async_trait]
impl Events for Link {
    async fn start(&self, new: NewSpan) -> Result<Started, StoreError> {
        let id = format!("{:?}", new.span.id);
        let answer = self.starts.submit(Opening(new)).await;
        match &answer {
            Err(_) if self.has(Mutant::AnswersTooEarly) => return Ok(Started::Opened),
            Ok(started) if !Opening::outlasts(started) => self.wire.world.note_refused(id),
            Err(StoreError::Unavailable(_) | StoreError::Refused(_)) => {
                self.wire.world.note_refused(id);
            }
            _ => {}
        }
        answer
    }

    async fn stop(&self, new: NewStop) -> Result<Stopped, StoreError> {
        let id = new.correlation_id.to_string();
        let answer = self.stops.submit(Ending(new)).await;
        match &answer {
            Err(_) if self.has(Mutant::AnswersTooEarly) => return Ok(Stopped::Ended),
            Ok(stopped) if !Ending::outlasts(stopped) => self.wire.world.note_refused(id),
            Err(StoreError::Unavailable(_) | StoreError::Refused(_)) => {
                self.wire.world.note_refused(id);
            }
            _ => {}
        }
        answer
    }

    async fn started_by(&self, target: &Target, id: &EventId) -> Result<Option<Span>, StoreError> {
        let (world, target, id) = (Arc::clone(&self.wire.world), target.clone(), id.clone());
        self.wire
            .call("started_by", String::new, async move {
                world.store.started_by(&target, &id).await
            })
            .await
    }

    async fn stopped_by(&self, target: &Target, id: &EventId) -> Result<Option<Span>, StoreError> {
        let (world, target, id) = (Arc::clone(&self.wire.world), target.clone(), id.clone());
        self.wire
            .call("stopped_by", String::new, async move {
                world.store.stopped_by(&target, &id).await
            })
            .await
    }

    async fn announce_slack(&self, past: i64) -> Result<(), StoreError> {
        let world = Arc::clone(&self.wire.world);
        let what = move || format!(" {past}");
        let work = async move { world.store.announce_slack(past).await };
        self.wire.call("announce_slack", what, work).await
    }
}

#[async_trait]
impl Work for Link {
    fn due(&self, query: DueQuery) -> DuePages {
        let now = query.now;
        let search = (self.clone(), self.wire.world.store.due(query));
        stream::try_unfold(search, move |(link, mut pages)| async move {
            let what = move || format!(" by {now}");
            let work = async move { Ok(DuePage(pages.next().await.transpose()?, pages)) };
            let DuePage(page, pages) = link.wire.call("due", what, work).await?;
            Ok(page.map(|page| (page, (link, pages))))
        })
        .boxed()
    }

    async fn find(&self, id: &SpanId, target: &Target) -> Result<Option<Span>, StoreError> {
        let (world, id, target) = (Arc::clone(&self.wire.world), id.clone(), target.clone());
        self.wire
            .call("find", String::new, async move {
                world.store.find(&id, &target).await
            })
            .await
    }

    async fn change(
        &self,
        span: &Span,
        change: &Change,
        _now: Timestamp,
    ) -> Result<Changed, StoreError> {
        let mut change = change.clone();
        if self.has(Mutant::RetriesByItsOwnClock)
            && let Change::Failed { failure, .. } = &mut change
        {
            let error = self.wire.clock_error.load(Ordering::Relaxed);
            failure.retry_at = failure.retry_at.plus(error);
        }
        let changing = Changing::new(&self.wire.world, span, &change);
        self.changes.submit(changing).await
    }
}

#[async_trait]
impl Upkeep for Link {
    async fn adopt(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Adopted, StoreError> {
        let (world, policy) = (Arc::clone(&self.wire.world), policy.clone());
        let work = async move { world.store.adopt(&policy, now, limit).await };
        self.wire.call("adopt", String::new, work).await
    }

    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<Finished>, StoreError> {
        let world = Arc::clone(&self.wire.world);
        let what = move || format!(" {cutoff}");
        let work = async move { world.store.completed_before(cutoff, limit).await };
        self.wire.call("completed_before", what, work).await
    }

    async fn remove(&self, finished: &[Finished]) -> Result<u64, StoreError> {
        let (world, finished) = (Arc::clone(&self.wire.world), finished.to_vec());
        let named: Vec<SpanId> = finished.iter().map(|span| span.id.clone()).collect();
        let what = move || format!(" {named:?}");
        let work = async move {
            let mut spans = Vec::new();
            let find = |id: &SpanId| world.store.with(|table| table.find(id).cloned());
            for span in &finished {
                spans.extend(find(&span.id));
            }
            let removed = world.store.remove(&finished).await?;
            for span in &spans {
                if find(&span.id).is_none() {
                    world.note_removed(span.clone());
                }
            }
            Ok(removed)
        };
        self.wire.call("remove", what, work).await
    }

    async fn largest_slack(&self) -> Result<Option<i64>, StoreError> {
        let world = Arc::clone(&self.wire.world);
        let work = async move { world.store.largest_slack().await };
        self.wire.call("largest_slack", String::new, work).await
    }
}

#[async_trait]
impl Membership for Link {
    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError> {
        let (world, worker) = (Arc::clone(&self.wire.world), worker.to_owned());
        self.wire
            .call("heartbeat", String::new, async move {
                world.store.heartbeat(&worker).await
            })
            .await
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        let (world, worker) = (Arc::clone(&self.wire.world), worker.to_owned());
        self.wire
            .call("leave", String::new, async move {
                world.store.leave(&worker).await
            })
            .await
    }
}

impl<A: fmt::Debug> Brief for Looked<A> {
    fn brief(&self) -> String {
        format!("{:?}", self.0)
    }
}

impl Brief for Adopted {
    fn brief(&self) -> String {
        format!("{self:?}")
    }
}

impl Brief for Option<i64> {
    fn brief(&self) -> String {
        format!("{self:?}")
    }
}

impl Brief for Option<Span> {
    fn brief(&self) -> String {
        self.as_ref()
            .map_or_else(|| "none".to_owned(), |span| span.id.to_string())
    }
}

impl Brief for DuePage {
    fn brief(&self) -> String {
        let ids: Vec<&SpanId> = self.0.iter().flatten().map(|span| &span.id).collect();
        format!("{ids:?}")
    }
}

impl Brief for Vec<Finished> {
    fn brief(&self) -> String {
        let ids: Vec<&SpanId> = self.iter().map(|span| &span.id).collect();
        format!("{ids:?}")
    }
}

impl Brief for Vec<String> {
    fn brief(&self) -> String {
        format!("{self:?}")
    }
}

impl Brief for u64 {
    fn brief(&self) -> String {
        self.to_string()
    }
}

impl Brief for () {
    fn brief(&self) -> String {
        "done".to_owned()
    }
}
