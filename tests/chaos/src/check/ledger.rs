//! The ledger against the bill and the spans, entry by entry.

use std::collections::BTreeMap;

use super::{Rule, Violation};
use crate::evidence::{Entry, Span, Usage};

/// Each usage that counts has one entry that says the same, each entry counts, and the entries of a
/// span are what its totals say: accepted + skipped = sampled.
pub(super) fn check(
    ledger: &[Entry],
    counted: &[Usage],
    spans: &[Span],
    violations: &mut Vec<Violation>,
) {
    let mut entries: BTreeMap<&str, &Entry> = BTreeMap::new();
    for entry in ledger {
        if entries.insert(&entry.usage_guid, entry).is_some() {
            violations.push(Rule::Ledger.broken(&entry.usage_guid, "it has two entries"));
        }
    }
    for usage in counted {
        match entries.remove(usage.dedup_id.as_str()) {
            Some(entry) if says_the_same(entry, usage) => {}
            Some(entry) => {
                let detail = format!("{entry:?} is kept, and {usage:?} counts");
                violations.push(Rule::Ledger.broken(&usage.dedup_id, detail));
            }
            None => violations.push(Rule::Ledger.broken(&usage.dedup_id, "it has no entry")),
        }
    }
    for (usage_guid, entry) in entries {
        let detail = format!("{entry:?} does not count");
        violations.push(Rule::Ledger.broken(usage_guid, detail));
    }
    check_totals(ledger, spans, violations);
}

fn says_the_same(entry: &Entry, usage: &Usage) -> bool {
    entry.target == usage.target
        && entry.timestamp == usage.midpoint
        && Some(entry.duration) == usage.duration()
        && entry.state == "accepted"
}

fn check_totals(ledger: &[Entry], spans: &[Span], violations: &mut Vec<Violation>) {
    let mut by_span: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for entry in ledger {
        let (billed, usages) = by_span.entry(entry.span.to_string()).or_default();
        *billed += entry.duration;
        *usages += 1;
    }
    for span in spans {
        let of_ledger = by_span.get(&span.document["_id"].to_string()).copied();
        let (billed, usages) = of_ledger.unwrap_or_default();
        let sampled = &span.document["processing"]["last_interval"]["end"];
        let used = sampled.as_i64().zip(span.document["start"].as_i64());
        let used = used.map(|(to, start)| to - start);
        let totals = &span.document["processing"]["totals"];
        let says = |name: &str| totals[name].as_i64().unwrap_or(0);
        let fits = used == Some(billed) && says("billed") == billed && says("usages") == usages;
        if !fits {
            let detail = format!(
                "{used:?} ms are sampled, the totals are {totals}, and the ledger has {billed} ms \
                 in {usages} entries"
            );
            violations.push(Rule::Ledger.broken(&span.start_id, detail));
        }
    }
}
