//! Clocks that disagree.

use sampler_testkit::abacus::Dates;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::json;

use crate::landscape::{HOUR, Landscape, MINUTE, PATIENCE, until_ready};

/// The value of a metric, if it is there.
async fn metric(world: &Landscape, program: &Program, name: &str) -> Option<f64> {
    let metrics = world.read(program, "/metrics").await;
    let value = |line: &str| line.strip_prefix(name)?.trim().parse().ok();
    metrics.lines().find_map(value)
}

/// A `Date` that is an hour old, as a cache gives it, is a warning. It stops nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_upstreams_clock_is_compared_and_stops_nothing() {
    let world = Landscape::new("clocks").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    world.abacus.date_answers(Dates::Off(-HOUR));
    let start = now_millis() - 6 * HOUR;
    for (path, event) in [
        ("/v1/events/start", start_event(1, start)),
        ("/v1/events/stop", stop_event(1, start + 6 * HOUR - MINUTE)),
    ] {
        world.take(&receiver, path, &event).await;
    }
    let worker = world.worker().start().await.unwrap();
    world.until_complete(1).await;
    assert_eq!(world.billed("instance-1"), i128::from(6 * HOUR - MINUTE));
    let told = json!({"healthy": true, "warnings": ["clock"]});
    wait_until("it is told", PATIENCE, async || {
        world.json(&worker, "/healthcheck").await == told
    })
    .await;
    let offset = metric(&world, &worker, "sampler_clock_offset_seconds").await;
    let offset = offset.expect("it is known");
    assert!((3_590.0..=3_610.0).contains(&offset), "{offset} s");
    let differ = "the clocks of the database and of the upstream differ";
    let line = &worker.until_logged(differ, 1).await[0];
    assert!(line["ahead_ms"].as_i64().unwrap() > 3_590_000, "{line}");
    for program in [&receiver, &worker] {
        let metrics = world.read(program, "/metrics").await;
        assert!(metrics.contains("sampler_build_info{"), "{metrics}");
        assert!(!metrics.contains("# EOF"), "{metrics}");
    }
}
