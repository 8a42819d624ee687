//! `package`: what `cf push` takes, in a folder for each app of the manifest, and the command line.

mod elf;
mod sbom;
pub(crate) mod sums;
mod zig;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use sampler_testkit::program::{CLI, RECEIVER, WORKER};
use sampler_testkit::target_dir;

use crate::audit::{Unreachable, run_audit};
use sbom::Crates;

/// Where the folders lie, below the folder that cargo builds into; the manifest says so, too.
pub(crate) const FOLDER: &str = "deploy";

/// The programs that a platform starts, and the folders that the manifest pushes.
const PROGRAMS: [(&str, &str); 2] = [(RECEIVER, "receiver"), (WORKER, "worker")];

/// What starts a process where the manifest names no command.
const PROCFILE: &str = "Procfile";
/// What the program is made of, as CycloneDX.
const SBOM: &str = "sbom.cdx.json";
/// The crate of the command line, and the folder that it is laid out in.
const CLI_CRATE: &str = "sampler-cli";
const CLI_FOLDER: &str = "cli";
/// Where its manual lies.
const MANUAL: &str = "man/man1";

/// The folder of the app that feeds: the command line, which a platform starts.
const FEED_FOLDER: &str = "feed";
const FEED_COMMAND: &str = "./sampler feed cloud-foundry";

/// One program to lay out.
struct Packed<'a> {
    /// Its file.
    program: &'a str,
    /// Its crate.
    name: &'a str,
    /// How a platform starts it, if one does.
    command: Option<&'a str>,
}

/// Checks what is built in, builds all programs for the platform, checks them, and lays each out with
/// what goes along. A package that is `unchecked` may hold known weaknesses.
pub(crate) fn run(unchecked: bool) -> Result<()> {
    run_audit(if unchecked {
        Unreachable::Passes
    } else {
        Unreachable::Fails
    })?;
    let built = zig::build(&PROGRAMS.map(|(program, _)| program))?;
    let crates = Crates::read(&built.target)?;
    for (program, folder) in PROGRAMS {
        let command = format!("./{program}");
        let packed = Packed {
            program,
            name: program,
            command: Some(&command),
        };
        lay_out(&packed, &built.folder, &crates, Path::new(folder))?;
    }
    // By itself: it asks for features of shared crates that the programs do not have.
    let built = zig::build(&[CLI_CRATE])?;
    for (folder, command) in [(CLI_FOLDER, None), (FEED_FOLDER, Some(FEED_COMMAND))] {
        let packed = Packed {
            program: CLI,
            name: CLI_CRATE,
            command,
        };
        lay_out(&packed, &built.folder, &crates, Path::new(folder))?;
    }
    Ok(())
}

/// A page of the manual for each command of the command line, as packagers take it.
fn add_manual(package: &Path) -> Result<()> {
    let folder = package.join(MANUAL);
    fs::create_dir_all(&folder)?;
    clap_mangen::generate_to(sampler_cli::command(), &folder)?;
    Ok(())
}

fn lay_out(packed: &Packed<'_>, built: &Path, crates: &Crates, folder: &Path) -> Result<()> {
    let package = target_dir().join(FOLDER).join(folder);
    fill(packed, &built.join(packed.program), crates, &package)
        .with_context(|| format!("packing {}", package.display()))
}

fn fill(packed: &Packed<'_>, program: &Path, crates: &Crates, package: &Path) -> Result<()> {
    // What is left of another build is not to be pushed along.
    if package.exists() {
        fs::remove_dir_all(package).context("removing the package of before")?;
    }
    fs::create_dir_all(package).context("making the folder")?;
    let bytes = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let needs = elf::check(&bytes).with_context(|| format!("in {}", program.display()))?;
    let copy = package.join(packed.program);
    fs::write(&copy, &bytes).context("copying the program")?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).context("its permissions")?;
    if let Some(command) = packed.command {
        let procfile = format!("web: {command}\n");
        fs::write(package.join(PROCFILE), procfile).context("the Procfile")?;
    }
    if packed.program == CLI && packed.command.is_none() {
        add_manual(package).context("the manual")?;
    }
    fs::write(package.join(SBOM), crates.sbom(packed.name)?).context("the SBOM")?;
    sums::write(package)?;
    let megabytes = bytes.len() as f64 / f64::from(1 << 20);
    eprintln!(
        "==> {}: {megabytes:.1} MiB, needs {needs}",
        package.display()
    );
    Ok(())
}
