//! The limits of admission.

use std::time::Duration;

use super::fair_queue::QueueLimits;
use super::permits::PermitLimits;
use crate::reading;

/// Events of one kind that wait for an answer of the store; and as many stops that came in batches. They keep all commands of a group busy while the next ones gather; more would only
/// wait in the group.
pub(super) const STORE_PERMITS: usize = 384;

/// The same for starts in batches: twice what all commands hold, so that the next commands are full
/// when they are sent. The server takes large commands of inserts for less, and nobody waits for one
/// start of a batch alone. A single stop costs the server so much that larger commands would save
/// little.
pub(super) const BATCH_START_PERMITS: usize = 2_048;

/// The weight of all starts in batches that hold a permit, at the most: as much as of the others.
pub(super) const BATCH_START_WEIGHT: usize = STORE_PERMITS * LARGE_REQUEST;

/// Requests with large bodies that are served at a time, and what they may weigh together. Until such
/// an event is kept, memory holds it several times: as a body, parsed, as a document, in the command,
/// and in what the driver sends. So this is far less than the memory of a program.
pub(super) const LARGE_PERMITS: usize = 64;
pub(super) const LARGE_WEIGHT: usize = 4 << 20;

/// Mappings that are served at a time: each is three calls to another service.
pub(super) const MAPPING_PERMITS: usize = 32;

/// Operators' actions that are served at a time.
pub(super) const ACT_PERMITS: usize = 8;

/// For requests that read: the longest wait for a turn, as long as the slowest of them, a sum, may take;
/// and what all that wait may weigh together. Each weighs [`REQUEST_WEIGHT`].
pub(super) const READ_WAIT_MAX: Duration = reading::SUM_TIME_MAX;

/// The longest wait to add up: as long as the sum of another client may take, which has waited for its
/// turn to read. Then it is the turn of the client that has used the least time.
pub(super) const SUM_WAIT_MAX: Duration = READ_WAIT_MAX.saturating_add(reading::SUM_TIME_MAX);

pub(super) const READ_QUEUE_WEIGHT: usize = 64 << 10;

/// Snapshots that are in memory at a time, until they are answered.
pub(super) const SNAPSHOTS_AT_ONCE: usize = 1;

/// The longest wait of a snapshot: longer than one whose client sends nothing more may hold the permit.
pub(super) const SNAPSHOT_WAIT_MAX: Duration = Duration::from_mins(1);

pub(super) const WAIT_MAX: Duration = Duration::from_secs(5);

/// The wait that is aimed at. If a client's events wait longer than this for [`WAIT_INTERVAL`], the
/// heaviest queue loses its oldest event.
pub(super) const WAIT_TARGET: Duration = Duration::from_secs(1);
pub(super) const WAIT_INTERVAL: Duration = Duration::from_secs(2);

/// The weight of all events that wait for one kind of permit, at the most.
pub(super) const QUEUE_WEIGHT: usize = 12 << 20;

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

/// Clients without tokens are distinguished by the resource of their events. They share this many
/// queues, so a client that invents resources cannot fill more.
pub(super) const QUEUES_WITHOUT_TOKENS: u64 = 64;

/// What an event's body of usual size, or of a large one, takes from its client's turn.
const QUANTUM: usize = 4 << 10;
const LARGE_QUANTUM: usize = 1 << 20;

const QUEUE: QueueLimits = QueueLimits {
    weight: QUEUE_WEIGHT,
    quantum: QUANTUM,
    target: WAIT_TARGET,
    interval: WAIT_INTERVAL,
};

pub(super) const BATCH_STARTS: PermitLimits = PermitLimits {
    weight: BATCH_START_WEIGHT,
    ..at_once(BATCH_START_PERMITS)
};

/// Large requests.
pub(super) const LARGE: PermitLimits = PermitLimits {
    weight: LARGE_WEIGHT,
    queue: QueueLimits {
        // No limit here: what waits is not parsed yet, so it takes the memory of its bytes alone, and
        // the budget for bodies bounds that.
        weight: usize::MAX,
        quantum: LARGE_QUANTUM,
        ..QUEUE
    },
    ..at_once(LARGE_PERMITS)
};

/// So many requests at a time, whatever they weigh.
pub(super) const fn at_once(permits: usize) -> PermitLimits {
    PermitLimits {
        permits,
        weight: usize::MAX,
        wait: WAIT_MAX,
        charges_time: false,
        queue: QUEUE,
    }
}

/// Limits for requests that read. Clients are charged for the time that their requests take.
const fn reads_at_once(permits: usize, wait: Duration) -> PermitLimits {
    PermitLimits {
        wait,
        charges_time: true,
        queue: QueueLimits {
            weight: READ_QUEUE_WEIGHT,
            // A client that waits for longer has given up.
            target: wait,
            interval: wait,
            ..QUEUE
        },
        ..at_once(permits)
    }
}

/// All requests that read; those of them that add up usages; and snapshots.
pub(super) const READS: PermitLimits = reads_at_once(reading::AT_ONCE as usize, READ_WAIT_MAX);
pub(super) const SUMS: PermitLimits = reads_at_once(reading::SUMS_AT_ONCE, SUM_WAIT_MAX);
pub(super) const SNAPSHOTS: PermitLimits = reads_at_once(SNAPSHOTS_AT_ONCE, SNAPSHOT_WAIT_MAX);
