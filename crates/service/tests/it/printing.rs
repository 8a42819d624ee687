//! What a program says about its settings.

use sampler_service::settings::EXIT_SETTINGS;

use crate::settings::{PROGRAM, file, mistakes, printed, run};

#[test]
fn secrets_are_never_shown() {
    let secrets = [
        ("DB_URI", "mongodb://u:s3cr3t@host/db"),
        ("CLIENT_SECRET", "s3cr3t"),
        ("JWTKEY", "s3cr3t"),
    ];
    let text = printed(&["--print-config"], &secrets);
    assert!(!text.contains("s3cr3t"), "{text}");
    assert_eq!(
        text.matches("\"<hidden>\" # the environment variable")
            .count(),
        3,
        "{text}"
    );
    let text = format!("{:?}", run(&[], &secrets).unwrap());
    assert!(!text.contains("s3cr3t"), "{text}");
    assert_eq!(text.matches("REDACTED").count(), 3, "{text}");
    let text = mistakes(
        &[],
        &[
            ("COLLECTOR_URL", "http://me:s3cr3t@host"),
            ("SAMPLER_DB_SERVICE", "absent"),
        ],
    );
    assert!(!text.contains("s3cr3t"), "{text}");
    assert!(text.contains(r#"is "http://<hidden>@host""#), "{text}");
}

#[test]
fn the_settings_in_force_are_a_file_that_says_where_each_comes_from() {
    let text = printed(&["--print-config"], &[("PORT", "1"), ("SAMPLER_PAST", "5")]);
    for line in [
        "port = 1 # the environment variable PORT",
        "# host is not set",
        "past = \"5\" # the environment variable SAMPLER_PAST",
        "flag = true # the default",
        "# client_id is not set",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line}\nis not in\n{text}"
        );
    }
    let table: toml::Table = text.parse().unwrap();
    assert_eq!(table["http"]["port"].as_integer(), Some(1));
}

#[test]
fn the_settings_in_force_are_shown_beside_the_mistakes() {
    let plan = run(&["--print-config"], &[("PORT", "x")]).unwrap_err();
    assert_eq!(plan.code, EXIT_SETTINGS);
    assert!(
        plan.stdout
            .contains("port = \"x\" # the environment variable PORT")
    );
    assert!(plan.stderr.contains("PORT (http.port) is \"x\""));
}

#[test]
fn the_printed_defaults_are_a_file_that_changes_nothing() {
    let text = printed(&["--print-defaults"], &[("PORT", "1")]);
    assert!(
        text.contains("\n# The port to listen on. With 0 the system chooses one.\n"),
        "{text}"
    );
    assert!(
        text.contains("\n# PORT: a whole number from 0 to 65535.\nport = 7070\n"),
        "{text}"
    );
    assert!(text.contains("\n# url =\n"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let (_file, path) = file(&text);
    let (with, without) = (
        run(&["--config", &path], &[]).unwrap(),
        run(&[], &[]).unwrap(),
    );
    assert_eq!(format!("{with:?}"), format!("{without:?}"));
    let table: toml::Table = text.parse().unwrap();
    for setting in PROGRAM
        .settings()
        .filter(|setting| setting.default.is_some())
    {
        let (section, name) = setting.key.split_once('.').unwrap();
        assert!(
            table[section].get(name).is_some(),
            "{} is missing",
            setting.key
        );
    }
}

#[test]
fn the_table_of_settings_has_a_row_for_each() {
    let text = printed(&["--help-settings"], &[]);
    for setting in PROGRAM.settings() {
        let start = format!("| `{}` | `{}` | ", setting.env, setting.key);
        assert_eq!(text.matches(&start).count(), 1, "{start}");
    }
    assert!(text.contains("| `7070` | The port"), "{text}");
    assert!(
        text.contains(r"| `true` | Whether \| or not. Takes true or false. |"),
        "{text}"
    );
    assert!(text.contains("| `own.url` | none |"), "{text}");
    assert!(
        text.contains("| none | The secret of the client. Secret: never shown."),
        "{text}"
    );
}

#[test]
fn the_command_line_says_what_there_is() {
    let help = printed(&["--help"], &[]);
    for flag in [
        "--config <FILE>",
        "--print-config",
        "--check-config",
        "--help-poem",
        "--version",
    ] {
        assert!(help.contains(flag), "{help}");
    }
    assert_eq!(printed(&["--version"], &[]), "example 1.2.3\n");
    assert_eq!(printed(&["--help-poem"], &[]), "roses\n");
    assert_eq!(
        printed(&["--check-config"], &[]),
        "example: the settings are fine\n"
    );
    assert!(mistakes(&["--check-config"], &[("PORT", "x")]).contains("PORT"));
    assert!(mistakes(&["--no-such-flag"], &[]).contains("--no-such-flag"));
    assert!(mistakes(&["--print-config", "--help-poem"], &[]).contains("cannot be used with"));
}
