//! The command line of the programs, and the environment that an operator of the original has.

use std::process::Output;

use bson::doc;
use sampler_testkit::build::start_event;
use sampler_testkit::{now_millis, wait_until};
use serde_json::json;
use tokio::process::Command;

use crate::landscape::{Landscape, PATIENCE, until_ready};

pub(crate) async fn run(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let path = sampler_testkit::program::binary(program).await.unwrap();
    let mut command = Command::new(path);
    command
        .env_clear()
        .envs(environment.iter().copied())
        .args(arguments);
    command.output().await.unwrap()
}

#[tokio::test]
async fn secrets_are_never_printed() {
    let environment = [
        ("COLLECTOR_URL", "http://localhost:1"),
        ("DB_URI", "mongodb://user:hush@localhost/db"),
        ("CLIENT_SECRET", "hush"),
        ("JWTKEY", "hush"),
    ];
    for program in ["sampler-receiver", "sampler-worker"] {
        let printed = run(program, &["--print-config"], &environment).await;
        assert!(printed.status.success());
        let text = String::from_utf8(printed.stdout).unwrap();
        assert!(!text.contains("hush"), "{text}");
        assert!(text.contains("<hidden>"));
        let checked = run(program, &["--check-config"], &environment).await;
        assert!(checked.status.success());
        let text = String::from_utf8(checked.stdout).unwrap();
        assert!(!text.contains("hush"), "{text}");
        let database = "database      localhost, database db, collection spans (the environment \
                        variable DB_URI)";
        assert!(collapsed(&text).contains(&collapsed(database)), "{text}");
    }
}

/// A text with single spaces.
fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Nothing is set, and both would start: so they say what they would do without.
#[tokio::test]
async fn a_check_says_what_will_be_used_and_what_is_missing() {
    let checked = run("sampler-receiver", &["--check-config"], &[]).await;
    let receiver = collapsed(&String::from_utf8(checked.stdout).unwrap());
    let collector = [("COLLECTOR_URL", "http://abacus.example/")];
    let checked = run("sampler-worker", &["--check-config"], &collector).await;
    let worker = collapsed(&String::from_utf8(checked.stdout).unwrap());
    let database = "database localhost:27017, database sampler, collection spans (the default)";
    for (text, lines) in [
        (
            &receiver,
            [
                "sampler-receiver: the settings are fine listens on 127.0.0.1, port 7070 (the default)",
                database,
                "callers no tokens: everybody who reaches it may send events; SECURED is false",
                "mappings are answered 502: PROVISIONING_URL is not set",
                "granularity not known, so no dry runs: SAMPLER_DIMENSION is not set",
            ],
        ),
        (
            &worker,
            [
                "sampler-worker: the settings are fine listens on 127.0.0.1, port 7071 (the default)",
                database,
                "collector http://abacus.example/ calls no tokens: SECURED is false",
                "granularity day (the default) month closes 10m into the next one (the default)",
                "confirmation the upstream is not asked whether accepted usages count",
            ],
        ),
    ] {
        for line in lines {
            assert!(text.contains(line), "{line}\nis not in\n{text}");
        }
    }
}

#[tokio::test]
async fn a_check_says_whether_there_is_a_console_and_which_token_an_upstream_gets() {
    let secured = [
        ("SECURED", "true"),
        ("AUTH_SERVER", "https://uaa.example"),
        ("CLIENT_ID", "sampler"),
        ("CLIENT_SECRET", "hush"),
    ];
    let key = [("SAMPLER_CONSOLE_KEY", "0123456789abcdef0123456789abcdef")];
    let upstream = [
        ("SAMPLER_UPSTREAM", "cloudevents"),
        ("SAMPLER_UPSTREAM_URL", "http://meter.example/events"),
        ("SAMPLER_UPSTREAM_TOKEN", "hush"),
        ("SAMPLER_UPSTREAM_HORIZON", "forever"),
    ];
    let secured_with_key = [&secured[..], &key].concat();
    for (program, environment, line) in [
        ("sampler-receiver", &[][..], "console at /console"),
        (
            "sampler-receiver",
            &[("SAMPLER_CONSOLE", "false")][..],
            "console off: SAMPLER_CONSOLE is false",
        ),
        (
            "sampler-receiver",
            &secured[..],
            "console off: SAMPLER_CONSOLE_KEY, a client or a token server is missing",
        ),
        (
            "sampler-receiver",
            &secured_with_key[..],
            "console at /console",
        ),
        (
            "sampler-worker",
            &upstream[..],
            "calls with SAMPLER_UPSTREAM_TOKEN",
        ),
    ] {
        let checked = run(program, &["--check-config"], environment).await;
        let text = collapsed(&String::from_utf8(checked.stdout).unwrap());
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}

/// Fault 3 of the original: dedup ids went after 30 days, while events of 61 days were admitted.
#[tokio::test]
async fn fault_3_a_retention_not_an_hour_longer_than_the_slack_does_not_start() {
    for (retention, slack, is_fit) in [
        ("1465h", "5270400001", false),
        ("1465h", "5270400000", true),
        ("", "", true),
    ] {
        let environment = [
            ("COLLECTOR_URL", "http://localhost:1"),
            ("SAMPLER_RETENTION", retention),
            ("SAMPLER_SLACK_PAST_INTERVAL", slack),
        ];
        let checked = run("sampler-worker", &["--check-config"], &environment).await;
        let text = String::from_utf8(checked.stderr).unwrap();
        assert_eq!(checked.status.code(), Some(if is_fit { 0 } else { 64 }));
        assert_eq!(text.contains("billed twice"), !is_fit, "{text}");
    }
}

/// All names that the original reads, as its manifest gives them.
#[tokio::test]
async fn the_environment_of_an_original_works_unchanged() {
    let both = [
        ("PORT", "8080"),
        ("HOST", "0.0.0.0"),
        ("SECURED", "false"),
        ("SKIP_SSL_VALIDATION", "true"),
        ("DB_URI", "mongodb://localhost:27017/abacus-sampler"),
        ("AUTH_SERVER", "https://api.example.com"),
        ("API", "https://api.example.com"),
        ("SPANS_COLLECTION_NAME", "spans"),
        ("CLIENT_ID", "abacus-sampler"),
        ("CLIENT_SECRET", "secret"),
        ("JWTKEY", "encode"),
        ("JWTALGO", "HS256"),
        ("HEALTHCHECK_SECURED", "false"),
    ];
    let receiver = [
        ("PROVISIONING_URL", "https://provisioning.example.com"),
        ("MAX_INFLIGHT", "600"),
        ("MAX_PAYLOAD", "500kb"),
        ("SAMPLER_SLACK_PAST_INTERVAL", "5270400000"),
        ("SAMPLER_SLACK_FUTURE_INTERVAL", "5270400000"),
        ("HEALTHCHECK_THRESHOLD", "60000"),
    ];
    let worker = [
        ("COLLECTOR_URL", "https://collector.example.com"),
        ("SAMPLER_DIMENSION", "day"),
        ("PROCESS_BATCH_SIZE", "100"),
        ("PROCESS_SCHEDULE_INTERVAL", "1000"),
        ("CLEANUP_BATCH_SIZE", "100"),
        ("CLEANUP_SCHEDULE_INTERVAL", "1000"),
        ("PROCESS_SPANS_MONITOR_THRESHOLD", "60000"),
        ("CLEANUP_SPANS_MONITOR_THRESHOLD", "60000"),
    ];
    // One manifest may give both programs everything.
    let everything = [&both[..], &receiver, &worker].concat();
    for (program, own) in [
        ("sampler-receiver", &receiver[..]),
        ("sampler-worker", &worker),
    ] {
        for environment in [[&both[..], own].concat(), everything.clone()] {
            let checked = run(program, &["--check-config"], &environment).await;
            let text = String::from_utf8(checked.stderr).unwrap();
            assert!(checked.status.success(), "{program}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_service_gives_the_database() {
    let world = Landscape::new("vcap").await;
    let services = json!({ "mongodb": [{
        "name": "sampler-db", "label": "mongodb", "tags": ["mongodb"],
        "credentials": { "uri": world.database.uri() },
    }] });
    let receiver = world
        .receiver()
        .env("DB_URI", "mongodb://nowhere.invalid/elsewhere")
        .env("VCAP_SERVICES", services.to_string())
        .start()
        .await
        .unwrap();
    until_ready(&world.http, &receiver).await;
    world
        .take(&receiver, "/v1/events/start", &start_event(1, now_millis()))
        .await;
    assert_eq!(
        world.spans().await.count_documents(doc! {}).await.unwrap(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn options_of_the_address_that_do_not_count_are_logged() {
    let world = Landscape::new("uri_options").await;
    for launch in [world.receiver(), world.worker()] {
        let uri = "mongodb://127.0.0.1:1/spans?maxPoolSize=5&w=majority&socketTimeoutMS=1";
        let program = launch.env("DB_URI", uri).start().await.unwrap();
        let message = "an option in the address of the database does not count";
        let lines = program.until_logged(message, 2).await;
        let options: Vec<_> = lines.iter().map(|line| line["option"].clone()).collect();
        assert_eq!(options, ["maxPoolSize", "socketTimeoutMS"]);
        assert_eq!(lines[0]["instead"], "SAMPLER_DB_POOL_SIZE");
    }
}

/// Each program's settings fit each other; those of the two together do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_retention_that_is_too_short_for_a_receiver_is_told_and_made_up_for() {
    let landscape = Landscape::new("retention").await;
    let receiver = landscape
        .receiver()
        .env("SAMPLER_SLACK_PAST_INTERVAL", "2160h")
        .start()
        .await
        .unwrap();
    until_ready(&landscape.http, &receiver).await;
    let day = 86_400_000;
    for (instance, days) in [("kept", 80), ("removed", 95)] {
        let ended = now_millis() - days * day;
        let id = format!("start {instance}");
        let span = bson::doc! {
            "target": {
                "organization_id": "o", "space_id": "s", "consumer_id": "c", "resource_id": "r",
                "plan_id": "p", "resource_instance_id": instance, "correlation_id": instance,
            },
            "measured_usage": [], "start": ended, "end": ended, "start_dedup_id": id,
            "processing": {
                "complete": true, "version": 3,
                "last_interval": { "start": ended, "end": ended },
                "planned_interval": bson::Bson::Null,
            },
        };
        landscape.spans().await.insert_one(span).await.unwrap();
    }
    let worker = landscape.worker().start().await.unwrap();
    let spans = landscape.spans().await;
    wait_until("the older span is removed", PATIENCE, async || {
        spans.count_documents(doc! {}).await.unwrap() == 1
    })
    .await;
    let kept = doc! { "start_dedup_id": "start kept" };
    assert_eq!(spans.count_documents(kept).await.unwrap(), 1);
    let told = |line: &String| line.contains("SAMPLER_RETENTION") && line.contains("kept_ms");
    wait_until("it is told", PATIENCE, async || {
        worker.lines().iter().any(told)
    })
    .await;
}
