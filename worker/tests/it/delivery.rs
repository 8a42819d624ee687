//! What becomes of usages that Abacus does not take.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sampler_upstream::{Answer, LookupAnswer};
use sampler_worker::Parts;

use crate::abacus::{refusal, try_again};
use crate::clocks::ReportCount;
use crate::world::{HOUR, MINUTE, World, options, run_with};

/// Fault 1 of the original: one usage that Abacus refuses stopped all billing for ever.
#[tokio::test(start_paused = true)]
async fn fault_1_a_refused_usage_blocks_nobody_and_is_never_dropped() {
    let world = World::new();
    world.start("bad", -2 * HOUR).await;
    world.start_all("good", 30, -HOUR).await;
    world.abacus.answer(|usage| {
        (usage.target.resource_instance_id.as_str() == "bad")
            .then(|| refusal("Abacus answered 400: no mapping"))
    });
    let worker = world.run("w");
    world.pass(MINUTE).await;
    for number in 0..30 {
        assert_eq!(world.abacus.sum(&format!("good {number}")), HOUR);
    }
    let bad = world.kept("bad").span;
    assert_eq!(bad.sampled_to(), bad.start, "not counted as done");
    let failure = bad.processing.failure.unwrap();
    assert_eq!(failure.error, "Abacus answered 400: no mapping");
    // The mapping is sent; now Abacus accepts the usage, and the rest with it.
    world.abacus.answer(|_| None);
    world
        .until("it is through", || world.abacus.sum("bad") == 2 * HOUR)
        .await;
    assert_eq!(world.kept("bad").span.processing.failure, None);
    worker.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_span_waits_longer_each_time_with_the_same_bytes() {
    let world = World::new();
    world.start("i", -HOUR).await;
    world.stop("i", 0).await;
    world
        .abacus
        .answer_first(vec![try_again("connection lost"); 8]);
    let worker = world.run("w");
    world.until_complete("i").await;
    let posts = world.abacus.posts.lock().unwrap().clone();
    assert_eq!(posts.len(), 9);
    assert!(posts.iter().all(|(_, body)| *body == posts[0].1));
    let waits: Vec<u64> = posts
        .windows(2)
        .map(|pair| (pair[1].0 - pair[0].0).as_secs())
        .collect();
    // 1 s, doubled up to 60 s, less up to half, plus up to 1 s until the next poll.
    for (attempt, wait) in waits.iter().enumerate() {
        let whole = (1_u64 << attempt).min(60);
        assert!(
            (whole / 2..=whole + 1).contains(wait),
            "wait {attempt} of {waits:?}"
        );
    }
    worker.stop().await;
}

fn found(is_there: bool) -> LookupAnswer {
    if is_there {
        LookupAnswer::Counts
    } else {
        LookupAnswer::NotFound
    }
}

/// A 409 may say that the usage is there, or that it conflicts with another one.
#[tokio::test(start_paused = true)]
async fn a_409_is_an_acceptance_only_where_the_usage_is_found_then() {
    for is_there in [true, false] {
        let world = World::new();
        world.start("i", -HOUR).await;
        world.stop("i", 0).await;
        world.abacus.find_by_id();
        world.abacus.know(move |_| found(is_there));
        *world.abacus.status.lock().unwrap() = Some(409);
        world.abacus.answer(|_| Some(refusal("a conflict")));
        let worker = world.run("w");
        world.pass(MINUTE).await;
        assert!(world.abacus.asked_count() > 0);
        assert_eq!(world.is_complete("i"), is_there);
        worker.stop().await;
    }
}

/// A gateway that loses the answer of the upstream sends one of its own, with whatever body.
#[tokio::test(start_paused = true)]
async fn a_usage_may_count_after_a_5xx_whatever_is_refused_later() {
    let world = World::new();
    world.start("i", -HOUR).await;
    *world.abacus.status.lock().unwrap() = Some(500);
    world
        .abacus
        .answer_first([try_again("Internal Server Error"), refusal("no mapping")]);
    let worker = world.run("w");
    let has_failed_twice = || world.kept("i").span.attempts() > 1;
    world.until("it is refused", has_failed_twice).await;
    let planned = world.kept("i").span.processing.planned;
    assert!(planned.unwrap().unanswered);
    worker.stop().await;
}

/// A 429 counts for all spans: there is no post before its time is over.
/// Fault 16 of the original: while it waited as told it turned unhealthy.
#[tokio::test(start_paused = true)]
async fn fault_16_a_429_holds_everybody_back_for_as_long_as_it_says() {
    let world = World::new();
    world.start_all("i", 20, -HOUR).await;
    let after = Duration::from_mins(10);
    world.abacus.answer_first([Answer::Wait { after }]);
    let reports = Arc::new(ReportCount::default());
    let parts = Parts {
        processing_progress: reports.clone(),
        ..world.parts()
    };
    let worker = run_with(parts, options("w"));
    world.pass(590_000).await;
    let reported = reports.0.load(Ordering::Relaxed);
    assert!(reported >= 100, "who waits as told is well: {reported}");
    // Those that were on their way when the answer came.
    let before = world.abacus.post_count();
    assert!(before <= 4, "{before} posts");
    world.pass(20_000).await;
    for number in 0..20 {
        let instance = format!("i {number}");
        assert_eq!(world.abacus.sum(&instance), HOUR);
        assert_eq!(world.kept(&instance).span.attempts(), 0);
    }
    worker.stop().await;
}

/// An upstream may throttle one customer: as many of its spans as there are permits leave room for others.
#[tokio::test(start_paused = true)]
async fn spans_that_are_throttled_for_ever_let_others_through() {
    let world = World::new();
    for id in ["a", "b"] {
        world.start(id, -2 * HOUR).await;
    }
    world.start("z", -HOUR).await;
    let after = Duration::from_secs(5);
    world.abacus.answer(move |usage| {
        let instance = usage.target.resource_instance_id.as_str();
        (instance != "z").then_some(Answer::Wait { after })
    });
    let mut options = options("w");
    options.settings.processing.concurrency = 2;
    let worker = run_with(world.parts(), options);
    world
        .until("it is through", || world.abacus.sum("z") == HOUR)
        .await;
    assert_eq!(world.abacus.sum("a") + world.abacus.sum("b"), 0);
    worker.stop().await;
}

/// The limit is what fits into the slack of a month: an hour would not.
#[tokio::test(start_paused = true)]
async fn a_503_may_say_how_long_to_wait_up_to_the_limit_of_retries() {
    for (says, waits) in [(30, 30), (3_600, 60)] {
        let world = World::new();
        world.start("i", -HOUR).await;
        world.abacus.answer_first([Answer::TryAgain {
            after: Some(Duration::from_secs(says)),
            error: "busy".into(),
        }]);
        let worker = world.run("w");
        world
            .until("it is through", || world.abacus.sum("i") == HOUR)
            .await;
        worker.stop().await;
        let posts = world.abacus.posts.lock().unwrap();
        let waited = (posts[1].0 - posts[0].0).as_secs();
        assert!((waits..=waits + 1).contains(&waited), "{waited} s");
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_upstream_forgets_nothing_is_posted_by_what_was_read_long_ago() {
    let world = World::new();
    world.abacus.forget_after(24 * HOUR);
    world.abacus.know(|_| found(false));
    world.start("a", -HOUR).await;
    let after = Duration::from_mins(20);
    world.abacus.answer_first([Answer::Wait { after }]);
    let worker = world.run("w");
    world
        .until("it waits", || world.abacus.post_count() == 1)
        .await;
    // Another worker has dealt with it.
    let mut span = world.kept("a").span;
    let planned = span.processing.planned.take().unwrap();
    span.processing.last = planned.interval;
    span.processing.version += 1;
    world.store.put(span);
    world.pass(HOUR / 2).await;
    worker.stop().await;
    assert_eq!(world.abacus.bodies(&planned.usage_guid).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_finishes_what_is_in_flight_and_takes_nothing_new_on() {
    let world = World::new();
    world.start_all("i", 40, -10 * HOUR).await;
    *world.abacus.latency.lock().unwrap() = Duration::from_secs(3);
    let worker = world.run("w");
    world.pass(10_000).await;
    worker.stop().await;
    assert!(world.began.elapsed() <= Duration::from_secs(13));
    // Each usage that was taken is noted on its span.
    for kept in world.store.all() {
        let instance = kept.span.target.resource_instance_id.as_str().to_owned();
        let noted = kept.span.sampled_to().since(kept.span.start);
        assert_eq!(world.abacus.sum(&instance), noted, "{instance}");
    }
}
