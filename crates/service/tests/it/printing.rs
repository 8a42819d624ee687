//! What a program says about its settings.

use sampler_service::settings::EXIT_SETTINGS;

use crate::settings::{PROGRAM, assert_lines, assert_told, file, mistakes, printed, run};

#[test]
fn secrets_are_never_shown() {
    let secrets = [
        ("DB_URI", "mongodb://u:s3cr3t@host/db"),
        ("CLIENT_SECRET", "s3cr3t"),
        ("JWTKEY", "s3cr3t"),
    ];
    let text = printed(&["--print-config"], &secrets);
    assert!(!text.contains("s3cr3t"), "{text}");
    let hidden = text.matches("\"<hidden>\" # the environment variable");
    assert_eq!(hidden.count(), 3, "{text}");
    let text = format!("{:?}", run(&[], &secrets).unwrap());
    assert!(!text.contains("s3cr3t"), "{text}");
    assert_eq!(text.matches("REDACTED").count(), 3, "{text}");
    let wrong = [
        ("COLLECTOR_URL", "http://me:s3cr3t@host"),
        ("SAMPLER_DB_SERVICE", "absent"),
    ];
    let text = mistakes(&[], &wrong);
    assert!(!text.contains("s3cr3t"), "{text}");
    assert_told(&text, &[r#"is "http://<hidden>@host""#]);
}

#[test]
fn the_settings_in_force_are_a_file_that_says_where_each_comes_from() {
    let text = printed(&["--print-config"], &[("PORT", "1"), ("SAMPLER_PAST", "5")]);
    let lines = [
        "port = 1 # the environment variable PORT",
        "# host is not set",
        "past = \"5\" # the environment variable SAMPLER_PAST",
        "flag = true # the default",
        "# client_id is not set",
    ];
    assert_lines(&text, &lines);
    let table: toml::Table = text.parse().unwrap();
    assert_eq!(table["http"]["port"].as_integer(), Some(1));
}

#[test]
fn the_settings_in_force_are_shown_beside_the_mistakes() {
    let plan = run(&["--print-config"], &[("PORT", "x")]).unwrap_err();
    assert_eq!(plan.code, EXIT_SETTINGS);
    let line = "port = \"x\" # the environment variable PORT";
    assert_told(&plan.stdout, &[line]);
    assert_told(&plan.stderr, &["PORT (http.port) is \"x\""]);
}

#[test]
fn the_printed_defaults_are_a_file_that_changes_nothing() {
    let text = printed(&["--print-defaults"], &[("PORT", "1")]);
    let parts = [
        "\n# The port to listen on. With 0 the system chooses one.\n",
        "\n# PORT: a whole number from 0 to 65535.\nport = 7070\n",
        "\n# url =\n",
    ];
    assert_told(&text, &parts);
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let (_file, path) = file(&text);
    let read = |arguments: &[&str]| format!("{:?}", run(arguments, &[]).unwrap());
    assert_eq!(read(&["--config", &path]), read(&[]));
    let table: toml::Table = text.parse().unwrap();
    for setting in PROGRAM.settings().filter(|it| it.default.is_some()) {
        let (section, name) = setting.key.split_once('.').unwrap();
        let is_there = table[section].get(name).is_some();
        assert!(is_there, "{} is missing", setting.key);
    }
}

#[test]
fn the_table_of_settings_has_a_row_for_each() {
    let text = printed(&["--help-settings"], &[]);
    for setting in PROGRAM.settings() {
        let start = format!("| `{}` | `{}` | ", setting.env, setting.key);
        assert_eq!(text.matches(&start).count(), 1, "{start}");
    }
    let parts = [
        "| `7070` | The port",
        r"| `true` | Whether \| or not. Takes true or false. |",
        "| `own.url` | none |",
        "| none | The secret of the client. Secret: never shown.",
    ];
    assert_told(&text, &parts);
}

#[test]
fn the_command_line_says_what_there_is() {
    let help = printed(&["--help"], &[]);
    let flags = [
        "--config <FILE>",
        "--print-config",
        "--check-config",
        "--help-poem",
        "--version",
    ];
    assert_told(&help, &flags);
    for (flag, text) in [
        ("--version", "example 1.2.3\n"),
        ("--help-poem", "roses\n"),
        ("--check-config", "example: the settings are fine\n"),
    ] {
        assert_eq!(printed(&[flag], &[]), text);
    }
    let wrong = mistakes(&["--check-config"], &[("PORT", "x")]);
    assert_told(&wrong, &["PORT"]);
    for (flags, told) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["--print-config", "--help-poem"], "cannot be used with"),
    ] {
        assert_told(&mistakes(flags, &[]), &[told]);
    }
}
