//! `package`: what `cf push` takes, in a folder for each app of the manifest.

mod elf;
mod sbom;
mod sums;
mod zig;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use sampler_testkit::manifest::{App, example_variables, manifest};
use sampler_testkit::target_dir;

use crate::audit::{Unreachable, run_audit};
use sbom::Crates;

/// Where the folders lie, below the folder that cargo builds into; the manifest says so, too.
pub(crate) const FOLDER: &str = "deploy";

/// What starts a process where the manifest names no command.
const PROCFILE: &str = "Procfile";
/// What the program is made of, as CycloneDX.
const SBOM: &str = "sbom.cdx.json";

/// Checks what is built in, builds both programs for the platform, checks them, and lays each out with
/// what goes along. A package that is `unchecked` may hold known weaknesses.
pub(crate) fn run(unchecked: bool) -> Result<()> {
    run_audit(if unchecked {
        Unreachable::Passes
    } else {
        Unreachable::Fails
    })?;
    let manifest = manifest(&example_variables()?)?;
    let programs: Vec<_> = manifest
        .applications
        .iter()
        .map(|app| app.name.as_str())
        .collect();
    let built = zig::build(&programs)?;
    let crates = Crates::read(&built.target)?;
    for app in &manifest.applications {
        let package = target_dir().join(FOLDER).join(app.package());
        lay_out(app, &built.folder.join(&app.name), &crates, &package)
            .with_context(|| format!("packing {}", package.display()))?;
    }
    Ok(())
}

fn lay_out(app: &App, program: &Path, crates: &Crates, package: &Path) -> Result<()> {
    // What is left of another build is not to be pushed along.
    if package.exists() {
        fs::remove_dir_all(package).context("removing the package of before")?;
    }
    fs::create_dir_all(package).context("making the folder")?;
    let bytes = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let needs = elf::check(&bytes).with_context(|| format!("in {}", program.display()))?;
    let copy = package.join(&app.name);
    fs::write(&copy, &bytes).context("copying the program")?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).context("its permissions")?;
    fs::write(package.join(PROCFILE), format!("web: {}\n", app.command)).context("the Procfile")?;
    fs::write(package.join(SBOM), crates.sbom(&app.name)?).context("the SBOM")?;
    sums::write(package)?;
    let megabytes = bytes.len() as f64 / f64::from(1 << 20);
    eprintln!(
        "==> {}: {megabytes:.1} MiB, needs {needs}",
        package.display()
    );
    Ok(())
}
