//! The verdict and the table in the end.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::check::{Rule, Verdict};
use crate::run::Options;
use crate::stats::Stats;

/// How many violations are shown.
const SHOWN: usize = 20;

/// Of the counts, those of what each run must meet: a run in which nothing of it happens proves nothing.
const ESSENTIAL: [&str; 6] = [
    "causes of suspensions",
    "skips asked for",
    "usages skipped in the end",
    "spans and causes resumed",
    "resends asked for",
    "usages confirmed",
];

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// What the checker says.
    pub verdict: Verdict,
    /// Where the files of the run are.
    pub folder: PathBuf,
    seed: u64,
    length: Duration,
    faults: BTreeMap<&'static str, u64>,
    counts: Vec<(&'static str, u64)>,
    longest_outage: Duration,
}

impl Report {
    pub(crate) fn new(
        options: &Options,
        folder: PathBuf,
        stats: &Stats,
        logged: [(&'static str, u64); 4],
        verdict: Verdict,
    ) -> Self {
        let mut counts = vec![
            ("clients", options.clients as u64),
            ("events accepted", stats.accepted.get()),
            ("events refused", stats.refused.get()),
            ("events given up", stats.unknown.get()),
            ("retries", stats.retries.get()),
            ("repeats", stats.repeats.get()),
            ("spans", verdict.spans as u64),
            ("intervals billed", verdict.usages as u64),
            ("of them taken back", verdict.corrections as u64),
            ("batches broken in their middle", stats.broken_batches.get()),
            ("of them completed by a repeat", stats.mended_batches.get()),
            ("skips asked for", stats.skips.get()),
            ("spans and causes resumed", stats.resumes.get()),
            ("resends asked for", stats.resends.get()),
            ("acts on what had changed", stats.outdated_acts.get()),
            ("acts without final answer", stats.unknown_acts.get()),
            ("usages skipped in the end", verdict.skipped as u64),
            ("usages set aside in the end", verdict.set_aside as u64),
            ("usages set aside repeatedly", verdict.rounds as u64),
            ("usages withheld", verdict.withheld as u64),
            ("usages confirmed", verdict.confirmed as u64),
            ("skipped, and counted late", verdict.undecidable.late as u64),
            (
                "skipped, and counted before",
                verdict.undecidable.early as u64,
            ),
            (
                "of them told as unanswered",
                verdict.undecidable.told as u64,
            ),
            (
                "set aside, and counted again",
                verdict.undecidable.again as u64,
            ),
            (
                "taken back before it was known",
                verdict.undecidable.unknown as u64,
            ),
            ("uncertain targets", verdict.uncertain as u64),
        ];
        counts.extend(logged);
        Self {
            verdict,
            folder,
            seed: options.seed,
            length: options.length,
            faults: stats.faults(),
            counts,
            longest_outage: stats.longest_outage(),
        }
    }

    /// What did not happen, of all that each run must meet.
    pub fn missing(&self) -> Vec<&'static str> {
        let count = |wanted: &str| self.counts.iter().find(|(what, _)| *what == wanted);
        let is_missing = |what: &&str| count(what).is_none_or(|(_, count)| *count == 0);
        ESSENTIAL.into_iter().filter(is_missing).collect()
    }

    /// How many faults there were.
    pub fn faults(&self) -> u64 {
        self.faults.values().sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nseed {}, {} s of faults",
            self.seed,
            self.length.as_secs()
        )?;
        for (kind, count) in &self.faults {
            writeln!(f, "  {kind:<32}{count:>9}")?;
        }
        writeln!(f, "  {:<32}{:>9}", "faults", self.faults())?;
        writeln!(f)?;
        for (what, count) in &self.counts {
            writeln!(f, "  {what:<32}{count:>9}")?;
        }
        let outage = self.longest_outage.as_secs_f64();
        writeln!(
            f,
            "  {:<32}{outage:>7.1} s",
            "longest outage seen by a client"
        )?;
        writeln!(f, "\n{}", self.verdict)?;
        write!(f, "files in {}", self.folder.display())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_right() {
            return write!(
                f,
                "right: what was acknowledged is billed, once, and nothing else"
            );
        }
        let mut rules: BTreeMap<Rule, usize> = BTreeMap::new();
        for violation in &self.violations {
            *rules.entry(violation.rule).or_default() += 1;
        }
        writeln!(f, "WRONG: {} violations {rules:?}", self.violations.len())?;
        for violation in self.violations.iter().take(SHOWN) {
            writeln!(f, "  - {violation}")?;
        }
        Ok(())
    }
}
