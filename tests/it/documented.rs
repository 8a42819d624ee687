//! The curls of the pages for providers run as they stand there, and are answered as the pages say.

use std::path::Path;

use chrono::{DateTime, SecondsFormat, TimeDelta};
use sampler_testkit::build::without;
use sampler_testkit::{Program, now_millis, workspace_dir};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cli::event;
use crate::examples::has;
use crate::landscape::{DAY, HOUR, Landscape, until_ready};

/// The address of the receiver in the pages.
const RECEIVER: &str = "localhost:7070";
/// Stands between the answers to two commands.
const BETWEEN: char = '\u{1e}';
/// The latest moment in the pages, in ms since the epoch.
const WRITTEN: i64 = 1_795_186_800_000;

/// A command of a page, and the answer that the page shows.
#[derive(Debug)]
struct Step {
    command: String,
    answer: Option<String>,
}

/// The commands with curl, in their order. An answer stands behind its command, at most a paragraph
/// later; a further one belongs to the same command, where the page says "again".
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let pieces: Vec<&str> = page.split("```").collect();
    for piece in pieces.chunks_exact(2) {
        let (text, (language, block)) = (piece[0], piece[1].split_once('\n').unwrap());
        let is_near = !text.trim().contains("\n\n");
        let curl = block.find("curl ").filter(|_| language.is_empty());
        if let Some(curl) = curl {
            let is_whole = curl == 0 || block[..curl].ends_with('\n');
            // The nightly comparison has a test of its own.
            if is_whole && !block.contains("list-instances") {
                let (command, answer) = (block.to_owned(), None);
                steps.push(Step { command, answer });
            }
        } else if let Some(last) = steps.last_mut().filter(|_| is_near && is_answer(block)) {
            if last.answer.is_none() {
                last.answer = Some(block.to_owned());
            } else if text.contains("again") {
                let curl = last.command.find("curl ").unwrap();
                let command = last.command[curl..].to_owned();
                let answer = Some(block.to_owned());
                steps.push(Step { command, answer });
            }
        }
    }
    steps
}

fn is_answer(block: &str) -> bool {
    block.starts_with("HTTP/1.1 ") || block.starts_with('{')
}

/// What is answered to each command, with the head.
async fn run(steps: &[Step], receiver: &Program, folder: &Path) -> Vec<String> {
    let command = |step: &Step| format!("{}\nprintf '\\036'\n", step.command);
    let commands: Vec<String> = steps.iter().map(command).collect();
    let script = format!(
        "curl() {{ command curl -sS -i \"$@\"; }}\n{}",
        commands.concat()
    );
    let script = of_today(&script).replace(RECEIVER, receiver.address());
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(folder);
    shell.env("RECEIVER", receiver.base_url());
    shell.env("TOKEN", "any");
    let ran = shell.output().await.unwrap();
    let problems = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(problems, "", "{script}");
    let answers = String::from_utf8(ran.stdout).unwrap();
    let mut answers: Vec<String> = answers.split(BETWEEN).map(str::to_owned).collect();
    assert_eq!(answers.pop().as_deref(), Some(""));
    answers
}

/// The same with all moments later by as many days as have passed since the pages were written: a
/// receiver does not take old events.
fn of_today(script: &str) -> String {
    let days = (now_millis() - WRITTEN) / DAY;
    let is_of_moment = |sign: char| sign.is_ascii_alphanumeric() || ":.-".contains(sign);
    let mut later = String::new();
    for piece in script.split_inclusive(|sign| !is_of_moment(sign)) {
        let word = piece.trim_end_matches(|sign| !is_of_moment(sign));
        let moment = word.parse::<i64>().ok().filter(|_| word.len() == 13);
        later += &match (moment, DateTime::parse_from_rfc3339(word)) {
            (Some(moment), _) => (moment + days * DAY).to_string(),
            (None, Ok(moment)) => {
                (moment + TimeDelta::days(days)).to_rfc3339_opts(SecondsFormat::Millis, true)
            }
            (None, Err(_)) => word.to_owned(),
        };
        later += &piece[word.len()..];
    }
    later
}

/// An answer is what the page shows.
fn check(step: &Step, answer: &str) {
    let what = format!("{step:?}\n{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").expect(&what);
    let status = |head: &str| head.split(' ').nth(1).unwrap().parse::<u16>().unwrap();
    let json = |text: &str| serde_json::from_str::<Value>(text).expect(&what);
    let Some(shown) = &step.answer else {
        assert!(status(head) < 300, "{what}");
        return;
    };
    if !shown.starts_with("HTTP/1.1 ") {
        assert_eq!(status(head), 200, "{what}");
        let shown = json(&shown.replace(", …", "").replace("{…}", "{}"));
        assert!(is_like(&shown, &json(body)), "{what}");
        return;
    }
    let (shown_head, shown_body) = shown.split_once("\n\n").unwrap_or((shown, ""));
    assert_eq!(status(shown_head), status(head), "{what}");
    for header in shown_head.lines().skip(1) {
        let (name, _) = header.split_once(": ").unwrap();
        let differs = ["date", "location"].contains(&name);
        let is_there = |line: &str| line == header || differs && line.starts_with(name);
        assert!(head.lines().any(is_there), "{header}: {what}");
    }
    if !shown_body.is_empty() {
        assert_eq!(json(shown_body), json(body), "{what}");
    }
}

/// Whether an answer has all that is shown, with values of the same kinds. Each item of its lists is
/// like one that is shown.
fn is_like(shown: &Value, answered: &Value) -> bool {
    match (shown, answered) {
        (Value::Object(shown), Value::Object(answered)) => shown.iter().all(|(name, shown)| {
            name == "…"
                || answered
                    .get(name)
                    .is_some_and(|value| is_like(shown, value))
        }),
        (Value::Array(shown), Value::Array(answered)) => answered
            .iter()
            .all(|answered| shown.iter().any(|shown| is_like(shown, answered))),
        (shown, answered) => std::mem::discriminant(shown) == std::mem::discriminant(answered),
    }
}

/// Runs the curls of a page; says how many there were.
async fn follow(label: &str, page: &str) -> usize {
    for program in ["bash", "curl"] {
        if !has(program, "--version").await {
            return usize::MAX;
        }
    }
    let steps = steps(&std::fs::read_to_string(workspace_dir().join(page)).unwrap());
    let world = Landscape::new(label).await;
    let receiver = world.receiver().env("SAMPLER_DIMENSION", "hour");
    let receiver = receiver.start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path());
    let answers = run(&steps, &receiver, folder.path()).await;
    for (step, answer) in steps.iter().zip(&answers) {
        check(step, answer);
    }
    steps.len()
}

/// The files that the pages mention.
fn write_files(folder: &Path) {
    let start = without(event("start", "dry", now_millis() - 3 * HOUR), "type");
    std::fs::write(folder.join("start.json"), start.to_string()).unwrap();
    // The instance whose plan docs/brokers.md changes.
    let mut start = event(
        "start",
        "982c6024-4f5c-48e8-a64b-cf72d30df7dc",
        now_millis() - HOUR,
    );
    start["organization_id"] = json!("43a8d88a");
    start["space_id"] = json!("78f79e6a");
    start["consumer_id"] = json!("service:982c6024-4f5c-48e8-a64b-cf72d30df7dc");
    start["plan_id"] = json!("small");
    std::fs::write(folder.join("events.ndjson"), start.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_curls_of_the_readme_are_answered_as_it_says() {
    assert!(follow("curls_readme", "README.md").await >= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_curls_of_the_api_are_answered_as_it_says() {
    assert!(follow("curls_api", "docs/api.md").await >= 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_curls_for_brokers_are_answered() {
    assert!(follow("curls_brokers", "docs/brokers.md").await >= 3);
}
