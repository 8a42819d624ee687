//! Where figures are written.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sampler_testkit::{target_dir, workspace_dir};

use super::{chart, markdown::markdown};
use crate::data::Data;

/// What is committed.
const DATA: &str = "docs/performance-data.json";
const PAGE: &str = "docs/performance.md";
const RECEIVER_CHART: &str = "docs/images/bench-receiver.svg";
const WORKER_CHART: &str = "docs/images/bench-worker.svg";
/// Between these lines of the page, everything is generated.
const BEGIN: &str = "<!-- bench:begin -->";
const END: &str = "<!-- bench:end -->";

/// A file and its text.
type Document = (&'static str, String);

/// Writes the figures under the target folder: `data.json`, `report.md` and the charts.
pub(crate) fn keep(data: &Data) -> Result<PathBuf> {
    let folder = target_dir().join("bench");
    write(&folder.join("data.json"), &json(data)?)?;
    write(&folder.join("report.md"), &markdown(data, 2))?;
    for (path, text) in charts(data) {
        let name = Path::new(path).file_name().context("a file name")?;
        write(&folder.join(name), &text)?;
    }
    Ok(folder)
}

/// Writes the documents that are committed. Parts that were not run stay what they were.
pub(crate) fn publish(data: Data) -> Result<()> {
    let mut all = published()?.unwrap_or_default();
    all.receiver = data.receiver.or(all.receiver);
    all.worker = data.worker.or(all.worker);
    all.midnight = data.midnight.or(all.midnight);
    all.growth = data.growth.or(all.growth);
    all.memory = data.memory.or(all.memory);
    write(&workspace_dir().join(DATA), &json(&all)?)?;
    render(&all)
}

/// Writes the documents that are made from the figures that are committed.
pub(crate) fn render_published() -> Result<()> {
    let data = published()?.context("there are no figures yet")?;
    render(&data)
}

fn render(data: &Data) -> Result<()> {
    for (path, text) in documents(data)? {
        write(&workspace_dir().join(path), &text)?;
        eprintln!("wrote {path}");
    }
    Ok(())
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

fn documents(data: &Data) -> Result<Vec<Document>> {
    let page = fs::read_to_string(workspace_dir().join(PAGE)).context(PAGE)?;
    let mut documents = charts(data);
    documents.push((PAGE, with_generated(&page, &section(data))?));
    Ok(documents)
}

fn charts(data: &Data) -> Vec<Document> {
    let mut charts = Vec::new();
    if let Some(part) = &data.receiver {
        charts.push((RECEIVER_CHART, chart::receiver(&part.figures)));
    }
    if let Some(part) = &data.worker {
        charts.push((WORKER_CHART, chart::worker(&part.figures)));
    }
    charts
}

/// What stands between the lines of the page.
fn section(data: &Data) -> String {
    let mut text = String::new();
    for (path, _) in charts(data) {
        let path = path.trim_start_matches("docs/");
        let about = if path.contains("receiver") {
            "Durable events a second, by connections"
        } else {
            "Intervals a second, by how fast Abacus is"
        };
        let _ = writeln!(text, "![{about}]({path})\n");
    }
    text + &markdown(data, 3)
}

fn with_generated(page: &str, generated: &str) -> Result<String> {
    let lines = "lacks the lines between which figures belong";
    let (before, rest) = page
        .split_once(BEGIN)
        .with_context(|| format!("{PAGE} {lines}"))?;
    let (_, after) = rest
        .split_once(END)
        .with_context(|| format!("{PAGE} {lines}"))?;
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
        for (path, text) in documents(&data).unwrap() {
            let present = fs::read_to_string(workspace_dir().join(path)).unwrap_or_default();
            assert!(
                present == text,
                "{path} is not up to date: run `cargo xtask bench --render`"
            );
        }
    }
}
