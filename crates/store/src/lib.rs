//! The store as the two programs see it: [`SpanStore`], with one method for each flow of the
//! paper's section 6. Each is one atomic change of one span; nothing needs a transaction.
//!
//! Writes that are in flight at the same moment can share a command: [`group`].
//!
//! There are two implementations, the MongoDB store and, with the feature `testing`, one in memory
//! for tests and the simulation. Both pass the same contract suite.

#[cfg(feature = "testing")]
pub mod contract;
pub mod group;
#[cfg(feature = "testing")]
pub mod memory;
mod port;
#[cfg(feature = "testing")]
pub mod table;

pub use port::{
    Adopted, Changed, DuePages, DueQuery, Failure, NewSpan, NewStop, Next, Page, SLACK_LIFETIME,
    SpanPages, SpanStore, Started, Stopped, StoreError,
};
