//! Snapshots: what really runs, as its provider sees it, compared with the spans.
//!
//! A snapshot may have hundreds of thousands of instances. Its body is taken apart as it arrives
//! ([`pieces`]); of each instance, digests and a compressed record are kept ([`instances`]). Then the
//! spans are read once, page by page ([`comparison`]), and the answer is written from the records
//! ([`report`]). So what is in memory is a small part of the body, and no instance costs a read.

mod comparison;
mod digest;
mod instance;
mod instances;
mod pieces;
mod proposal;
mod report;
mod spool;
mod take;

use std::time::Duration;

pub(crate) use comparison::{Compared, Comparison};
pub(crate) use instances::Snapshot;
pub(crate) use report::write as write_report;
pub(crate) use take::take;

/// The limits of a snapshot that are no settings.
#[derive(Clone, Debug)]
pub struct SnapshotLimits {
    /// The most instances. Short ones take more memory than they have bytes.
    pub instances: usize,
    /// How long the client may take to read the answer. Another snapshot has to wait for that.
    pub answer_time: Duration,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            instances: 1_000_000,
            answer_time: Duration::from_mins(10),
        }
    }
}
