//! Whether what counts at Abacus is what was used.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sampler_testkit::abacus::StandInAbacus;
use sampler_testkit::program::{CLI, binary};
use serde_json::Value;
use tokio::process::Command;

use crate::journal::{CORRECTIONS, Journal, USAGES};

/// The accepted events, as `sampler verify` reads them.
const EVENTS: &str = "events.ndjson";

/// Compares the sums at Abacus with the events that were accepted, and has `sampler verify` compare them
/// with what the API says.
pub(crate) async fn check(
    journal: &Journal,
    abacus: &StandInAbacus,
    receiver: &str,
    folder: &Path,
) -> Result<()> {
    compare_sums(journal, abacus);
    let mut text = String::new();
    for line in journal.lines() {
        writeln!(text, "{line}").context("a line of text")?;
    }
    let events = folder.join(EVENTS);
    fs::write(&events, text).context("writing the events")?;
    let mut verify = Command::new(binary(CLI).await?);
    verify.arg("verify").arg(&events).env_clear();
    verify.args(["--url", receiver, "--granularity", "hour", "--strict"]);
    let ended = verify.output().await.context("starting the verifier")?;
    if !ended.status.success() {
        let told = [ended.stdout, ended.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        journal.mistake(format!("sampler verify ends with {}: {told}", ended.status));
    }
    Ok(())
}

fn compare_sums(journal: &Journal, abacus: &StandInAbacus) {
    let counted = abacus.counted();
    let back = counted.iter().filter(|it| it.usage.duration() < 0).count();
    journal.count(USAGES, counted.len());
    journal.count(CORRECTIONS, back);
    let used = used(&journal.lines());
    let billed = abacus.duration_sum_by(|usage| usage.target()[5].to_owned());
    let instances = used.keys().chain(billed.keys());
    for instance in instances.collect::<BTreeSet<_>>() {
        let sum = |of: &BTreeMap<String, i128>| of.get(instance).copied().unwrap_or_default();
        let (used, billed) = (sum(&used), sum(&billed));
        if used != billed {
            journal.mistake(format!("{instance}: used {used} ms, billed {billed} ms"));
        }
    }
    for aside in set_aside(abacus) {
        journal.mistake(format!("Abacus does not count {aside}"));
    }
}

/// The ids of the usages that Abacus has set aside, and that were not sent again since.
pub(crate) fn set_aside(abacus: &StandInAbacus) -> Vec<String> {
    let counted = abacus.counted();
    let counted: BTreeSet<&str> = counted.iter().map(|it| &*it.usage.dedup_id).collect();
    let aside = abacus.put_aside().into_iter();
    let ids = aside.map(|(usage, _)| usage.dedup_id.clone());
    ids.filter(|id| !counted.contains(&**id)).collect()
}

/// How long each instance was used, in ms: the stops less the starts. An update is one of each.
fn used(events: &[Value]) -> BTreeMap<String, i128> {
    let mut used = BTreeMap::new();
    for event in events {
        let instance = event["resource_instance_id"].as_str().unwrap_or_default();
        let at = i128::from(event["timestamp"].as_i64().unwrap_or_default());
        *used.entry(instance.to_owned()).or_default() += match event["type"].as_str() {
            Some("start") => -at,
            Some("stop") => at,
            _ => 0,
        };
    }
    used
}
