//! The meaning of a failed call: whether it may have been executed, and whether it may be repeated.

use std::sync::Arc;

use mongodb::error::{ErrorKind, WriteFailure};
use sampler_store::StoreError;
use sampler_store::group::{CommandFailure, WriteOutcome, store_error};

use super::CallError;
use crate::codes::{
    BAD_VALUE, DUPLICATE_KEY, IMMUTABLE_FIELD, INDEX_NOT_FOUND, is_beyond_limits, is_refusal,
};

impl CallError {
    pub(crate) fn is_no_index(&self) -> bool {
        self.code() == Some(INDEX_NOT_FOUND)
    }

    /// Whether a search named an index that is not there.
    pub(crate) fn is_no_hint(&self) -> bool {
        self.code() == Some(BAD_VALUE)
    }

    /// Whether a statement would have inserted a document whose `_id` is not that of its condition.
    pub(crate) fn is_other_id(&self) -> bool {
        self.code() == Some(IMMUTABLE_FIELD)
    }

    /// Whether a search took more time or memory than it may.
    pub(crate) fn is_beyond_limits(&self) -> bool {
        matches!(self, Self::TooLarge | Self::TimedOut(_))
            || self.code().is_some_and(is_beyond_limits)
    }

    /// The server's code, where it refused a command as a whole, or the one write of it.
    pub(crate) fn code(&self) -> Option<i32> {
        let error = match self {
            Self::Write { code, .. } => return Some(*code),
            Self::Driver(error) => error,
            _ => return None,
        };
        match error.kind.as_ref() {
            ErrorKind::Command(error) => Some(error.code),
            ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
            _ => None,
        }
    }
}

impl CommandFailure for CallError {
    fn outcome(&self) -> WriteOutcome {
        let error = match self {
            Self::Driver(error) => error,
            Self::Write { code, .. } if is_refusal(*code) => return WriteOutcome::Refused,
            // Also if nothing was sent because one caller has gone: the writes of the others continue.
            _ => return WriteOutcome::Unknown,
        };
        match error.kind.as_ref() {
            ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => {
                WriteOutcome::Unavailable
            }
            ErrorKind::Authentication { .. }
            | ErrorKind::BsonSerialization(_)
            | ErrorKind::Custom(_)
            | ErrorKind::InvalidArgument { .. } => WriteOutcome::Refused,
            _ if self.code().is_some_and(is_refusal) => WriteOutcome::Refused,
            _ => WriteOutcome::Unknown,
        }
    }

    fn is_duplicate_key(&self) -> bool {
        self.code() == Some(DUPLICATE_KEY)
    }
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        store_error(&Arc::new(error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mongodb::error::Error;

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
