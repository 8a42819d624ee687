//! What an operator skips is not posted any more, and counts as sampled, until it is sent again: the same bytes.

use sampler_domain::{Granularity, Interval, Timestamp, Usage};

use crate::abacus::refusal;
use crate::world::{HOUR, MINUTE, NOON, World};

/// Abacus refuses all usages of the hour that begins so late after noon.
fn refuse_hour(world: &World, refused: i64) {
    world.abacus.answer(move |usage| {
        let is_refused = hour_of(usage) == NOON.plus(refused);
        is_refused.then(|| refusal("Abacus answered 400: it is malformed"))
    });
}

fn hour_of(usage: &Usage) -> Timestamp {
    Granularity::Hour.window_of(usage.end)
}

/// A span that began four hours before noon. The usage of its second hour was refused, and skipped; the rest is
/// sampled.
async fn skipped(world: &World) -> Interval {
    refuse_hour(world, -3 * HOUR);
    world.start("a", -4 * HOUR).await;
    let worker = world.run("w");
    world.until_suspended("a").await;
    let planned = world.kept("a").span.processing.planned.unwrap();
    world.skip("a").await;
    let is_sampled = || world.kept("a").span.sampled_to() == NOON;
    world.until("it is sampled on", is_sampled).await;
    worker.stop().await;
    planned.interval
}

#[tokio::test(start_paused = true)]
async fn what_is_skipped_is_not_posted_again_and_the_span_goes_on() {
    let world = World::new();
    let skipped = skipped(&world).await;
    let span = world.kept("a").span;
    let excluded = &span.processing.excluded;
    assert_eq!(excluded.len(), 1);
    assert_eq!(excluded[0].interval, skipped);
    assert!(!excluded[0].unanswered, "each post had an answer");
    let error = excluded[0].error.as_deref();
    assert_eq!(error, Some("Abacus answered 400: it is malformed"));
    assert_eq!(world.abacus.sum("a"), 3 * HOUR);
    let posts = world.abacus.post_count();
    assert_eq!(posts, 3 + 3, "three were refused");
    world.assert_ledger();
}

/// Sampling goes back over what never counted without a post. What is sent again is followed by its way back.
#[tokio::test(start_paused = true)]
async fn what_a_late_stop_trims_is_sent_with_its_way_back() {
    let world = World::new();
    skipped(&world).await;
    world.stop("a", -5 * HOUR / 2).await;
    let worker = world.run("w");
    world.until_complete("a").await;
    assert_eq!(world.abacus.sum("a"), HOUR);
    world.abacus.answer(|_| None);
    world.resend("a").await;
    assert!(!world.is_complete("a"));
    world.until_complete("a").await;
    worker.stop().await;
    assert_eq!(world.abacus.sum("a"), 3 * HOUR / 2);
    world.assert_ledger();
}

#[tokio::test(start_paused = true)]
async fn what_was_skipped_is_sent_again_with_the_same_bytes() {
    let world = World::new();
    skipped(&world).await;
    world.abacus.answer(|_| None);
    world.resend("a").await;
    let worker = world.run("w");
    let is_billed = || world.abacus.sum("a") == 4 * HOUR;
    world.until("it is billed", is_billed).await;
    worker.stop().await;
    let mut bodies = world.abacus.bodies("");
    assert_eq!(bodies.len(), 3 + 3 + 1);
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), 4, "the same bytes");
    assert!(world.kept("a").span.processing.excluded.is_empty());
    world.assert_ledger();
}

/// The plan waits for its cause to go; what is sent again does not.
#[tokio::test(start_paused = true)]
async fn it_is_sent_while_the_span_is_suspended() {
    let world = World::new();
    skipped(&world).await;
    refuse_hour(&world, 0);
    let worker = world.run("w");
    world.until_suspended("a").await;
    world.resend("a").await;
    world.pass(MINUTE).await;
    let span = world.kept("a").span;
    assert!(span.suspension().is_some() && span.processing.excluded.is_empty());
    assert_eq!(world.abacus.sum("a"), 4 * HOUR);
    let posts = world.abacus.post_count();
    world.pass(9 * MINUTE).await;
    assert_eq!(world.abacus.post_count(), posts, "the plan is not posted");
    worker.stop().await;
    world.assert_ledger();
}
