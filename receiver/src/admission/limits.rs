//! The limits of admission.

use std::time::Duration;

use super::permits::PermitLimits;
use crate::reading;

/// How long a request waits for its turn.
const WAIT: Duration = Duration::from_secs(5);

/// Events of one kind that wait for an answer of the store. The 384 of one client keep all commands of a group busy
/// while the next ones gather.
pub(super) const EVENTS: PermitLimits = counted(3 * 384);

/// Starts in batches. Those of one client are twice what all commands hold, so that the next commands are full when
/// they are sent; all together fill the queue of the store behind them. Nobody waits for one start of a batch alone.
pub(super) const BATCH_STARTS: PermitLimits = PermitLimits {
    unit: 6 << 10,
    ..counted(3 * 2_048)
};

/// Requests with large bodies: 4 MB of them. Until such an event is kept, memory holds it several times: as a body,
/// parsed, as a document, in the command, and in what the driver sends.
pub(super) const LARGE: PermitLimits = PermitLimits {
    unit: 64 << 10,
    ..counted(64)
};

/// Each mapping is three calls to another service.
pub(super) const MAPPINGS: PermitLimits = counted(32);

/// Operators' actions.
pub(super) const ACTS: PermitLimits = counted(8);

/// All requests that read. The longest wait is as long as the slowest of them, a sum, may take.
pub(super) const READS: PermitLimits = PermitLimits {
    wait: reading::SUM_TIME_MAX,
    ..counted(reading::AT_ONCE as usize)
};

/// Requests that add up usages. The sum of another client may have waited for its turn to read, too.
pub(super) const SUMS: PermitLimits = PermitLimits {
    wait: READS.wait.saturating_add(reading::SUM_TIME_MAX),
    ..counted(reading::SUMS_AT_ONCE)
};

/// Bytes of bodies that are in memory at a time, but for small ones. A client alone may have half of
/// that: a batch of the largest size, and what it was decompressed from.
pub(super) const BODY_BYTES: usize = 12 << 20;

/// A body up to this size is not charged to the budget: what connections take bounds those.
pub(crate) const SMALL_BODY: usize = 2 << 10;

/// The least weight of a request, and the weight of each value in its JSON: about the memory they take.
pub(super) const REQUEST_WEIGHT: usize = 1 << 10;
pub(super) const VALUE_WEIGHT: usize = 160;

/// A request that weighs more is large.
pub(super) const LARGE_REQUEST: usize = 32 << 10;

/// Clients without tokens are distinguished by the resource of their events. They count as this many clients, so
/// one that invents resources cannot be more.
pub(super) const CLIENTS_WITHOUT_TOKENS: u64 = 64;

/// So many requests at a time, whatever they weigh.
const fn counted(permits: usize) -> PermitLimits {
    PermitLimits {
        permits,
        unit: usize::MAX,
        wait: WAIT,
    }
}
