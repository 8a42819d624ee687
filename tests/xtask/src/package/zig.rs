//! Building against an older C library than this machine's, with the linker and the headers of zig.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use sampler_testkit::{target_dir, workspace_dir};

use crate::shell::run_named;
use crate::tools::LINKING;

/// The C library of the stack `cflinuxfs4`.
const GLIBC: &str = "2.35";

/// The profile of what is pushed.
const PROFILE: &str = "cloud";

/// Builds these packages for this machine's processor. Returns the folder of the programs.
pub(super) fn build(packages: &[&str]) -> Result<PathBuf> {
    let tools = LINKING.folder()?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = Command::new(tools.join("bin/cargo-zigbuild"));
    command
        .args(["zigbuild", "--locked", "--profile", PROFILE])
        .args(["--target", &format!("{target}.{GLIBC}")])
        .env("CARGO_ZIGBUILD_ZIG_PATH", tools.join("ziglang/zig"))
        .current_dir(workspace_dir());
    for package in packages {
        command.args(["--package", package]);
    }
    run_named("cargo-zigbuild", &mut command)?;
    Ok(target_dir().join(&target).join(PROFILE))
}

#[cfg(test)]
mod tests {
    #[test]
    fn images_that_are_built_on_are_pinned_by_digest() {
        let (docker, compose) = (
            include_str!("../../../../Dockerfile"),
            include_str!("../../../../compose.yaml"),
        );
        let toolchain: toml::Table = include_str!("../../../../rust-toolchain.toml")
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
        let compose = include_str!("../../../../compose.yaml");
        let (_, programs) = compose.split_once("  abacus:").unwrap();
        let published = programs.matches("ports: ").count();
        let shared = programs.matches("environment: *settings").count();
        assert_eq!(published, programs.matches("HOST: ").count() + shared);
    }
}
