//! The report on the events of a file.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::Problem;
use crate::show::text;

/// How many events that were refused are kept and shown; the others are counted.
const REFUSALS_MAX: usize = 1_000;
const REFUSALS_SHOWN: usize = 50;

/// The counts add up to all events.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    pub(super) accepted: u64,
    pub(super) replayed: u64,
    pub(super) refused: u64,
    refusals: Vec<Value>,
}

impl Report {
    /// An event was refused, by a problem document or here.
    pub(super) fn refuse(&mut self, line: u64, status: Option<u16>, problem: &Value) {
        self.refused += 1;
        if self.refusals.len() < REFUSALS_MAX {
            let refusal = json!({ "line": line, "status": status, "problem": problem });
            self.refusals.push(refusal);
        }
    }

    /// The refusals in the order of the file: those of the client come before those of the
    /// receiver.
    pub(super) fn sorted(mut self) -> Self {
        self.refusals
            .sort_by_key(|refusal| refusal["line"].as_u64());
        self
    }

    /// Whether all events are kept.
    pub(crate) fn is_good(&self) -> bool {
        self.refused == 0
    }

    pub(super) fn events(&self) -> u64 {
        self.accepted + self.replayed + self.refused
    }

    /// For machines.
    pub(crate) fn document(&self) -> Value {
        json!({
            "events": self.events(), "accepted": self.accepted, "replayed": self.replayed,
            "refused": self.refused, "refusals": self.refusals,
        })
    }

    /// For people.
    pub(crate) fn words(&self) -> String {
        let mut words = String::new();
        for refusal in self.refusals.iter().take(REFUSALS_SHOWN) {
            let (line, status) = (text(refusal, "/line"), text(refusal, "/status"));
            let _ = writeln!(
                words,
                "line {line}: {status} {}",
                problem(&refusal["problem"])
            );
        }
        let shown = REFUSALS_SHOWN.min(self.refusals.len()) as u64;
        if self.refused > shown {
            let _ = writeln!(words, "... and {} more", self.refused - shown);
        }
        let events = self.events();
        let _ = writeln!(
            words,
            "{events} events: {} accepted, {} replayed, {} refused.",
            self.accepted, self.replayed, self.refused
        );
        words
    }
}

/// A problem in one line.
pub(super) fn problem(document: &Value) -> String {
    if let Some(words) = document.as_str() {
        return crate::output::printable(words);
    }
    let problem: Problem = serde_json::from_value(document.clone()).unwrap_or_default();
    format!(
        "{}: {}",
        crate::output::printable(problem.name()),
        problem.words()
    )
}
