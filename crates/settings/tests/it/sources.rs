//! Where settings come from, and what is said of mistakes.

use std::time::Duration;

use sampler_settings::{Of, help, load};

use crate::{Variable, assert_told, environment, file, program, receiver, worker};

const FILE: &str = "SAMPLER_CONFIG_FILE";

#[test]
fn the_environment_counts_before_the_file_and_the_file_before_the_defaults() {
    let (_file, path) = file(
        "port = 1111\nhost = '::1'\nsampler_console = false\nsampler_slack_past_interval = '2h'\n\
         log_level = ''\ncollector_url = 'http://collector'\n",
    );
    let variables = [(FILE, path.as_str()), ("PORT", "2222"), ("MAX_PAYLOAD", "")];
    let settings = receiver(&variables).unwrap();
    assert_eq!(settings.program.port, 2222);
    assert_eq!(settings.program.host.as_deref(), Some("::1"));
    assert!(!settings.console.enabled);
    assert_eq!(settings.slack.past, Duration::from_hours(2));
    assert_eq!(
        settings.program.log_level, "info",
        "an empty value is not set"
    );
    assert_eq!(
        settings.limits.payload, 512_000,
        "an empty variable is not set"
    );
}

#[test]
fn every_mistake_is_named_at_once() {
    let (_file, path) = file("port = 'x'\nprocess_batch_size = 1.5\nhosst = '::1'\n");
    let text = worker(&[
        (FILE, &path),
        ("COLLECTOR_URL", ""),
        ("SAMPLER_DB_POOL_SIZE", "0"),
        ("LOG_LEVEL", "info,,=="),
        ("SAMPLER_DIMENTION", "hour"),
        ("JWTALGO", "none"),
        ("SAMPLER_RETRY_LIMIT", "10m"),
    ])
    .unwrap_err();
    let parts = [
        "example does not start. Mistakes in the settings:\n",
        &format!("  HOSST in {path} is an unknown setting; did you mean HOST?\n"),
        "  SAMPLER_DIMENTION in the environment is an unknown setting; did you mean SAMPLER_DIMENSION?\n",
        "  PORT is \"x\": expected a whole number from 0 to 65535\n",
        "  PROCESS_BATCH_SIZE is \"1.5\": expected a whole number from 1 to 10000\n",
        "  COLLECTOR_URL is not set: expected an http or https address",
        "  SAMPLER_DB_POOL_SIZE is \"0\": expected a whole number from 1 to 1000\n",
        "  LOG_LEVEL is \"info,,==\": expected off, error,",
        "  JWTALGO is \"none\": expected HS256,",
        "  SAMPLER_RETRY_LIMIT (10m) must be less than SAMPLER_MONTH_SLACK (10m): ",
    ];
    assert_told(&text, &parts);
    assert_eq!(text.lines().count(), parts.len(), "{text}");
}

#[test]
fn settings_of_the_other_program_are_no_mistake_and_unknown_ones_are() {
    receiver(&[("SAMPLER_CONFIRM", "true"), ("UNRELATED", "1")]).unwrap();
    worker(&[("SAMPLER_UNITS", "no unit"), ("SAMPLER_OF_NOBODY", "")]).unwrap();
    for (name, meant) in [
        ("SAMPLER_DB_URI", "DB_URI"),
        ("SAMPLER_DIEMNSION", "SAMPLER_DIMENSION"),
        ("SAMPLER_CLIENT_SCOPES", "SAMPLER_CLIENT_SCOPE"),
    ] {
        let text = receiver(&[(name, "s3cr3t")]).unwrap_err();
        let told =
            format!("{name} in the environment is an unknown setting; did you mean {meant}?");
        assert_told(&text, &[&told]);
    }
}

#[test]
fn a_file_that_is_none_is_a_mistake_that_repeats_nothing_of_it() {
    for (content, expected) in [
        (
            "port = 1\n\ndb_uri = s3cr3t\n",
            "is not valid TOML in line 3",
        ),
        ("db_uri = ['s3cr3t']\n", "has several values for db_uri"),
    ] {
        let (_file, path) = file(content);
        let text = receiver(&[(FILE, &path)]).unwrap_err();
        assert_told(&text, &[expected]);
    }
    let text = receiver(&[(FILE, "nowhere.toml")]).unwrap_err();
    assert_told(
        &text,
        &["the file nowhere.toml cannot be read: No such file"],
    );
}

#[test]
fn a_bound_database_counts_before_what_is_written_down() {
    let services = |names: &[&str]| {
        let of = |name: &&str| {
            let uri = format!("mongodb://u:s3cr3t@{name}/billing");
            let names = format!(r#""name": "{name}", "instance_name": "of-{name}""#);
            format!(r#"{{{names}, "credentials": {{"uri": "{uri}"}}}}"#)
        };
        let all: Vec<String> = names.iter().map(of).collect();
        format!(r#"{{"mongodb": [{}]}}"#, all.join(","))
    };
    let uri = |variables: &[Variable<'_>]| {
        let variables = [&[("DB_URI", "mongodb://written/written")], variables].concat();
        receiver(&variables).map(|settings| settings.database.options("it").uri)
    };
    let (one, two) = (services(&["spans"]), services(&["spans", "archive"]));
    let (_file, path) = file(&one);
    let bound = Ok("mongodb://u:s3cr3t@spans/billing".to_owned());
    assert_eq!(uri(&[("VCAP_SERVICES", &one)]), bound);
    assert_eq!(uri(&[("VCAP_SERVICES_FILE_PATH", &path)]), bound);
    for wanted in ["spans", "of-spans"] {
        let wanted = ("SAMPLER_DB_SERVICE", wanted);
        assert_eq!(uri(&[("VCAP_SERVICES", &two), wanted]), bound);
    }
    let several = uri(&[("VCAP_SERVICES", &two)]).unwrap_err();
    assert_told(
        &several,
        &["SAMPLER_DB_SERVICE is not set", "of: 'spans', 'archive'\n"],
    );
    let absent = uri(&[("SAMPLER_DB_SERVICE", "absent")]).unwrap_err();
    assert_told(&absent, &["SAMPLER_DB_SERVICE is absent", "of: \n"]);
    let nowhere = uri(&[("VCAP_SERVICES_FILE_PATH", "nowhere.json")]).unwrap_err();
    assert_told(&nowhere, &["the file nowhere.json cannot be read"]);
}

#[test]
fn a_check_prints_all_values_and_no_secret() {
    let variables = [("CLIENT_SECRET", "s3cr3t"), ("MAX_PAYLOAD", "1mb")];
    let arguments = ["--check-config".to_owned()];
    let checked = load(&program(Of::Receiver), &arguments, &environment(&variables));
    let exit = checked.unwrap_err();
    assert_eq!(exit.code, 0);
    let lines = [
        "example: the settings are fine\n",
        "  MAX_PAYLOAD = 1mb\n",
        "  CLIENT_SECRET = <hidden>\n",
        "  DB_URI = <hidden>\n",
        "  PROVISIONING_URL = not set\n",
        "  PORT = 7070\n",
    ];
    assert_told(&exit.text, &lines);
    assert!(!exit.text.contains("s3cr3t"), "{}", exit.text);
}

#[test]
fn what_is_asked_on_the_command_line_is_printed_and_anything_else_refused() {
    let asked = |argument: &str| {
        load(
            &program(Of::Worker),
            &[argument.to_owned()],
            &environment(&[]),
        )
        .unwrap_err()
    };
    assert_eq!(asked("--version").text, "example 1.2.3\n");
    let usage = asked("--help");
    assert_eq!(usage.code, 0);
    assert_told(&usage.text, &["Does something.", "--check-config"]);
    let refused = asked("--verbose");
    assert_eq!((refused.code, refused.text), (64, usage.text));
    assert_eq!(asked("--help-settings").text, help(Of::Worker));
    let rows = [
        "| `PORT` | `7071` | The port to listen on.",
        "| `SAMPLER_DIMENSION` | `day` |",
        "| `COLLECTOR_URL` | none |",
        "Takes a duration (milliseconds, or a number with ms, s, m, h or d) from 100ms to 2m. |",
    ];
    assert_told(&help(Of::Worker), &rows);
}
