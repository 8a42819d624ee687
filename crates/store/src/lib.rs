//! The store as the two programs see it: one port for each of its callers' purposes.
//!
//! | Port | What it is for | Who uses it |
//! | --- | --- | --- |
//! | [`Events`] | keeping starts and stops | the receiver |
//! | [`Work`] | finding spans that are due, and changing them | the worker |
//! | [`Ledger`] | what became of each usage | the worker |
//! | [`Causes`] | why spans are suspended, and letting them go on | the worker |
//! | [`Upkeep`] | taking in spans of an original, removing finished ones | the worker |
//! | [`Membership`] | which workers there are | the worker |
//! | [`Reading`] | looking at all spans | the worker in the shadow |
//!
//! Each change is one atomic change of one span; nothing needs a transaction. Writes that are in
//! flight at the same moment can share a command: [`group`].
//!
//! There are two implementations, the MongoDB store and, with the feature `testing`, one in memory
//! for tests and the simulation. Both pass the same contract suite.

#[cfg(feature = "testing")]
pub mod contract;
mod error;
mod events;
pub mod group;
mod ledger;
mod membership;
#[cfg(feature = "testing")]
pub mod memory;
mod reading;
mod suspension;
#[cfg(feature = "testing")]
pub mod table;
#[cfg(feature = "testing")]
mod table_causes;
mod upkeep;
mod work;

pub use error::StoreError;
pub use events::{Events, NewSpan, NewStop, Started, Stopped};
pub use ledger::{Entries, Ledger, lifetime_from};
pub use membership::Membership;
pub use reading::{Page, Reading};
pub use suspension::{Causes, KeptCause, Probe, Resumption};
pub use upkeep::{Adopted, Finished, SLACK_LIFETIME, Upkeep};
pub use work::{DuePages, DueQuery, Work};
