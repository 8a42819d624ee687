//! Starts and stops: the answers, and what is kept.

use sampler_domain::{ClientId, Field, Id, Interval, Measures, Refusal, SpanId, StopEvent};
use sampler_store::{NewSpan, NewStop, SpansBy, StartOutcome, StopOutcome};
use uuid::Uuid;

use crate::support::{
    LookingUp, Shared, Store, at, id, kept, must_start, must_stop, new_span, new_stop, start,
    start_event, started, stop, target,
};

const MINUTE: i64 = 60_000;

pub async fn a_start_is_kept_as_it_was_given(store: &Shared) {
    let event = start_event(Some("a"), "i", -MINUTE);
    let new = new_span(event.clone());
    let expected = new.span.clone();
    assert_eq!(store.start(new).await.unwrap(), StartOutcome::Opened);
    let span = kept(&**store, "a").await;
    assert_eq!(span, expected);
    assert_eq!(span.measures, event.measures);
    assert_eq!(span.processing.last, Interval::at(event.timestamp));
    assert_eq!(
        store.read(&span.id, &span.target).await.unwrap(),
        Some(expected)
    );
}

pub async fn a_span_keeps_which_clients_reported_it(store: &Shared) {
    let clients = ["broker", "operator"].map(ClientId::new);
    let mut new = new_span(start_event(Some("a"), "i", 0));
    new.span.start_client.clone_from(&clients[0]);
    assert_eq!(
        store.start(new.clone()).await.unwrap(),
        StartOutcome::Opened
    );
    let mut stop = new_stop(Some("z"), "i", MINUTE);
    stop.client.clone_from(&clients[1]);
    assert_eq!(store.stop(stop.clone()).await.unwrap(), StopOutcome::Ended);
    // Repeats by somebody else change nothing.
    new.span.start_client.clone_from(&clients[1]);
    new.span.id = new_span(start_event(None, "i", 0)).span.id;
    let repeated = store.start(new).await;
    assert!(matches!(repeated.unwrap(), StartOutcome::Repeated { .. }));
    stop.client = None;
    stop.correlation_id = new_stop(None, "i", 0).correlation_id;
    assert_eq!(store.stop(stop).await.unwrap(), StopOutcome::Repeated);
    let span = kept(&**store, "a").await;
    assert_eq!([span.start_client, span.stop_client], clients);
    assert_eq!(started_anonymously(&**store).await, [None, None]);
}

async fn started_anonymously(store: &dyn Store) -> [Option<ClientId>; 2] {
    let span = started(store, "b", "j", 0).await;
    [span.start_client, span.stop_client]
}

pub async fn spans_that_have_not_ended_are_the_open_one_and_the_next_to_end(store: &Shared) {
    let store = &**store;
    let ids = async |instance: &str, moment: i64| {
        let by = SpansBy::NotEndedBy(at(moment));
        let found = store
            .find_spans(&target(instance), &by)
            .await
            .unwrap()
            .into_iter();
        let mut ids: Vec<_> = found.filter_map(|span| span.start_id).collect();
        ids.sort();
        ids
    };
    assert_eq!(ids("i", 0).await, []);
    for (name, from, to) in [("a", 0, 10), ("b", 20, 30), ("c", 40, 50)] {
        must_start(store, Some(name), "i", from).await;
        must_stop(store, Some(name), "i", to).await;
    }
    must_start(store, Some("other"), "j", 0).await;
    assert_eq!(ids("i", 0).await, [id("a")]);
    assert_eq!(ids("i", 9).await, [id("a")]);
    // A span that ends at the moment has ended.
    assert_eq!(ids("i", 10).await, [id("b")]);
    assert_eq!(ids("i", 50).await, []);
    must_start(store, Some("d"), "i", 60).await;
    assert_eq!(ids("i", 30).await, [id("c"), id("d")]);
    assert_eq!(ids("i", 100).await, [id("d")]);
    assert_eq!(ids("j", 100).await, [id("other")]);
}

pub async fn a_repeated_start_is_recognised_at_any_later_time(store: &Shared) {
    let store = &**store;
    let again = || start(store, Some("a"), "i", 0);
    assert_eq!(again().await, StartOutcome::Opened);
    let span = kept(store, "a").await.id;
    let repeated = StartOutcome::Repeated { span };
    assert_eq!(again().await, repeated);
    must_stop(store, Some("z"), "i", MINUTE).await;
    assert_eq!(again().await, repeated);
    must_start(store, Some("b"), "i", 2 * MINUTE).await;
    assert_eq!(again().await, repeated);
    assert_eq!(kept(store, "b").await.end, None);
}

pub async fn a_second_start_of_an_open_target_is_refused(store: &Shared) {
    let store = &**store;
    must_start(store, None, "i", 0).await;
    for (id, millis) in [(Some("a"), 0), (None, 0), (None, MINUTE)] {
        let second = start(store, id, "i", millis).await;
        assert_eq!(second, StartOutcome::Refused(Refusal::AlreadyOpen));
    }
    must_start(store, None, "another", 0).await;
    assert_eq!(
        store.started_by(&target("i"), &id("a")).await.unwrap(),
        None
    );
}

/// Fault 4 of the original: the same `id` on another target answered 201, and was lost.
pub async fn fault_4_the_same_id_on_another_target_is_another_event(store: &Shared) {
    let store = &**store;
    must_start(store, Some("a"), "i", 0).await;
    must_start(store, Some("a"), "j", MINUTE).await;
    // Each of the six fields tells targets apart.
    for field in 0..6 {
        let mut new = new_span(start_event(Some("a"), "i", 2 * MINUTE));
        let target = &mut new.span.target;
        let changed: [&mut Id; 6] = [
            &mut target.organization_id,
            &mut target.space_id,
            &mut target.consumer_id,
            &mut target.resource_id,
            &mut target.plan_id,
            &mut target.resource_instance_id,
        ];
        *changed.into_iter().nth(field).expect("there are six") = id("other");
        let event = StopEvent {
            id: Some(id("a")),
            timestamp: at(3 * MINUTE),
            target: new.span.target.clone(),
        };
        let started = |new: NewSpan| async { store.start(new).await.expect("an answer") };
        assert_eq!(started(new.clone()).await, StartOutcome::Opened, "{field}");
        new.span.id = SpanId::new(at(0), u64::MAX - field as u64);
        assert!(
            matches!(started(new).await, StartOutcome::Repeated { .. }),
            "{field}"
        );
        let new = NewStop {
            event,
            ..new_stop(None, "", 0)
        };
        let stopped = |new: NewStop| async { store.stop(new).await.expect("an answer") };
        assert_eq!(stopped(new.clone()).await, StopOutcome::Ended, "{field}");
        let correlation_id = Uuid::from_u128(field as u128 + 1);
        let again = NewStop {
            correlation_id,
            ..new
        };
        assert_eq!(stopped(again).await, StopOutcome::Repeated, "{field}");
    }
    must_stop(store, Some("a"), "i", MINUTE).await;
    assert!(matches!(
        start(store, Some("a"), "i", 0).await,
        StartOutcome::Repeated { .. }
    ));
    assert!(matches!(
        start(store, Some("a"), "j", MINUTE).await,
        StartOutcome::Repeated { .. }
    ));
    for (instance, millis) in [("i", 0), ("j", MINUTE)] {
        let found = store
            .started_by(&target(instance), &id("a"))
            .await
            .unwrap()
            .expect("it was kept");
        assert_eq!(found.start, at(millis));
    }
    assert_eq!(
        store.stopped_by(&target("j"), &id("a")).await.unwrap(),
        None
    );
}

/// What is refused on a target is refused because of that target's own events.
pub async fn fault_4_a_start_id_seen_before_is_refused_and_the_fields_are_named(store: &Shared) {
    let store = &**store;
    must_start(store, Some("a"), "i", 0).await;
    let taken = |fields: &[Field]| StartOutcome::Refused(Refusal::IdTaken(fields.to_vec()));
    let timestamp = Field::Timestamp;
    assert_eq!(start(store, Some("a"), "i", 1).await, taken(&[timestamp]));
    let mut other = new_span(start_event(Some("a"), "i", 0));
    other.span.measures = Measures::default();
    let answer = store.start(other).await.unwrap();
    assert_eq!(answer, taken(&[Field::MeasuredUsage]));
    must_stop(store, None, "i", MINUTE).await;
    let mut other = new_span(start_event(Some("a"), "i", MINUTE));
    other.span.measures = Measures::default();
    let answer = store.start(other).await.unwrap();
    assert_eq!(answer, taken(&[timestamp, Field::MeasuredUsage]));
    assert_eq!(
        stop(store, None, "i", MINUTE).await,
        StopOutcome::Refused(Refusal::NotOpen)
    );
}

/// Fault 12 of the original: a start before the end of the target's previous span was admitted.
pub async fn fault_12_a_start_inside_the_previous_span_is_refused(store: &Shared) {
    let store = &**store;
    let hour = 60 * MINUTE;
    for number in 0..3 {
        must_start(store, None, "i", number * hour).await;
        must_stop(store, None, "i", (number + 1) * hour).await;
    }
    let until = at(3 * hour);
    assert_eq!(
        start(store, Some("a"), "i", 3 * hour - 1).await,
        StartOutcome::Refused(Refusal::Overlaps { until })
    );
    must_start(store, Some("a"), "j", 3 * hour - 1).await;
    must_start(store, Some("b"), "i", 3 * hour).await;
    assert_eq!(
        start(store, None, "i", hour).await,
        StartOutcome::Refused(Refusal::AlreadyOpen)
    );
}

/// An instance that changes its plan is another target.
pub async fn a_span_of_another_plan_of_the_instance_is_no_previous_one(store: &Shared) {
    let store = &**store;
    must_start(store, None, "i", 0).await;
    must_stop(store, None, "i", 2 * MINUTE).await;
    let with_plan = |plan: &str, millis| {
        let mut event = start_event(None, "i", millis);
        event.target.plan_id = id(plan);
        new_span(event)
    };
    let started = async |new| store.start(new).await.unwrap();
    assert_eq!(started(with_plan("b", MINUTE)).await, StartOutcome::Opened);
    assert_eq!(
        started(with_plan("b", MINUTE)).await,
        StartOutcome::Refused(Refusal::AlreadyOpen)
    );
    let until = at(2 * MINUTE);
    let overlaps = StartOutcome::Refused(Refusal::Overlaps { until });
    assert_eq!(start(store, None, "i", MINUTE).await, overlaps);
}

pub async fn an_update_is_a_stop_and_a_start_at_one_moment(store: &Shared) {
    let store = &**store;
    must_start(store, Some("a"), "i", 0).await;
    must_stop(store, Some("b"), "i", MINUTE).await;
    must_start(store, Some("b"), "i", MINUTE).await;
    assert_eq!(
        stop(store, Some("b"), "i", MINUTE).await,
        StopOutcome::Repeated
    );
    assert_eq!(kept(store, "a").await.end, Some(at(MINUTE)));
    assert_eq!(kept(store, "b").await.end, None);
}

pub async fn a_stop_ends_the_open_span_alone(store: &Shared) {
    let store = &**store;
    must_start(store, Some("a"), "i", 0).await;
    must_start(store, Some("b"), "j", 0).await;
    must_stop(store, Some("z"), "i", MINUTE).await;
    let span = kept(store, "a").await;
    assert_eq!(
        (span.end, span.end_id.clone()),
        (Some(at(MINUTE)), Some(id("z")))
    );
    let stopped = store.stopped_by(&target("i"), &id("z")).await.unwrap();
    assert_eq!(stopped.map(|it| it.id), Some(span.id));
    assert!(!span.processing.complete);
    assert_eq!(kept(store, "b").await.end, None);
}

pub async fn a_repeated_stop_is_recognised_at_any_later_time(store: &Shared) {
    let store = &**store;
    let again = || stop(store, Some("z"), "i", MINUTE);
    must_start(store, None, "i", 0).await;
    assert_eq!(again().await, StopOutcome::Ended);
    assert_eq!(again().await, StopOutcome::Repeated);
    // The next span starts where the stop is dated, so the stop could end it by its fields.
    must_start(store, Some("b"), "i", MINUTE).await;
    assert_eq!(again().await, StopOutcome::Repeated);
    assert_eq!(kept(store, "b").await.end, None);
    must_stop(store, None, "i", 2 * MINUTE).await;
    assert_eq!(again().await, StopOutcome::Repeated);
}

/// Fault 4 of the original: an old stop's `id` answered 201 and left the new span running.
pub async fn fault_4_a_stop_id_seen_before_never_ends_another_span(store: &Shared) {
    let store = &**store;
    must_start(store, None, "i", 0).await;
    must_stop(store, Some("z"), "i", MINUTE).await;
    must_start(store, Some("b"), "i", MINUTE).await;
    must_start(store, Some("c"), "j", MINUTE).await;
    let taken = |fields: &[Field]| StopOutcome::Refused(Refusal::IdTaken(fields.to_vec()));
    let answer = stop(store, Some("z"), "i", 2 * MINUTE).await;
    assert_eq!(answer, taken(&[Field::Timestamp]));
    assert_eq!(kept(store, "b").await.end, None);
    // On another target it is another event.
    must_stop(store, Some("z"), "j", MINUTE).await;
    assert_eq!(kept(store, "c").await.end, Some(at(MINUTE)));
}

/// Fault 5 of the original: this was checked before the update, not in it.
pub async fn fault_5_a_stop_before_its_start_is_refused_in_the_update_itself(store: &Shared) {
    let store = &**store;
    must_start(store, Some("a"), "i", 0).await;
    let answer = stop(store, Some("y"), "i", -1).await;
    assert_eq!(
        answer,
        StopOutcome::Refused(Refusal::BeforeStart { start: at(0) })
    );
    assert_eq!(kept(store, "a").await.end, None);
    must_stop(store, Some("z"), "i", 0).await;
    assert_eq!(kept(store, "a").await.end, Some(at(0)));
}

pub async fn a_stop_without_an_open_span_is_refused(store: &Shared) {
    let store = &**store;
    let are_refused = async |millis| {
        for id in [None, Some("z")] {
            let stopped = stop(store, id, "i", millis).await;
            assert_eq!(stopped, StopOutcome::Refused(Refusal::NotOpen));
        }
    };
    are_refused(0).await;
    must_start(store, None, "i", 0).await;
    must_stop(store, None, "i", 1).await;
    are_refused(1).await;
}

/// A command whose answer was lost may be carried out long after it was made again.
pub async fn a_start_that_is_carried_out_twice_opens_one_span(store: &Shared) {
    let new = new_span(start_event(None, "twice", 0));
    let (id, target) = (new.span.id.clone(), new.span.target.clone());
    assert_eq!(
        store.start(new.clone()).await.unwrap(),
        StartOutcome::Opened
    );
    assert_eq!(
        store.start(new.clone()).await.unwrap(),
        StartOutcome::Opened
    );
    must_stop(&**store, None, "twice", 5_000).await;
    assert_eq!(store.start(new).await.unwrap(), StartOutcome::Opened);
    let span = store.read(&id, &target).await.unwrap().expect("it is kept");
    assert_eq!(span.end, Some(at(5_000)));
    assert_eq!(
        stop(&**store, None, "twice", 9_000).await,
        StopOutcome::Refused(Refusal::NotOpen)
    );
}

/// The second time, another span of the target is open, and it would fit.
pub async fn a_stop_that_is_carried_out_twice_ends_one_span(store: &Shared) {
    started(&**store, "first", "twice", 0).await;
    let new = new_stop(None, "twice", 5_000);
    assert_eq!(store.stop(new.clone()).await.unwrap(), StopOutcome::Ended);
    started(&**store, "second", "twice", 5_000).await;
    assert_eq!(store.stop(new).await.unwrap(), StopOutcome::Ended);
    assert_eq!(kept(&**store, "first").await.end, Some(at(5_000)));
    assert_eq!(kept(&**store, "second").await.end, None);
}
