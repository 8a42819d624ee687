//! Events and shorthands for the contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::StreamExt;
use sampler_domain::partition::PARTITIONS;
use sampler_domain::{
    Acceptance, Action, Change, Changed, Contract, Delivery, Driver, Entry, EventId, Failure,
    Granularities, Granularity, Id, Interval, Key, Measure, Measures, Policy, Quantity, Remembered,
    RunId, Span, SpanId, StartEvent, StopEvent, Target, Terms, Timestamp, WindowLength, usage_guid,
};
use sampler_store::{
    Arrival, DuePages, DueQuery, Events, Finished, Ledger, NewSpan, NewStop, Operating, Reading,
    SpanQuery, SpansBy, StartOutcome, StopOutcome, StoreError, SumQuery, TargetFilter, Work,
};
use uuid::Uuid;

/// All interfaces of one store.
pub trait Store: Events + Work + Ledger + Reading + Operating {}

impl<S: Events + Work + Ledger + Reading + Operating> Store for S {}

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

/// Makes changes, as they were decided. The answer is the span after the change; none where it was rejected.
#[async_trait]
pub trait Changing: Work {
    async fn make(&self, read: &Span, change: Change) -> Result<Option<Span>, StoreError> {
        Ok(match self.change(read, &change, at(0)).await? {
            Changed::Made => Some(change.after),
            Changed::Rejected => None,
        })
    }

    /// The span after a change that must be made.
    async fn must_make(&self, read: &Span, change: Change) -> Span {
        let kind = change.kind;
        let made = self.make(read, change).await.unwrap();
        made.unwrap_or_else(|| panic!("{kind:?} was rejected"))
    }
}

impl<W: Work + ?Sized> Changing for W {}

/// The run of a worker.
pub fn run(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

/// Time is cut by the hour, without a grace, and one refusal suspends.
pub fn terms() -> Terms {
    Terms {
        run: run(1),
        policy: Policy {
            granularities: Granularities::all(Granularity::Hour),
            stop_grace: 0,
        },
        contract: Contract::Forever,
        suspend_after: 1,
    }
}

/// The driver of a worker that has just read the span.
pub fn driver(span: &Span) -> Driver {
    Driver::new(span.clone(), Remembered::default(), at(0))
}

/// The change by which a driver goes on `millis` after [`NOW`].
///
/// # Panics
/// Where it does something else.
pub fn change_of(driver: &Driver, millis: i64, terms: &Terms) -> Change {
    match driver.action(at(millis), terms) {
        Action::Change(change) => *change,
        other => panic!("{other:?}"),
    }
}

/// The change by which a worker goes on, `millis` after [`NOW`]: that plans, names, trims or completes.
pub fn next(span: &Span, millis: i64) -> Change {
    change_of(&driver(span), millis, &terms())
}

/// The change that records the planned interval, `millis` after [`NOW`], and plans what is due then.
pub fn recorded(span: &Span, millis: i64) -> Change {
    let mut driver = driver(span);
    driver.on_accepted(acceptance(millis, None));
    driver.on_entry_written();
    change_of(&driver, millis, &terms())
}

/// The change that records a failure of the usage in hand.
pub fn failed(span: &Span, failure: Failure) -> Change {
    let (mut driver, millis) = (driver(span), failure.at.since(at(0)));
    driver.on_failed(failure);
    change_of(&driver, millis, &terms())
}

/// The change that sets when a worker is needed next.
pub fn postponed(span: &Span, due_at: Timestamp) -> Change {
    let mut driver = driver(span);
    driver.on_lookup_postponed(due_at);
    change_of(&driver, 0, &terms())
}

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
    NewSpan {
        span: Span::open(SpanId::new(at(0), unique()), event, due_at),
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
    let mut spans = store.newest_spans(10_000).await.unwrap().into_iter();
    spans
        .rfind(|span| span.start_id.as_ref() == Some(&wanted))
        .unwrap_or_else(|| panic!("no span that was started by {event_id}"))
}

/// Targets whose fields of these names are so.
///
/// # Panics
/// Where there is no such field.
pub fn filter(conditions: &[(&str, &str)]) -> TargetFilter {
    let mut filter = TargetFilter::default();
    for (name, value) in conditions {
        assert!(filter.set(name, id(value)), "{name}");
    }
    filter
}

/// Spans of such targets, a hundred on a page.
pub fn span_query(conditions: &[(&str, &str)]) -> SpanQuery {
    SpanQuery {
        target: filter(conditions),
        limit: 100,
        ..SpanQuery::default()
    }
}

/// The sums of such targets between two times, in ms after [`NOW`], by these windows.
pub fn sum_query(
    conditions: &[(&str, &str)],
    length: WindowLength,
    (from, to): (i64, i64),
) -> SumQuery {
    let windows = length.windows(at(from), at(to), 366);
    SumQuery {
        target: filter(conditions),
        accepted_to: None,
        resources: None,
        length,
        windows: windows.expect("not more than 366"),
        group_by: Vec::new(),
        after: None,
        limit: 1_000,
    }
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

/// A span that started `millis` after [`NOW`] and has its first interval planned, at the end of that hour.
pub async fn planned(store: &dyn Store, name: &str, millis: i64) -> Span {
    let span = started(store, name, name, millis).await;
    let hour = Granularity::Hour.boundary_after(span.start);
    let end = hour.expect("there is a next hour").since(at(0));
    store.must_make(&span, next(&span, end)).await
}

/// A span that started an hour before [`NOW`] and is suspended since `millis` after.
pub async fn suspended(store: &dyn Store, name: &str, millis: i64) -> Span {
    let span = planned(store, name, -3_600_000).await;
    let refused = failed(&span, refusal("no mapping", millis));
    store.must_make(&span, refused).await
}

/// A span of an hour that ended `millis` after [`NOW`], and is sampled to its end.
pub async fn completed(store: &dyn Store, name: &str, millis: i64) -> Span {
    started(store, name, name, millis - 3_600_000).await;
    must_stop(store, None, name, millis).await;
    complete(store, name, millis).await
}

/// Samples a span that was stopped to its end, `millis` after [`NOW`].
pub async fn complete(store: &dyn Store, name: &str, millis: i64) -> Span {
    let mut span = kept(store, name).await;
    while !span.processing.complete {
        let change = match span.processing.planned {
            Some(_) => recorded(&span, millis),
            None => next(&span, millis),
        };
        span = store.must_make(&span, change).await;
    }
    span
}

/// Abacus accepted the usage `millis` after [`NOW`].
pub fn acceptance(millis: i64, location: Option<&str>) -> Acceptance {
    Acceptance {
        at: at(millis),
        status: Some(202),
        location: location.map(str::to_owned),
    }
}

/// The entry of an interval of a span, in ms after [`NOW`], that was accepted at its end.
pub fn entry(span: &Span, start: i64, end: i64) -> Entry {
    let interval = Interval {
        start: at(start),
        end: at(end),
    };
    let delivery = Delivery {
        interval,
        usage_guid: usage_guid(span, interval),
        is_again: false,
    };
    let location = Some("https://abacus/v1/metering/collected/usage/1");
    Entry::new(span, &delivery, acceptance(end, location), &terms().policy)
}

/// Abacus could not take the usage `millis` after [`NOW`], for no fault of the usage.
pub fn failure(error: &str, millis: i64, retry_at: Timestamp) -> Failure {
    Failure {
        at: at(millis),
        retry_at,
        error: error.into(),
        status: None,
        blames_usage: false,
        is_post: true,
        unanswered: false,
    }
}

/// Abacus refused the usage `millis` after [`NOW`].
pub fn refusal(error: &str, millis: i64) -> Failure {
    Failure {
        status: Some(400),
        blames_usage: true,
        ..failure(error, millis, at(millis))
    }
}

/// What the clean-up finds of a span.
pub fn finished(span: &Span) -> Finished {
    Finished {
        id: span.id.clone(),
        key: Key::of(&span.target),
    }
}
