//! The one place where the driver is called.
//!
//! The driver warns that a call whose future is dropped can leave a connection in a bad state.
//! A client that goes away drops its request's future, and so does a time limit; so each call
//! runs in a task of its own, to its end, and what is dropped is only the waiting for it.

use std::error::Error as _;
use std::future::Future;
use std::time::Duration;

use mongodb::error::{Error, ErrorKind, WriteFailure};
use sampler_store::StoreError;

use crate::MongoStore;

/// The server's code for a value that a unique index has already.
const DUPLICATE_KEY: i32 = 11_000;

/// The server's codes for a time limit that ran out, or an interruption.
const INTERRUPTED: [i32; 5] = [50, 64, 262, 11_600, 11_602];

/// How a call ended that did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// The driver says why.
    #[error(transparent)]
    Driver(Error),
    /// No answer within the time limit. The call goes on.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The task that made the call ended before the call did.
    #[error("the call ended early")]
    Ended(#[source] tokio::task::JoinError),
}

impl MongoStore {
    /// Makes a call, and waits for it as long as an operation may take.
    pub(crate) async fn run<T, F>(&self, call: F) -> Result<T, Fault>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        // The server's own limits come first; this one is for links that swallow the answer.
        let limit = self.operation_timeout + Duration::from_secs(1);
        match tokio::time::timeout(limit, tokio::spawn(call)).await {
            Ok(Ok(answer)) => answer.map_err(Fault::Driver),
            Ok(Err(ended)) => Err(Fault::Ended(ended)),
            Err(_) => Err(Fault::TimedOut(limit)),
        }
    }
}

impl Fault {
    /// Whether a unique index refused the write; nothing was written then.
    pub(crate) fn is_duplicate_key(&self) -> bool {
        let Self::Driver(error) = self else {
            return false;
        };
        match error.kind.as_ref() {
            ErrorKind::Write(WriteFailure::WriteError(error)) => error.code == DUPLICATE_KEY,
            ErrorKind::Command(error) => error.code == DUPLICATE_KEY,
            _ => false,
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        let Fault::Driver(error) = &fault else {
            return Self::Unknown(Box::new(fault));
        };
        match error.kind.as_ref() {
            ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. } => {
                Self::Unavailable(Box::new(fault))
            }
            _ if may_pass(error) => Self::Unknown(Box::new(fault)),
            _ => Self::Refused(Box::new(fault)),
        }
    }
}

/// Whether the error says something of the moment, not of what was asked.
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
        ErrorKind::Command(error) => {
            INTERRUPTED.contains(&error.code) || is_state_change(error.code)
        }
        _ => false,
    }
}

/// The server's codes for a member that is not, or no longer, the primary, or is shutting down.
fn is_state_change(code: i32) -> bool {
    matches!(
        code,
        6 | 7 | 89 | 91 | 133 | 134 | 189 | 9001 | 10_058 | 10_107 | 11_601 | 13_435 | 13_436
    )
}

/// Describes an error without the connection string, which may hold a password.
pub(crate) fn describe_without(uri: &str, error: &Error) -> String {
    let mut text = error.kind.to_string();
    if let Some(source) = error.source() {
        text = format!("{text}: {source}");
    }
    let secret = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let secret = secret.rsplit_once('@').map_or("", |(secret, _)| secret);
    if secret.is_empty() {
        text
    } else {
        text.replace(secret, "<hidden>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store_error(error: Error) -> StoreError {
        Fault::Driver(error).into()
    }

    #[test]
    fn what_may_have_been_done_is_told_from_what_was_not() {
        let lost = Error::from(std::io::Error::other("connection reset"));
        assert!(matches!(store_error(lost), StoreError::Unknown(_)));
        let odd = Error::custom("a mistake of ours");
        assert!(matches!(store_error(odd), StoreError::Refused(_)));
        let slow = Fault::TimedOut(Duration::from_secs(1));
        assert!(matches!(StoreError::from(slow), StoreError::Unknown(_)));
    }

    #[test]
    fn a_password_is_not_repeated() {
        let uri = "mongodb://user:secret@host/db";
        let error = Error::custom("bad user:secret here");
        assert!(!describe_without(uri, &error).contains("secret"));
    }
}
