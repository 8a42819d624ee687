//! The meaning of a failed call: whether it may have been executed, and whether it may be repeated.

use std::sync::Arc;

use mongodb::error::{Error, ErrorKind, WriteFailure};
use sampler_store::StoreError;
use sampler_store::group::{CommandFailure, WriteOutcome, store_error};

use super::CallError;
use crate::codes::{
    BAD_VALUE, DUPLICATE_KEY, IMMUTABLE_FIELD, INDEX_NOT_FOUND, is_beyond_limits, is_of_the_moment,
};

impl CallError {
    pub(crate) fn is_no_index(&self) -> bool {
        self.is_refusal(INDEX_NOT_FOUND)
    }

    /// Whether a search named an index that is not there.
    pub(crate) fn is_no_hint(&self) -> bool {
        self.is_refusal(BAD_VALUE)
    }

    /// Whether a statement would have inserted a document whose `_id` is not that of its condition.
    pub(crate) fn is_other_id(&self) -> bool {
        matches!(self, Self::Write { code, .. } if *code == IMMUTABLE_FIELD)
    }

    /// Whether a search took more time or memory than it may.
    pub(crate) fn is_beyond_limits(&self) -> bool {
        matches!(self, Self::TooLarge | Self::TimedOut(_))
            || self.code().is_some_and(is_beyond_limits)
    }

    fn is_refusal(&self, code: i32) -> bool {
        self.code() == Some(code)
    }

    /// The server's code, where it refused a command as a whole.
    fn code(&self) -> Option<i32> {
        let Self::Driver(error) = self else {
            return None;
        };
        match error.kind.as_ref() {
            ErrorKind::Command(error) => Some(error.code),
            _ => None,
        }
    }
}

impl CommandFailure for CallError {
    fn outcome(&self) -> WriteOutcome {
        let error = match self {
            Self::Driver(error) => error,
            Self::Write { code, .. } if !is_of_the_moment(*code) => return WriteOutcome::Refused,
            // Also if nothing was sent because one caller has gone: the writes of the others continue.
            _ => return WriteOutcome::Unknown,
        };
        match error.kind.as_ref() {
            ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => {
                WriteOutcome::Unavailable
            }
            _ if may_pass(error) => WriteOutcome::Unknown,
            _ => WriteOutcome::Refused,
        }
    }

    fn is_duplicate_key(&self) -> bool {
        let error = match self {
            Self::Driver(error) => error,
            Self::Write { code, .. } => return *code == DUPLICATE_KEY,
            _ => return false,
        };
        match error.kind.as_ref() {
            ErrorKind::Write(WriteFailure::WriteError(error)) => error.code == DUPLICATE_KEY,
            ErrorKind::Command(error) => error.code == DUPLICATE_KEY,
            _ => false,
        }
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        store_error(&Arc::new(error))
    }
}

/// Whether the error is temporary, and not about the request itself.
fn may_pass(error: &Error) -> bool {
    let labelled = [
        "RetryableWriteError",
        "TransientTransactionError",
        "NoWritesPerformed",
    ];
    if labelled.iter().any(|label| error.contains_label(label)) {
        return true;
    }
    match error.kind.as_ref() {
        ErrorKind::Io(_)
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::DnsResolve { .. }
        | ErrorKind::InvalidResponse { .. }
        | ErrorKind::Write(WriteFailure::WriteConcernError(_)) => true,
        ErrorKind::Write(WriteFailure::WriteError(error)) => is_of_the_moment(error.code),
        ErrorKind::InsertMany(error) => error.write_concern_error.is_some(),
        ErrorKind::Command(error) => is_of_the_moment(error.code),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn store_error(error: Error) -> StoreError {
        CallError::Driver(error).into()
    }

    #[test]
    fn what_may_have_been_done_is_told_from_what_was_not() {
        let lost = Error::from(std::io::Error::other("connection reset"));
        assert!(matches!(store_error(lost), StoreError::Unknown(_)));
        let odd = Error::custom("a mistake of ours");
        assert!(matches!(store_error(odd), StoreError::Refused(_)));
        let slow = CallError::TimedOut(Duration::from_secs(1));
        assert!(matches!(StoreError::from(slow), StoreError::Unknown(_)));
    }
}
