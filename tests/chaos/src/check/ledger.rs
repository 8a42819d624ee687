//! The ledger against the bill, entry by entry.

use std::collections::{BTreeMap, HashMap};

use super::{Rule, Violation};
use crate::evidence::{Entry, Evidence, Post, Usage};
use crate::history::Record;
use crate::schedule::{PROGRAM_FROZEN, WORKER_KILLED, is_of_database};

/// How long after a fault of a worker a post of it may still come, and how long before a fault a worker may
/// have heard what it could not record, ms.
const AFTER_FAULT: i64 = 10_000;

/// How often what counts is not what the ledger says, though nothing is wrong: no program can know it
/// (ADR 42 and 43).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Undecidable {
    /// A usage is `skipped`, and a worker that was frozen or killed had posted it late.
    pub late: usize,
    /// A usage is `skipped`, and counts since before it was refused: the answer to that post was lost, or
    /// the worker died or the database failed before it was recorded.
    pub early: usize,
    /// How many of those the ledger tells as `unanswered`. Each of the others must be explained by a fault.
    pub told: usize,
    /// A usage is `set_aside`, and counts since another worker had posted it, too.
    pub again: usize,
    /// An hour below zero: it was taken back before it was known that Abacus had set it aside.
    pub unknown: usize,
}

/// What the ledger is compared with.
pub(super) struct Books<'a> {
    posts: HashMap<&'a str, Vec<&'a Post>>,
    /// When workers were killed or frozen, ms since epoch, from and to.
    of_workers: Vec<(i64, i64)>,
    /// When the database failed.
    of_database: Vec<(i64, i64)>,
}

impl<'a> Books<'a> {
    fn new(evidence: &'a Evidence) -> Self {
        let mut posts: HashMap<&str, Vec<&Post>> = HashMap::new();
        for post in &evidence.posts {
            posts.entry(&post.dedup_id).or_default().push(post);
        }
        let kinds = [WORKER_KILLED, PROGRAM_FROZEN];
        Self {
            posts,
            of_workers: super::faults(&evidence.records, |text| {
                kinds.iter().any(|kind| text.starts_with(kind))
            }),
            of_database: super::faults(&evidence.records, is_of_database),
        }
    }

    /// Notes why a usage counts that the ledger has off the bill; false where nothing explains it.
    fn explain(&self, entry: &Entry, undecidable: &mut Undecidable) -> bool {
        let posts = self.posts.get(entry.id());
        let posts = posts.map_or(&[][..], Vec::as_slice);
        let Some(place) = posts.iter().position(|post| post.counted) else {
            return false;
        };
        let was = |posts: &[&Post], status| posts.iter().any(|post| post.status == Some(status));
        if entry.usage.state == "set_aside" {
            // One of the posts was set aside, and another one counts.
            undecidable.again += 1;
            return posts.len() > 1;
        }
        let at = posts[place].at;
        if was(&posts[place..], 400) {
            undecidable.early += 1;
            undecidable.told += usize::from(entry.usage.unanswered);
            return entry.usage.unanswered
                || is_near(&self.of_workers, at)
                || is_near(&self.of_database, at);
        }
        undecidable.late += 1;
        is_near(&self.of_workers, at)
    }
}

fn is_near(faults: &[(i64, i64)], at: i64) -> bool {
    let is_near = |(from, to): &(i64, i64)| *from <= at + AFTER_FAULT && at <= *to + AFTER_FAULT;
    faults.iter().any(is_near)
}

/// Each usage that counts has one entry that says the same, and each entry counts or is off the bill.
pub(super) fn check(evidence: &Evidence, violations: &mut Vec<Violation>) -> Undecidable {
    let books = Books::new(evidence);
    let mut undecidable = Undecidable::default();
    let mut entries: BTreeMap<&str, &Entry> = BTreeMap::new();
    for entry in &evidence.ledger {
        if entries.insert(entry.id(), entry).is_some() {
            violations.push(Rule::Ledger.broken(entry.id(), "it has two entries"));
        }
    }
    for usage in &evidence.counted {
        let id = usage.dedup_id.as_str();
        match entries.remove(id) {
            Some(entry) if !says_the_same(entry, usage) => {
                let detail = format!("{entry:?} is kept, and {usage:?} counts");
                violations.push(Rule::Ledger.broken(id, detail));
            }
            Some(entry) if entry.is_off() && !books.explain(entry, &mut undecidable) => {
                let posts = books.posts.get(id);
                let detail = format!("{entry:?}, and it counts; it was posted {posts:?}");
                violations.push(Rule::Ledger.broken(id, detail));
            }
            Some(_) => {}
            None => violations.push(Rule::Ledger.broken(id, "it has no entry")),
        }
    }
    for (usage_guid, entry) in entries {
        if !entry.is_off() {
            let detail = format!("{entry:?} does not count");
            violations.push(Rule::Ledger.broken(usage_guid, detail));
        }
    }
    undecidable
}

fn says_the_same(entry: &Entry, usage: &Usage) -> bool {
    let (kept, state) = (&entry.usage, entry.usage.state.as_str());
    entry.target == usage.target
        && kept.timestamp == usage.midpoint
        && kept.measured_usage == usage.measures
        && Some(kept.duration) == usage.duration()
        && (entry.is_off() || state == "accepted" || state == "counted")
}

/// The intervals in which there was a fault whose text is like that.
pub(super) fn faults(records: &[Record], wanted: impl Fn(&str) -> bool) -> Vec<(i64, i64)> {
    let mut faults = Vec::new();
    let mut open: HashMap<&str, i64> = HashMap::new();
    for record in records {
        let Record::Fault(fault) = record else {
            continue;
        };
        if !wanted(&fault.fault) {
            continue;
        }
        if fault.phase == "begins" {
            open.insert(&fault.fault, fault.at);
        } else if let Some(from) = open.remove(fault.fault.as_str()) {
            faults.push((from, fault.at));
        }
    }
    faults.extend(
        open.into_values()
            .map(|from| (from, i64::MAX - AFTER_FAULT)),
    );
    faults
}
