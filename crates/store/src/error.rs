//! Why a store gives no answer.

use std::error::Error;

/// Why the store gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached; nothing was changed.
    #[error("the store cannot be reached")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// More is asked of the store than it can do; nothing was changed.
    #[error("too many writes wait for the store")]
    Overloaded,
    /// No answer came, or none that is final: what was asked may or may not have been done.
    #[error("the store gave no final answer")]
    Unknown(#[source] Box<dyn Error + Send + Sync>),
    /// The store refused; asking again will not help.
    #[error("the store refused")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
}
