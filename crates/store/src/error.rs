//! The error of a store.

use std::error::Error;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached. Nothing was changed.
    #[error("the store cannot be reached")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// Too many writes wait for the store. Nothing was changed.
    #[error("too many writes wait for the store")]
    Overloaded,
    /// The store makes an index that a search needs. Nothing was changed.
    #[error("the store makes an index for this")]
    Preparing,
    /// The store gave no answer, or none that is final. The write may or may not have been executed.
    #[error("the store gave no final answer")]
    Unknown(#[source] Box<dyn Error + Send + Sync>),
    /// The store refused. It would refuse again.
    #[error("the store refused")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// [`StoreError::Refused`] for this reason.
    pub fn refused(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Refused(reason.into())
    }
}
