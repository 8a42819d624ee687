//! An Abacus that is away, slow, or of another mind.

use std::time::Instant;

use sampler_testkit::abacus::Fault;
use sampler_testkit::build::{start_event, stop_event, with};
use sampler_testkit::{now_millis, wait_until};

use crate::landscape::{DAY, HOUR, Landscape, PATIENCE, status, until_ready};

/// Starts and stops `count` targets, each a day long.
async fn a_day_each(world: &Landscape, count: u64) {
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let start = now_millis() - 2 * DAY;
    for target in 0..count {
        world
            .take(&receiver, "/v1/events/start", &start_event(target, start))
            .await;
        world
            .take(
                &receiver,
                "/v1/events/stop",
                &stop_event(target, start + DAY),
            )
            .await;
    }
}

fn assert_a_day_each(world: &Landscape, count: u64) {
    for target in 0..count {
        assert_eq!(
            world.billed(&format!("instance-{target}")),
            i128::from(DAY),
            "{target}"
        );
    }
}

/// Fault 2 of the original: there was no time limit on posts.
#[tokio::test(flavor = "multi_thread")]
async fn fault_2_an_abacus_that_hangs_holds_nothing_up_for_ever() {
    let world = Landscape::new("hang").await;
    a_day_each(&world, 5).await;
    world.abacus.fault(Fault::hang().times(20));
    let worker = world
        .worker()
        .env("SAMPLER_POST_TIMEOUT", "300ms")
        .start()
        .await
        .unwrap();
    world.until_complete(5).await;
    assert_a_day_each(&world, 5);
    assert!(!worker.logs_of("a usage could not be delivered").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_lost_and_an_abacus_that_restarts_bill_nothing_twice() {
    let world = Landscape::new("lost").await;
    a_day_each(&world, 10).await;
    world.abacus.fault(Fault::lose_answer().times(12));
    let worker = world.worker().start().await.unwrap();
    wait_until("answers are lost", PATIENCE, async || {
        world.abacus.counted_count() >= 10
    })
    .await;
    world.abacus.go_away().await;
    wait_until("nothing is taken", PATIENCE, async || {
        worker.logs_of("a usage could not be delivered").len() >= 14
    })
    .await;
    world.abacus.come_back().await.unwrap();
    world.until_complete(10).await;
    assert_a_day_each(&world, 10);
    assert!(world.abacus.post_count() > world.abacus.counted_count());
}

/// Fault 1 of the original: what Abacus refuses stopped all billing for ever.
#[tokio::test(flavor = "multi_thread")]
async fn fault_1_a_plan_without_mapping_blocks_nobody_and_is_billed_once_it_has_one() {
    let world = Landscape::new("refused").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let start = now_millis() - 2 * DAY;
    let unmapped = |event| with(event, "plan_id", "unmapped");
    world
        .take(
            &receiver,
            "/v1/events/start",
            &unmapped(start_event(99, start)),
        )
        .await;
    world
        .take(
            &receiver,
            "/v1/events/stop",
            &unmapped(stop_event(99, start + HOUR)),
        )
        .await;
    world
        .abacus
        .fault(Fault::status(400).only_where("plan_id", "unmapped"));
    a_day_each(&world, 8).await;
    let worker = world.worker().env("SAMPLER_PROBE_INTERVAL", "1s");
    let worker = worker.start().await.unwrap();
    world.until_complete(8).await;
    assert_a_day_each(&world, 8);
    let span = bson::doc! { "target.plan_id": "unmapped" };
    let span = world.spans().await.find_one(span).await.unwrap().unwrap();
    let processing = span.get_document("processing").unwrap();
    let error = processing.get_document("last_error").unwrap();
    assert_eq!(error.get_i32("status").unwrap(), 400, "{error}");
    assert!(processing.contains_key("refused_at"), "{processing}");
    assert_eq!(status(&world.http, &worker, "/healthz/ready").await, 200);
    world.abacus.clear_faults();
    world.until_complete(9).await;
    assert_eq!(world.billed("instance-99"), i128::from(HOUR));
}

/// Fault 16 of the original: while it waited as told it turned unhealthy.
#[tokio::test(flavor = "multi_thread")]
async fn fault_16_a_worker_that_waits_as_told_is_well() {
    let world = Landscape::new("busy").await;
    a_day_each(&world, 5).await;
    world
        .abacus
        .fault(Fault::status_retry_after(429, "8").times(1));
    let worker = world
        .worker()
        .env("SAMPLER_POST_TIMEOUT", "1s")
        .env("PROCESS_SPANS_MONITOR_THRESHOLD", "6s")
        .start()
        .await
        .unwrap();
    wait_until("it was told to wait", PATIENCE, async || {
        !worker.logs_of("Abacus asks to wait").is_empty()
    })
    .await;
    let deadline = Instant::now() + PATIENCE;
    while world.abacus.counted_count() < 50 {
        assert_eq!(status(&world.http, &worker, "/healthz/ready").await, 200);
        assert!(Instant::now() < deadline, "it never goes on");
    }
    world.until_complete(5).await;
    assert_a_day_each(&world, 5);
}
