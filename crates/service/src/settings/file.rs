//! Files that are read at the start.

use std::path::Path;

/// The largest file, in bytes. A larger one is not a file of settings.
const LENGTH_MAX: u64 = 1 << 20;

/// The text of a file, or why there is none, without any of it.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    let length = std::fs::metadata(path).map_err(unreadable)?.len();
    if length > LENGTH_MAX {
        return Err(format!("has {length} bytes: expected at most {LENGTH_MAX}"));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}
