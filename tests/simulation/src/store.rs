//! The store as one process sees it: calls get lost, late or slow.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use async_trait::async_trait;
use sampler_domain::{Span, Target};
use sampler_store::group::{
    CommandResult, Group, GroupWriter, Resolution, WriteResult, write_results,
};
use sampler_store::{
    DuePages, Events, NewSpan, NewStop, SpansBy, StartOutcome, StopOutcome, StoreError,
};
use tokio::time::Instant;

use super::conditions::{CallOutcome, CallRng};
use super::lifecycle::Lifecycle;
use super::mutant::Mutant;
use super::server::{
    Changing, CommandTiming, Ending, EntryInsert, Failed, Made, Opening, Statement,
};
use super::world::{World, pause};

mod ports;

/// The connection from one process to the server.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
    pub(crate) life: Arc<Lifecycle>,
    pub(crate) call_rng: Arc<CallRng>,
    /// How far the clock of the process is ahead, ms.
    pub(crate) clock_error: Arc<AtomicI64>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The store of one process: starts, stops and changes share commands by the real group commit.
#[derive(Clone)]
pub(crate) struct SimStore {
    connection: Connection,
    starts: Group<Grouped<Opening>>,
    stops: Group<Grouped<Ending>>,
    changes: Group<Grouped<Changing>>,
    entries: Group<Grouped<EntryInsert>>,
}

impl SimStore {
    pub(crate) fn new(connection: Connection) -> Self {
        let timeout = connection.world.setup.answered_within();
        Self {
            starts: Group::new(Grouped::new(&connection), timeout),
            stops: Group::new(Grouped::new(&connection), timeout),
            changes: Group::new(Grouped::new(&connection), timeout),
            entries: Group::new(Grouped::new(&connection), timeout),
            connection,
        }
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.connection.world.setup.mutant == mutant
    }
}

/// Writes of one kind, as the group commit makes them.
#[derive(Debug)]
struct Grouped<S> {
    connection: Connection,
    of: PhantomData<fn() -> S>,
}

impl<S> Grouped<S> {
    fn new(connection: &Connection) -> Self {
        Self {
            connection: connection.clone(),
            of: PhantomData,
        }
    }
}

#[async_trait]
impl<S: Statement> GroupWriter for Grouped<S> {
    type Write = S;
    type Answer = S::Answer;
    type Failure = Failed;

    fn size(_: &S) -> usize {
        500
    }

    async fn send(&self, batch: &[Arc<S>], send_by: Instant) -> CommandResult<Self> {
        let made = self.connection.command(batch, send_by).await;
        let resolves = self.connection.world.setup.mutant == Mutant::ResolvesLostCommands;
        if resolves && made.is_err() {
            return Ok(batch.iter().map(|_| WriteResult::Unresolved).collect());
        }
        let made = made?;
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
            Made::Before(answer) => WriteResult::Provisional(answer.clone()),
            _ => match told.next().expect("one for each that was tried") {
                WriteResult::Settled(Some(answer)) => WriteResult::Settled(answer),
                WriteResult::Refused(failed) => WriteResult::Refused(failed),
                _ => WriteResult::Unresolved,
            },
        };
        Ok(made.iter().map(&mut result).collect())
    }

    async fn resolve(&self, batch: &[Arc<S>]) -> Result<Vec<Resolution<S::Answer>>, Failed> {
        let (world, batch) = (Arc::clone(&self.connection.world), batch.to_vec());
        let resolved = self.connection.call("resolve", async move {
            let resolve = |statement: &Arc<S>| statement.resolve(&world);
            Ok(batch.iter().map(resolve).collect::<Vec<_>>())
        });
        match resolved.await {
            Ok(seen) => Ok(seen.into_iter().map(|seen| seen.map(Ok)).collect()),
            Err(StoreError::Unavailable(_)) => Err(Failed::NotSent),
            Err(_) => Err(Failed::Lost),
        }
    }
}

/// A page of a search, if there was one, and the rest of the search.
struct DuePage(Option<Vec<Span>>, DuePages);

impl fmt::Debug for DuePage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.0.iter().flatten().map(|span| &span.id);
        f.debug_list().entries(ids).finish()
    }
}

/// The most bytes of a result that the log shows.
const SHOWN: usize = 300;

impl Connection {
    /// Sends a command of some writes, and waits for its answer.
    async fn command<S: Statement>(
        &self,
        batch: &[Arc<S>],
        send_by: Instant,
    ) -> Result<Vec<Made<S::Answer>>, Failed> {
        self.life.checkpoint().await;
        if Instant::now() >= send_by {
            return Err(Failed::NotSent);
        }
        self.world.count("calls of the store");
        let setup = &self.world.setup;
        let mut rng = self.call_rng.of(S::KIND, self.world.now());
        let transfer = self
            .world
            .store_conditions()
            .call(&mut rng, setup.scale.slow);
        let times = CommandTiming::draw::<S>(&self.world, &mut rng, transfer.outcome, batch.len());
        let sent = self.carry_out(batch, transfer.request_delay, times);
        let made = match transfer.outcome {
            CallOutcome::Unavailable => {
                pause(transfer.request_delay).await;
                Err(Failed::NotSent)
            }
            CallOutcome::NotDone => {
                pause(transfer.request_delay).await;
                Err(Failed::Lost)
            }
            CallOutcome::Done => {
                pause(transfer.request_delay).await;
                self.life.checkpoint().await;
                tokio::spawn(sent).await.expect("the store does not panic")
            }
            CallOutcome::Sent => tokio::spawn(sent).await.expect("the store does not panic"),
            CallOutcome::Unanswered | CallOutcome::Late => {
                tokio::spawn(sent);
                // What is lost was there before anybody could know.
                pause(transfer.request_delay).await;
                Err(Failed::Lost)
            }
        };
        pause(transfer.reply_delay).await;
        self.life.checkpoint().await;
        made
    }

    /// The work of the server for a command that reaches it after a delay.
    fn carry_out<S: Statement>(
        &self,
        batch: &[Arc<S>],
        request_delay: Duration,
        times: CommandTiming,
    ) -> impl Future<Output = Result<Vec<Made<S::Answer>>, Failed>> + use<S> {
        let (world, name, batch) = (Arc::clone(&self.world), self.name.clone(), batch.to_vec());
        async move {
            pause(request_delay).await;
            let made = world.carry_out(&batch, times).await;
            world.log(&name, || format!("{} {batch:?} -> {made:?}", S::KIND));
            made.ok_or(Failed::Lost)
        }
    }

    /// Makes a call: `work` is what the store does.
    async fn call<T: fmt::Debug + Send + 'static>(
        &self,
        kind: &'static str,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.life.checkpoint().await;
        self.world.count("calls of the store");
        let slow = self.world.setup.scale.slow;
        let mut rng = self.call_rng.of(kind, self.world.now());
        let transfer = self.world.store_conditions().call(&mut rng, slow);
        let (world, name) = (Arc::clone(&self.world), self.name.clone());
        let done = async move {
            let result = work.await;
            world.log(&name, || {
                let mut line = format!("{kind} -> {result:?}");
                let end = line.floor_char_boundary(SHOWN);
                line.truncate(end);
                line
            });
            result
        };
        let result = match transfer.outcome {
            CallOutcome::Done | CallOutcome::Unanswered => {
                pause(transfer.request_delay).await;
                self.life.checkpoint().await;
                done.await
            }
            CallOutcome::Sent => {
                let sent = tokio::spawn(async move {
                    pause(transfer.request_delay).await;
                    done.await
                });
                sent.await.expect("the store does not panic")
            }
            CallOutcome::Late => {
                tokio::spawn(async move {
                    pause(transfer.request_delay + transfer.reply_delay).await;
                    done.await
                });
                Err(StoreError::Unknown("it may come later".into()))
            }
            CallOutcome::Unavailable => {
                pause(transfer.request_delay).await;
                Err(StoreError::Unavailable("nothing was sent".into()))
            }
            CallOutcome::NotDone => {
                pause(transfer.request_delay).await;
                Err(StoreError::Unknown("it was lost".into()))
            }
        };
        pause(transfer.reply_delay).await;
        self.life.checkpoint().await;
        if transfer.outcome == CallOutcome::Unanswered {
            return Err(StoreError::Unknown("the answer was lost".into()));
        }
        result
    }
}

impl SimStore {
    /// Makes a call.
    pub(crate) async fn call<T, F>(
        &self,
        kind: &'static str,
        work: impl FnOnce(Arc<World>) -> F,
    ) -> Result<T, StoreError>
    where
        T: fmt::Debug + Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let work = work(Arc::clone(&self.connection.world));
        self.connection.call(kind, work).await
    }
}

/// A port, of which these calls are passed on as they are: what they borrow comes first.
macro_rules! pass_on {
    ($port:ident {
        $($name:ident($(&$borrowed:ident: $of:ty),* $(; $($given:ident: $kind:ty),*)?) -> $answer:ty;)*
    } $($rest:tt)*) => {
        #[async_trait]
        impl $port for SimStore {
            $(async fn $name(
                &self,
                $($borrowed: &$of,)*
                $($($given: $kind,)*)?
            ) -> Result<$answer, StoreError> {
                $(let $borrowed = $borrowed.to_owned();)*
                let call = self.call(stringify!($name), move |world| async move {
                    world.store.$name($(&$borrowed,)* $($($given,)*)?).await
                });
                call.await
            })*

            $($rest)*
        }
    };
}
pub(crate) use pass_on;

#[async_trait]
impl Events for SimStore {
    async fn start(&self, new: NewSpan) -> Result<StartOutcome, StoreError> {
        let id = format!("{:?}", new.span.id);
        let answer = self.starts.submit(Arc::new(Opening(new))).await;
        match &answer {
            Err(_) if self.has(Mutant::AcceptsUnknownOutcome) => return Ok(StartOutcome::Opened),
            Ok(StartOutcome::Refused(_)) => self.connection.world.note_refused(id),
            Err(StoreError::Unavailable(_) | StoreError::Refused(_)) => {
                self.connection.world.note_refused(id);
            }
            _ => {}
        }
        answer
    }

    async fn stop(&self, new: NewStop) -> Result<StopOutcome, StoreError> {
        let id = new.correlation_id.to_string();
        let answer = self.stops.submit(Arc::new(Ending(new))).await;
        match &answer {
            Err(_) if self.has(Mutant::AcceptsUnknownOutcome) => return Ok(StopOutcome::Ended),
            Ok(StopOutcome::Refused(_)) => self.connection.world.note_refused(id),
            Err(StoreError::Unavailable(_) | StoreError::Refused(_)) => {
                self.connection.world.note_refused(id);
            }
            _ => {}
        }
        answer
    }

    async fn find_spans(&self, target: &Target, by: &SpansBy) -> Result<Vec<Span>, StoreError> {
        let name = match by {
            SpansBy::StartedBy(..) => "find_by_start_id",
            SpansBy::StoppedBy(_) => "find_by_stop_id",
            SpansBy::NotEndedBy(_) => "find_not_ended",
        };
        let (target, asked) = (target.clone(), by.clone());
        let found = self.call(name, |world| async move {
            world.store.find_spans(&target, &asked).await
        });
        let mut found = found.await?;
        if matches!(by, SpansBy::NotEndedBy(_)) && self.has(Mutant::UpdateOverlooksEnds) {
            found.retain(|span| span.end.is_none());
        }
        Ok(found)
    }
}
