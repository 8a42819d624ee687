//! The program `sampler-chaos`; see the library.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use sampler_chaos::{Options, run};
use sampler_testkit::now_millis;

/// Real processes, real faults, and a bill that must be right all the same.
#[derive(Debug, Parser)]
#[command(name = "sampler-chaos", version)]
struct Cli {
    /// How long there are faults.
    #[arg(long, default_value_t = 3.0, value_name = "MINUTES")]
    minutes: f64,
    /// What the faults and the events follow from; another one each time unless it is given.
    #[arg(long)]
    seed: Option<u64>,
    /// How many clients send events at once.
    #[arg(long, default_value_t = 24, value_name = "N")]
    clients: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    match carry_out(Cli::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether all is well.
async fn carry_out(cli: Cli) -> Result<bool> {
    let Ok(length) = Duration::try_from_secs_f64(cli.minutes * 60.0) else {
        bail!("{} is no number of minutes", cli.minutes);
    };
    let options = Options {
        seed: cli
            .seed
            .unwrap_or_else(|| now_millis().unsigned_abs() % 1_000_000),
        length,
        clients: cli.clients,
    };
    let report = tokio::select! {
        report = run(options) => report?,
        _ = tokio::signal::ctrl_c() => bail!("interrupted; there is no verdict"),
    };
    println!("{report}");
    Ok(report.is_right())
}
