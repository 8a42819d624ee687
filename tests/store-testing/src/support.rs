//! Events and shorthands for the contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::StreamExt;
use sampler_domain::partition::PARTITIONS;
use sampler_domain::{
    Acceptance, Change, Changed, EntryState, EventId, Failure, Id, Interval, Key, Measure,
    Measures, Next, Planned, Quantity, Question, Resend, Span, SpanId, StartEvent, StopEvent,
    Target, Timestamp,
};
use sampler_store::{
    Arrival, Causes, DuePages, DueQuery, Events, Finished, Ledger, NewSpan, NewStop, Operating,
    Reading, SpansBy, StartOutcome, StopOutcome, StoreError, Work,
};
use uuid::Uuid;

/// All interfaces of one store.
pub trait Store: Events + Work + Ledger + Causes + Reading + Operating {}

impl<S: Events + Work + Ledger + Causes + Reading + Operating> Store for S {}

/// Lookups by the id of an event.
#[async_trait]
pub trait LookingUp: Events {
    /// The span of the target that was started by the event with this id, and [`measures`].
    async fn started_by(&self, target: &Target, id: &EventId) -> Result<Option<Span>, StoreError> {
        let by = SpansBy::StartedBy(id.clone(), measures());
        let found = self.find_spans(target, &by).await;
        Ok(found?.pop())
    }

    /// The span of the target that was stopped by the event with this id.
    async fn stopped_by(&self, target: &Target, id: &EventId) -> Result<Option<Span>, StoreError> {
        let by = SpansBy::StoppedBy(id.clone());
        let found = self.find_spans(target, &by).await;
        Ok(found?.pop())
    }
}

impl<S: Events + ?Sized> LookingUp for S {}

/// A store that a test can share among its tasks.
pub type Shared = Arc<dyn Store>;

/// Each change by its name. The answer is the span after the change; none where it was lost.
#[async_trait]
pub trait Changing: Work {
    /// Plans an interval.
    async fn plan(
        &self,
        span: &Span,
        planned: Planned,
        now: Timestamp,
        due_at: Timestamp,
    ) -> Result<Option<Span>, StoreError> {
        let change = Change::Plan { planned, due_at };
        self.make(span, change, now).await
    }

    /// Records an execution, and what follows.
    async fn executed(
        &self,
        span: &Span,
        next: Next,
        now: Timestamp,
        due_at: Timestamp,
    ) -> Result<Option<Span>, StoreError> {
        let change = Change::Executed { next, due_at };
        self.make(span, change, now).await
    }

    /// Records that a span is sampled to its end.
    async fn complete(&self, span: &Span, now: Timestamp) -> Result<Option<Span>, StoreError> {
        self.make(span, Change::Complete, now).await
    }

    /// Sets when a span needs a worker next.
    async fn postpone(&self, span: &Span, due_at: Timestamp) -> Result<Option<Span>, StoreError> {
        self.make(span, Change::Postpone { due_at }, at(0)).await
    }

    /// Records a failure.
    async fn failed(&self, span: &Span, failure: Failure) -> Result<Option<Span>, StoreError> {
        let now = failure.at;
        self.make(span, Change::failed(span, failure), now).await
    }

    /// Makes a change.
    async fn make(
        &self,
        span: &Span,
        change: Change,
        now: Timestamp,
    ) -> Result<Option<Span>, StoreError> {
        Ok(match self.change(span, &change, now).await? {
            Changed::Made => Some(span.after(&change)),
            Changed::Rejected => None,
        })
    }
}

impl<W: Work + ?Sized> Changing for W {}

/// The moment at which most of the contract happens: 2026-03-10T12:00:00 UTC.
pub const NOW: i64 = 1_773_144_000_000;

/// Numbers that are not repeated within a process.
pub fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// `millis` after [`NOW`].
pub fn at(millis: i64) -> Timestamp {
    Timestamp::clamped(NOW + millis)
}

/// An id.
pub fn id(text: &str) -> EventId {
    Id::from_store(text)
}

/// A target by the id of its instance.
pub fn target(instance: &str) -> Target {
    Target {
        organization_id: id("organization"),
        space_id: id("space"),
        consumer_id: id("consumer"),
        resource_id: id("resource"),
        plan_id: id("plan"),
        resource_instance_id: id(instance),
    }
}

/// Measures of every kind of quantity.
pub fn measures() -> Measures {
    let json = r#"[8, 0.5, 9007199254740992, 9007199254740994, -1e300, "text", [1, [null, true]], {"b": {"a.b": 2.0}, "a": []}]"#;
    let values: Vec<serde_json::Value> = serde_json::from_str(json).expect("valid JSON");
    let measure = |(number, value)| {
        let quantity = Quantity::new(value).expect("a fit quantity");
        Measure::new(format!("measure-{number}"), quantity).expect("a fit name")
    };
    Measures::new(values.into_iter().enumerate().map(measure).collect()).expect("no name twice")
}

/// A start event `millis` after [`NOW`].
pub fn start_event(event_id: Option<&str>, instance: &str, millis: i64) -> StartEvent {
    StartEvent {
        id: event_id.map(id),
        timestamp: at(millis),
        target: target(instance),
        measures: measures(),
    }
}

/// The span that an event opens, due at its start.
pub fn new_span(event: StartEvent) -> NewSpan {
    let due_at = event.timestamp;
    let span = Span::open(SpanId::new(at(0), unique()), event);
    NewSpan {
        span,
        due_at,
        now: at(0),
        arrival: Arrival::Alone,
    }
}

/// Starts a target.
pub async fn start(
    store: &dyn Store,
    event_id: Option<&str>,
    instance: &str,
    millis: i64,
) -> StartOutcome {
    let new = new_span(start_event(event_id, instance, millis));
    store.start(new).await.unwrap()
}

/// Starts a target, which must open its span.
pub async fn must_start(store: &dyn Store, event_id: Option<&str>, instance: &str, millis: i64) {
    let started = start(store, event_id, instance, millis).await;
    assert_eq!(started, StartOutcome::Opened);
}

/// A stop `millis` after [`NOW`].
pub fn new_stop(event_id: Option<&str>, instance: &str, millis: i64) -> NewStop {
    let event = StopEvent {
        id: event_id.map(id),
        timestamp: at(millis),
        target: target(instance),
    };
    NewStop {
        event,
        client: None,
        correlation_id: Uuid::from_u128(u128::from(unique()) + 1),
        arrival: Arrival::Alone,
    }
}

/// Stops a target.
pub async fn stop(
    store: &dyn Store,
    event_id: Option<&str>,
    instance: &str,
    millis: i64,
) -> StopOutcome {
    let new = new_stop(event_id, instance, millis);
    store.stop(new).await.unwrap()
}

/// Stops a target, which must end its open span.
pub async fn must_stop(store: &dyn Store, event_id: Option<&str>, instance: &str, millis: i64) {
    let stopped = stop(store, event_id, instance, millis).await;
    assert_eq!(stopped, StopOutcome::Ended);
}

/// Starts a target and reads its span back.
pub async fn started(store: &dyn Store, event_id: &str, instance: &str, millis: i64) -> Span {
    must_start(store, Some(event_id), instance, millis).await;
    kept(store, event_id).await
}

/// The span that an event with this id started, whatever its target; of several, the first.
pub async fn kept(store: &dyn Store, event_id: &str) -> Span {
    let wanted = id(event_id);
    let spans = store.newest_spans(10_000).await.unwrap().into_iter();
    let mut spans = spans.map(|listed| listed.span);
    spans
        .rfind(|span| span.start_id.as_ref() == Some(&wanted))
        .unwrap_or_else(|| panic!("no span that was started by {event_id}"))
}

/// All partitions.
pub fn everything() -> Arc<[u32]> {
    (0..PARTITIONS).collect()
}

/// The start ids of the spans that are due `millis` after [`NOW`], in their order.
pub async fn due(store: &dyn Store, millis: i64) -> Vec<String> {
    let query = DueQuery {
        partitions: everything(),
        now: at(millis),
        page: 10,
    };
    due_ids(store, query).await
}

/// The start ids of the spans that a query finds, in their order.
pub async fn due_ids(store: &dyn Store, query: DueQuery) -> Vec<String> {
    let mut pages = store.due(query);
    let mut ids = Vec::new();
    while let Some(page) = next_page(&mut pages).await {
        ids.extend(page);
    }
    ids
}

/// The start ids of the spans on the next page, if there is one.
pub async fn next_page(pages: &mut DuePages) -> Option<Vec<String>> {
    let spans = pages.next().await?.unwrap();
    let id = |span: Span| span.start_id.map_or_else(String::new, String::from);
    Some(spans.into_iter().map(id).collect())
}

/// A plan for a span up to `millis` after [`NOW`].
pub fn plan_to(span: &Span, millis: i64) -> Planned {
    Planned::new(
        span,
        Interval {
            start: span.sampled_to(),
            end: at(millis),
        },
        at(0),
    )
}

/// The span once it was planned up to `millis` after [`NOW`], which must be done.
pub async fn must_plan(store: &dyn Store, span: &Span, millis: i64) -> Span {
    done(store.plan(span, plan_to(span, millis), at(0), at(0)).await)
}

/// Abacus accepted the usage `millis` after [`NOW`].
pub fn acceptance(millis: i64, location: Option<&str>) -> Acceptance {
    Acceptance {
        at: at(millis),
        status: Some(202),
        location: location.map(str::to_owned),
    }
}

/// A usage is to be asked for, from and until so many ms after [`NOW`].
pub fn question(from: i64, until: i64) -> Question {
    Question {
        at: at(from),
        until: at(until),
        is_missing: false,
    }
}

/// The mark of an act by which a usage in this state is sent again, `millis` after [`NOW`].
pub fn resend(act: u128, from: EntryState, millis: i64) -> Resend {
    Resend {
        act: Uuid::from_u128(act),
        from,
        at: at(millis),
        due_at: at(millis),
        acceptance: None,
    }
}

/// Abacus could not take the usage, for no fault of the usage.
pub fn failure(error: &str, retry_at: Timestamp) -> Failure {
    Failure {
        at: at(0),
        retry_at,
        error: error.into(),
        status: None,
        blames_usage: false,
        is_post: true,
        unanswered: false,
        suspends: false,
    }
}

/// Abacus refused the usage `millis` after [`NOW`].
pub fn refusal(error: &str, millis: i64, retry_at: Timestamp) -> Failure {
    Failure {
        at: at(millis),
        status: Some(400),
        blames_usage: true,
        ..failure(error, retry_at)
    }
}

/// The refusal that suspends a span.
pub fn last_refusal(error: &str, millis: i64) -> Failure {
    Failure {
        suspends: true,
        ..refusal(error, millis, at(millis))
    }
}

/// The span after a change that must have been made.
///
/// # Panics
/// Where the change was lost.
pub fn done(changed: Result<Option<Span>, StoreError>) -> Span {
    changed.unwrap().expect("the change was made")
}

/// Whether a change was lost.
pub fn lost(changed: Result<Option<Span>, StoreError>) -> bool {
    changed.unwrap().is_none()
}

/// What the clean-up finds of a span.
pub fn finished(span: &Span) -> Finished {
    Finished {
        id: span.id.clone(),
        key: Key::of(&span.target),
    }
}
