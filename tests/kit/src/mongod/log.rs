//! Reading a server's log: one JSON document per line.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The id of the message that names the port.
const WAITING_FOR_CONNECTIONS: i64 = 23016;

/// The port that the server listens on, once it does.
pub(super) fn listening_port(log: &Path) -> Option<u16> {
    let text = fs::read_to_string(log).ok()?;
    text.lines().filter_map(port_in_line).next_back()
}

fn port_in_line(line: &str) -> Option<u16> {
    // Parsing is slow and the log long, so most lines are skipped by their text.
    if !line.contains("23016") {
        return None;
    }
    let entry: Value = serde_json::from_str(line).ok()?;
    if entry["id"].as_i64() != Some(WAITING_FOR_CONNECTIONS) {
        return None;
    }
    entry["attr"]["port"]
        .as_u64()
        .and_then(|port| port.try_into().ok())
}

/// The last lines of a log, for an error message.
pub(super) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
