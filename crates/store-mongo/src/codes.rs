//! The server's error codes that matter here, after MongoDB's `error_codes.yml`.

/// A unique index has the value already.
pub(crate) const DUPLICATE_KEY: i32 = 11_000;

/// Something in the command is wrong; of a search that is right, the index that it names is not there.
pub(crate) const BAD_VALUE: i32 = 2;

pub(crate) const INDEX_NOT_FOUND: i32 = 27;

/// A document would get another `_id` than its condition says.
pub(crate) const IMMUTABLE_FIELD: i32 = 66;

/// Whether the code is about the command itself: the same command would be refused again. Any other code may
/// be of the moment.
pub(crate) fn is_refusal(code: i32) -> bool {
    matches!(
        code,
        BAD_VALUE
            | 9 // FailedToParse
            | 13 // Unauthorized
            | 14 // TypeMismatch
            | 18 // AuthenticationFailed
            | INDEX_NOT_FOUND
            | 52 // DollarPrefixedFieldName
            | 53 // InvalidIdField
            | 59 // CommandNotFound
            | IMMUTABLE_FIELD
            | 67 // CannotCreateIndex
            | 72 // InvalidOptions
            | 85 // IndexOptionsConflict
            | 86 // IndexKeySpecsConflict
            | 121 // DocumentValidationFailure
            | 291 // NoQueryExecutionPlans
            | 10_334 // BSONObjectTooLarge
            | DUPLICATE_KEY
            | 17_280 // KeyTooLong
    )
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
