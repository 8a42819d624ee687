//! What the ledger holds, whatever fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sampler_domain::{Entry, EntryState, Interval, Planned, Span, SpanId, StartEvent, Totals};
use sampler_store::StoreError;
use sampler_store_testing::faulty::{Fault, FaultyStore};

use crate::abacus::refusal;
use crate::world::{HOUR, MINUTE, NOON, World, options, run_with, target};

/// What Abacus refuses is on the span; its entry tells of that once it is accepted.
#[tokio::test(start_paused = true)]
async fn a_refused_usage_has_no_document_before_it_is_accepted() {
    let world = World::new();
    world.start("i", -HOUR).await;
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(50);
    world.abacus.answer(|_| Some(refusal("no mapping")));
    let worker = world.run("w");
    world.pass(10_000).await;
    let span = world.kept("i").span;
    assert_eq!(world.stored(), []);
    let shown = Entry::of_planned(&span).unwrap();
    assert_eq!(shown.state, EntryState::Refused);
    assert_eq!(shown.error.as_deref(), Some("no mapping"));
    let refused_at = shown.refused_at.unwrap();
    world.abacus.answer(|_| None);
    world
        .until("it is through", || world.abacus.sum("i") == HOUR)
        .await;
    worker.stop().await;
    let entries = world.stored();
    let entry = &entries[0].entry;
    assert_eq!(entry.refused_at, Some(refused_at));
    assert!(entry.attempts > 3, "{entry:?}");
    assert_eq!((entry.state, &entry.error), (EntryState::Accepted, &None));
    let accepted_at = entry.accepted_at.unwrap();
    let as_of = |at| entry.as_of(at);
    assert_eq!(as_of(entry.planned_at.plus(-1)), None);
    assert_eq!(as_of(refused_at.plus(-1)), Some(EntryState::Planned));
    assert_eq!(as_of(accepted_at.plus(-1)), Some(EntryState::Refused));
    assert_eq!(as_of(accepted_at), Some(EntryState::Accepted));
    assert_eq!(world.kept("i").span.processing.last_error, None);
}

/// An open span keeps its entries, however old they are.
#[tokio::test(start_paused = true)]
async fn entries_expire_by_granularity_once_their_span_is_complete() {
    let world = World::new();
    world.start("open", -3 * HOUR).await;
    world.start("ended", -3 * HOUR).await;
    world.stop("ended", -HOUR).await;
    let worker = world.run("w");
    world.until_complete("ended").await;
    world.pass(MINUTE).await;
    worker.stop().await;
    let lifetime = i64::try_from(Duration::from_hours(93 * 24).as_millis()).unwrap();
    for kept in world.stored() {
        let expires_at = kept.entry.accepted_at.unwrap().plus(lifetime);
        let is_open = kept.entry.target == target("open");
        assert_eq!(kept.expires_at, (!is_open).then_some(expires_at));
    }
    assert_eq!(world.stored().len(), 5);
}

/// The worker died, or failed, between completing a span and letting its entries expire.
#[tokio::test(start_paused = true)]
async fn the_clean_up_lets_entries_expire_before_their_span_is_gone() {
    let world = World::new();
    world.start("i", -3 * HOUR).await;
    world.stop("i", -HOUR).await;
    let mut parts = world.parts();
    let calls = AtomicUsize::new(0);
    parts.ledger = FaultyStore::new(world.store.clone(), move |method, _| {
        // That of the worker, at completion, and the first of the clean-up.
        let fails = method == "expire" && calls.fetch_add(1, Ordering::Relaxed) < 2;
        fails.then(|| Fault::NotDone(StoreError::Unavailable("it was not reached".into())))
    });
    let mut options = options("w");
    options.settings.cleanup.retention = Duration::from_hours(2);
    let worker = run_with(parts, options);
    world.until_complete("i").await;
    assert!(world.stored().iter().all(|kept| kept.expires_at.is_none()));
    world
        .until("it is removed", || world.store.all().is_empty())
        .await;
    worker.stop().await;
    assert_eq!(world.stored().len(), 2);
    assert!(world.stored().iter().all(|kept| kept.expires_at.is_some()));
}

/// The guid of the original's plan is its entry's id, and totals begin at what it had sampled.
#[tokio::test(start_paused = true)]
async fn the_plan_of_an_original_has_its_entry_under_its_own_id() {
    let world = World::new();
    let event = StartEvent {
        id: None,
        timestamp: NOON.plus(-5 * HOUR),
        target: target("i"),
        measures: sampler_domain::Measures::default(),
    };
    let mut span = Span::open(SpanId::Text("i".to_owned()), event);
    let sampled_to = NOON.plus(-3 * HOUR);
    span.processing.last.end = sampled_to;
    span.processing.planned = Some(Planned {
        interval: Interval {
            start: sampled_to,
            end: NOON.plus(-2 * HOUR),
        },
        usage_guid: "theirs".to_owned(),
        planned_at: sampled_to,
        granularity: None,
        posts_end_by: None,
        withheld: None,
    });
    span.processing.version = 7;
    world.store.insert_original(span, sampled_to);
    let worker = world.run("w");
    world
        .until("it is sampled", || {
            world.kept("i").span.sampled_to() == NOON
        })
        .await;
    worker.stop().await;
    assert!(
        world
            .stored()
            .iter()
            .any(|kept| kept.entry.usage_guid == "theirs")
    );
    let expected = Totals {
        since: sampled_to,
        first_version: Some(7),
        billed: 3 * HOUR,
        skipped: 0,
        unanswered: 0,
        usages: 3,
    };
    assert_eq!(world.kept("i").span.processing.totals, expected);
    world.assert_ledger();
}
