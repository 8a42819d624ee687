//! Where the data of a server is kept that is needed by tests alone.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

/// The folder in memory that Linux has.
const IN_MEMORY: &str = "/dev/shm";

/// What must be free there, and of the machine's memory, in bytes: all tests together leave about half of
/// it on the server that they share.
const ROOM: u64 = 8 << 30;

/// A folder in memory if there is room. Each write waits until it is on the disk, so tests wait for the
/// disk most of their time; and no test switches off the machine, which is all that a disk is for.
pub(super) fn parent() -> PathBuf {
    let memory = Path::new(IN_MEMORY);
    if is_roomy(memory) {
        memory.to_owned()
    } else {
        std::env::temp_dir()
    }
}

fn is_roomy(memory: &Path) -> bool {
    let of_machine = fs::read_to_string("/proc/meminfo");
    let of_machine = of_machine.ok().and_then(|text| available(&text));
    let free = free(memory).zip(of_machine);
    free.is_some_and(|(there, of_machine)| there.min(of_machine) >= ROOM)
}

/// What is free in the file system of a folder, in bytes.
#[allow(
    clippy::useless_conversion,
    reason = "not every system counts in 64 bits"
)]
fn free(folder: &Path) -> Option<u64> {
    let found = statvfs(folder).ok()?;
    Some(u64::from(found.blocks_available()) * u64::from(found.fragment_size()))
}

/// The memory that programs can have, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let kilobytes = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = kilobytes.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
