//! `test` and `ci`.

use std::process::Command;

use anyhow::Result;
use sampler_testkit::mongod::{DB_URI_VARIABLE, Options, ReplicaSet, find};
use sampler_testkit::program::{self, BIN_DIR_VARIABLE};

use crate::audit::{self, Unreachable};
use crate::docs;
use crate::shell::{cargo, has_subcommand, run};

/// Everything that must hold before a change is taken.
pub(crate) async fn ci() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    run(&mut cargo(&clippy))?;
    audit::run_audit(Unreachable::Passes)?;
    docs::run(true)?;
    test(&[]).await
}

/// All tests. The summary of the test runner comes last, after the examples in the documentation.
pub(crate) async fn test(filters: &[String]) -> Result<()> {
    let programs = program::build()?;
    let server = Server::start().await?;
    let prepare = |command: &mut Command| {
        command.env(BIN_DIR_VARIABLE, &programs);
        if let Some(uri) = server.uri() {
            command.env(DB_URI_VARIABLE, uri);
        }
    };
    if filters.is_empty() {
        let mut examples = cargo(&["test", "--workspace", "--doc", "--quiet"]);
        prepare(&mut examples);
        run(&mut examples)?;
    }
    let mut tests = cargo(test_runner());
    tests.args(filters);
    prepare(&mut tests);
    let result = run(&mut tests);
    server.stop().await?;
    result
}

fn test_runner() -> &'static [&'static str] {
    if has_subcommand("nextest") {
        &["nextest", "run", "--workspace"]
    } else {
        &[
            "test",
            "--workspace",
            "--lib",
            "--bins",
            "--tests",
            "--no-fail-fast",
        ]
    }
}

/// The MongoDB that all tests share.
enum Server {
    /// The environment names one already.
    Given,
    Started(ReplicaSet),
}

impl Server {
    async fn start() -> Result<Self> {
        if std::env::var_os(DB_URI_VARIABLE).is_some() {
            eprintln!("==> mongod: the one that {DB_URI_VARIABLE} names");
            return Ok(Self::Given);
        }
        eprintln!("==> mongod: {}", find()?);
        Ok(Self::Started(ReplicaSet::start(Options::single()).await?))
    }

    fn uri(&self) -> Option<String> {
        match self {
            Self::Given => None,
            Self::Started(set) => Some(set.uri()),
        }
    }

    async fn stop(self) -> Result<()> {
        match self {
            Self::Given => Ok(()),
            Self::Started(set) => set.stop().await,
        }
    }
}

/// Runs the simulation as fast as it goes.
pub(crate) fn simulate(arguments: &[String]) -> Result<()> {
    let mut command = cargo(&["run", "--release", "--quiet", "--package", "sampler-tests"]);
    run(command.args(["--bin", "sampler-sim", "--"]).args(arguments))
}
