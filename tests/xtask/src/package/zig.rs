//! Building against an older C library than this machine's, with the linker and the headers of zig.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sampler_testkit::{target_dir, workspace_dir};

use super::sums::sha256;
use crate::shell::run_named;

/// The C library of the stack `cflinuxfs4`.
pub(super) const GLIBC: (u32, u32) = (2, 35);

/// The profile of what is pushed.
const PROFILE: &str = "cloud";

/// Python packages, because these are there for every machine that has pip. What links a release is
/// pinned by the hashes of its files: nobody who can change the index can change the release.
const REQUIREMENTS: &str = include_str!("requirements.txt");

/// What was built.
pub(super) struct Built {
    /// The triple of the platform.
    pub(super) target: String,
    /// Where the programs lie.
    pub(super) folder: PathBuf,
}

/// Builds these programs for this machine's processor.
pub(super) fn build(programs: &[&str]) -> Result<Built> {
    let tools = tools()?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let (major, minor) = GLIBC;
    let mut command = Command::new(tools.join("bin/cargo-zigbuild"));
    command
        .args(["zigbuild", "--locked", "--profile", PROFILE])
        .args(["--target", &format!("{target}.{major}.{minor}")])
        .env("CARGO_ZIGBUILD_ZIG_PATH", tools.join("ziglang/zig"))
        .current_dir(workspace_dir());
    for program in programs {
        command.args(["--package", program]);
    }
    run_named("cargo-zigbuild", &mut command)?;
    let folder = target_dir().join(&target).join(PROFILE);
    Ok(Built { target, folder })
}

/// The folder of the tools, which are fetched once for each list of them.
fn tools() -> Result<PathBuf> {
    let name = format!("zig-{}", &sha256(REQUIREMENTS.as_bytes())[..16]);
    let folder = target_dir().join("tools").join(name);
    if !folder.is_dir() {
        fetch(&folder)?;
    }
    Ok(folder)
}

fn fetch(folder: &Path) -> Result<()> {
    let parent = folder.parent().context("the folder of the tools")?;
    fs::create_dir_all(parent).context("making the folder of the tools")?;
    let fresh = parent.join("fetching");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).context("removing what was fetched in part")?;
    }
    let list = parent.join("requirements.txt");
    fs::write(&list, REQUIREMENTS).context("writing the list of the tools")?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ])
    .args([
        "--root-user-action=ignore",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--target",
    ])
    .arg(&fresh)
    .arg("--requirement")
    .arg(&list);
    run_named("python3", &mut pip)?;
    ensure!(
        fresh.join("bin/cargo-zigbuild").is_file(),
        "pip has brought no cargo-zigbuild"
    );
    // Renamed last, so that the folder is complete.
    fs::rename(&fresh, folder).context("putting the tools into their place")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each requirement, with the lines that belong to it.
    fn requirements(list: &str) -> Vec<String> {
        let list = list.replace("\\\n", " ");
        let lines = list.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn what_links_and_what_runs_is_pinned_by_its_hash() {
        let of_tests = include_str!("../../../kit/src/mongod/requirements.txt");
        for (list, count) in [(REQUIREMENTS, 2), (of_tests, 1)] {
            let requirements = requirements(list);
            assert_eq!(requirements.len(), count, "{requirements:?}");
            for requirement in requirements {
                assert!(requirement.contains("=="), "{requirement}");
                assert!(requirement.contains("--hash=sha256:"), "{requirement}");
            }
        }
    }

    #[test]
    fn images_that_are_built_on_are_pinned_by_digest() {
        let (docker, compose) = (
            include_str!("../../../../Dockerfile"),
            include_str!("../../../../compose.yaml"),
        );
        let digest = docker
            .lines()
            .find_map(|line| line.strip_prefix("ARG RUST_DIGEST="));
        assert!(digest.unwrap().starts_with("sha256:"));
        // Others are stages of the file itself, or nothing.
        let foreign = docker
            .lines()
            .filter(|line| line.starts_with("FROM ") && line.contains(':'));
        assert_eq!(
            foreign.collect::<Vec<_>>(),
            ["FROM rust:${RUST}-bookworm@${RUST_DIGEST} AS source"]
        );
        let images = compose
            .lines()
            .filter_map(|line| line.trim().strip_prefix("image: "));
        for image in images {
            assert!(image.contains("@sha256:"), "{image}");
        }
    }
}
