//! What an operator gives up is not posted any more, and counts as sampled.

use sampler_domain::{Change, Changed, EntryState, SKIP_DELAY, Skip, Span};
use sampler_store::Work;
use uuid::Uuid;

use crate::abacus::refusal;
use crate::world::{HOUR, World};

/// A span of which Abacus refuses one usage for good: it is suspended.
pub(crate) async fn suspended(world: &World) -> Span {
    world.start("a", -2 * HOUR).await;
    let mut refused = None;
    world.abacus.answer(move |usage| {
        let refused = refused.get_or_insert_with(|| usage.dedup_id.clone());
        (*refused == usage.dedup_id).then(|| refusal("Abacus answered 400: it is malformed"))
    });
    let worker = world.run("w");
    world.until_suspended("a").await;
    worker.stop().await;
    world.kept("a").span
}

/// What an operator does.
pub(crate) async fn skip(world: &World, span: &Span) -> Changed {
    let planned = span.processing.planned.as_ref().unwrap();
    let change = Change::RequestSkip {
        skip: Skip {
            usage_guid: planned.usage_guid.clone(),
            at: world.clock_now(),
            not_before: span.processing.suspended.unwrap().since.plus(SKIP_DELAY),
            act: Uuid::nil(),
        },
        suspension: span.processing.suspended.unwrap(),
        due_at: world.clock_now(),
    };
    let changed = world.store.change(span, &change, world.clock_now()).await;
    changed.unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_is_not_posted_and_the_span_goes_on() {
    let world = World::new();
    let span = suspended(&world).await;
    let planned = span.processing.planned.clone().unwrap();
    let posts = world.abacus.post_count();
    assert_eq!(skip(&world, &span).await, Changed::Made);
    assert_eq!(skip(&world, &span).await, Changed::Rejected);
    let worker = world.run("w");
    world.stop("a", 30 * HOUR).await;
    world.pass(31 * HOUR).await;
    world.until_complete("a").await;
    worker.stop().await;
    let entry = world.entry(&planned.usage_guid);
    assert_eq!(entry.state, EntryState::Skipped);
    assert_eq!(entry.interval, planned.interval);
    assert_eq!(
        entry.error.as_deref(),
        Some("Abacus answered 400: it is malformed")
    );
    let log = world.abacus.posts.lock().unwrap().clone();
    assert!(log.len() > posts, "it went on");
    let after = world.kept("a").span;
    let totals = &after.processing.totals;
    assert_eq!(totals.skipped, planned.interval.duration());
    assert_eq!(totals.billed, world.abacus.sum("a"));
    assert_eq!(
        totals.billed + totals.skipped,
        after.end.unwrap().since(after.start)
    );
    assert_eq!((after.difference(), after.processing.skip), (0, None));
}

/// Another worker has posted it before, and Abacus has it: that is what the ledger says.
#[tokio::test(start_paused = true)]
async fn what_abacus_has_accepted_is_not_skipped() {
    let world = World::new();
    let span = suspended(&world).await;
    let acceptance = world.acceptance();
    let entry = sampler_domain::Entry::of_accepted(&span, acceptance).unwrap();
    sampler_store::Ledger::write_entry(&*world.store, entry, HOUR)
        .await
        .unwrap();
    assert_eq!(skip(&world, &span).await, Changed::Made);
    let worker = world.run("w");
    let planned = span.processing.planned.clone();
    let is_noted = || world.kept("a").span.processing.planned != planned;
    world.until("it is noted", is_noted).await;
    worker.stop().await;
    let after = world.kept("a").span;
    let interval = planned.unwrap().interval;
    // Abacus would have refused it again.
    let billed = world.abacus.sum("a") + interval.duration();
    assert_eq!(after.processing.totals.billed, billed);
    assert_eq!(
        (after.processing.totals.skipped, after.difference()),
        (0, 0)
    );
}

/// A worker that has read the span before it was given up changes nothing by what it knows.
#[tokio::test(start_paused = true)]
async fn a_failure_of_before_does_not_put_away_what_is_to_be_skipped() {
    let world = World::new();
    let span = suspended(&world).await;
    assert_eq!(skip(&world, &span).await, Changed::Made);
    let failure = sampler_store_testing::support::last_refusal("late", 0);
    let late = Change::failed(&span, failure);
    let changed = world.store.change(&span, &late, world.clock_now()).await;
    assert_eq!(changed.unwrap(), Changed::Rejected);
    let worker = world.run("w");
    world.until_skipped("a").await;
    worker.stop().await;
}
