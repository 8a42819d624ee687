//! Where the workspace and its build output lie.

use std::path::{Path, PathBuf};

/// The folder of the workspace's `Cargo.toml`.
pub fn workspace_dir() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The crate lies two levels below it (`tests/kit`).
    crate_dir
        .ancestors()
        .nth(2)
        .unwrap_or(crate_dir)
        .to_path_buf()
}

/// The folder that cargo builds into.
pub fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => workspace_dir().join(folder),
        None => workspace_dir().join("target"),
    }
}
