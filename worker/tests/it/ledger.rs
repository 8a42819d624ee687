//! What the ledger holds, whatever fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use sampler_abacus::Answer;
use sampler_domain::{
    Entry, EntryState, Interval, Planned, Span, SpanId, StartEvent, Target, Totals,
};
use sampler_store::memory::{MemoryStore, StoredEntry};
use sampler_store::{Entries, Finished, Ledger, StoreError};

use crate::world::{HOUR, MINUTE, NOON, World, options, run_with, target};

/// A ledger that is there only now and then.
struct Flaky {
    inner: Arc<MemoryStore>,
    calls: AtomicUsize,
    /// Whether this call, by its number, fails after it was carried out.
    fails: fn(&'static str, usize) -> bool,
}

impl Flaky {
    fn answer<T>(
        &self,
        call: &'static str,
        answer: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if (self.fails)(call, number) {
            return Err(StoreError::Unknown("the answer was lost".into()));
        }
        answer
    }
}

#[async_trait]
impl Ledger for Flaky {
    async fn write_entry(&self, entry: Entry, lifetime: i64) -> Result<EntryState, StoreError> {
        let kept = self.inner.write_entry(entry, lifetime).await;
        self.answer("write_entry", kept)
    }

    async fn expire(&self, finished: &[Finished]) -> Result<(), StoreError> {
        if (self.fails)("expire", self.calls.fetch_add(1, Ordering::Relaxed)) {
            return Err(StoreError::Unavailable("it was not reached".into()));
        }
        self.inner.expire(finished).await
    }

    async fn entries(
        &self,
        span: &SpanId,
        target: &Target,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Entries, StoreError> {
        self.inner.entries(span, target, after, limit).await
    }
}

fn all(world: &World) -> Vec<StoredEntry> {
    world.store.with(|table| table.entries().cloned().collect())
}

/// The answer to a record is lost: the usage is posted again with the same bytes, and has one entry.
#[tokio::test(start_paused = true)]
async fn a_usage_has_one_entry_though_the_answer_of_the_ledger_is_lost() {
    let world = World::new();
    for number in 0..5 {
        world.start(&format!("{number}"), -4 * HOUR).await;
        world.stop(&format!("{number}"), -HOUR - MINUTE).await;
    }
    let mut parts = world.parts();
    parts.ledger = Arc::new(Flaky {
        inner: world.store.clone(),
        calls: AtomicUsize::new(0),
        fails: |_, number| number % 3 == 0,
    });
    let worker = run_with(parts, options("w"));
    let complete = || (0..5).all(|number| world.is_complete(&format!("{number}")));
    world.until("all are complete", complete).await;
    worker.stop().await;
    assert_eq!(all(&world).len(), 5 * 3);
    assert!(world.abacus.post_count() > 15, "some were posted again");
    world.assert_ledger();
}

/// A worker that dies between the entry and the note leaves an entry of what is planned.
#[tokio::test(start_paused = true)]
async fn an_entry_without_a_note_is_of_the_planned_interval() {
    let world = World::new();
    world.start("i", -2 * HOUR).await;
    let mut parts = world.parts();
    parts.ledger = Arc::new(Flaky {
        inner: world.store.clone(),
        calls: AtomicUsize::new(0),
        fails: |_, _| true,
    });
    let worker = run_with(parts, options("w"));
    world.pass(1_000).await;
    worker.kill();
    let span = world.kept("i").span;
    let planned = span.processing.planned.clone().unwrap();
    let entries = all(&world);
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].entry.usage_guid, planned.usage_guid);
    assert_eq!(entries[0].entry.state, EntryState::Accepted);
    assert_eq!(span.processing.totals.usages, 0);
    let worker = world.run("next");
    world
        .until("it is noted", || world.kept("i").span.sampled_to() == NOON)
        .await;
    worker.stop().await;
    world.assert_ledger();
    let posts = world.abacus.posts.lock().unwrap().clone();
    let mut bodies: Vec<_> = posts.iter().map(|(_, body)| body).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 2, "the same bytes each time");
}

/// What Abacus refuses is on the span; its entry tells of that once it is accepted.
#[tokio::test(start_paused = true)]
async fn a_refused_usage_has_no_document_before_it_is_accepted() {
    let world = World::new();
    world.start("i", -HOUR).await;
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(50);
    world.abacus.answer(|_| {
        Some(Answer::Refused {
            error: "no mapping".into(),
        })
    });
    let worker = world.run("w");
    world.pass(10_000).await;
    let span = world.kept("i").span;
    assert_eq!(all(&world), []);
    let shown = Entry::of_planned(&span).unwrap();
    assert_eq!(shown.state, EntryState::Refused);
    assert_eq!(shown.error.as_deref(), Some("no mapping"));
    let refused_at = shown.refused_at.unwrap();
    world.abacus.answer(|_| None);
    world
        .until("it is through", || world.abacus.sum("i") == HOUR)
        .await;
    worker.stop().await;
    let entries = all(&world);
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
    world
        .until("it is complete", || world.is_complete("ended"))
        .await;
    world.pass(MINUTE).await;
    worker.stop().await;
    let lifetime = i64::try_from(Duration::from_hours(93 * 24).as_millis()).unwrap();
    for kept in all(&world) {
        let expires_at = kept.entry.accepted_at.unwrap().plus(lifetime);
        let is_open = kept.entry.target == target("open");
        assert_eq!(kept.expires_at, (!is_open).then_some(expires_at));
    }
    assert_eq!(all(&world).len(), 5);
}

/// The worker died, or failed, between completing a span and letting its entries expire.
#[tokio::test(start_paused = true)]
async fn the_clean_up_lets_entries_expire_before_their_span_is_gone() {
    let world = World::new();
    world.start("i", -3 * HOUR).await;
    world.stop("i", -HOUR).await;
    let mut parts = world.parts();
    parts.ledger = Arc::new(Flaky {
        inner: world.store.clone(),
        calls: AtomicUsize::new(0),
        // That of the worker, at completion, and the first of the clean-up.
        fails: |call, number| call == "expire" && number < 4,
    });
    let mut options = options("w");
    options.cleanup.retention = Duration::from_hours(2);
    let worker = run_with(parts, options);
    world
        .until("it is complete", || world.is_complete("i"))
        .await;
    assert!(all(&world).iter().all(|kept| kept.expires_at.is_none()));
    world
        .until("it is removed", || world.store.all().is_empty())
        .await;
    worker.stop().await;
    assert_eq!(all(&world).len(), 2);
    assert!(all(&world).iter().all(|kept| kept.expires_at.is_some()));
}

/// The guid of an original's plan is its entry's id, and totals begin at what it had sampled.
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
    });
    span.processing.version = 7;
    world.store.insert_original(span);
    let worker = world.run("w");
    world
        .until("it is sampled", || {
            world.kept("i").span.sampled_to() == NOON
        })
        .await;
    worker.stop().await;
    assert!(
        all(&world)
            .iter()
            .any(|kept| kept.entry.usage_guid == "theirs")
    );
    let expected = Totals {
        since: sampled_to,
        first_version: Some(7),
        billed: 3 * HOUR,
        skipped: 0,
        usages: 3,
    };
    assert_eq!(world.kept("i").span.processing.totals, expected);
    world.assert_ledger();
}
