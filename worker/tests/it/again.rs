//! What was excluded is sent again: the same bytes, before anything else of the span.

use sampler_upstream::LookupAnswer;

use crate::abacus::{refusal, try_again};
use crate::skip::{counting, hour_of, refuse_hours, skipped};
use crate::world::{DAY, HOUR, MINUTE, World};

/// The durations that were posted for an hour, in their order.
fn posted(world: &World, hour: i64) -> Vec<i64> {
    let bodies = world.abacus.bodies("");
    let usages = bodies.iter().map(|body| {
        let usage: serde_json::Value = serde_json::from_str(body).unwrap();
        let end = sampler_domain::Timestamp::clamped(usage["end"].as_i64().unwrap());
        let measures = usage["measured_usage"].as_array().unwrap();
        let duration = measures.last().unwrap()["quantity"].as_i64().unwrap();
        (hour_of(end), duration)
    });
    let of_hour = usages.filter(|(of, _)| *of == hour);
    of_hour.map(|(_, duration)| duration).collect()
}

fn is_settled(world: &World) -> bool {
    let processing = world.kept("a").span.processing;
    processing.again.is_empty() && processing.planned.is_none()
}

#[tokio::test(start_paused = true)]
async fn what_was_skipped_is_sent_again_with_the_same_bytes() {
    let world = World::new();
    skipped(&world).await;
    world.abacus.answer(|_| None);
    world.resend("a").await;
    let worker = world.run("w");
    world.until("it is sent", || is_settled(&world)).await;
    worker.stop().await;
    assert_eq!(posted(&world, -3 * HOUR), [HOUR; 4]);
    let mut bodies = world.abacus.bodies("");
    bodies.sort_unstable();
    bodies.dedup();
    assert_eq!(bodies.len(), 4, "the same bytes");
    assert!(world.kept("a").span.processing.excluded.is_empty());
    assert_eq!(world.abacus.sum("a"), 4 * HOUR);
    world.assert_ledger();
}

/// Its way back follows, over what a late stop has trimmed.
#[tokio::test(start_paused = true)]
async fn what_a_stop_has_trimmed_is_sent_with_its_way_back() {
    for (end, back) in [(-5 * HOUR / 2, -HOUR / 2), (-7 * HOUR / 2, -HOUR)] {
        let world = World::new();
        skipped(&world).await;
        world.stop("a", end).await;
        let worker = world.run("w");
        world.until_complete("a").await;
        world.abacus.answer(|_| None);
        world.resend("a").await;
        assert!(!world.is_complete("a"));
        world.until_complete("a").await;
        worker.stop().await;
        assert_eq!(posted(&world, -3 * HOUR)[3..], [HOUR, back]);
        assert_eq!(world.abacus.sum("a"), 4 * HOUR + end);
        let hours = counting(&world);
        assert!(hours.values().all(|it| *it >= 0), "{hours:?}");
        world.assert_ledger();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_puts_it_back_and_a_failure_does_not() {
    let world = World::new();
    let interval = skipped(&world).await;
    world.abacus.answer_first([
        try_again("Abacus answered 503"),
        refusal("Abacus answered 422"),
    ]);
    let posts = world.abacus.post_count();
    world.resend("a").await;
    let worker = world.run("w");
    let is_back = || !world.kept("a").span.processing.excluded.is_empty();
    world.until("it is excluded again", is_back).await;
    assert_eq!(world.abacus.post_count(), posts + 2);
    let excluded = world.kept("a").span.processing.excluded;
    assert_eq!(excluded[0].interval, interval);
    assert_eq!(excluded[0].error.as_deref(), Some("Abacus answered 422"));
    assert!(excluded[0].unanswered, "the 503 may have been a gateway's");
    world.pass(10 * MINUTE).await;
    assert_eq!(world.abacus.post_count(), posts + 2);
    world.resend("a").await;
    world.until("it is sent", || is_settled(&world)).await;
    worker.stop().await;
    world.assert_ledger();
}

/// The plan waits for its cause to go; what is sent again does not.
#[tokio::test(start_paused = true)]
async fn it_is_sent_while_the_span_is_suspended() {
    let world = World::new();
    skipped(&world).await;
    refuse_hours(&world, &[0]);
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

/// It may be there from a post whose answer was lost.
#[tokio::test(start_paused = true)]
async fn where_the_upstream_forgets_it_is_looked_up_first() {
    for is_there in [true, false] {
        let world = World::new();
        world.abacus.forget_after(DAY);
        world.abacus.know(|_| LookupAnswer::NotFound);
        skipped(&world).await;
        world.abacus.answer(|_| None);
        if is_there {
            world.abacus.know(|_| LookupAnswer::Counts);
        }
        let posts = world.abacus.post_count();
        world.resend("a").await;
        let worker = world.run("w");
        world.until("it is settled", || is_settled(&world)).await;
        worker.stop().await;
        assert!(world.abacus.asked_count() > 0);
        let more = world.abacus.post_count() - posts;
        assert_eq!(more, usize::from(!is_there));
        assert_eq!(world.entries().len(), 4);
    }
}
