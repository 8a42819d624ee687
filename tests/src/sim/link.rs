//! The link from one process to the store, on which calls get lost, late or slow.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use sampler_domain::{EventId, Planned, Policy, Span, SpanId, Timestamp};
use sampler_store::{
    Adopted, Changed, DuePages, DueQuery, Failure, NewSpan, NewStop, Next, SpanStore, Started,
    Stopped, StoreError,
};

use super::dice::Fates;
use super::life::Life;
use super::mutant::Mutant;
use super::weather::CallFate;
use super::world::{Tally, World, pause};

/// The link from one process to the store.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) world: Arc<World>,
    pub(crate) name: String,
    pub(crate) life: Arc<Life>,
    pub(crate) fates: Arc<Fates>,
}

/// A page of a search, if there was one, and where the search goes on.
struct DuePage(Option<Vec<Span>>, DuePages);

/// What a call comes to, in the log.
trait Brief {
    fn brief(&self) -> String;
}

impl Link {
    /// Makes a call: `work` is what the store does, `what` describes it in the log.
    async fn call<T: Brief + Send + 'static>(
        &self,
        kind: &'static str,
        what: impl Fn() -> String + Send + 'static,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.life.pass().await;
        Tally::add(&self.world.tally.calls);
        let slow = self.world.setup.scale.tick;
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

    fn has(&self, mutant: Mutant) -> bool {
        self.world.setup.mutant == mutant
    }
}

/// The span as it is now, which is what a change is based on that does not ask for the version.
async fn as_it_is(world: &World, span: &Span) -> Span {
    let found = world.store.find(&span.id).await;
    found.ok().flatten().unwrap_or_else(|| span.clone())
}

#[async_trait]
impl SpanStore for Link {
    async fn start(&self, new: NewSpan) -> Result<Started, StoreError> {
        let world = Arc::clone(&self.world);
        let (id, start) = (new.span.id.clone(), new.span.start);
        let what = move || format!(" {id} at {start}");
        let answer = self.call("start", what, async move {
            let started = world.store.start(new.clone()).await?;
            if started == Started::Opened {
                world.note_opened(&new.span, 0);
            }
            Ok(started)
        });
        match answer.await {
            Err(_) if self.has(Mutant::AnswersTooEarly) => Ok(Started::Opened),
            answer => answer,
        }
    }

    async fn stop(&self, new: NewStop) -> Result<Stopped, StoreError> {
        let world = Arc::clone(&self.world);
        let end = new.event.timestamp;
        let what = move || format!(" at {end}");
        let answer = self.call("stop", what, async move { world.store.stop(new).await });
        match answer.await {
            Err(_) if self.has(Mutant::AnswersTooEarly) => Ok(Stopped::Ended),
            answer => answer,
        }
    }

    async fn started_by(&self, id: &EventId) -> Result<Option<Span>, StoreError> {
        let (world, id) = (Arc::clone(&self.world), id.clone());
        self.call("started_by", String::new, async move {
            world.store.started_by(&id).await
        })
        .await
    }

    async fn stopped_by(&self, id: &EventId) -> Result<Option<Span>, StoreError> {
        let (world, id) = (Arc::clone(&self.world), id.clone());
        self.call("stopped_by", String::new, async move {
            world.store.stopped_by(&id).await
        })
        .await
    }

    fn due(&self, query: DueQuery) -> DuePages {
        let now = query.now;
        let search = (self.clone(), self.world.store.due(query));
        stream::try_unfold(search, move |(link, mut pages)| async move {
            let what = move || format!(" by {now}");
            let work = async move { Ok(DuePage(pages.next().await.transpose()?, pages)) };
            let DuePage(page, pages) = link.call("due", what, work).await?;
            Ok(page.map(|page| (page, (link, pages))))
        })
        .boxed()
    }

    async fn find(&self, id: &SpanId) -> Result<Option<Span>, StoreError> {
        let (world, id) = (Arc::clone(&self.world), id.clone());
        self.call(
            "find",
            String::new,
            async move { world.store.find(&id).await },
        )
        .await
    }

    async fn plan(
        &self,
        span: &Span,
        planned: Planned,
        now: Timestamp,
        due_at: Timestamp,
    ) -> Result<Changed, StoreError> {
        let (world, span) = (Arc::clone(&self.world), span.clone());
        let (id, interval) = (span.id.clone(), planned.interval);
        let what = move || format!(" {interval:?} of {id}");
        let blind = self.has(Mutant::PlanIgnoresVersion);
        let work = async move {
            let span = if blind {
                as_it_is(&world, &span).await
            } else {
                span
            };
            let changed = world.store.plan(&span, planned, now, due_at).await?;
            world.note_planned(&changed);
            Ok(changed)
        };
        self.call("plan", what, work).await
    }

    async fn executed(
        &self,
        span: &Span,
        next: Next,
        now: Timestamp,
        due_at: Timestamp,
    ) -> Result<Changed, StoreError> {
        let (world, span) = (Arc::clone(&self.world), span.clone());
        let (id, then) = (span.id.clone(), next.clone());
        let what = move || format!(" {id}, then {then:?}");
        let blind = self.has(Mutant::ExecutedIgnoresVersion);
        let next = match next {
            Next::Wait | Next::Planned(_)
                if self.has(Mutant::CompletesTooEarly) && span.end.is_some() =>
            {
                Next::Complete
            }
            next => next,
        };
        let work = async move {
            let span = if blind {
                as_it_is(&world, &span).await
            } else {
                span
            };
            if span.processing.planned.is_none() {
                return Ok(Changed::Lost);
            }
            let changed = world.store.executed(&span, next, now, due_at).await?;
            world.note_executed(&span, &changed);
            Ok(changed)
        };
        self.call("executed", what, work).await
    }

    async fn complete(&self, span: &Span, now: Timestamp) -> Result<Changed, StoreError> {
        let (world, span) = (Arc::clone(&self.world), span.clone());
        let id = span.id.clone();
        let what = move || format!(" {id}");
        let work = async move {
            let changed = world.store.complete(&span, now).await?;
            world.note_complete(&changed);
            Ok(changed)
        };
        self.call("complete", what, work).await
    }

    async fn postpone(&self, span: &Span, due_at: Timestamp) -> Result<Changed, StoreError> {
        let (world, span) = (Arc::clone(&self.world), span.clone());
        let id = span.id.clone();
        let what = move || format!(" {id} to {due_at}");
        let work = async move { world.store.postpone(&span, due_at).await };
        self.call("postpone", what, work).await
    }

    async fn failed(&self, span: &Span, failure: Failure) -> Result<Changed, StoreError> {
        let (world, span) = (Arc::clone(&self.world), span.clone());
        let (id, until) = (span.id.clone(), failure.retry_at);
        let what = move || format!(" {id} until {until}");
        let work = async move { world.store.failed(&span, failure).await };
        self.call("failed", what, work).await
    }

    async fn adopt(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<Adopted, StoreError> {
        let (world, policy) = (Arc::clone(&self.world), policy.clone());
        let work = async move { world.store.adopt(&policy, now, limit).await };
        self.call("adopt", String::new, work).await
    }

    async fn completed_before(
        &self,
        cutoff: Timestamp,
        limit: usize,
    ) -> Result<Vec<SpanId>, StoreError> {
        let world = Arc::clone(&self.world);
        let what = move || format!(" {cutoff}");
        let work = async move { world.store.completed_before(cutoff, limit).await };
        self.call("completed_before", what, work).await
    }

    async fn remove(&self, ids: &[SpanId]) -> Result<u64, StoreError> {
        let (world, ids) = (Arc::clone(&self.world), ids.to_vec());
        let named = ids.clone();
        let what = move || format!(" {named:?}");
        let work = async move {
            let mut spans = Vec::new();
            for id in &ids {
                spans.extend(world.store.find(id).await?);
            }
            let removed = world.store.remove(&ids).await?;
            for span in &spans {
                if world.store.find(&span.id).await?.is_none() {
                    world.note_removed(span.clone());
                }
            }
            Ok(removed)
        };
        self.call("remove", what, work).await
    }

    async fn heartbeat(&self, worker: &str) -> Result<Vec<String>, StoreError> {
        let (world, worker) = (Arc::clone(&self.world), worker.to_owned());
        self.call("heartbeat", String::new, async move {
            world.store.heartbeat(&worker).await
        })
        .await
    }

    async fn leave(&self, worker: &str) -> Result<(), StoreError> {
        let (world, worker) = (Arc::clone(&self.world), worker.to_owned());
        self.call("leave", String::new, async move {
            world.store.leave(&worker).await
        })
        .await
    }

    async fn announce_slack(&self, past: i64) -> Result<(), StoreError> {
        let world = Arc::clone(&self.world);
        let what = move || format!(" {past}");
        let work = async move { world.store.announce_slack(past).await };
        self.call("announce_slack", what, work).await
    }

    async fn largest_slack(&self) -> Result<Option<i64>, StoreError> {
        let world = Arc::clone(&self.world);
        let work = async move { world.store.largest_slack().await };
        self.call("largest_slack", String::new, work).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let world = Arc::clone(&self.world);
        self.call("ping", String::new, async move { world.store.ping().await })
            .await
    }
}

impl Brief for Started {
    fn brief(&self) -> String {
        format!("{self:?}")
    }
}

impl Brief for Stopped {
    fn brief(&self) -> String {
        format!("{self:?}")
    }
}

impl Brief for Adopted {
    fn brief(&self) -> String {
        format!("{self:?}")
    }
}

impl Brief for Changed {
    fn brief(&self) -> String {
        match self {
            Self::Done(after) => format!("version {}", after.processing.version),
            Self::Lost => "lost".to_owned(),
        }
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

impl Brief for Vec<SpanId> {
    fn brief(&self) -> String {
        format!("{self:?}")
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
