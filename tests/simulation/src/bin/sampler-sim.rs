//! Runs the simulation on many seeds: `cargo xtask sim --seeds 1000 --from 0`.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use sampler_simulation::{Counts, FORGETFUL, Mutant, run, run_with_log, shrink};

/// Lines of the log that are shown of a failing run.
const LOG_LINES: usize = 60;

/// The run stops after this many failing seeds.
const FAILURES_MAX: usize = 5;

/// Runs the simulation on a row of seeds and checks the law on each.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask sim", version)]
struct Arguments {
    /// How many seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many of them at a time.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The upstream: Abacus, which recognises a repeat for ever, or one that forgets.
    #[arg(long, value_parser = ["abacus", "forgets"], default_value = "abacus")]
    upstream: String,
    /// Prints the log of the first seed, whether it fails or not, and runs no other.
    #[arg(long)]
    log: bool,
    /// Plants a bug, by its name in `tests/simulation/src/mutant.rs`: some seed must find it.
    #[arg(long, value_parser = mutant, default_value = "None")]
    planted: Mutant,
}

fn mutant(name: &str) -> Result<Mutant, String> {
    Mutant::named(name).ok_or_else(|| "no such bug".to_owned())
}

/// What the threads share.
struct Shared {
    mutant: Mutant,
    next: AtomicU64,
    end: u64,
    counts: Mutex<Counts>,
    failures: Mutex<Vec<u64>>,
    progress: ProgressBar,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.upstream == "forgets" {
        arguments.from |= FORGETFUL;
    }
    if arguments.log {
        return print_log(arguments.from, arguments.planted);
    }
    let began = Instant::now();
    let shared = Shared {
        mutant: arguments.planted,
        next: AtomicU64::new(arguments.from),
        end: arguments.from.saturating_add(arguments.seeds),
        counts: Mutex::default(),
        failures: Mutex::default(),
        progress: progress(arguments.seeds),
    };
    thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| work(&shared));
        }
    });
    let failures = shared
        .failures
        .into_inner()
        .expect("no thread has panicked");
    let counts = shared.counts.into_inner().expect("no thread has panicked");
    let done = shared.progress.position();
    shared.progress.finish_and_clear();
    report(done, &counts, began.elapsed());
    if !failures.is_empty() {
        // At once: to make one short can take longer than the run.
        println!("failing seeds: {failures:?}");
    }
    for seed in &failures {
        explain(*seed, arguments.planted);
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn print_log(seed: u64, mutant: Mutant) -> ExitCode {
    let outcome = run_with_log(seed, mutant);
    for line in &outcome.log {
        println!("{line}");
    }
    if outcome.violations.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn progress(seeds: u64) -> ProgressBar {
    let style = "{bar:40} {pos}/{len} seeds, {per_sec}, {eta} left {msg}";
    let style = ProgressStyle::with_template(style).expect("a fit template");
    ProgressBar::new(seeds).with_style(style)
}

/// Takes one seed after the other.
fn work(shared: &Shared) {
    loop {
        let seed = shared.next.fetch_add(1, Ordering::Relaxed);
        if seed >= shared.end {
            return;
        }
        let outcome = run(seed, shared.mutant);
        let mut counts = shared.counts.lock().expect("no thread has panicked");
        for (what, count) in outcome.counts {
            *counts.entry(what).or_default() += count;
        }
        drop(counts);
        shared.progress.inc(1);
        if !outcome.violations.is_empty() {
            let mut failures = shared.failures.lock().expect("no thread has panicked");
            failures.push(seed);
            shared
                .progress
                .set_message(format!("({} failed)", failures.len()));
            if failures.len() >= FAILURES_MAX {
                shared.next.fetch_max(shared.end, Ordering::Relaxed);
            }
        }
    }
}

fn report(done: u64, counts: &Counts, took: Duration) {
    let seconds = took.as_secs_f64();
    let rate = done as f64 / seconds;
    println!("{done} seeds in {seconds:.1} s: {rate:.0} seeds/s");
    for (what, count) in counts {
        println!("{count:>12} {what}");
    }
}

/// Says what goes wrong with a seed, as briefly as can be, and how to see it again.
fn explain(seed: u64, mutant: Mutant) {
    let shrunk = shrink(seed, mutant);
    println!("\nseed {seed} fails:");
    for violation in shrunk.outcome.violations.iter().take(10) {
        println!("  {violation}");
    }
    let (after, before) = (shrunk.operations.len(), shrunk.before);
    println!("with {after} of its {before} operations:");
    for operation in &shrunk.operations {
        println!("  {operation}");
    }
    let log = &shrunk.outcome.log;
    let hidden = log.len().saturating_sub(LOG_LINES);
    println!("the end of its log ({hidden} lines before):");
    for line in &log[hidden..] {
        println!("  {line}");
    }
    println!("to run it again: cargo xtask sim --seeds 1 --from {seed}");
}
