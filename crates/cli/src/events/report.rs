//! The report on the events that were sent.

use std::fmt::Write;

use sampler_api::Problem;
use sampler_verify::words::counted;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::words_of;
use crate::output::printable;

/// How many events that were refused are kept and shown; the others are counted.
const REFUSALS_MAX: usize = 1_000;
const REFUSALS_SHOWN: usize = 50;

/// The counts add up to all events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(super) accepted: u64,
    pub(super) replayed: u64,
    pub(super) refused: u64,
    pub(crate) refusals: Vec<Refusal>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Refusal {
    pub(crate) line: u64,
    pub(crate) status: u16,
    pub(crate) problem: Problem,
}

impl Report {
    pub(super) fn refuse(&mut self, line: u64, status: u16, problem: Problem) {
        self.refused += 1;
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(Refusal {
                line,
                status,
                problem,
            });
        }
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
            let (line, status) = (refusal.line, refusal.status);
            let problem = in_one_line(&refusal.problem);
            let _ = writeln!(words, "line {line}: {status} {problem}");
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

pub(crate) fn in_one_line(problem: &Problem) -> String {
    format!("{}: {}", printable(problem.name()), words_of(problem))
}
