//! buildah with images of its own below `target/images`, and what the images are built on.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::Uid;
use sampler_testkit::mongod::find;
use sampler_testkit::{target_dir, workspace_dir};
use serde_json::Value;

use crate::shell::{output, run_named};

/// The programs that are needed, and Debian's packages of the same names.
const TOOLS: [&str; 2] = ["buildah", "mmdebstrap"];
/// What the Debian below everything has: a compiler, and the libraries of MongoDB's server.
const PACKAGES: &str = "ca-certificates,gcc,libc6-dev,libcurl4";
const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";
/// The stages of the Dockerfile that become images.
const STAGES: [&str; 4] = ["receiver", "worker", "cli", "stand-in"];
/// The image with the toolchain.
const BUILDER: &str = "localhost/sampler-builder";
/// Where the image looks for authorities, and what may name others on this machine.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const AUTHORITIES_VARIABLE: &str = "SSL_CERT_FILE";

/// buildah, with a folder for all that it keeps.
pub(super) struct Engine {
    folder: PathBuf,
}

impl Engine {
    /// Checks that everything is there.
    pub(super) fn new() -> Result<Self> {
        ensure!(
            Uid::effective().is_root(),
            "images are built and run by root"
        );
        for tool in TOOLS {
            let found = Command::new(tool).arg("--version").output();
            if found.is_err() {
                bail!("{tool} is not there: apt-get install {}", TOOLS.join(" "));
            }
        }
        let folder = target_dir().join("images");
        fs::create_dir_all(folder.join("tmp")).context("making the folder of the images")?;
        Ok(Self { folder })
    }

    /// A command of buildah.
    pub(super) fn buildah(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("buildah");
        command.arg("--root").arg(self.folder.join("storage"));
        command.arg("--runroot").arg(self.folder.join("run"));
        command.args(arguments);
        // What is kept between builds: crates, and what was compiled.
        command.env("TMPDIR", self.folder.join("tmp"));
        command
    }

    /// A file for what a service writes.
    pub(super) fn log(&self, image: &str) -> Result<File> {
        File::create(self.folder.join(format!("{image}.log"))).context("making a log")
    }

    /// A new container of an image.
    pub(super) fn container(&self, image: &str) -> Result<String> {
        self.output(&["from", "--pull-never", &tag(image)])
    }

    /// The program of an image, with its arguments.
    pub(super) fn entrypoint(&self, image: &str) -> Result<Vec<String>> {
        let json = self.output(&["inspect", "--type", "image", &tag(image)])?;
        let mut about: Value = serde_json::from_str(&json)?;
        let entrypoint = about["OCIv1"]["config"]["Entrypoint"].take();
        serde_json::from_value(entrypoint).with_context(|| format!("the entry point of {image}"))
    }

    /// Builds all images.
    pub(super) fn build_all(&self) -> Result<()> {
        self.make_bases()?;
        for stage in STAGES {
            let builder = format!("BUILDER={BUILDER}");
            let mut command = self.buildah(&["build", "--isolation", "chroot", "--layers"]);
            command.args([
                "--build-arg",
                &builder,
                "--target",
                stage,
                "--tag",
                &tag(stage),
                ".",
            ]);
            command.current_dir(workspace_dir());
            run_named("buildah", &mut command)?;
        }
        Ok(())
    }

    /// Makes the images that the Dockerfile and compose.yaml take from a registry, once.
    fn make_bases(&self) -> Result<()> {
        let has = |image: &str| self.output(&["inspect", "--type", "image", image]).is_ok();
        if has(BUILDER) && has(&tag("mongo")) {
            return Ok(());
        }
        let debian = self.folder.join("debian.tar");
        let mut make = Command::new("mmdebstrap");
        make.args([
            "--variant=minbase",
            "--quiet",
            &format!("--include={PACKAGES}"),
            SUITE,
        ]);
        run_named("mmdebstrap", make.arg(&debian).arg(MIRROR))?;
        self.make_builder(&debian)
            .context("the image with the toolchain")?;
        self.make_mongo(&debian).context("the image of MongoDB")?;
        fs::remove_file(debian).context("removing the archive of Debian")
    }

    fn make_builder(&self, debian: &Path) -> Result<()> {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "sysroot"]);
        let toolchain = output("rustc", rustc.current_dir(workspace_dir()))?;
        let toolchain = PathBuf::from(toolchain);
        let container = self.debian(debian)?;
        for part in ["bin", "lib"] {
            self.copy(
                &container,
                &toolchain.join(part),
                &format!("/usr/local/{part}"),
            )?;
        }
        if let Some(file) = std::env::var_os(AUTHORITIES_VARIABLE) {
            let file = fs::canonicalize(file).context(AUTHORITIES_VARIABLE)?;
            self.copy(&container, &file, AUTHORITIES)?;
        }
        self.output(&["config", "--env", "CARGO_HOME=/usr/local/cargo", &container])?;
        let path = "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        self.output(&["config", "--env", path, &container])?;
        self.commit(&container, BUILDER)
    }

    fn make_mongo(&self, debian: &Path) -> Result<()> {
        let container = self.debian(debian)?;
        self.copy(&container, &find()?.path, "/usr/bin/mongod")?;
        let make = [
            "run",
            "--isolation",
            "chroot",
            &container,
            "--",
            "mkdir",
            "-p",
            "/data/db",
        ];
        self.output(&make)?;
        let entrypoint = r#"["/usr/bin/mongod","--replSet","rs0","--wiredTigerCacheSizeGB","0.5"]"#;
        self.output(&["config", "--entrypoint", entrypoint, &container])?;
        self.commit(&container, &tag("mongo"))
    }

    fn debian(&self, archive: &Path) -> Result<String> {
        let container = self.output(&["from", "scratch"])?;
        let mut add = self.buildah(&["add", "--quiet", &container]);
        run_named("buildah", add.arg(archive).arg("/"))?;
        Ok(container)
    }

    fn copy(&self, container: &str, from: &Path, to: &str) -> Result<()> {
        let mut copy = self.buildah(&["copy", "--quiet", container]);
        run_named("buildah", copy.arg(from).arg(to))
    }

    fn commit(&self, container: &str, image: &str) -> Result<()> {
        self.output(&["commit", "--quiet", "--rm", container, image])?;
        Ok(())
    }

    /// What a command prints.
    fn output(&self, arguments: &[&str]) -> Result<String> {
        output("buildah", &mut self.buildah(arguments))
    }

    /// Writes an image into an archive.
    pub(super) fn export(&self, image: &str, folder: &Path, version: &str) -> Result<()> {
        let name = format!("sampler-{image}-{version}");
        let archive = folder.join(format!("{name}-image.tar"));
        let to = format!("oci-archive:{}:{name}", archive.display());
        run_named(
            "buildah",
            &mut self.buildah(&["push", "--quiet", &tag(image), &to]),
        )
    }

    /// Removes all containers, and what is mounted. The images stay, for the next time.
    pub(super) fn clean_up(&self) -> Result<()> {
        self.output(&["rm", "--all"])?;
        let mounted = self.folder.join("storage/overlay");
        // It is not mounted where the driver needs no mount of its own.
        let _ = Command::new("umount").arg(mounted).output();
        Ok(())
    }
}

/// The name of an image.
fn tag(image: &str) -> String {
    format!("localhost/sampler-{image}")
}
