//! The report on the events of a file.

use std::fmt::{self, Write};

use sampler_api::Problem;
use sampler_verify::words::counted;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::words_of;
use crate::output::printable;

/// How many events that were refused are kept and shown; the others are counted.
const REFUSALS_MAX: usize = 1_000;
const REFUSALS_SHOWN: usize = 50;

/// The counts add up to all events.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Report {
    pub(super) accepted: u64,
    pub(super) replayed: u64,
    pub(super) refused: u64,
    pub(crate) refusals: Vec<Refusal>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Refusal {
    pub(crate) line: u64,
    pub(crate) status: Option<u16>,
    pub(crate) problem: Why,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
pub(crate) enum Why {
    /// The receiver says so.
    Problem(Box<Problem>),
    /// It was not sent.
    Words(String),
}

impl Report {
    /// An event was refused, by a problem document or here.
    pub(super) fn refuse(&mut self, line: u64, status: Option<u16>, problem: Why) {
        self.refused += 1;
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(Refusal {
                line,
                status,
                problem,
            });
        }
    }

    /// The refusals in the order of the file: those of the client come before those of the
    /// receiver.
    pub(super) fn sorted(mut self) -> Self {
        self.refusals.sort_by_key(|refusal| refusal.line);
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
            let (line, problem) = (refusal.line, &refusal.problem);
            let _ = match refusal.status {
                Some(status) => writeln!(words, "line {line}: {status} {problem}"),
                None => writeln!(words, "line {line}: {problem}"),
            };
        }
        let shown = REFUSALS_SHOWN.min(self.refusals.len()) as u64;
        if self.refused > shown {
            let _ = writeln!(words, "... and {} more", self.refused - shown);
        }
        let events = counted(self.events(), "event");
        let _ = writeln!(
            words,
            "{events}: {} accepted, {} replayed, {} refused.",
            self.accepted, self.replayed, self.refused
        );
        words
    }
}

pub(super) fn in_one_line(problem: &Problem) -> String {
    format!("{}: {}", printable(problem.name()), words_of(problem))
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => f.write_str(&in_one_line(problem)),
            Self::Words(words) => f.write_str(&printable(words)),
        }
    }
}
