//! A program's settings, from its table to what it is given or told.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use sampler_service::security::SecuritySettings;
use sampler_service::settings::{
    EXIT_SETTINGS, EarlyExit, HealthSettings, HttpSettings, Kind, LogFormat, LogSettings, Printout,
    Program, Reader, Variables, load,
};
use secrecy::SecretString;
use tempfile::NamedTempFile;
use url::Url;

sampler_service::settings! {
    /// A database that the platform can bind.
    pub(crate) struct DatabaseSettings("database") {
        /// Where it is.
        uri: SecretString = "DB_URI", Kind::Text, or("mongodb://localhost/db"), secret();
        /// Which of several it is.
        service: Option<String> = "SAMPLER_DB_SERVICE", Kind::Text;
        /// How large the pool is.
        pool_size: u32 = "SAMPLER_DB_POOL_SIZE", Kind::Integer(1, 1000), or("64");
    }

    /// Settings of this program alone.
    pub(crate) struct OwnSettings("own", checked by OwnSettings::check) {
        /// Where usages go.
        url: Option<Url> = "COLLECTOR_URL", Kind::Url;
        /// The most.
        size: usize = "MAX_PAYLOAD", Kind::Size(1, 1 << 30), or("500kb");
        /// How long it takes.
        past: Duration = "SAMPLER_PAST", Kind::Duration(Duration::ZERO, Duration::from_hours(24)), or("1h");
        /// Whether | or not.
        flag: bool = "SAMPLER_FLAG", Kind::Boolean, or("true");
        /// The lower.
        low: u8 = "SAMPLER_LOW", Kind::Integer(0, 9), or("2");
        /// The upper.
        high: u8 = "SAMPLER_HIGH", Kind::Integer(0, 9), or("5");
        /// What begins
        /// with a letter.
        initial: char = "SAMPLER_WORD", Kind::Choice(&["day", "hour"]), or("day") => initial;
    }

    /// A setting of another program.
    struct OtherSettings("other") {
        /// It is.
        setting: u8 = "SAMPLER_OF_THE_OTHER", Kind::Integer(0, 9), or("1");
    }
}

impl OwnSettings {
    fn check(&self, reader: &mut Reader) {
        if self.low > self.high {
            reader.reject("own.low", "no more than SAMPLER_HIGH");
        }
        if self.url.is_none() {
            reader.reject("own.url", &Kind::Url.to_string());
        }
    }
}

fn initial(text: &str) -> Result<char, String> {
    text.chars().next().ok_or_else(|| "a word".to_owned())
}

pub(crate) static PROGRAM: Program = Program {
    name: "example",
    about: "Shows how settings are read.",
    version: "1.2.3",
    settings: &[
        &HttpSettings::table("7070"),
        &DatabaseSettings::TABLE,
        &SecuritySettings::TABLE,
        &HealthSettings::TABLE,
        &LogSettings::TABLE,
        &OwnSettings::TABLE,
    ],
    other: &[&HttpSettings::TABLE, &OtherSettings::TABLE],
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
    security: SecuritySettings,
    health: HealthSettings,
    log: LogSettings,
    own: OwnSettings,
}

#[expect(clippy::unnecessary_wraps, reason = "it is what load asks for")]
fn read(reader: &mut Reader) -> Option<Settings> {
    Some(Settings {
        http: HttpSettings::read(reader),
        database: DatabaseSettings::read(reader),
        security: SecuritySettings::read(reader),
        health: HealthSettings::read(reader),
        log: LogSettings::read(reader),
        own: OwnSettings::read(reader),
    })
}

pub(crate) const URL: (&str, &str) = ("COLLECTOR_URL", "http://collector");

pub(crate) fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Settings, EarlyExit> {
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

/// All of these parts are in the text.
#[track_caller]
pub(crate) fn assert_told(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
}

/// All of these are lines of the text.
#[track_caller]
pub(crate) fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        let is_there = text.lines().any(|found| found == *line);
        assert!(is_there, "{line}\nis not in\n{text}");
    }
}

pub(crate) fn file(text: &str) -> (NamedTempFile, String) {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().display().to_string();
    (file, path)
}

#[test]
fn defaults_are_those_of_the_table() {
    let settings = run(&[], &[]).unwrap();
    assert_eq!(settings.http.host, None);
    assert_eq!(settings.http.port, 7070);
    for (is_open, is_on_platform, interface) in [
        (true, false, "127.0.0.1"),
        (true, true, "0.0.0.0"),
        (false, false, "0.0.0.0"),
    ] {
        assert_eq!(settings.http.interface(is_open, is_on_platform), interface);
    }
    assert_eq!(settings.health.threshold, Duration::from_mins(1));
    assert_eq!(settings.log.format, LogFormat::Auto);
    assert_eq!(settings.log.level, "info");
    assert_eq!((settings.own.size, settings.own.initial), (512_000, 'd'));
    assert_eq!(settings.security.jwt_algorithm, None);
    let own = OwnSettings {
        url: settings.own.url.clone(),
        ..OwnSettings::default()
    };
    assert_eq!(format!("{own:?}"), format!("{:?}", settings.own));
}

#[test]
fn a_declaration_makes_the_row_of_the_table() {
    let row = OwnSettings::TABLE[6];
    assert_eq!((row.key, row.env), ("own.initial", "SAMPLER_WORD"));
    assert_eq!(row.default, Some("day"));
    assert_eq!(row.doc, "What begins with a letter.");
    assert!(DatabaseSettings::TABLE[0].secret && !row.secret);
}

#[test]
fn the_environment_counts_before_the_file_and_the_file_before_the_defaults() {
    let (_file, path) = file(
        "[http]\nport = 1111\nhost = '::1'\n[own]\nurl = 'http://from-the-file'\nsize = 7\n\
         flag = false\npast = '2h'\n[log]\nlevel = ''\n",
    );
    let variables = [("PORT", "2222"), ("MAX_PAYLOAD", "")];
    let settings = run(&["--config", &path], &variables).unwrap();
    assert_eq!(settings.http.host.as_deref(), Some("::1"));
    assert_eq!(settings.http.port, 2222);
    assert_eq!(settings.own.url.unwrap().as_str(), "http://collector/");
    assert_eq!(settings.own.size, 7, "an empty variable is not set");
    assert!(!settings.own.flag);
    assert_eq!(settings.own.past, Duration::from_hours(2));
    assert_eq!(settings.log.level, "info", "an empty value is not set");
}

#[test]
fn the_file_is_named_by_the_environment_or_rather_by_the_command_line() {
    let (_first, first) = file("http.port = 1");
    let (_second, second) = file("http.port = 2");
    let variables = [("SAMPLER_CONFIG", first.as_str())];
    let port = |arguments: &[&str]| run(arguments, &variables).unwrap().http.port;
    assert_eq!(port(&[]), 1);
    assert_eq!(port(&["--config", &second]), 2);
}

#[test]
fn every_mistake_is_named_at_once() {
    let (_file, path) =
        file("[http]\nport = 'x'\n[own]\npast = [1, 2]\nlow = 1.0\nfutur = 1\n[lgo]\na=1\n");
    let text = mistakes(
        &["--config", &path],
        &[
            ("COLLECTOR_URL", ""),
            ("SAMPLER_DB_POOL_SIZE", "0"),
            ("LOG_LEVEL", "info,,=="),
            ("SAMPLER_HIGH", "1"),
            ("SAMPLER_DIMENTION", "hour"),
            ("JWTALGO", "none"),
        ],
    );
    let whole = "expected a whole number from";
    let lines = [
        "example does not start. Mistakes in the settings:",
        &format!("  own.futur in the file {path} is an unknown setting"),
        &format!("  lgo.a in the file {path} is an unknown setting"),
        "  the environment variable SAMPLER_DIMENTION is an unknown setting",
        &format!("  PORT (http.port) is \"x\", from the file {path}: {whole} 0 to 65535"),
        "  SAMPLER_DB_POOL_SIZE (database.pool_size) is \"0\", from the environment variable \
         SAMPLER_DB_POOL_SIZE: expected a whole number from 1 to 1000",
        "  JWTALGO (security.jwt_algorithm) is \"none\", from the environment variable JWTALGO: \
         expected HS256, HS384, HS512, RS256, RS384, RS512 or ES256",
        &format!("  SAMPLER_LOW (own.low) is \"1.0\", from the file {path}: {whole} 0 to 9"),
    ];
    assert_lines(&text, &lines);
    let parts = [
        &format!("own.past in the file {path} has several values: expected a duration"),
        "COLLECTOR_URL (own.url) is not set: expected an http or https address",
        "LOG_LEVEL (log.level) is \"info,,==\"",
    ];
    assert_told(&text, &parts);
    assert_eq!(text.lines().count(), lines.len() + 3, "{text}");
}

#[test]
fn one_mistake_per_setting_is_enough() {
    let text = mistakes(&[], &[("SAMPLER_LOW", "10"), ("SAMPLER_HIGH", "1")]);
    assert_eq!(text.matches("SAMPLER_LOW (").count(), 1, "{text}");
    assert_told(&text, &["expected a whole number from 0 to 9"]);
}

#[test]
fn settings_of_the_other_program_may_stand_beside_ours() {
    let (_file, path) = file("[other]\nsetting = 1\n");
    let beside = [("SAMPLER_OF_THE_OTHER", "1"), ("UNRELATED", "1")];
    run(&["--config", &path], &beside).unwrap();
    let text = mistakes(&[], &[("SAMPLER_OF_NOBODY", "s3cr3t")]);
    assert_told(&text, &["SAMPLER_OF_NOBODY is an unknown setting"]);
    assert!(!text.contains("s3cr3t"), "{text}");
    run(&[], &[("SAMPLER_OF_NOBODY", "")]).expect("an empty variable is not set");
}

#[test]
fn a_file_that_is_none_is_a_mistake_that_repeats_nothing_of_it() {
    let text = mistakes(&["--config", "nowhere.toml"], &[]);
    assert_told(
        &text,
        &["the file nowhere.toml cannot be read: No such file"],
    );
    let (large, numbers) = ("#".repeat((1 << 20) + 1), "own.size = 99999999999999999999");
    for (content, expected) in [
        (
            "[database]\n\nuri = s3cr3t\n",
            "is not valid TOML: line 3: ",
        ),
        (numbers, "is not valid TOML: number too large"),
        (&large, "has 1048577 bytes: expected at most 1048576"),
    ] {
        let (_file, path) = file(content);
        let text = mistakes(&["--config", &path], &[]);
        assert_told(&text, &[expected]);
        assert!(!text.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn an_unknown_name_leads_to_the_one_that_was_meant() {
    for (line, meant) in [
        ("PORT = 1", "; did you mean http.port?"),
        ("COLECTOR_URL = 'http://host'", "; did you mean own.url?"),
        ("SAMPLER_OF_THE_OTHER = 1", "; did you mean other.setting?"),
        ("own.intial = 'day'", "; did you mean own.initial?"),
        (
            "[security]\nclient_ids = 'me'",
            "; did you mean security.client_id?",
        ),
        ("DIMENSION = 'day'", ""),
    ] {
        let (_file, path) = file(line);
        let text = mistakes(&["--config", &path], &[]);
        assert_told(&text, &[&format!(" is an unknown setting{meant}\n")]);
    }
    let text = mistakes(&[], &[("SAMPLER_DB_URI", "1")]);
    assert_told(
        &text,
        &["SAMPLER_DB_URI is an unknown setting; did you mean DB_URI?"],
    );
}

#[test]
fn a_variable_that_is_not_utf_8_is_a_mistake() {
    let host = ("HOST", OsString::from_vec(vec![0xff]));
    let variables: Variables = [host, (URL.0, URL.1.into())].into_iter().collect();
    let plan = load(&PROGRAM, ["example"], &variables, read).unwrap_err();
    assert_told(
        &plan.stderr,
        &["the environment variable HOST is not UTF-8"],
    );
}

#[test]
fn where_a_value_comes_from_can_be_asked() {
    let variables = [("PORT", "1"), URL].into_iter().collect();
    load(&PROGRAM, ["example"], &variables, |reader| {
        for (key, origin) in [
            ("http.port", Some("the environment variable PORT")),
            ("http.host", None),
            ("log.level", Some("the default")),
            ("security.api", None),
        ] {
            assert_eq!(reader.origin(key), origin, "{key}");
        }
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
            reader.parsed("own.initial", |_| Err::<u8, _>("the other one".to_owned()));
        assert_eq!(parsed, None);
        reader.reject("security.api", "an address where SECURED is true");
        None::<()>
    })
    .unwrap_err();
    assert_eq!(
        plan.stderr,
        "example does not start. Mistakes in the settings:\n  the moon is full\n  \
         SAMPLER_WORD (own.initial) is \"day\", from the default: expected the other \
         one\n  API (security.api) is not set: expected an address where SECURED is true\n",
    );
}
