//! The events of a replay. `sampler events send` sends them, and `sampler verify` compares them with what was billed;
//! both get them with the times at which they are replayed.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Error, Result, ensure};
use chrono::{DateTime, SecondsFormat};
use sampler_testkit::target_dir;
use sampler_verify::Target;
use sampler_verify::events::{self, Columns, Format};
use sampler_verify::moment::parse_length;
use serde_json::{Map, Value, json};

/// A file of events.
#[derive(Debug)]
pub(super) struct Events {
    /// The file to send and to verify.
    pub(super) path: PathBuf,
    text: String,
    /// Added to all moments, in ms.
    offset: i64,
    /// Late stops. They are sent once usages reach beyond them.
    pub(super) late: Vec<(Target, i64)>,
    /// The lines of late stops, and of later events of the same targets.
    held: HashSet<u64>,
}

impl Events {
    /// Reads a file. With `last_ago`, all moments are moved so that the last lies that long ago.
    pub(super) fn read(path: PathBuf, now: i64, last_ago: Option<&str>) -> Result<Self> {
        let shown = path.display().to_string();
        let text = fs::read_to_string(&path).with_context(|| format!("reading {shown}"))?;
        let format = Format::of_name(&shown);
        let format = format.with_context(|| format!("{shown} is no .ndjson, .jsonl or .csv"))?;
        let all = events::read(text.as_bytes(), format, &Columns::default(), now);
        let all = all
            .map_err(Error::msg)
            .with_context(|| format!("in {shown}"))?;
        let last = all.iter().map(|event| event.moment).max().unwrap_or(now);
        let offset = match last_ago {
            Some(ago) => now - parse_length(ago).map_err(Error::msg)? - last,
            None => 0,
        };
        let mut events = Self {
            path,
            offset,
            late: Vec::new(),
            held: HashSet::new(),
            text: String::new(),
        };
        if format == Format::Ndjson {
            events.hold_late(&all, &text);
            events.text = dated(&text, &all, offset)?;
            events.path = write("replay.ndjson", &events.text)?;
        }
        ensure!(
            format == Format::Ndjson || offset == 0,
            "only NDJSON can be moved"
        );
        Ok(events)
    }

    fn hold_late(&mut self, all: &[events::Event], text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        let mut targets: HashSet<&Target> = HashSet::new();
        for event in all {
            let line = usize::try_from(event.line - 1).ok();
            let line = line.and_then(|index| lines.get(index));
            if line.is_some_and(|line| is_late(line)) {
                let moment = event.moment + self.offset;
                self.late.push((event.target.clone(), moment));
                self.held.insert(event.line);
            }
            // An update is two events of one line, of two targets.
            if targets.contains(&event.target) || self.held.contains(&event.line) {
                self.held.insert(event.line);
                targets.insert(&event.target);
            }
        }
    }

    /// The files to send, one after the other: with late stops, the second one has them.
    pub(super) fn parts(&self) -> Result<Vec<PathBuf>> {
        if self.late.is_empty() {
            return Ok(vec![self.path.clone()]);
        }
        let part = |name: &str, is_held: bool| {
            let lines = (1..).zip(self.text.lines());
            let lines = lines.filter(|(number, _)| self.held.contains(number) == is_held);
            let lines: Vec<&str> = lines.map(|(_, line)| line).collect();
            write(name, &lines.join("\n"))
        };
        Ok(vec![
            part("events.ndjson", false)?,
            part("late.ndjson", true)?,
        ])
    }
}

/// The lines of a file with the times at which they are replayed, as the receiver takes them.
fn dated(text: &str, all: &[events::Event], offset: i64) -> Result<String> {
    let moments = all.iter().map(|event| (event.line, event.moment + offset));
    let moments: HashMap<u64, i64> = moments.collect();
    let lines = (1..).zip(text.lines()).map(|(number, line)| {
        let Some(moment) = moments.get(&number) else {
            return Ok(line.to_owned());
        };
        let mut event: Map<String, Value> = serde_json::from_str(line)?;
        if event.contains_key("specversion") {
            let time = DateTime::from_timestamp_millis(*moment).context("a time is too far off")?;
            let time = time.to_rfc3339_opts(SecondsFormat::Millis, true);
            event.insert("time".to_owned(), json!(time));
        } else {
            event.retain(|name, _| !["day", "time", "at", "after"].contains(&name.as_str()));
            event.insert("timestamp".to_owned(), json!(moment));
        }
        Ok(serde_json::to_string(&event)?)
    });
    let lines: Result<Vec<String>> = lines.collect();
    Ok(lines?.join("\n"))
}

fn write(name: &str, text: &str) -> Result<PathBuf> {
    let folder = target_dir().join("up");
    let path = folder.join(name);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
    written.with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn is_late(line: &str) -> bool {
    let event: Option<Value> = serde_json::from_str(line).ok();
    event.is_some_and(|event| event["after"] == "sampled")
}

#[cfg(test)]
mod tests {
    use sampler_testkit::workspace_dir;

    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn read(text: &str, last_ago: Option<&str>) -> Result<Events> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("given.ndjson");
        fs::write(&path, text).unwrap();
        Events::read(path, NOW, last_ago)
    }

    fn line(kind: &str, at: i64, instance: &str, more: &str) -> String {
        format!(
            r#"{{"type":"{kind}","timestamp":{at},"organization_id":"o","space_id":"s",
               "consumer_id":"c","resource_id":"r","plan_id":"p",
               "resource_instance_id":"{instance}"{more}}}"#
        )
        .replace("\n               ", "")
    }

    #[test]
    fn a_late_stop_is_held_back_with_all_that_follows_it() {
        let measures = r#","measured_usage":[]"#;
        let text = [
            "# a comment".to_owned(),
            line("start", 1, "a", measures),
            line("stop", 2, "a", r#","after":"sampled""#),
            line("start", 3, "b", measures),
            line(
                "update",
                4,
                "c",
                r#","measured_usage":[],"previous":{"resource_instance_id":"a"}"#,
            ),
            line("stop", 5, "c", ""),
        ];
        let events = read(&text.join("\n"), None).unwrap();
        let late: Vec<_> = events
            .late
            .iter()
            .map(|(target, moment)| (target.resource_instance_id.as_str(), *moment))
            .collect();
        assert_eq!(late, [("a", 2)]);
        let mut held: Vec<u64> = events.held.into_iter().collect();
        held.sort_unstable();
        assert_eq!(held, [3, 5, 6]);
    }

    #[test]
    fn all_moments_move_by_the_same_length() {
        let cloud = format!(
            r#"{{"specversion":"1.0","source":"s","id":"1","time":"1970-01-01T00:00:00.060Z",
               "type":"a.stop","data":{}}}"#,
            line("", 0, "b", "")
        );
        let text = [
            line("stop", 100, "a", ""),
            cloud.replace("\n               ", ""),
        ];
        let events = read(&text.join("\n"), Some("1h")).unwrap();
        let last = NOW - 3_600_000;
        assert_eq!(events.offset, last - 100);
        let moved = events::read(
            events.text.as_bytes(),
            Format::Ndjson,
            &Columns::default(),
            NOW,
        );
        let moments: Vec<i64> = moved.unwrap().iter().map(|event| event.moment).collect();
        assert_eq!(moments, [last, last - 40]);
        assert!(read(&text.join("\n"), Some("soon")).is_err());
    }

    #[test]
    fn the_example_has_a_late_stop() {
        let path = workspace_dir().join(super::super::EXAMPLE);
        let events = Events::read(path, NOW, None).unwrap();
        assert_eq!((events.late.len(), events.held.len()), (1, 1));
        assert!(!events.text.contains("\"day\"") && !events.text.contains("\"after\""));
    }
}
