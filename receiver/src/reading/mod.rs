//! The parts that all requests that read share: their query parameters, the cursor of a list, the
//! number that is served at a time, and the form of an answer.
//!
//! A request that reads holds a permit of its own kind, so that however many come, they never take
//! the database from those that write. Reads have connections of their own, with a time limit of
//! their own.

mod answer;
mod cursor;
mod parameters;

use std::time::Duration;

use sampler_domain::{ClientId, Id};
use sampler_service::problem::Problem;
use sampler_service::security::{Grant, Reach};

use crate::Receiver;
use crate::admission::ServingPermit;

pub(crate) use answer::{Paged, Single, tag_of};
pub(crate) use parameters::Parameters;

/// How many requests may read from the store at the same time. Each holds a connection.
pub const AT_ONCE: u32 = 2;

/// How many of these may add up usages. Each keeps a processor of the database busy until it is
/// done.
pub const SUMS_AT_ONCE: usize = 1;

/// How long the server may work on one of them.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);

impl Receiver {
    /// Waits until a request may read.
    ///
    /// # Errors
    /// 503 where the store is not prepared, or too many read.
    pub(crate) async fn admit_reading(&self, grant: &Grant) -> Result<ServingPermit, Problem> {
        self.require_readable()?;
        let client = grant.client().map(ClientId::as_str);
        let permit = self.admission.read(client).await;
        permit.map_err(|_| self.overloaded("Too many requests read at the same time."))
    }

    /// Waits until a request may add up usages.
    ///
    /// # Errors
    /// As for [`admit_reading`](Self::admit_reading).
    pub(crate) async fn admit_sums(&self, grant: &Grant) -> Result<[ServingPermit; 2], Problem> {
        self.require_readable()?;
        let client = grant.client().map(ClientId::as_str);
        let permit = self.admission.sum(client).await;
        let permit = permit
            .map_err(|_| self.overloaded("Too many requests add up usages at the same time."))?;
        Ok([permit, self.admit_reading(grant).await?])
    }
}

/// The resources to which reading is limited; none where it is not.
pub(crate) fn readable_resources(grant: &Grant) -> Option<Vec<Id>> {
    match grant.readable() {
        Reach::Everything => None,
        Reach::Resources(resources) => Some(resources.iter().map(Id::from_store).collect()),
    }
}
