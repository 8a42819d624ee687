//! Snapshots: what really runs, as its provider sees it, compared with the spans.
//!
//! A snapshot may have hundreds of thousands of instances. NDJSON is taken line by line as it
//! arrives, JSON, which is shorter, as a whole ([`take`](mod@take)); of each instance, digests and a
//! compressed record are kept ([`instances`]). Then the spans that ran at its time, or begin later,
//! are read, page by page ([`comparison`]). Where instances have no span, those from before are read,
//! too ([`starts`]). The answer is written from the records ([`report`]). So no instance costs a
//! read. What is in memory depends on how alike the instances are, and on how many spans differ; each
//! part of it has a limit of its own ([`SnapshotLimits`]).

mod comparison;
mod digest;
mod instance;
mod instances;
mod proposal;
mod report;
mod spool;
mod starts;
mod take;

use std::time::Duration;

pub(crate) use comparison::{Compared, Comparison};
pub(crate) use instances::Snapshot;
pub(crate) use report::write as write_report;
pub(crate) use take::take;

/// Bytes for which a client has a second, in each direction: others wait for it.
const RATE: u32 = 1 << 20;

/// How long a client may take for this many bytes.
pub(crate) fn time_for(bytes: usize) -> Duration {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Duration::from_secs(1) * bytes / RATE
}

#[derive(Clone, Debug)]
pub struct SnapshotLimits {
    /// The most instances. Short ones take more memory than they have bytes.
    pub instances: usize,
    /// Bytes of memory for the instances. Ids that have nothing in common take as much as they are long.
    pub instances_memory: usize,
    /// The most open spans without an instance that are shown.
    pub open: usize,
    /// Bytes of memory for these.
    pub open_memory: usize,
    /// The most spans with another plan or other measures that are shown.
    pub differing: usize,
    /// Bytes of memory for these.
    pub differing_memory: usize,
    /// The most instances whose last end before the snapshot is remembered.
    pub ends: usize,
    /// How long the spans may take to be read.
    pub compare_time: Duration,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            instances: 1_000_000,
            instances_memory: 72 << 20,
            open: 100_000,
            open_memory: 16 << 20,
            differing: 20_000,
            differing_memory: 16 << 20,
            ends: 200_000,
            compare_time: Duration::from_mins(10),
        }
    }
}
