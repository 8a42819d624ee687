//! Help, and command lines that are wrong.

use crate::{Ended, file, run};

fn refused(arguments: &[&str]) -> Ended {
    let ended = run(arguments);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(ended.output, "", "{ended:?}");
    ended
}

#[test]
fn help_names_commands_options_and_exit_codes() {
    let help = run(&["--help"]);
    assert_eq!(help.code, Some(0));
    assert!(help.output.contains("verify"), "{help:?}");
    let help = run(&["verify", "--help"]).output;
    for word in [
        "--url",
        "SAMPLER_TOKEN",
        "--json",
        "--granularity",
        "Exit codes: 0",
        "3 the API",
    ] {
        assert!(help.contains(word), "{word} in {help}");
    }
    assert!(help.lines().all(|line| line.len() <= 140), "{help}");
    assert!(run(&["--version"]).output.starts_with("sampler "));
}

#[test]
fn a_wrong_command_line_is_told() {
    assert!(refused(&["verfy"]).errors.contains("verify"));
    assert!(refused(&["verify"]).errors.contains("EVENTS"));
    assert!(refused(&[]).errors.contains("Usage"));
    let (_folder, events) = file("events.ndjson", "{}\n");
    for (option, value) in [
        ("--granularity", "week"),
        ("--from", "last week"),
        ("--kept", "5"),
        ("--concurrency", "0"),
        ("--url", "no address"),
    ] {
        let ended = refused(&["verify", &events, option, value]);
        assert!(ended.errors.contains(option), "{ended:?}");
    }
    let ended = refused(&["verify", &events, "--url", "ftp://localhost"]);
    assert!(
        ended.errors.contains("not an http or https address"),
        "{ended:?}"
    );
}

#[test]
fn a_wrong_file_is_told_with_its_line() {
    let (_folder, path) = file("events.ndjson", "# begin\n\n{\"type\": \"start\"}\n");
    let ended = refused(&["verify", &path]);
    assert!(
        ended
            .errors
            .contains("events.ndjson: line 3: missing field"),
        "{ended:?}"
    );
    let (_folder, path) = file("events.ndjson", "# nothing\n");
    assert!(
        refused(&["verify", &path])
            .errors
            .contains("there are no events in it")
    );
    let (_folder, path) = file("events.txt", "");
    assert!(refused(&["verify", &path]).errors.contains("--format"));
    assert!(
        refused(&["verify", "/nowhere.csv"])
            .errors
            .contains("/nowhere.csv: ")
    );
    let (_folder, path) = file("events.csv", "start,end\n1,2\n");
    assert!(
        refused(&["verify", &path])
            .errors
            .contains("organization_id")
    );
}

/// Each command shows how it is used, also the groups of commands.
#[test]
fn every_help_has_examples_that_begin_with_the_command() {
    let mut all = Vec::new();
    commands(&sampler_cli::command(), &mut Vec::new(), &mut all);
    assert!(all.len() > 25, "{all:?}");
    for words in all {
        let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = run(&[&arguments[..], &["--help"]].concat()).output;
        let examples = help.split_once("\nExamples:\n");
        let (_, examples) = examples.unwrap_or_else(|| panic!("{words:?} has no examples: {help}"));
        let example = format!("sampler {}", words.join(" "));
        assert!(examples.contains(&example), "{example:?} in {help}");
    }
}

fn commands(command: &clap::Command, words: &mut Vec<String>, all: &mut Vec<Vec<String>>) {
    all.push(words.clone());
    for command in command.get_subcommands() {
        words.push(command.get_name().to_owned());
        commands(command, words, all);
        words.pop();
    }
}

#[test]
fn a_wrong_token_is_told_and_not_shown() {
    let (_folder, events) = file("events.ndjson", "");
    let (_folder2, token) = file("token", "one two\n");
    let ended = refused(&["verify", &events, "--token-file", &token]);
    assert!(ended.errors.contains("holds no token"), "{ended:?}");
    assert!(!ended.errors.contains("two"), "{ended:?}");
    let ended = refused(&["verify", &events, "--token-file", "/nowhere"]);
    assert!(ended.errors.contains("/nowhere: "), "{ended:?}");
}
