//! The programs that are measured, as a release builds them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sampler_testkit::program::{BIN_DIR_VARIABLE, Launch, RECEIVER, WORKER};
use sampler_testkit::{Program, target_dir, workspace_dir};

/// The folder with the programs of the commit that this one is compared with.
const OTHER_BUILD_VARIABLE: &str = "SAMPLER_BENCH_OTHER";
/// How long a program may take until it takes events.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// Whose programs are run beside each other. Both get the same settings: those that both know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// Those of the commit that this one is compared with.
    Other,
    /// Those of this commit.
    Own,
}

impl Build {
    /// Starts a receiver on that database, and waits until it takes events.
    pub(crate) async fn receiver(self, uri: &str, dimension: &str) -> Result<Program> {
        let program = self.launch(RECEIVER, uri, dimension)?.start().await?;
        program.until_ready(READY_LIMIT).await?;
        Ok(program)
    }

    /// Starts a worker that posts to that Abacus.
    pub(crate) async fn worker(self, uri: &str, dimension: &str, abacus: &str) -> Result<Program> {
        let launch = self.launch(WORKER, uri, dimension)?;
        launch.env("COLLECTOR_URL", abacus).start().await
    }

    fn launch(self, name: &str, uri: &str, dimension: &str) -> Result<Launch> {
        let path = self.folder()?.join(name);
        let missing = "is not there: `cargo xtask bench` builds it";
        ensure!(path.is_file(), "{} {missing}", path.display());
        Ok(Launch::new(name)
            .path(path)
            .log_file(target_dir().join("bench").join(format!("{name}.log")))
            .env("DB_URI", uri)
            .env("SAMPLER_DIMENSION", dimension))
    }

    /// Where the environment says, or beside our own program.
    fn folder(self) -> Result<PathBuf> {
        if self == Self::Other {
            let folder = std::env::var_os(OTHER_BUILD_VARIABLE);
            return folder
                .map(PathBuf::from)
                .context("no programs of another commit");
        }
        if let Some(folder) = std::env::var_os(BIN_DIR_VARIABLE) {
            return Ok(workspace_dir().join(folder));
        }
        let own = std::env::current_exe().context("our own program")?;
        Ok(own.parent().context("its folder")?.to_owned())
    }
}
