//! `package`: what `cf push` takes, in a folder for each app of the manifest.

mod zig;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use sampler_testkit::program::{CLI, RECEIVER, WORKER};
use sampler_testkit::target_dir;

use crate::audit::{Unreachable, run_audit};

/// Where the folders lie, below the folder that cargo builds into; the manifest says so, too.
const FOLDER: &str = "deploy";
/// What starts a process where the manifest names no command.
const PROCFILE: &str = "Procfile";
/// The crate of the command line.
const CLI_CRATE: &str = "sampler-cli";

/// An app of the manifest.
struct App {
    /// The folder that is pushed.
    folder: &'static str,
    /// The program in it.
    program: &'static str,
    command: &'static str,
}

const RECEIVER_APP: App = App {
    folder: "receiver",
    program: RECEIVER,
    command: "./sampler-receiver",
};
const WORKER_APP: App = App {
    folder: "worker",
    program: WORKER,
    command: "./sampler-worker",
};
const FEED_APP: App = App {
    folder: "feed",
    program: CLI,
    command: "./sampler feed cloud-foundry",
};

/// Checks what is built in, builds all programs for the platform, and lays each out. A package that is
/// `unchecked` may hold known weaknesses.
pub(crate) fn run(unchecked: bool) -> Result<()> {
    run_audit(if unchecked {
        Unreachable::Passes
    } else {
        Unreachable::Fails
    })?;
    let built = zig::build(&[RECEIVER, WORKER])?;
    lay_out(&RECEIVER_APP, &built)?;
    lay_out(&WORKER_APP, &built)?;
    // By itself: the command line asks for features of shared crates that the programs do not have.
    lay_out(&FEED_APP, &zig::build(&[CLI_CRATE])?)
}

fn lay_out(app: &App, built: &Path) -> Result<()> {
    let folder = target_dir().join(FOLDER).join(app.folder);
    fill(app, &built.join(app.program), &folder)
        .with_context(|| format!("packing {}", folder.display()))
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
