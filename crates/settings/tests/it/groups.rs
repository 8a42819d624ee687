use std::collections::BTreeSet;
use std::time::Duration;

use sampler_domain::Granularity;
use sampler_service::security::{Algorithm, SecuritySettings};
use sampler_service::settings::{EarlyExit, HttpSettings, Program, Reader, Setting, load};
use sampler_settings::receiver::{self, LimitsSettings};
use sampler_settings::worker::{self, CleanupSettings, DeliverySettings, ProcessingSettings};
use sampler_settings::{DatabaseSettings, SamplingSettings, SlackSettings};
use secrecy::ExposeSecret;

const RECEIVER: Program = Program {
    name: "receiver",
    about: "Takes events.",
    version: "1.2.3",
    settings: receiver::TABLE,
    other: worker::TABLE,
    printouts: &[],
};

const WORKER: Program = Program {
    name: "worker",
    settings: worker::TABLE,
    other: receiver::TABLE,
    ..RECEIVER
};

fn read<S>(
    program: &Program,
    variables: &[(&str, &str)],
    read: impl FnOnce(&mut Reader) -> S,
) -> Result<S, EarlyExit> {
    let variables = variables.iter().copied().collect();
    load(program, ["it"], &variables, |reader| Some(read(reader)))
}

#[test]
fn the_tables_have_no_errors() {
    for program in [RECEIVER, WORKER] {
        let (mut names, mut sections) = (BTreeSet::new(), Vec::new());
        for setting in program.settings() {
            let Setting { key, env, doc, .. } = setting;
            assert!(
                names.insert(key) && names.insert(env),
                "{key} is there twice"
            );
            let section = key.split_once('.').unwrap().0;
            if sections.last() != Some(&section) {
                assert!(!sections.contains(&section), "{section} is in two places");
                sections.push(section);
            }
            assert!(doc.ends_with('.'), "{key} is not described in sentences");
        }
        // Also each default is one that the setting takes.
        read(&program, &[("COLLECTOR_URL", "http://collector")], |_| ()).unwrap();
    }
}

/// What both have is the same setting, but for its default and its words.
#[test]
fn no_name_means_two_things() {
    for setting in RECEIVER.settings() {
        let is_it = |it: &&'static Setting| it.key == setting.key || it.env == setting.env;
        if let Some(other) = WORKER.settings().find(is_it) {
            assert_eq!((other.key, other.env), (setting.key, setting.env));
            assert_eq!((other.kind, other.secret), (setting.kind, setting.secret));
        }
    }
}

#[test]
fn defaults_are_those_of_the_original() {
    let database = DatabaseSettings::default().options("it");
    assert_eq!(database.uri, "mongodb://localhost:27017/sampler");
    assert_eq!(database.database, "sampler");
    assert_eq!(database.collection, "spans");
    assert_eq!(database.pool_size, 64);
    assert_eq!(database.server_selection_timeout, Duration::from_secs(5));
    assert_eq!(database.operation_timeout, Duration::from_secs(10));
    let sampling = SamplingSettings::default();
    assert_eq!(sampling.dimension, Some(Granularity::Day));
    assert_eq!(sampling.stop_grace, Duration::ZERO);
    let slack = SlackSettings::default().slack();
    assert_eq!((slack.past, slack.future), (5_270_400_000, 5_270_400_000));
    assert_eq!(LimitsSettings::default().payload, 512_000);
    assert_eq!(ProcessingSettings::default().batch_size, 100);
    assert_eq!(CleanupSettings::default().batch_size, 100);
    let backoff = DeliverySettings::default().backoff();
    assert_eq!((backoff.first, backoff.limit), (1_000, 120_000));
}

#[test]
fn a_manifest_of_the_original_works() {
    let key = "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----";
    let variables = [
        ("PORT", "8080"),
        ("HOST", "localhost"),
        ("SECURED", "false"),
        ("SKIP_SSL_VALIDATION", "true"),
        ("DB_URI", "mongodb://u:p@a:1,b:2/abacus?replicaSet=rs"),
        ("AUTH_SERVER", "https://api.example"),
        ("API", "https://api2.example"),
        ("SPANS_COLLECTION_NAME", "my-spans"),
        ("CLIENT_ID", "sampler"),
        ("CLIENT_SECRET", "hush"),
        ("JWTKEY", key),
        ("JWTALGO", "RS256"),
        ("HEALTHCHECK_SECURED", "false"),
        ("HEALTHCHECK_THRESHOLD", "60000"),
        ("MAX_PAYLOAD", "100kb"),
        ("SAMPLER_SLACK_PAST_INTERVAL", "172800000"),
        ("SAMPLER_SLACK_FUTURE_INTERVAL", "1000"),
        ("SAMPLER_DIMENSION", "hour"),
        ("NODE_MODULES_CACHE", "false"),
    ];
    let read = read(&RECEIVER, &variables, |reader| {
        let http = HttpSettings::read(reader);
        assert_eq!((http.host.as_deref(), http.port), (Some("localhost"), 8080));
        let database = DatabaseSettings::read(reader).options("it");
        assert_eq!(
            (&*database.database, &*database.collection),
            ("abacus", "my-spans")
        );
        let slack = SlackSettings::read(reader);
        assert_eq!(slack.past, Duration::from_hours(48));
        assert_eq!(slack.future, Duration::from_secs(1));
        let sampling = SamplingSettings::read(reader);
        assert_eq!(sampling.dimension, Some(Granularity::Hour));
        assert_eq!(LimitsSettings::read(reader).payload, 102_400);
        let security = SecuritySettings::read(reader);
        assert!(security.skip_ssl_validation);
        assert_eq!(
            security.auth_server.unwrap().as_str(),
            "https://api.example/"
        );
        assert_eq!(security.api.unwrap().host_str(), Some("api2.example"));
        assert_eq!(security.client_id.as_deref(), Some("sampler"));
        assert_eq!(security.client_secret.unwrap().expose_secret(), "hush");
        assert_eq!(security.jwt_key.unwrap().expose_secret(), key);
        assert_eq!(security.jwt_algorithm, Some(Algorithm::Rs256));
    });
    read.unwrap();
}

#[test]
fn a_receiver_that_is_not_told_the_dimension_does_not_know_it() {
    let dimension = |program, variables: &[_]| {
        read(program, variables, |reader| {
            SamplingSettings::read(reader).dimension
        })
        .unwrap()
    };
    assert_eq!(dimension(&RECEIVER, &[]), None);
    assert_eq!(
        dimension(&WORKER, &[("COLLECTOR_URL", "http://collector")]),
        Some(Granularity::Day)
    );
}

#[test]
fn overrides_are_read_and_none_may_be_there_twice() {
    let read = |text: &str| {
        let variables = [
            ("SAMPLER_DIMENSION", "day"),
            ("SAMPLER_DIMENSION_OVERRIDES", text),
        ];
        read(&RECEIVER, &variables, SamplingSettings::read)
    };
    let one = r#"{"resource_id":"postgres","granularity":"hour"}"#;
    let sampling = read(&format!("[{one}]")).unwrap();
    assert_eq!(sampling.dimension_overrides.unwrap().len(), 1);
    for (text, expected) in [
        (format!("[{one},{one}]"), "is repeated"),
        ("hour".to_owned(), "expected a list such as"),
    ] {
        let said = read(&text).unwrap_err().stderr;
        assert!(said.contains(expected), "{said}");
        assert!(
            said.contains("SAMPLER_DIMENSION_OVERRIDES (sampling.dimension_overrides)"),
            "{said}"
        );
    }
}

#[test]
fn an_address_without_a_database_is_a_mistake_that_says_where_it_is_from() {
    let services = r#"{"x": [{"name": "db", "credentials": {"uri": "mongodb://u:s3cr3t@bound"}}]}"#;
    let plan = read(
        &RECEIVER,
        &[("VCAP_SERVICES", services)],
        DatabaseSettings::read,
    );
    let said = plan.unwrap_err().stderr;
    let expected = "DB_URI (database.uri) is <hidden>, from VCAP_SERVICES (service 'db'): \
                    expected the name of the database in the path, as in mongodb://host/name";
    assert!(said.contains(expected), "{said}");
    assert!(!said.contains("s3cr3t"), "{said}");
}

/// Of an address without a host, the password stands where a port is expected.
#[test]
fn an_address_that_the_driver_cannot_read_is_a_mistake_that_does_not_repeat_it() {
    for uri in [
        "mongodb://me:s3cr3t/db",
        "mongodb://me:s3cr3t@/db",
        "mongodb://me:s3cr3t@:27017/db",
        "mongodb://me:s3cr3t@host:port/db",
        "mongodb+srv://me:s3cr3t/db",
        "mongodb://me:s3cr3t%zz@host/db",
        "mongodb://host/db?authMechanism=s3cr3t",
        "mongodb://host/db?s3cr3t=1",
    ] {
        for program in [&RECEIVER, &WORKER] {
            let variables = [("DB_URI", uri), ("COLLECTOR_URL", "http://collector")];
            let plan = read(program, &variables, DatabaseSettings::read).expect_err(uri);
            let said = plan.stderr + &plan.stdout;
            assert!(said.contains("DB_URI (database.uri) is <hidden>"), "{said}");
            let unreadable = "expected an address that the driver can read";
            let without_host = "expected a host in the address";
            assert!(
                said.contains(unreadable) || said.contains(without_host),
                "{said}"
            );
            assert!(!said.contains("s3cr3t"), "{uri}: {said}");
            assert_eq!(plan.code, 64);
        }
    }
}

/// Sampler reads from the primary and writes to a majority, whatever the address says: who asks for
/// less there is told before anything starts, with all other mistakes.
#[test]
fn an_address_that_would_weaken_what_is_kept_is_a_mistake_beside_others() {
    let uri = "mongodb://me:hush@a,b/spans?readPreference=secondaryPreferred&w=1&journal=false";
    let variables = [
        ("DB_URI", uri),
        ("PORT", "none"),
        ("COLLECTOR_URL", "http://collector"),
    ];
    for program in [&RECEIVER, &WORKER] {
        let of_both =
            |reader: &mut Reader| (HttpSettings::read(reader), DatabaseSettings::read(reader));
        let refused = read(program, &variables, of_both).unwrap_err();
        let said = refused.stderr;
        assert_eq!(refused.code, 64, "{said}");
        for named in ["readPreference", "sets w ", "journal", "PORT"] {
            assert!(said.contains(named), "{named} is not in:\n{said}");
        }
        assert!(
            !said.contains("hush") && !said.contains("secondaryPreferred"),
            "{said}"
        );
    }
}
