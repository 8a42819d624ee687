//! The values of settings, and what contradicts what.

use std::collections::BTreeSet;
use std::time::Duration;

use sampler_domain::{Contract, Granularity};
use sampler_settings::{Of, Settings};
use secrecy::ExposeSecret;

use crate::{COLLECTOR, Variable, assert_each, assert_told, receiver, worker};

#[test]
fn a_setting_is_there_once_and_is_described() {
    let mut known = BTreeSet::new();
    for setting in Settings::TABLE {
        let name = setting.name;
        assert!(setting.doc.ends_with('.'), "{name} is not described");
        assert!(known.insert(name), "{name} is there twice");
    }
}

#[test]
fn defaults_are_those_of_the_original() {
    let settings = worker(&[]).unwrap();
    let database = settings.database.options("it");
    assert_eq!(database.uri, "mongodb://localhost:27017/sampler");
    let names = (&*database.database, &*database.collection);
    assert_eq!(names, ("sampler", "spans"));
    assert_eq!(settings.program.port, 7071);
    assert_eq!(settings.sampling.dimension, Some(Granularity::Day));
    let batches = (settings.processing.batch_size, settings.cleanup.batch_size);
    assert_eq!(batches, (100, 100));
    let settings = receiver(&[]).unwrap();
    let slack = settings.slack.slack();
    assert_eq!((slack.past, slack.future), (5_270_400_000, 5_270_400_000));
    assert_eq!(
        (settings.program.port, settings.limits.payload),
        (7070, 512_000)
    );
    assert_eq!(settings.sampling.dimension, None);
}

#[test]
fn a_manifest_of_the_original_works() {
    let settings = receiver(&[
        ("PORT", "8080"),
        ("HOST", "localhost"),
        ("DB_URI", "mongodb://u:p@a:1,b:2/abacus?replicaSet=rs&w=1"),
        ("API", "https://api.example"),
        ("SPANS_COLLECTION_NAME", "my-spans"),
        ("CLIENT_SECRET", "hush"),
        ("JWTALGO", "RS256"),
        ("HEALTHCHECK_THRESHOLD", "60000"),
        ("MAX_PAYLOAD", "100kb"),
        ("SAMPLER_SLACK_FUTURE_INTERVAL", "1000"),
        ("SAMPLER_DIMENSION", "hour"),
        ("NODE_MODULES_CACHE", "false"),
    ])
    .unwrap();
    let database = settings.database.options("it");
    let names = (&*database.database, &*database.collection);
    assert_eq!(names, ("abacus", "my-spans"));
    assert_eq!(settings.health.threshold, Duration::from_mins(1));
    assert_eq!(settings.slack.future, Duration::from_secs(1));
    assert_eq!(settings.limits.payload, 102_400);
    let secret = settings.security.client_secret.unwrap();
    assert_eq!(secret.expose_secret(), "hush");
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (name, value, other) in [
        ("SAMPLER_RETRY_LIMIT", "10m", "SAMPLER_MONTH_SLACK (10m)"),
        ("SAMPLER_STOP_GRACE", "1h", "SAMPLER_MONTH_SLACK (10m)"),
        ("SAMPLER_COMMIT_LOWER", "5s", "SAMPLER_COMMIT_UPPER (5s)"),
        (
            "SAMPLER_POST_TIMEOUT",
            "60s",
            "PROCESS_SPANS_MONITOR_THRESHOLD (60s)",
        ),
        (
            "PROCESS_SCHEDULE_INTERVAL",
            "1h",
            "PROCESS_SPANS_MONITOR_THRESHOLD (60s)",
        ),
        (
            "CLEANUP_SCHEDULE_INTERVAL",
            "60s",
            "CLEANUP_SPANS_MONITOR_THRESHOLD (60s)",
        ),
    ] {
        let told = format!("  {name} ({value}) must be less than {other}: otherwise ");
        assert_each(Of::Worker, &[(&[COLLECTOR, (name, value)], &told)]);
    }
    let (retry, grace) = (("SAMPLER_RETRY_LIMIT", "1h"), ("SAMPLER_STOP_GRACE", "1h"));
    let without = [COLLECTOR, retry, grace, ("SAMPLER_MONTH_SLACK", "0")];
    assert_each(Of::Worker, &[(&without, "")]);
    let one = r#"{"resource_id":"postgres","granularity":"hour"}"#;
    let (twice, one) = (format!("[{one},{one}]"), format!("[{one}]"));
    let day = ("SAMPLER_DIMENSION", "day");
    assert_each(
        Of::Receiver,
        &[
            (
                &[("SAMPLER_METRICS_PORT", "7070")],
                "a port other than PORT",
            ),
            (
                &[("SAMPLER_DIMENSION_OVERRIDES", &one)],
                "SAMPLER_DIMENSION is not set: expected a granularity",
            ),
            (&[day, ("SAMPLER_DIMENSION_OVERRIDES", &one)], ""),
            (
                &[day, ("SAMPLER_DIMENSION_OVERRIDES", &twice)],
                "none is repeated",
            ),
            (
                &[day, ("SAMPLER_DIMENSION_OVERRIDES", "hour")],
                "a list such as",
            ),
        ],
    );
}

#[test]
fn an_upstream_needs_what_keeps_usages_from_counting_twice() {
    let cloud = ("SAMPLER_UPSTREAM", "cloudevents");
    let url = ("SAMPLER_UPSTREAM_URL", "https://meter/?key=s3cr3t");
    let find = ("SAMPLER_UPSTREAM_FIND_URL", "https://meter/events/{id}");
    let open = ("SAMPLER_UPSTREAM_FIND_URL", "http://meter/s3cr3t/{id}");
    let day = ("SAMPLER_UPSTREAM_HORIZON", "24h");
    let forever = ("SAMPLER_UPSTREAM_HORIZON", "forever");
    let confirm = ("SAMPLER_CONFIRM", "true");
    let token = ("SAMPLER_UPSTREAM_TOKEN", "s3cr3t s3cr3t");
    let source = ("SAMPLER_UPSTREAM_SOURCE", "<a>|{b}");
    assert_each(
        Of::Worker,
        &[
            (&[], "COLLECTOR_URL is not set"),
            (&[cloud, forever], "SAMPLER_UPSTREAM_URL is not set"),
            (&[cloud, url], "SAMPLER_UPSTREAM_HORIZON is not set"),
            (&[cloud, url, day], "looked up before it is posted again"),
            (
                &[cloud, url, forever, confirm],
                "SAMPLER_CONFIRM looks usages up there",
            ),
            (&[cloud, url, day, open], "expected an https address"),
            (
                &[cloud, url, day, find, token],
                "SAMPLER_UPSTREAM_TOKEN is not valid",
            ),
            (
                &[cloud, url, day, find, source],
                "SAMPLER_UPSTREAM_SOURCE is \"<a>|{b}\"",
            ),
            (&[cloud, url, forever], ""),
        ],
    );
    // Values that cannot be used are named, and do not stand in for what is missing.
    for (name, value) in [
        (url.0, "localhost"),
        (url.0, "http://user:s3cr3t@host/x"),
        (day.0, "soon"),
        (day.0, "4000d"),
        (find.0, "{id}"),
        (find.0, "https://meter/x"),
        ("SAMPLER_UPSTREAM_TYPE", " "),
    ] {
        let text = worker(&[cloud, url, forever, (name, value)]).unwrap_err();
        assert_told(&text, &[&format!("  {name} ")]);
    }
    // With Abacus, what is set for the other upstream counts for nothing.
    worker(&[day]).unwrap();
    let contract = worker(&[cloud, url, day, find]).unwrap().contract();
    assert!(matches!(contract, Contract::Forgets(memory) if memory.horizon == 86_400_000));
}

/// Of an address without a host, the password stands where a port is expected.
#[test]
fn an_address_that_cannot_be_used_is_a_mistake_that_does_not_repeat_it() {
    for uri in [
        "mongodb://me:s3cr3t@host",
        "mongodb://me:s3cr3t/db",
        "mongodb://me:s3cr3t@/db",
        "mongodb://me:s3cr3t@:27017/db",
        "mongodb://me:s3cr3t@host:port/db",
        "mongodb+srv://me:s3cr3t/db",
        "mongodb://me:s3cr3t%zz@host/db",
        "mongodb://host/db?authMechanism=s3cr3t",
        "mongodb://host/db?s3cr3t=1",
    ] {
        let told = "DB_URI is not valid: expected";
        assert_each(
            Of::Receiver,
            &[(&[("DB_URI", uri)] as &[Variable<'_>], told)],
        );
    }
    for address in ["http://me:s3cr3t@host", "http://host/?key=s3cr3t"] {
        let text = receiver(&[("PROVISIONING_URL", address)]).unwrap_err();
        assert_told(&text, &["PROVISIONING_URL is not valid: expected"]);
        assert!(!text.contains("s3cr3t"), "{text}");
    }
}
