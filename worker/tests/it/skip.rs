//! What an operator skips is not posted any more, and counts as sampled; nothing is taken back that never
//! counted.

use std::collections::BTreeMap;

use sampler_domain::{Granularity, Interval, Timestamp};
use sampler_upstream::Answer;

use crate::abacus::{duration, refusal};
use crate::world::{HOUR, NOON, World};

/// Abacus refuses all usages of hours that begin so late after noon.
pub(crate) fn refuse_hours(world: &World, hours: &'static [i64]) {
    world.abacus.answer(move |usage| {
        let hour = hour_of(usage.end);
        hours
            .contains(&hour)
            .then(|| refusal("Abacus answered 400: it is malformed"))
    });
}

pub(crate) fn hour_of(time: Timestamp) -> i64 {
    Granularity::Hour.window_of(time).since(NOON)
}

/// What counts in each hour by now, ms.
pub(crate) fn counting(world: &World) -> BTreeMap<i64, i64> {
    let mut hours = BTreeMap::new();
    for usage in world.abacus.counted.lock().unwrap().values() {
        *hours.entry(hour_of(usage.end)).or_default() += duration(usage);
    }
    hours
}

/// A span that began four hours before noon. The usage of its second hour was refused, and skipped; the rest is
/// sampled.
pub(crate) async fn skipped(world: &World) -> Interval {
    refuse_hours(world, &[-3 * HOUR]);
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

/// The way back over what never counted posts nothing, and no hour stands below zero.
#[tokio::test(start_paused = true)]
async fn a_stop_before_within_and_behind_what_is_skipped_takes_back_what_counts() {
    for (end, counts, back_to) in [
        (-7 * HOUR / 2, HOUR / 2, Some(-3 * HOUR)),
        (-5 * HOUR / 2, HOUR, Some(-5 * HOUR / 2)),
        (-3 * HOUR / 2, 3 * HOUR / 2, None),
    ] {
        let world = World::new();
        skipped(&world).await;
        world.stop("a", end).await;
        let worker = world.run("w");
        world.until_complete("a").await;
        worker.stop().await;
        assert_eq!(world.abacus.sum("a"), counts);
        let hours = counting(&world);
        assert!(hours.values().all(|it| *it >= 0), "{hours:?}");
        let excluded = &world.kept("a").span.processing.excluded[0];
        assert_eq!(excluded.back_to, back_to.map(|it| NOON.plus(it)));
        world.assert_ledger();
    }
}

/// An answer that was lost may have been an acceptance.
#[tokio::test(start_paused = true)]
async fn what_had_no_answer_is_skipped_with_a_flag() {
    let world = World::new();
    world.start("a", -HOUR).await;
    let mut posts = 0;
    world.abacus.answer(move |_| {
        posts += 1;
        Some(match posts {
            1 => Answer::TryAgain {
                after: None,
                error: "connection lost".to_owned(),
            },
            _ => refusal("Abacus answered 400"),
        })
    });
    let worker = world.run("w");
    world.until_suspended("a").await;
    world.skip("a").await;
    worker.stop().await;
    assert!(world.kept("a").span.processing.excluded[0].unanswered);
}
