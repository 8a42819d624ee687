//! `release`: what is published of a version, in one folder. docs/releasing.md says how it is signed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use sampler_testkit::program::{CLI, RECEIVER, WORKER};
use sampler_testkit::{target_dir, workspace_dir};

use crate::images;
use crate::package::{self, sums};
use crate::shell::{output, run_named};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Where the folders of versions lie, below the folder that cargo builds into.
const FOLDER: &str = "releases";
/// The programs, by the folders that `package` makes.
const PACKAGES: [(&str, &str); 3] = [(RECEIVER, "receiver"), (WORKER, "worker"), (CLI, "cli")];
/// The shells that the command line completes for, and the names of their files.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "sampler.bash"),
    ("zsh", "_sampler"),
    ("fish", "sampler.fish"),
];
/// What else is in the archive.
const TEXTS: [&str; 2] = ["LICENSE", "CHANGELOG.md"];

/// The arguments of `release`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Also without a tag, from changed files, and without the list of known weaknesses. Not to be
    /// published.
    #[arg(long)]
    draft: bool,
    /// Also the container images, as archives; see `cargo xtask images` for what that needs.
    #[arg(long)]
    images: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let changelog = fs::read_to_string(workspace_dir().join("CHANGELOG.md"))?;
    ensure!(
        has_version(&changelog, VERSION),
        "CHANGELOG.md has no section [{VERSION}]"
    );
    if !arguments.draft {
        require_tag()?;
    }
    package::run(arguments.draft)?;
    let folder = target_dir().join(FOLDER).join(VERSION);
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the release of before")?;
    }
    let name = format!("sampler-{VERSION}-{}-linux", std::env::consts::ARCH);
    fill(&folder.join(&name)).context("filling the archive")?;
    pack(&folder, &name)?;
    for (program, package) in PACKAGES {
        let bill = packaged(package).join("sbom.cdx.json");
        let copy = folder.join(format!("{program}-{VERSION}.cdx.json"));
        fs::copy(&bill, copy).with_context(|| bill.display().to_string())?;
    }
    if arguments.images {
        images::export(&folder, VERSION)?;
    }
    sums::write(&folder)?;
    eprintln!(
        "==> {}: sign SHA256SUMS as docs/releasing.md says",
        folder.display()
    );
    Ok(())
}

/// Whether a changelog has a section of a version.
fn has_version(changelog: &str, version: &str) -> bool {
    let heading = format!("## [{version}]");
    changelog.lines().any(|line| line.starts_with(&heading))
}

/// Refuses to publish anything but the tagged commit.
fn require_tag() -> Result<()> {
    let changed = git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "files are changed:\n{changed}");
    let tags = git(&["tag", "--points-at", "HEAD"])?;
    let tag = format!("v{VERSION}");
    ensure!(
        tags.lines().any(|found| found == tag),
        "this commit has no tag {tag}: git tag --sign {tag}"
    );
    Ok(())
}

fn git(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    output("git", command.args(arguments).current_dir(workspace_dir()))
}

/// The folder that `package` has made of a program.
fn packaged(package: &str) -> PathBuf {
    target_dir().join(package::FOLDER).join(package)
}

/// The programs, the manual, the completions, the licence and the changes.
fn fill(folder: &Path) -> Result<()> {
    let (manual, completions) = (folder.join("man/man1"), folder.join("completions"));
    fs::create_dir_all(&manual)?;
    fs::create_dir_all(&completions)?;
    for (program, package) in PACKAGES {
        fs::copy(packaged(package).join(program), folder.join(program)).context(program)?;
    }
    for page in fs::read_dir(packaged("cli").join("man/man1")).context("the manual")? {
        let page = page?;
        fs::copy(page.path(), manual.join(page.file_name()))?;
    }
    for (shell, file) in SHELLS {
        let mut command = Command::new(packaged("cli").join(CLI));
        let output = command.args(["completions", shell]).env_clear().output()?;
        ensure!(output.status.success(), "no completions for {shell}");
        fs::write(completions.join(file), output.stdout)?;
    }
    for text in TEXTS {
        fs::copy(workspace_dir().join(text), folder.join(text)).context(text)?;
    }
    Ok(())
}

/// Makes an archive of a folder, the same for the same files, and removes the folder.
fn pack(within: &Path, name: &str) -> Result<()> {
    let time = format!("--mtime=@{}", git(&["log", "-1", "--format=%ct"])?);
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        &time,
    ])
    .args(["--use-compress-program", "gzip --no-name"])
    .args(["--create", "--file", &format!("{name}.tar.gz"), name])
    .current_dir(within);
    run_named("tar", &mut tar)?;
    fs::remove_dir_all(within.join(name)).context("removing what was packed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_a_section_of_its_own() {
        let changelog = include_str!("../../../CHANGELOG.md");
        assert!(has_version(changelog, VERSION));
        assert!(!has_version("## [1.0.0]\n", "1.0"));
        assert!(!has_version("see [1.0.0]\n", "1.0.0"));
    }
}
