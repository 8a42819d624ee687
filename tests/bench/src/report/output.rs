//! Where figures are written.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sampler_testkit::{target_dir, workspace_dir};

use super::fairness;
use super::markdown::markdown;
use crate::data::Data;

/// What is committed.
const DATA: &str = "docs/performance-data.json";
const PAGE: &str = "docs/performance.md";
/// Between these lines of the page, everything is generated.
const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";

/// Writes the figures under the target folder: `data.json` and `report.md`.
pub(crate) fn keep(data: &Data) -> Result<PathBuf> {
    let folder = target_dir().join("bench");
    write(&folder.join("data.json"), &json(data)?)?;
    write(&folder.join("report.md"), &markdown(data, 2))?;
    Ok(folder)
}

/// Writes the documents that are committed. Parts that were not run stay what they were.
pub(crate) fn publish(data: Data) -> Result<()> {
    let mut all = published()?.unwrap_or_default();
    all.receiver = data.receiver.or(all.receiver);
    all.fairness = data.fairness.or(all.fairness);
    all.batches = data.batches.or(all.batches);
    all.reading = data.reading.or(all.reading);
    all.worker = data.worker.or(all.worker);
    all.midnight = data.midnight.or(all.midnight);
    all.growth = data.growth.or(all.growth);
    all.ledger = data.ledger.or(all.ledger);
    all.memory = data.memory.or(all.memory);
    write(&workspace_dir().join(DATA), &json(&all)?)?;
    render(&all)
}

/// Writes the page anew from the figures that are committed.
pub(crate) fn render_published() -> Result<()> {
    let data = published()?.context("there are no figures yet")?;
    render(&data)
}

fn render(data: &Data) -> Result<()> {
    if let Some(part) = &data.fairness {
        let path = workspace_dir().join("docs").join(fairness::DRAWING);
        write(&path, &fairness::drawing(&part.figures))?;
    }
    write(&workspace_dir().join(PAGE), &page_with(data)?.1)
}

/// The figures that are committed.
fn published() -> Result<Option<Data>> {
    let path = workspace_dir().join(DATA);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).context(DATA)?;
    serde_json::from_str(&text).context(DATA)
}

/// The page as it is, and as it is with these figures.
fn page_with(data: &Data) -> Result<(String, String)> {
    let page = fs::read_to_string(workspace_dir().join(PAGE)).context(PAGE)?;
    let generated = with_generated(&page, &markdown(data, 3))?;
    Ok((page, generated))
}

fn with_generated(page: &str, generated: &str) -> Result<String> {
    let missing = || format!("{PAGE} lacks the lines between which figures belong");
    let (before, rest) = page.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    ensure!(!after.contains(BEGIN), "{PAGE} has them twice");
    let generated = generated.trim();
    Ok(format!("{before}{BEGIN}\n\n{generated}\n\n{END}{after}"))
}

fn json(data: &Data) -> Result<String> {
    Ok(serde_json::to_string_pretty(data).context("figures as JSON")? + "\n")
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a file lies in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_lines_changes() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = with_generated(&page, "new\n\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(with_generated(&once, "new").unwrap(), once);
        assert!(with_generated("no lines", "new").is_err());
        assert!(with_generated(BEGIN, "new").is_err());
    }

    #[test]
    fn what_is_committed_is_made_from_the_figures() {
        let Some(data) = published().unwrap() else {
            return;
        };
        let (page, generated) = page_with(&data).unwrap();
        assert!(
            page == generated,
            "{PAGE} is not up to date: run `cargo xtask bench --render`"
        );
    }
}
