//! What was read, and what followed.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

use sampler_verify::moment::InWords;
use sampler_verify::words::{counted, form};
use serde_json::{Value, json};

use super::hole::Filled;
use super::metrics::Metrics;
use super::rules::{Bound, Outcome, Refused, Step, Unknown};
use crate::output::{printable, warn};
use crate::show::text;
use crate::table::table;

/// How many intervals with an unknown bound a table shows.
pub(super) const UNKNOWN_SHOWN: usize = 1_000;
/// How many unknown bounds, or spans, are reported in lines of their own at once.
pub(super) const TOLD_MAX: usize = 100;
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
    unknown: u64,
}

impl Report {
    pub(super) fn count(&mut self, step: &Step, refused: &[Refused], metrics: &Metrics) {
        for (kind, count) in &step.ignored {
            *self.ignored.entry(kind.clone()).or_default() += count;
            metrics.count(kind, "ignored", *count);
        }
        self.unknown += step.unknown(refused).len() as u64;
        let mut next_refused = refused.iter().map(|one| one.index).peekable();
        for (index, event) in step.events.iter().enumerate() {
            let is_refused = next_refused.next_if_eq(&index).is_some();
            let kind = event.state.as_deref();
            let (counter, outcome) = match (is_refused, kind, event.outcome) {
                (true, Some(_), _) => (Some(&mut self.refused), "refused"),
                (true, None, _) => (Some(&mut self.refused_aside), "refused"),
                (false, Some(_), Outcome::Started) => (Some(&mut self.started), "started"),
                (false, Some(_), Outcome::Stopped) => (Some(&mut self.stopped), "stopped"),
                (false, Some(_), Outcome::Updated) => (Some(&mut self.updated), "updated"),
                (false, None, Outcome::Started) => (None, "started"),
                (false, None, Outcome::Stopped) => (None, "stopped"),
                (false, None, Outcome::Updated) => (None, "updated"),
            };
            if let Some(counter) = counter {
                *counter += 1;
            }
            metrics.count(kind.unwrap_or(ASIDE), outcome, 1);
        }
    }

    pub(super) fn is_good(&self) -> bool {
        self.refused + self.refused_aside == 0
    }

    fn read(&self) -> u64 {
        let ignored: u64 = self.ignored.values().sum();
        self.started + self.stopped + self.updated + ignored + self.refused
    }

    /// For machines, with what no document has reported yet.
    pub(super) fn document(&self, unknown: &[Unknown]) -> Value {
        json!({
            "read": self.read(), "started": self.started, "stopped": self.stopped,
            "updated": self.updated, "ignored": self.ignored, "refused": self.refused,
            "unknown": unknown,
        })
    }

    /// For people, at the end, with the first and the number of what no table has shown yet.
    pub(super) fn words(&self, unknown: &[Unknown], unknown_count: u64) -> String {
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
        rows.push(count("unknown bounds", unknown_count));
        let mut words = format!("{}\n", table(["", ""], rows.into_iter(), &[0]));
        if !unknown.is_empty() {
            let header = ["target", "unknown", "not before", "not after"];
            let rows = unknown.iter().map(row);
            let _ = writeln!(words, "\n{}", table(header, rows, &[0, 1, 2, 3]));
        }
        let rest = unknown_count - unknown.len() as u64;
        if rest > 0 {
            let _ = writeln!(
                words,
                "... and {rest} more; the list beside the state has all"
            );
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

fn count(name: &str, count: u64) -> [String; 2] {
    [name.to_owned(), count.to_string()]
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
fn sentence(unknown: &Unknown) -> String {
    let bound = name(unknown.what);
    let (target, to) = (printable(&unknown.target.to_string()), InWords(unknown.to));
    match unknown.from {
        Some(from) => {
            format!(
                "the {bound} of {target} is not recorded: between {} and {to}",
                InWords(from)
            )
        }
        None => format!("the {bound} of {target} is not recorded: not after {to}"),
    }
}

/// Reports in lines of their own what nobody recorded: the first of `count`.
pub(super) fn tell_unknown<'a>(first: impl ExactSizeIterator<Item = &'a Unknown>, count: u64) {
    let rest = count - first.len() as u64;
    for unknown in first {
        warn(&sentence(unknown));
    }
    if rest > 0 {
        warn(&format!(
            "{rest} more {} not recorded",
            form(rest, "start or end is", "starts or ends are")
        ));
    }
}

/// Says what a snapshot could not mend.
pub(super) fn tell_unfilled(filled: &Filled, unplaced: &HashSet<String>) {
    for target in filled.others.iter().take(TOLD_MAX) {
        let target = printable(&target.to_string());
        warn(&format!(
            "the span of {target} stays open: the platform does not have its organization, so it may be \
             another platform's"
        ));
    }
    if let Some(rest) = filled.others.len().checked_sub(TOLD_MAX + 1) {
        warn(&format!(
            "{} like this {} open",
            counted(rest + 1, "more span"),
            form(rest + 1, "stays", "stay")
        ));
    }
    for guid in unplaced.iter().take(TOLD_MAX) {
        let guid = printable(guid);
        warn(&format!(
            "{guid} is listed, but the platform does not say where it belongs: nothing is sent about it"
        ));
    }
    if filled.is_cut {
        warn(
            "the receiver has more differences than it names, and none of these is this platform's: other \
             spans of this platform may stay open",
        );
    }
}
