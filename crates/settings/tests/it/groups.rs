//! The groups of both programs: how their tables fit, and what contradicts what.

use std::collections::BTreeSet;
use std::time::Duration;

use sampler_domain::{Contract, Granularity};
use sampler_settings::Settings;
use secrecy::ExposeSecret;

use crate::{Variable, assert_told};

fn receiver(variables: &[Variable<'_>]) -> Result<Settings, String> {
    crate::receiver(variables)
}

/// What is said to a worker; nothing where it starts.
fn said(variables: &[Variable<'_>]) -> String {
    crate::worker(variables).err().unwrap_or_default()
}

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
    let settings = crate::worker(&[]).unwrap();
    let database = settings.database.options("it");
    assert_eq!(database.uri, "mongodb://localhost:27017/sampler");
    assert_eq!(
        (&*database.database, &*database.collection),
        ("sampler", "spans")
    );
    assert_eq!(settings.http.port, 7071);
    assert_eq!(settings.sampling.dimension, Some(Granularity::Day));
    assert_eq!(
        (settings.processing.batch_size, settings.cleanup.batch_size),
        (100, 100)
    );
    let settings = receiver(&[]).unwrap();
    let slack = settings.slack.slack();
    assert_eq!((slack.past, slack.future), (5_270_400_000, 5_270_400_000));
    assert_eq!(
        (settings.http.port, settings.limits.payload),
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
    assert_eq!(
        (&*database.database, &*database.collection),
        ("abacus", "my-spans")
    );
    assert_eq!(settings.health.threshold, Duration::from_mins(1));
    assert_eq!(settings.slack.future, Duration::from_secs(1));
    assert_eq!(settings.limits.payload, 102_400);
    let secret = settings.security.client_secret.unwrap();
    assert_eq!(secret.expose_secret(), "hush");
}

#[test]
fn overrides_are_read_and_none_may_be_there_twice() {
    let read = |text: &str| {
        receiver(&[
            ("SAMPLER_DIMENSION", "day"),
            ("SAMPLER_DIMENSION_OVERRIDES", text),
        ])
    };
    let one = r#"{"resource_id":"postgres","granularity":"hour"}"#;
    let sampling = read(&format!("[{one}]")).unwrap().sampling;
    assert_eq!(sampling.dimension_overrides.unwrap().len(), 1);
    for (text, expected) in [
        (format!("[{one},{one}]"), "is repeated"),
        ("hour".to_owned(), "a list such as"),
    ] {
        assert_told(
            &read(&text).unwrap_err(),
            &["SAMPLER_DIMENSION_OVERRIDES is", expected],
        );
    }
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
        assert_told(
            &said(&[(name, value)]),
            &[&format!("  {name} ({value}) must be less than {other}: ")],
        );
    }
    assert_eq!(
        said(&[("SAMPLER_RETRY_LIMIT", "1h"), ("SAMPLER_MONTH_SLACK", "0")]),
        ""
    );
    assert_told(
        &said(&[("SAMPLER_METRICS_PORT", "7071")]),
        &["a port other than PORT"],
    );
}

#[test]
fn an_upstream_needs_what_keeps_usages_from_counting_twice() {
    let to = |more: &[Variable<'_>]| {
        let cloud = [
            ("SAMPLER_UPSTREAM", "cloudevents"),
            ("SAMPLER_UPSTREAM_URL", "https://meter/?key=s3cr3t"),
        ];
        crate::worker(&[&cloud, more].concat())
    };
    let find = ("SAMPLER_UPSTREAM_FIND_URL", "https://meter/events/{id}");
    let (day, forever) = (
        ("SAMPLER_UPSTREAM_HORIZON", "24h"),
        ("SAMPLER_UPSTREAM_HORIZON", "forever"),
    );
    for (settings, told) in [
        (&[][..], "SAMPLER_UPSTREAM_HORIZON is not set"),
        (&[day], "looked up before it is posted again"),
        (
            &[forever, ("SAMPLER_CONFIRM", "true")],
            "SAMPLER_CONFIRM looks usages up there",
        ),
        (
            &[
                day,
                ("SAMPLER_UPSTREAM_FIND_URL", "http://meter/s3cr3t/{id}"),
            ],
            "expected an https address",
        ),
        (
            &[day, find, ("SAMPLER_UPSTREAM_TOKEN", "s3cr3t s3cr3t")],
            "SAMPLER_UPSTREAM_TOKEN is not valid",
        ),
        (
            &[day, find, ("SAMPLER_UPSTREAM_SOURCE", "a b")],
            "SAMPLER_UPSTREAM_SOURCE is",
        ),
    ] {
        let text = to(settings).unwrap_err();
        assert_told(&text, &[told]);
        assert!(!text.contains("s3cr3t"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }
    let contract = to(&[day, find]).unwrap().contract();
    assert!(matches!(contract, Contract::Forgets(memory) if memory.horizon == 86_400_000));
    to(&[forever]).unwrap();
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
        let text = receiver(&[("DB_URI", uri)]).unwrap_err();
        assert_told(&text, &["DB_URI is not valid: expected"]);
        assert!(!text.contains("s3cr3t"), "{uri}: {text}");
    }
}
