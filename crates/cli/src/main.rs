//! The program `sampler`. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    sampler_cli::main()
}
