//! What was read, and what followed.

use std::collections::BTreeMap;
use std::fmt::Write;

use sampler_verify::moment::InWords;
use sampler_verify::words::counted;
use serde_json::{Value, json};

use super::metrics::Metrics;
use super::state::{Bound, Outcome, Refused, Step, Unknown};
use crate::output::printable;
use crate::show::text;
use crate::table::table;

/// The label of what follows from a snapshot or a look-up.
const ASIDE: &str = "snapshot";

/// Counts since the command was started.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    started: u64,
    stopped: u64,
    updated: u64,
    ignored: BTreeMap<String, u64>,
    refused: u64,
    /// Events of snapshots that were refused: they are not events of the platform.
    refused_aside: u64,
    unknown: usize,
}

impl Report {
    pub(super) fn count(&mut self, step: &Step, refused: &Refused, metrics: &Metrics) {
        self.unknown += step.unknown(refused).count();
        for (change, refusal) in step.answered(refused) {
            let state = change.state.as_deref();
            let outcome = change.posted.as_ref().map(|posted| posted.outcome);
            let (counter, outcome) = match (outcome, refusal) {
                (Some(_), Some(_)) if state.is_none() => (&mut self.refused_aside, "refused"),
                (Some(_), Some(_)) => (&mut self.refused, "refused"),
                (Some(Outcome::Started), None) => (&mut self.started, "started"),
                (Some(Outcome::Stopped), None) => (&mut self.stopped, "stopped"),
                (Some(Outcome::Updated), None) => (&mut self.updated, "updated"),
                (None, _) => match state {
                    Some(state) => (self.ignored.entry(state.to_owned()).or_default(), "ignored"),
                    // What a snapshot shows that is known already.
                    None => continue,
                },
            };
            if state.is_some() || refusal.is_some() {
                *counter += 1;
            }
            metrics.count(state.unwrap_or(ASIDE), outcome);
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.refused + self.refused_aside == 0
    }

    fn read(&self) -> u64 {
        let ignored: u64 = self.ignored.values().sum();
        self.started + self.stopped + self.updated + ignored + self.refused
    }

    /// For machines.
    pub(super) fn document(&self, unknown: &[Unknown]) -> Value {
        json!({
            "read": self.read(), "started": self.started, "stopped": self.stopped,
            "updated": self.updated, "ignored": self.ignored, "refused": self.refused,
            "unknown": unknown,
        })
    }

    /// For people, at the end, with what no report has told yet.
    pub(super) fn words(&self, unknown: &[Unknown]) -> String {
        let count = |name: &str, count: u64| [name.to_owned(), count.to_string()];
        let mut rows = vec![
            count("events read", self.read()),
            count("started", self.started),
            count("stopped", self.stopped),
            count("updated", self.updated),
        ];
        for (kind, ignored) in &self.ignored {
            rows.push(count(&format!("ignored {}", printable(kind)), *ignored));
        }
        rows.push(count("refused", self.refused));
        if self.refused_aside > 0 {
            rows.push(count("refused, of snapshots", self.refused_aside));
        }
        rows.push(count("unknown bounds", unknown.len() as u64));
        let mut words = format!("{}\n", table(["", ""], rows.into_iter(), &[0]));
        if !unknown.is_empty() {
            let header = ["target", "unknown", "not before", "not after"];
            let rows = unknown.iter().map(row);
            let _ = writeln!(words, "\n{}", table(header, rows, &[0, 1, 2, 3]));
        }
        words
    }

    /// For people, while it runs.
    pub(super) fn line(&self, lag_seconds: i64) -> String {
        let ignored: u64 = self.ignored.values().sum();
        format!(
            "{} read: {} started, {} stopped, {} updated, {ignored} ignored, {} refused, {} unknown; \
             {lag_seconds} s behind",
            counted(self.read(), "event"),
            self.started,
            self.stopped,
            self.updated,
            self.refused + self.refused_aside,
            self.unknown,
        )
    }
}

fn row(unknown: &Unknown) -> [String; 4] {
    let target = unknown.target.ids().map(printable);
    let [organization, space, _, resource, plan, instance] = target;
    [
        format!("{organization}/{space}/{resource}/{plan}/{instance}"),
        name(unknown.what).to_owned(),
        text(unknown.from.map(InWords)),
        InWords(unknown.to).to_string(),
    ]
}

fn name(bound: Bound) -> &'static str {
    match bound {
        Bound::Start => "start",
        Bound::End => "end",
    }
}

/// An unknown bound in a line of the log.
pub(super) fn sentence(unknown: &Unknown) -> String {
    let bound = name(unknown.what);
    let (target, to) = (printable(&unknown.target.to_string()), InWords(unknown.to));
    let when = match unknown.from {
        Some(from) => format!("between {} and {to}", InWords(from)),
        None => format!("not after {to}"),
    };
    format!("the {bound} of {target} is not recorded: {when}")
}
