//! The server's error codes that matter here, after MongoDB's `error_codes.yml`.

/// A unique index has the value already.
pub(crate) const DUPLICATE_KEY: i32 = 11_000;

/// Something in the command is wrong; of a search that is right, the index that it names is not there.
pub(crate) const BAD_VALUE: i32 = 2;

pub(crate) const INDEX_NOT_FOUND: i32 = 27;

/// A document would get another `_id` than its condition says.
pub(crate) const IMMUTABLE_FIELD: i32 = 66;

/// Whether the code is temporary and not about the command: the same command may succeed
/// when it is sent again.
pub(crate) fn is_of_the_moment(code: i32) -> bool {
    is_interruption(code)
        || is_state_change(code)
        || is_shortage(code)
        || is_conflict(code)
        || is_stale_routing(code)
        || is_lost_behind_router(code)
}

/// Whether the code says that a search took more time or memory than it may.
pub(crate) fn is_beyond_limits(code: i32) -> bool {
    matches!(
        code,
        50 // MaxTimeMSExpired
            | 146 // ExceededMemoryLimit
            | 292 // QueryExceededMemoryLimitNoDiskUseAllowed
    )
}

/// A time limit that ran out, or something that ended the operation early.
fn is_interruption(code: i32) -> bool {
    matches!(
        code,
        24 // LockTimeout
            | 50 // MaxTimeMSExpired
            | 64 // WriteConcernTimeout
            | 100 // UnsatisfiableWriteConcern: too few members just now
            | 175 // QueryPlanKilled
            | 187 // LinearizableReadConcernError
            | 237 // CursorKilled
            | 262 // ExceededTimeLimit
            | 279 // ClientDisconnect
            | 290 // TransactionExceededLifetimeLimitSeconds
            | 355 // InterruptedDueToStorageChange
            | 407 // PooledConnectionAcquisitionExceededTimeLimit
            | 453 // InterruptedDueToReshardingCriticalSection
            | 11_600 // InterruptedAtShutdown
            | 11_601 // Interrupted
            | 11_602 // InterruptedDueToReplStateChange
    )
}

/// A member that is not, or no longer, the primary, or is shutting down.
fn is_state_change(code: i32) -> bool {
    matches!(
        code,
        7 // HostNotFound
            | 91 // ShutdownInProgress
            | 133 // FailedToSatisfyReadPreference
            | 134 // ReadConcernMajorityNotAvailableYet
            | 189 // PrimarySteppedDown
            | 216 // ElectionInProgress
            | 10_058 // LegacyNotPrimary
            | 10_107 // NotWritablePrimary
            | 13_435 // NotPrimaryNoSecondaryOk
            | 13_436 // NotPrimaryOrSecondary
    )
}

/// The server has too little of something. That may pass, or needs an operator.
fn is_shortage(code: i32) -> bool {
    matches!(
        code,
        46 // LockBusy
            | 146 // ExceededMemoryLimit
            | 208 // TooManyLocks
            | 261 // TooManyLogicalSessions
            | 264 // TooManyFilesOpen
            | 365 // TemporarilyUnavailable: the cache is too full to write
            | 371 // UserWritesBlocked: while a cluster is copied
            | 402 // ResourceExhausted
            | 433 // AdmissionQueueOverflow
            | 449 // RateLimitExceeded
            | 450 // PooledConnectionAcquisitionRejected
            | 462 // IngressRequestRateLimitExceeded
            | 14_031 // OutOfDiskSpace
    )
}

/// Something else that was in progress at the same time.
fn is_conflict(code: i32) -> bool {
    matches!(
        code,
        112 // WriteConflict
            | 117 // ConflictingOperationInProgress
            | 239 // SnapshotTooOld
            | 246 // SnapshotUnavailable
            | 314 // ObjectIsBusy
            | 406 // MigrationBlockingOperationCoordinatorCleaningUp
            | 412 // UpdatesStillPending
            | 12_586 // BackgroundOperationInProgressForDatabase
            | 12_587 // BackgroundOperationInProgressForNamespace
    )
}

/// A router or a shard that has outdated metadata of the cluster.
fn is_stale_routing(code: i32) -> bool {
    matches!(
        code,
        63 // StaleShardVersion
            | 70 // ShardNotFound
            | 150 // StaleEpoch
            | 249 // StaleDbVersion
            | 250 // StaleChunkHistory
            | 272 // MigrationConflict
            | 343 // ShardCannotRefreshDueToLocksHeld
            | 13_388 // StaleConfig
    )
}

/// A router that was cut off from the server behind it, which may still be at work.
fn is_lost_behind_router(code: i32) -> bool {
    matches!(
        code,
        6 // HostUnreachable
            | 89 // NetworkTimeout
            | 202 // NetworkInterfaceExceededTimeLimit
            | 317 // ConnectionPoolExpired
            | 384 // ConnectionError
            | 9001 // SocketException
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_the_moment_is_told_from_what_was_asked() {
        for code in [
            24, 46, 50, 64, 100, 112, 146, 202, 246, 365, 384, 462, 13_388, 14_031,
        ] {
            assert!(is_of_the_moment(code), "{code}");
        }
        // BadValue, FailedToParse, Unauthorized, ImmutableField, DocumentValidationFailure, no
        // index of that name, DuplicateKey, BSONObjectTooLarge.
        for code in [2, 9, 13, 27, 66, 121, DUPLICATE_KEY, 10_334] {
            assert!(!is_of_the_moment(code), "{code}");
        }
    }
}
