//! The feed of a Cloud Foundry, from its usage events to the usages at Abacus, with the real programs.

mod foundation;
mod hostile;

use std::fs;
use std::path::Path;
use std::time::Duration;

use sampler_testkit::cloud_foundry::{CLIENT, Events, Fault};
use sampler_testkit::program::{CLI, binary};
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::landscape::{HOUR, MINUTE, PATIENCE};
use crate::secured::secured;
use foundation::{Foundation, counts, second};

#[tokio::test(flavor = "multi_thread")]
async fn each_millisecond_of_a_foundation_reaches_abacus_through_every_fault() {
    let foundation = Foundation::new("feed_bill").await;
    let worker = foundation.world.worker().start().await.unwrap();
    let now = second(now_millis());
    {
        let mut world = foundation.platform.world();
        world.rows_per_page = Some(5);
        world.create("db", "s", "postgres", "small", now - 30 * HOUR);
        world.start("web", "shop", "s", (512, 2), now - 28 * HOUR);
        world.stage("web", "STAGING_STARTED", now - 28 * HOUR);
        world.scale("web", 512, 4, now - 20 * HOUR);
        world.create_user_provided("own", "s", now - 20 * HOUR);
        world.change_plan("db", "large", now - 19 * HOUR);
        world.rename("db", now - 18 * HOUR);
        world.start_task("job", "shop", "s", 256, now - 10 * HOUR);
        world.end_task("job", now - 9 * HOUR - 7_000);
        world.scale("web", 1_024, 4, now - 8 * HOUR);
        // Its clock is behind: it is dated like the scaling before.
        world.stop("web", now - 8 * HOUR - 2_000);
        world.restart("web", now - 6 * HOUR);
        world.was_running("web", now - 5 * HOUR);
        world.scale("web", 1_024, 0, now - 4 * HOUR);
        world.stop("web", now - 3 * HOUR);
        world.delete("db", now - 2 * HOUR);
    }
    foundation.platform.faults(&[
        Fault::Gateway(502),
        Fault::RateLimit(1),
        Fault::Cut,
        Fault::Expired,
        Fault::Twice,
    ]);
    let before = foundation.platform.asked().len();
    let report = foundation.once(0, &[]).await;
    assert_eq!(foundation.platform.faults_left(), 0);
    // The platform's own order is the one that `after_guid` goes by; and pages count rows, which go.
    let asked = foundation.platform.asked().split_off(before);
    let mut of_events = asked.iter().filter(|it| it.contains("usage_events?"));
    assert!(of_events.all(|it| it.contains("per_page=5000")
        && !it.contains("order_by")
        && !it.contains("&page=")));
    assert_eq!(report["unknown"], json!([]), "{report:#}");
    assert_eq!(counts(&report), [4, 4, 4, 0], "{report:#}");
    for kind in ["STAGING_STARTED", "WAS_RUNNING"] {
        assert_eq!(report["ignored"][kind], 1, "{report:#}");
    }
    foundation.world.until_complete(8).await;

    let of = |instance: &str, plan: &str, measure: &str| foundation.billed(instance, plan, measure);
    let hours = |count: i64| i128::from(count * HOUR);
    assert_eq!(of("db", "small", "duration"), hours(11));
    assert_eq!(of("db", "large", "instances"), hours(17));
    assert_eq!(of("job", "basic", "memory_mb"), (hours(1) - 7_000) * 256);
    assert_eq!(of("web", "basic", "duration"), hours(20 + 3));
    let memory = hours(8) * 1_024 + hours(12) * 2_048 + hours(2) * 4_096;
    assert_eq!(of("web", "basic", "memory_mb"), memory);
    let instances = hours(8) * 2 + hours(12) * 4 + hours(2) * 4;
    assert_eq!(of("web", "basic", "instances"), instances);
    foundation.world.assert_ledger().await;

    let again = foundation.once(0, &[]).await;
    assert_eq!(again["read"], 0, "{again:#}");
    let spans = foundation.spans("web").await;
    assert_eq!(spans[0]["target"]["consumer_id"], "app:shop", "{spans:#?}");
    assert_eq!(spans[0]["target"]["resource_id"], "linux-container");
    assert_eq!(foundation.spans("own").await, [json!(null); 0]);
    drop(worker);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_run_takes_what_runs_and_says_what_it_cannot_know() {
    let foundation = Foundation::unread("feed_first").await;
    let now = second(now_millis());
    let made = now - 50 * HOUR;
    {
        let mut world = foundation.platform.world();
        world.create("db", "s", "postgres", "small", made);
        world.start("web", "shop", "s", (512, 2), made);
        world.start("off", "other", "s", (512, 2), made);
        world.stop("off", now - 40 * HOUR);
        world.start_task("job", "shop", "s", 64, made);
        world.prune(now - HOUR);
        // Young: left to its event, which is exact.
        world.start("new", "shop", "s", (128, 1), now + 5 * MINUTE);
    }
    // Another broker's span of the same resource, and another foundation's.
    for (name, consumer) in [("mine", "broker"), ("theirs", "service:theirs")] {
        let event = json!({
            "type": "start", "id": name, "timestamp": made, "organization_id": "elsewhere",
            "space_id": "x", "consumer_id": consumer, "resource_id": "postgres",
            "plan_id": "small", "resource_instance_id": name, "measured_usage": [],
        });
        foundation
            .world
            .post(&foundation.receiver, "/v1/events", &json!([event]))
            .await;
    }
    let dry = foundation.run(&["--dry-run"]).await;
    assert_eq!(dry.code, 0, "{}", dry.errors);
    assert_eq!(dry.output.lines().count(), 3, "{}", dry.output);
    assert!(
        !foundation.state().exists(),
        "a dry run leaves the state alone"
    );
    assert!(foundation.spans("db").await.is_empty());

    let report = foundation.once(0, &[]).await;
    assert_eq!(report["read"], 0, "{report:#}");
    let unknown = report["unknown"].as_array().unwrap();
    assert_eq!(unknown.len(), 3, "{report:#}");
    for one in unknown {
        let instance = one["target"]["resource_instance_id"].as_str().unwrap();
        assert!(["db", "web", "job"].contains(&instance), "{one}");
        assert_eq!(
            (&one["what"], &one["from"]),
            (&json!("start"), &json!(made))
        );
        let spans = foundation.spans(instance).await;
        assert_eq!(spans.len(), 1);
        assert_eq!(spans[0]["start"], one["to"]);
        assert!(one["to"].as_i64().unwrap() >= now);
    }
    for name in ["mine", "theirs"] {
        let spans = foundation.spans(name).await;
        assert!(spans[0]["end"].is_null(), "{name} is not this foundation's");
    }
    assert!(foundation.spans("new").await.is_empty(), "it is too young");
    assert!(foundation.spans("off").await.is_empty());
    let again = foundation.once(0, &[]).await;
    assert_eq!(again["unknown"], json!([]), "{again:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_are_filled_and_their_bounds_said() {
    let foundation = Foundation::new("feed_holes").await;
    let now = second(now_millis());
    let began = now - 30 * HOUR;
    {
        let mut world = foundation.platform.world();
        for guid in ["kept", "gone", "grown"] {
            world.start(guid, guid, "s", (64, 1), began);
        }
        world.create("db", "s", "postgres", "small", began);
        world.start_task("job", "kept", "s", 64, began);
    }
    let report = foundation.once(0, &[]).await;
    assert_eq!(counts(&report), [5, 0, 0, 0], "{report:#}");
    {
        // What nobody will read: the cursor is pruned with it.
        let mut world = foundation.platform.world();
        world.stop("gone", now - 20 * HOUR);
        world.scale("grown", 64, 3, now - 19 * HOUR);
        world.stage("kept", "BUILDPACK_SET", now - 18 * HOUR);
        world.prune(now - 18 * HOUR);
        world.rename_plan("postgres-small", "tiny");
    }
    let report = foundation.once(0, &[]).await;
    let unknown = report["unknown"].as_array().unwrap();
    let of = |instance: &str| -> Vec<&Value> {
        let is_of = |one: &&Value| one["target"]["resource_instance_id"] == instance;
        unknown.iter().filter(is_of).collect()
    };
    assert_eq!(unknown.len(), 3, "{report:#}");
    let gone = of("gone")[0];
    assert_eq!(
        (&gone["what"], &gone["from"]),
        (&json!("end"), &json!(began))
    );
    assert_eq!(foundation.spans("gone").await[0]["end"], gone["to"]);
    // It has changed at some time: one interval has ended, and another begun.
    let spans = foundation.spans("grown").await;
    assert_eq!(spans.len(), 2);
    for (one, what) in of("grown").into_iter().zip(["end", "start"]) {
        assert_eq!((&one["what"], &one["from"]), (&json!(what), &json!(began)));
        assert_eq!(one["to"], spans[1]["start"]);
    }
    assert_eq!(foundation.spans("kept").await.len(), 1);

    // Twice purged and reseeded: the second time the cursor's guid is there again.
    for round in 0..2 {
        let at = now - 2 * HOUR + round * HOUR;
        foundation.platform.world().reseed(Events::Apps, at);
        foundation.platform.world().reseed(Events::Services, at);
        if round == 1 {
            foundation.platform.world().stop("kept", at + 1_000);
            let mut world = foundation.platform.world();
            world.reseed(Events::Apps, at + 2_000);
            world.delete("db", at + 3_000);
        }
        let report = foundation.once(0, &[]).await;
        assert_eq!(report["refused"], 0, "{report:#}");
        let unknown = report["unknown"].as_array().unwrap();
        assert_eq!(unknown.len(), usize::from(round == 1) * 2, "{report:#}");
    }
    assert!(!foundation.spans("kept").await[0]["end"].is_null());
    let spans = foundation.spans("db").await;
    assert_eq!(spans.len(), 1, "a new name is not a change: {spans:#?}");
    assert!(!spans[0]["end"].is_null());

    // The start of the task is no longer in the table, so its end is not told.
    foundation.platform.world().end_task("job", now - HOUR);
    let report = foundation.once(0, &[]).await;
    assert_eq!(report["unknown"][0]["to"], now - HOUR, "{report:#}");
    assert_eq!(foundation.spans("job").await[0]["end"], now - HOUR);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_state_what_no_longer_runs_is_ended() {
    let foundation = Foundation::new("feed_lost").await;
    let now = second(now_millis());
    let began = now - 30 * HOUR;
    {
        let mut world = foundation.platform.world();
        world.start("web", "of-web", "s", (64, 1), began);
        world.start("runs", "of-runs", "s", (64, 1), began);
        // Of this resource nothing will run any more.
        world.create("db", "s", "postgres", "small", began);
    }
    let report = foundation.once(0, &[]).await;
    assert_eq!(counts(&report), [3, 0, 0, 0], "{report:#}");
    // A span of an organization that this platform does not have, in the form of a feed's.
    let theirs = json!({
        "type": "start", "id": "theirs", "timestamp": began, "organization_id": "elsewhere",
        "space_id": "x", "consumer_id": "app:theirs", "resource_id": "linux-container",
        "plan_id": "basic", "resource_instance_id": "theirs", "measured_usage": [],
    });
    foundation
        .world
        .post(&foundation.receiver, "/v1/events", &json!([theirs]))
        .await;
    fs::remove_file(foundation.state()).unwrap();
    {
        let mut world = foundation.platform.world();
        world.stop("web", now - 20 * HOUR);
        world.delete("db", now - 20 * HOUR);
    }
    let ended = foundation.run(&["--once"]).await;
    assert_eq!(ended.code, 0, "{}{}", ended.errors, ended.output);
    assert!(ended.output.contains(" unknown;"), "{}", ended.output);
    for instance in ["web", "db"] {
        let spans = foundation.spans(instance).await;
        assert_eq!(spans.len(), 1, "{spans:#?}");
        assert!(spans[0]["end"].as_i64() >= Some(now), "{spans:#?}");
        let mut lines = ended.output.lines();
        let line = lines.find(|line| line.contains(&format!("/{instance} ")));
        assert!(line.unwrap().contains("end"), "{}", ended.output);
    }
    let spans = foundation.spans("runs").await;
    assert_eq!(spans.len(), 1, "{spans:#?}");
    assert!(spans[0]["end"].is_null());
    assert!(foundation.spans("theirs").await[0]["end"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_feed_has_found_is_told_by_the_next() {
    let foundation = Foundation::unread("feed_told").await;
    let now = second(now_millis());
    {
        let mut world = foundation.platform.world();
        world.start("web", "shop", "s", (64, 1), now - 30 * HOUR);
        world.stage("web", "BUILDPACK_SET", now - HOUR);
        world.prune(now - 2 * HOUR);
    }
    let feed = foundation.follow(&[]).await;
    wait_until("it is in the log", PATIENCE, async || {
        let lines = feed.lines();
        let mut lines = lines.iter();
        lines.any(|line| line.contains("the start of") && line.contains("is not recorded"))
    })
    .await;
    feed.kill().unwrap();
    feed.wait_exit(PATIENCE).await.unwrap();
    let report = foundation.once(0, &[]).await;
    assert_eq!(report["read"], 0, "{report:#}");
    assert_eq!(report["unknown"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(report["unknown"][0]["what"], "start");
    let again = foundation.once(0, &[]).await;
    assert_eq!(again["unknown"], json!([]), "{again:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_anywhere_it_continues_without_loss_and_without_a_second_bill() {
    let foundation = Foundation::new("feed_kill").await;
    let now = second(now_millis());
    let processes = 60;
    {
        let mut world = foundation.platform.world();
        world.rows_per_page = Some(7);
        for number in 0..processes {
            let (guid, at) = (format!("p-{number}"), now - 20 * HOUR + number * 1_000);
            world.start(&guid, "shop", "s", (64, 1), at);
        }
        for number in 0..processes {
            let (guid, at) = (format!("p-{number}"), now - 10 * HOUR + number * 1_000);
            world.scale(&guid, 128, 1, at);
            world.stop(&guid, at + HOUR);
        }
    }
    let mapping = foundation.folder.path().join("mapping.toml");
    for kill in 0..25 {
        // A mapping that changes is not a change of what was started, nor of what was sent.
        write(
            &mapping,
            &format!("[[processes]]\nplan_id = \"plan-{kill}\"\n"),
        );
        let feed = foundation
            .follow(&["--mapping", mapping.to_str().unwrap()])
            .await;
        let asked = foundation.platform.asked().len();
        wait_until("it asks", PATIENCE, async || {
            foundation.platform.asked().len() > asked + kill % 13
        })
        .await;
        feed.kill().unwrap();
    }
    foundation
        .once(0, &["--mapping", mapping.to_str().unwrap()])
        .await;
    let mut used = 0;
    for number in 0..processes {
        let spans = foundation.spans(&format!("p-{number}")).await;
        assert_eq!(spans.len(), 2, "{spans:#?}");
        let plan = |span: &Value| span["target"]["plan_id"].clone();
        assert_eq!(plan(&spans[0]), plan(&spans[1]));
        assert_eq!(spans[0]["end"], spans[1]["start"]);
        let length = |span: &Value| span["end"].as_i64().unwrap() - span["start"].as_i64().unwrap();
        used += length(&spans[0]) + length(&spans[1]);
    }
    assert_eq!(used, processes * 11 * HOUR);
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_kept_aside_and_the_feed_goes_on() {
    let foundation = Foundation::new("feed_refused").await;
    let now = second(now_millis());
    {
        let mut world = foundation.platform.world();
        // Older than the receiver takes.
        world.start("old", "shop", "s", (64, 1), now - 70 * 24 * HOUR);
        world.stop("old", now - 69 * 24 * HOUR);
        world.start("new", "shop", "s", (64, 1), now - HOUR);
    }
    let report = foundation.once(1, &["--only", "apps"]).await;
    assert_eq!(counts(&report), [1, 0, 0, 2], "{report:#}");
    let kept = foundation.folder.path().join("refused.ndjson");
    let kept = fs::read_to_string(kept).unwrap();
    let lines = kept.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["event"]["resource_instance_id"], "old");
    assert!(lines[0]["status"].as_u64().unwrap() >= 400);
    assert!(lines[0]["problem"]["detail"].is_string(), "{kept}");
    assert_eq!(foundation.spans("new").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secured_receiver_takes_the_tokens_of_the_platforms_uaa() {
    let mut foundation = Foundation::unread("feed_secured").await;
    let uaa = &foundation.platform.uaa;
    uaa.add_client("feed", "feed-secret", &["abacus.sampler.write"]);
    let launch = secured(foundation.world.receiver(), uaa);
    foundation.receiver = foundation.world.ready(launch).await;
    let began = second(now_millis()) - HOUR;
    let world = || foundation.platform.world();
    world().start("web", "shop", "s", (64, 1), began);
    let mut command = Command::new(binary(CLI).await.unwrap());
    command.args(foundation.arguments(&["--once", "--client-id", "feed"]));
    command.env_clear();
    command.env("SAMPLER_CF_CLIENT_SECRET", CLIENT.1);
    command.env("SAMPLER_CLIENT_SECRET", "feed-secret");
    let output = command.output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let spans = foundation.world.spans().await;
    assert_eq!(spans.count_documents(bson::doc! {}).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_that_runs_on_is_measured_and_stops_cleanly() {
    let foundation = Foundation::new("feed_follow").await;
    let feed = foundation.follow(&["--metrics-port", "0"]).await;
    wait_until("it says where its metrics are", PATIENCE, async || {
        metrics(&feed).is_some()
    })
    .await;
    let url = metrics(&feed).unwrap();
    let at = second(now_millis());
    {
        let mut world = foundation.platform.world();
        world.start("late", "shop", "s", (64, 1), at);
        world.start("web", "shop", "s", (64, 1), at);
    }
    wait_until("both run", PATIENCE, async || {
        foundation.spans("late").await.len() + foundation.spans("web").await.len() == 2
    })
    .await;
    let answer = foundation.world.http.get(url).send().await.unwrap();
    let text = answer.text().await.unwrap();
    let counted = "sampler_feed_events_total{kind=\"STARTED\",outcome=\"started\"} 2";
    assert!(text.contains(counted), "{text}");
    assert!(text.contains("\nsampler_feed_lag_seconds "), "{text}");
    feed.sigterm().unwrap();
    assert_eq!(feed.wait_exit(Duration::from_secs(8)).await.unwrap(), 0);
    assert_eq!(foundation.once(0, &[]).await["read"], 0);
}

fn metrics(feed: &Program) -> Option<String> {
    let lines = feed.lines();
    let mut lines = lines.iter();
    lines.find_map(|line| line.strip_prefix("metrics on ").map(str::to_owned))
}
