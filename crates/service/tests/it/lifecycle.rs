//! Real signals to a real process.
//!
//! The process is this test binary once more, asked for the one test in it that is a program.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sampler_service::lifecycle::{STOP_BUDGET, run_until_stopped};
use sampler_service::telemetry::{self, LogFormat, LogOptions};

const SORT: &str = "STOPPABLE_PROGRAM";

#[test]
#[ignore = "it is the program that the tests beside it start"]
fn program() {
    let sort = std::env::var(SORT).unwrap();
    let settings = LogOptions {
        format: LogFormat::Json,
        level: "info".to_owned(),
    };
    telemetry::init(&settings, None).unwrap();
    let end = run_until_stopped(|stop| async move {
        tracing::info!("running");
        match sort.as_str() {
            "failing" => anyhow::bail!("on purpose"),
            "panicking" => panic!("on purpose"),
            _ => {}
        }
        stop.soft().cancelled().await;
        tracing::info!("draining");
        if sort == "stuck" {
            // Not even a thread that cannot be stopped may hold up the end.
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_mins(1)));
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    std::process::exit(end.into());
}

struct Running {
    child: Child,
    log: BufReader<ChildStdout>,
}

impl Running {
    fn start(sort: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "lifecycle::program", "--ignored", "--nocapture"])
            .env(SORT, sort)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self { child, log };
        running.wait_for("running");
        running
    }

    /// Reads the log up to the line with this message.
    fn wait_for(&mut self, message: &str) {
        let message = format!(r#""message":"{message}""#);
        let mut line = String::new();
        while !line.contains(&message) {
            line.clear();
            assert_ne!(
                self.log.read_line(&mut line).unwrap(),
                0,
                "the log ended early"
            );
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap());
        kill(pid, signal).unwrap();
    }

    /// The exit code and the rest of the log.
    fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.log.read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), log)
    }
}

#[test]
fn either_signal_asks_to_stop_and_the_end_is_orderly() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let program = Running::start("quick");
        program.signal(signal);
        let (code, log) = program.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains(r#""message":"draining""#), "{log}");
        assert!(log.contains(r#""message":"stopped""#), "{log}");
    }
}

#[test]
fn a_second_signal_ends_at_once_with_the_code_of_that_signal() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut program = Running::start("stuck");
        program.signal(Signal::SIGTERM);
        program.wait_for("draining");
        let before = Instant::now();
        program.signal(signal);
        let (found, log) = program.end();
        assert_eq!(found, Some(code), "{log}");
        assert!(
            before.elapsed() < Duration::from_secs(3),
            "{:?}",
            before.elapsed()
        );
    }
}

#[test]
fn the_end_comes_within_the_budget_whatever_is_left() {
    let program = Running::start("stuck");
    let before = Instant::now();
    program.signal(Signal::SIGTERM);
    let (code, log) = program.end();
    assert!(before.elapsed() < STOP_BUDGET, "{:?}", before.elapsed());
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("program.stop_timeout"), "{log}");
}

#[test]
fn a_program_that_fails_says_so_and_ends_with_a_code_of_its_own() {
    for sort in ["failing", "panicking"] {
        let (found, log) = Running::start(sort).end();
        assert_eq!(found, Some(1), "{log}");
        assert!(log.contains("program.failed"), "{log}");
    }
}
