//! `package`: what `cf push` takes, in a folder for each app of the manifest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sampler_testkit::program::{CLI, RECEIVER, WORKER};
use sampler_testkit::{target_dir, workspace_dir};

use crate::checks::run_audit;
use crate::tools::{LINKING, run};

/// Where the folders lie, below the folder that cargo builds into; the manifest says so, too.
const FOLDER: &str = "deploy";
/// What starts a process where the manifest names no command.
const PROCFILE: &str = "Procfile";
/// The C library of the stack `cflinuxfs4`.
const GLIBC: &str = "2.35";

/// The profile of what is pushed.
const PROFILE: &str = "cloud";

/// An app of the manifest.
struct App {
    /// The folder that is pushed.
    folder: &'static str,
    /// The program in it.
    program: &'static str,
    command: &'static str,
}

const PROGRAMS: [App; 2] = [
    App {
        folder: "receiver",
        program: RECEIVER,
        command: "./sampler-receiver",
    },
    App {
        folder: "worker",
        program: WORKER,
        command: "./sampler-worker",
    },
];

const FEED: App = App {
    folder: "feed",
    program: CLI,
    command: "./sampler feed cloud-foundry",
};

/// Checks what is built in, builds all programs for the platform, and lays each out. A package that is
/// `unchecked` may hold known weaknesses.
pub(crate) fn package(unchecked: bool) -> Result<()> {
    run_audit(unchecked)?;
    lay_out(&PROGRAMS, &[RECEIVER, WORKER])?;
    // By itself: the command line asks for features of shared crates that the programs do not have.
    lay_out(&[FEED], &["sampler-cli"])
}

fn lay_out(apps: &[App], packages: &[&str]) -> Result<()> {
    let built = build(packages)?;
    for app in apps {
        let folder = target_dir().join(FOLDER).join(app.folder);
        fill(app, &built.join(app.program), &folder)
            .with_context(|| format!("packing {}", folder.display()))?;
    }
    Ok(())
}

fn fill(app: &App, program: &Path, folder: &Path) -> Result<()> {
    // What is left of another build is not to be pushed along.
    if folder.exists() {
        fs::remove_dir_all(folder).context("removing the package of before")?;
    }
    fs::create_dir_all(folder).context("making the folder")?;
    let copy = folder.join(app.program);
    let bytes = fs::copy(program, &copy).context("copying the program")?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).context("its permissions")?;
    fs::write(folder.join(PROCFILE), format!("web: {}\n", app.command)).context("the Procfile")?;
    let megabytes = bytes as f64 / f64::from(1 << 20);
    eprintln!("==> {}: {megabytes:.1} MiB", folder.display());
    Ok(())
}

/// Builds these packages for this machine's processor, against an older C library than its own: with the linker and the
/// headers of zig. Returns the folder of the programs.
fn build(packages: &[&str]) -> Result<PathBuf> {
    let tools = LINKING.folder()?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(tools.join("bin/cargo-zigbuild"));
    command
        .args(["zigbuild", "--locked", "--profile", PROFILE])
        .args(["--target", &format!("{target}.{GLIBC}")])
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .env("CARGO_ZIGBUILD_ZIG_PATH", tools.join("ziglang/zig"))
        .current_dir(workspace_dir());
    run(&mut command)?;
    Ok(target_dir().join(&target).join(PROFILE))
}

#[cfg(test)]
mod tests {
    #[test]
    fn images_that_are_built_on_are_pinned_by_digest() {
        let (docker, compose) = (
            include_str!("../../../Dockerfile"),
            include_str!("../../../compose.yaml"),
        );
        let toolchain: toml::Table = include_str!("../../../rust-toolchain.toml")
            .parse()
            .unwrap();
        let version = toolchain["toolchain"]["channel"].as_str().unwrap();
        let builder = docker
            .lines()
            .find_map(|line| line.strip_prefix("ARG BUILDER="));
        let pinned = format!("docker.io/library/rust:{version}-bookworm@sha256:");
        assert!(builder.unwrap().starts_with(&pinned), "{builder:?}");
        // Others are stages of the file itself, or nothing.
        let foreign = docker
            .lines()
            .filter(|line| line.starts_with("FROM ") && line.contains([':', '$']));
        assert_eq!(foreign.collect::<Vec<_>>(), ["FROM ${BUILDER} AS source"]);
        let images = compose
            .lines()
            .filter_map(|line| line.trim().strip_prefix("image: "));
        for image in images {
            assert!(image.contains("@sha256:"), "{image}");
        }
    }

    /// Without tokens a program listens on its loopback alone, which no published port reaches.
    #[test]
    fn what_compose_starts_listens_where_its_ports_lead() {
        let compose = include_str!("../../../compose.yaml");
        let (_, programs) = compose.split_once("  abacus:").unwrap();
        let published = programs.matches("ports: ").count();
        let shared = programs.matches("environment: *settings").count();
        assert_eq!(published, programs.matches("HOST: ").count() + shared);
    }
}
