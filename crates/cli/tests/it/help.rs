//! Help, and command lines that are wrong.

use crate::{file, run, run_in};

#[track_caller]
fn refused(arguments: &[&str], part: &str) -> String {
    let ended = run(arguments);
    ended.tells(2, &[part]);
    assert_eq!(ended.output, "", "{ended:?}");
    ended.errors
}

#[test]
fn help_names_commands_options_and_exit_codes() {
    run(&["--help"]).writes(0, &["verify"]);
    let help = run(&["verify", "--help"]);
    let codes = ["Exit codes: 0", "3 the API"];
    let options = ["--url", "SAMPLER_TOKEN", "--json", "--granularity"];
    help.writes(0, &[&options[..], &codes].concat());
    let help = help.output;
    assert!(help.lines().all(|line| line.len() <= 140), "{help}");
    assert!(run(&["--version"]).output.starts_with("sampler "));
}

#[test]
fn a_wrong_command_line_is_told() {
    refused(&["verfy"], "verify");
    refused(&["verify"], "FILE");
    refused(&[], "Usage");
    let (_folder, events) = file("events.ndjson", "{}\n");
    for (option, value, part) in [
        ("--granularity", "week", "--granularity"),
        ("--from", "last week", "--from"),
        ("--kept", "5", "--kept"),
        ("--concurrency", "0", "--concurrency"),
        ("--url", "no address", "--url"),
        ("--url", "ftp://localhost", "not an http or https address"),
    ] {
        refused(&["verify", &events, option, value], part);
    }
}

#[test]
fn a_wrong_file_is_told_with_its_line() {
    let begun = "# begin\n\n{\"type\": \"start\"}\n";
    for (name, text, part) in [
        (
            "events.ndjson",
            begun,
            "events.ndjson: line 3: missing field",
        ),
        ("events.ndjson", "# nothing\n", "there are no events in it"),
        ("events.txt", "", "--format"),
        ("events.csv", "start,end\n1,2\n", "organization_id"),
    ] {
        let (_folder, path) = file(name, text);
        refused(&["verify", &path], part);
    }
    refused(&["verify", "/nowhere.csv"], "/nowhere.csv: ");
}

/// Each command shows how it is used, also the groups of commands.
#[test]
fn every_help_has_examples_that_begin_with_the_command() {
    let mut all = Vec::new();
    commands(&sampler_cli::command(), &mut Vec::new(), &mut all);
    assert!(all.len() > 20, "{all:?}");
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
    let token = [("SAMPLER_TOKEN", "one two")];
    let ended = run_in(&["spans"], &token);
    ended.tells(2, &["SAMPLER_TOKEN holds no token"]);
    assert!(!ended.errors.contains("two"), "{ended:?}");
}
