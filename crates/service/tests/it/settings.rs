//! A program's settings, from its table to what it is given or told.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use sampler_service::security::{Algorithm, SECURITY, SecuritySettings};
use sampler_service::settings::{
    self, DATABASE, DatabaseSettings, EXIT_SETTINGS, ExitPlan, HEALTH, HealthSettings,
    HttpSettings, Kind, LOG, LogFormat, LogSettings, Printout, Program, Reader, SAMPLING, SLACK,
    SamplingSettings, Setting, SlackSettings, Variables, load,
};
use secrecy::ExposeSecret;
use tempfile::NamedTempFile;

static HTTP: [Setting; 2] = settings::http("7070");

static OWN: [Setting; 5] = [
    Setting::new("own.url", "COLLECTOR_URL", Kind::Url, "Where usages go.").required(),
    Setting::new(
        "own.size",
        "MAX_PAYLOAD",
        Kind::Size {
            min: 1,
            max: 1 << 30,
        },
        "The most.",
    )
    .or("500kb"),
    Setting::new(
        "own.flag",
        "SAMPLER_FLAG",
        Kind::Boolean,
        "Whether | or not.",
    )
    .or("true"),
    Setting::new(
        "own.low",
        "SAMPLER_LOW",
        Kind::Integer { min: 0, max: 9 },
        "The lower.",
    )
    .or("2"),
    Setting::new(
        "own.high",
        "SAMPLER_HIGH",
        Kind::Integer { min: 0, max: 9 },
        "The upper.",
    )
    .or("5"),
];

pub(crate) static PROGRAM: Program = Program {
    name: "example",
    about: "Shows how settings are read.",
    version: "1.2.3",
    settings: &[
        &HTTP, &DATABASE, &SAMPLING, &SLACK, &SECURITY, &HEALTH, &LOG, &OWN,
    ],
    foreign: &["SAMPLER_OF_THE_OTHER", "other.setting"],
    printouts: &[Printout {
        flag: "help-poem",
        about: "Prints a poem",
        text: || "roses\n".to_owned(),
    }],
};

#[derive(Debug)]
pub(crate) struct Settings {
    http: HttpSettings,
    pub(crate) database: DatabaseSettings,
    sampling: SamplingSettings,
    slack: SlackSettings,
    security: SecuritySettings,
    health: HealthSettings,
    log: LogSettings,
    url: String,
    size: usize,
    flag: bool,
    initial: char,
}

fn read(reader: &mut Reader<'_>) -> Option<Settings> {
    let (low, high): (u8, u8) = (reader.integer("own.low"), reader.integer("own.high"));
    if low > high {
        reader.reject("own.low", "no more than SAMPLER_HIGH");
    }
    let initial = reader.parse_with("sampling.dimension", |text| {
        text.chars().next().ok_or_else(|| "a word".to_owned())
    });
    Some(Settings {
        http: HttpSettings::read(reader),
        database: DatabaseSettings::read(reader),
        sampling: SamplingSettings::read(reader),
        slack: SlackSettings::read(reader),
        security: SecuritySettings::read(reader),
        health: HealthSettings::read(reader),
        log: LogSettings::read(reader),
        url: reader.url("own.url").to_string(),
        size: reader.size("own.size"),
        flag: reader.boolean("own.flag"),
        initial: initial?,
    })
}

pub(crate) const URL: (&str, &str) = ("COLLECTOR_URL", "http://collector");

pub(crate) fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Settings, ExitPlan> {
    let arguments = ["example"].iter().chain(arguments);
    let variables = [URL].iter().chain(variables).copied();
    load(&PROGRAM, arguments, &variables.collect(), read)
}

/// What is said to someone whose settings are wrong.
pub(crate) fn mistakes(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let plan = run(arguments, variables).expect_err("mistakes");
    assert_eq!((plan.code, plan.stdout.as_str()), (EXIT_SETTINGS, ""));
    plan.stderr
}

pub(crate) fn printed(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let plan = run(arguments, variables).expect_err("something printed");
    assert_eq!((plan.code, plan.stderr.as_str()), (0, ""));
    plan.stdout
}

pub(crate) fn file(text: &str) -> (NamedTempFile, String) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().display().to_string();
    (file, path)
}

#[test]
fn the_table_has_no_slips() {
    assert_eq!(PROGRAM.slips(), Vec::<String>::new());
}

#[test]
fn slips_of_a_table_are_found() {
    static BAD: [Setting; 4] = [
        Setting::new("a.b", "ONE", Kind::Boolean, "It is.").or("yes"),
        Setting::new("b.c", "TWO", Kind::Boolean, "No sentence")
            .or("true")
            .required(),
        Setting::new("a.b", "TWO", Kind::Boolean, "It is.").or("true"),
        Setting::new("none", "OTHER", Kind::Text, "It is."),
    ];
    static BAD_TABLE: &[&[Setting]] = &[&BAD];
    let program = Program {
        settings: BAD_TABLE,
        foreign: &["OTHER"],
        ..PROGRAM
    };
    let slips = program.slips();
    for slip in [
        "a.b: the default is not valid",
        "b.c: required, but has a default",
        "b.c: the description is no sentence",
        "a.b: the key is there twice",
        "a.b: the variable is there twice",
        "a.b: its section stands in two places",
        "none: the key is not section.name",
        "none: is listed as the other program's, too",
    ] {
        assert!(
            slips.iter().any(|found| found == slip),
            "{slip} is not in {slips:?}"
        );
    }
    assert_eq!(slips.len(), 8);
}

#[test]
fn defaults_are_those_of_the_original() {
    let settings = run(&[], &[]).unwrap();
    assert_eq!(
        settings.http,
        HttpSettings {
            host: "0.0.0.0".to_owned(),
            port: 7070
        }
    );
    assert_eq!(
        settings.database.uri.expose_secret(),
        "mongodb://localhost:27017/sampler"
    );
    assert_eq!(settings.database.database, "sampler");
    assert_eq!(settings.database.collection, "spans");
    assert_eq!(settings.database.pool_size, 64);
    assert_eq!(
        settings.database.server_selection_timeout,
        Duration::from_secs(5)
    );
    assert_eq!(settings.database.operation_timeout, Duration::from_secs(10));
    assert_eq!(settings.sampling.dimension, "day");
    assert_eq!(settings.sampling.dimension_overrides, None);
    assert_eq!(settings.sampling.stop_grace, Duration::ZERO);
    let slack = Duration::from_hours(61 * 24);
    assert_eq!(
        settings.slack,
        SlackSettings {
            past: slack,
            future: slack
        }
    );
    assert_eq!(settings.health.threshold, Duration::from_mins(1));
    assert_eq!(
        settings.log,
        LogSettings {
            format: LogFormat::Auto,
            level: "info".to_owned()
        }
    );
    assert_eq!(settings.security.jwt_algorithm, None);
    assert!(!settings.security.secured && !settings.security.skip_ssl_validation);
    assert_eq!(settings.size, 512_000);
}

#[test]
fn a_manifest_of_the_original_works() {
    let settings = run(
        &[],
        &[
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
            (
                "JWTKEY",
                "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
            ),
            ("JWTALGO", "RS256"),
            ("HEALTHCHECK_SECURED", "false"),
            ("HEALTHCHECK_THRESHOLD", "60000"),
            ("MAX_PAYLOAD", "100kb"),
            ("SAMPLER_SLACK_PAST_INTERVAL", "172800000"),
            ("SAMPLER_SLACK_FUTURE_INTERVAL", "1000"),
            ("SAMPLER_DIMENSION", "hour"),
            ("NODE_MODULES_CACHE", "false"),
        ],
    )
    .unwrap();
    assert_eq!(
        settings.http,
        HttpSettings {
            host: "localhost".to_owned(),
            port: 8080
        }
    );
    assert_eq!(settings.database.database, "abacus");
    assert_eq!(settings.database.collection, "my-spans");
    assert_eq!(settings.slack.past, Duration::from_hours(48));
    assert_eq!(settings.slack.future, Duration::from_secs(1));
    assert_eq!(
        (settings.sampling.dimension.as_str(), settings.initial),
        ("hour", 'h')
    );
    assert_eq!(settings.size, 102_400);
    let security = settings.security;
    assert!(security.skip_ssl_validation);
    assert_eq!(
        security.auth_server.unwrap().as_str(),
        "https://api.example/"
    );
    assert_eq!(security.api.unwrap().host_str(), Some("api2.example"));
    assert_eq!(security.client_id.as_deref(), Some("sampler"));
    assert_eq!(security.client_secret.unwrap().expose_secret(), "hush");
    assert!(security.jwt_key.unwrap().expose_secret().contains('\n'));
    assert_eq!(security.jwt_algorithm, Some(Algorithm::Rs256));
}

#[test]
fn the_environment_counts_before_the_file_and_the_file_before_the_defaults() {
    let (_file, path) = file(
        "[http]\nport = 1111\nhost = '::1'\n[own]\nurl = 'http://from-the-file'\nsize = 7\n\
         flag = false\n[slack]\npast = '2h'\nfuture = 5000\n[log]\nlevel = ''\n",
    );
    let variables = [("PORT", "2222"), ("MAX_PAYLOAD", "")];
    let settings = run(&["--config", &path], &variables).unwrap();
    assert_eq!(
        settings.http,
        HttpSettings {
            host: "::1".to_owned(),
            port: 2222
        }
    );
    assert_eq!(settings.url, "http://collector/");
    assert_eq!(settings.size, 7, "an empty variable is not set");
    assert!(!settings.flag);
    let (past, future) = (Duration::from_hours(2), Duration::from_secs(5));
    assert_eq!(settings.slack, SlackSettings { past, future });
    assert_eq!(settings.log.level, "info", "an empty value is not set");
}

#[test]
fn the_file_is_named_by_the_environment_or_rather_by_the_command_line() {
    let (_first, first) = file("http.port = 1");
    let (_second, second) = file("http.port = 2");
    let variables = [("SAMPLER_CONFIG", first.as_str())];
    assert_eq!(run(&[], &variables).unwrap().http.port, 1);
    assert_eq!(
        run(&["--config", &second], &variables).unwrap().http.port,
        2
    );
}

#[test]
fn every_mistake_is_named_at_once() {
    let (_file, path) = file("[http]\nport = 'x'\n[slack]\npast = [1, 2]\nfutur = 1\n[lgo]\na=1\n");
    let text = mistakes(
        &["--config", &path],
        &[
            ("COLLECTOR_URL", ""),
            ("SAMPLER_DB_POOL_SIZE", "0"),
            ("DB_URI", "mongodb://localhost"),
            ("LOG_LEVEL", "info,,=="),
            ("SAMPLER_LOW", "7"),
            ("SAMPLER_DIMENTION", "hour"),
            ("JWTALGO", "none"),
        ],
    );
    let expected = [
        "example: mistakes in the settings, not starting:".to_owned(),
        format!("  slack.futur in the file {path} is no setting"),
        format!("  lgo.a in the file {path} is no setting"),
        "  the environment variable SAMPLER_DIMENTION is an unknown setting".to_owned(),
        format!(
            "  PORT (http.port) is \"x\", from the file {path}: expected a whole number from 0 to \
             65535"
        ),
        "  SAMPLER_DB_POOL_SIZE (database.pool_size) is \"0\", from the environment variable \
         SAMPLER_DB_POOL_SIZE: expected a whole number from 1 to 1000"
            .to_owned(),
        "  JWTALGO (security.jwt_algorithm) is \"none\", from the environment variable JWTALGO: \
         expected HS256, HS384, HS512, RS256, RS384, RS512 or ES256"
            .to_owned(),
        "  SAMPLER_LOW (own.low) is \"7\", from the environment variable SAMPLER_LOW: expected no \
         more than SAMPLER_HIGH"
            .to_owned(),
        "  DB_URI (database.uri) is <hidden>, from the environment variable DB_URI: expected the \
         name of the database in the path, as in mongodb://host/name"
            .to_owned(),
    ];
    for line in &expected {
        assert!(
            text.lines().any(|found| found == line),
            "{line}\nis not in\n{text}"
        );
    }
    for part in [
        format!("slack.past in the file {path} holds several values: expected a duration"),
        "COLLECTOR_URL (own.url) is not set: expected an http or https address".to_owned(),
        "LOG_LEVEL (log.level) is \"info,,==\"".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}\nis not in\n{text}");
    }
    assert_eq!(text.lines().count(), expected.len() + 3, "{text}");
}

#[test]
fn one_mistake_per_setting_is_enough() {
    let text = mistakes(&[], &[("SAMPLER_LOW", "10"), ("SAMPLER_HIGH", "1")]);
    assert_eq!(text.matches("SAMPLER_LOW (").count(), 1, "{text}");
    assert!(
        text.contains("expected a whole number from 0 to 9"),
        "{text}"
    );
}

#[test]
fn settings_of_the_other_program_may_stand_beside_ours() {
    let (_file, path) = file("[other]\nsetting = 1\n");
    run(
        &["--config", &path],
        &[("SAMPLER_OF_THE_OTHER", "1"), ("UNRELATED", "1")],
    )
    .unwrap();
    let text = mistakes(&[], &[("SAMPLER_OF_NOBODY", "s3cr3t")]);
    assert!(
        text.contains("SAMPLER_OF_NOBODY is an unknown setting"),
        "{text}"
    );
    assert!(!text.contains("s3cr3t"), "{text}");
    run(&[], &[("SAMPLER_OF_NOBODY", "")]).expect("an empty variable is not set");
}

#[test]
fn a_file_that_is_none_is_a_mistake_that_repeats_nothing_of_it() {
    let text = mistakes(&["--config", "nowhere.toml"], &[]);
    assert!(
        text.contains("the file nowhere.toml cannot be read: No such file"),
        "{text}"
    );
    let (_file, path) = file("[database]\n\nuri = s3cr3t\n");
    let text = mistakes(&["--config", &path], &[]);
    assert!(text.contains("is no TOML: line 3: "), "{text}");
    assert!(!text.contains("s3cr3t"), "{text}");
    let (_file, path) = file(&"#".repeat((1 << 20) + 1));
    let text = mistakes(&["--config", &path], &[]);
    assert!(
        text.contains("has 1048577 bytes: expected at most 1048576"),
        "{text}"
    );
}

#[test]
fn a_variable_that_is_not_utf_8_is_a_mistake() {
    let variables: Variables = [
        ("HOST", OsString::from_vec(vec![0xff])),
        (URL.0, URL.1.into()),
    ]
    .into_iter()
    .collect();
    let plan = load(&PROGRAM, ["example"], &variables, read).unwrap_err();
    assert!(
        plan.stderr
            .contains("the environment variable HOST is not UTF-8"),
        "{}",
        plan.stderr
    );
}

#[test]
fn where_a_value_comes_from_can_be_asked() {
    let source = |reader: &Reader<'_>, key: &str| reader.source(key).map(ToString::to_string);
    let variables = [("PORT", "1"), URL].into_iter().collect();
    load(&PROGRAM, ["example"], &variables, |reader| {
        assert_eq!(
            source(reader, "http.port").unwrap(),
            "the environment variable PORT"
        );
        assert_eq!(source(reader, "http.host").unwrap(), "the default");
        assert_eq!(source(reader, "security.api"), None);
        Some(())
    })
    .unwrap();
}

#[test]
fn a_program_can_find_mistakes_of_its_own() {
    let variables = [URL].into_iter().collect();
    let plan = load(&PROGRAM, ["example"], &variables, |reader| {
        reader.complain("the moon is full");
        let parsed: Option<u8> =
            reader.parse_with("sampling.dimension", |_| Err("the other one".to_owned()));
        assert_eq!(parsed, None);
        reader.reject("security.api", "an address where SECURED is true");
        None::<()>
    })
    .unwrap_err();
    assert_eq!(
        plan.stderr,
        "example: mistakes in the settings, not starting:\n  the moon is full\n  \
         SAMPLER_DIMENSION (sampling.dimension) is \"day\", from the default: expected the other \
         one\n  API (security.api) is not set: expected an address where SECURED is true\n",
    );
}
