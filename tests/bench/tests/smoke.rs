//! Whether everything that is measured can be measured: as little of it as there can be, with the
//! programs of a test. How fast it is, is of no concern here.

use std::process::Command;

use sampler_testkit::program::{BIN_DIR_VARIABLE, build};
use sampler_testkit::workspace_dir;

#[test]
fn measures_a_little_of_everything() {
    let programs = match std::env::var_os(BIN_DIR_VARIABLE) {
        Some(folder) => workspace_dir().join(folder),
        None => build().expect("the programs can be built"),
    };
    let output = Command::new(env!("CARGO_BIN_EXE_sampler-bench"))
        .args(["--smoke", "--rounds", "1"])
        .env(BIN_DIR_VARIABLE, programs)
        .output()
        .expect("the program can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report = String::from_utf8_lossy(&output.stdout);
    for figure in [
        "Starts a second",
        "p99 of the quiet client",
        "Intervals a second",
        "at midnight",
    ] {
        assert!(report.contains(figure), "{figure} is missing in\n{report}");
    }
}
