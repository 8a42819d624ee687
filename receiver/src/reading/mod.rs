//! The parts that all requests that read share: their query parameters, the cursor of a list, the
//! number that is served at a time, and the form of an answer.
//!
//! A request that reads holds a permit of its own kind, so that many reads never take the database from
//! requests that write. Reads have connections of their own, with a time limit of their own.

mod answer;
mod cursor;
mod parameters;

use std::sync::Arc;
use std::time::Duration;

use sampler_domain::Id;
use sampler_service::problem::Problem;
use sampler_service::security::{Grant, Reach};
use sampler_store::{Reading, StoreError, SumQuery, TargetFilter};

use crate::Receiver;
use crate::admission::ServingPermit;

pub(crate) use answer::{Paged, Single, version_tag};
pub(crate) use parameters::Parameters;

/// How many requests may read from the store at the same time. Each holds a connection.
pub const AT_ONCE: u32 = 2;

/// How many requests may add up usages at the same time. Each keeps a processor of the database busy.
pub const SUMS_AT_ONCE: usize = 1;

/// How long the database may work on one command of a request that reads.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How long a page of sums may take: the last of its commands begins when the time of a page is over, and
/// its answer may be a second late.
pub const SUM_TIME_MAX: Duration = SumQuery::PAGE_TIME
    .saturating_add(TIME_LIMIT)
    .saturating_add(Duration::from_secs(1));

impl Receiver {
    /// Waits until a request may read.
    ///
    /// # Errors
    /// 503 where the store is not prepared, or too many read.
    pub(crate) async fn admit_reading(&self, grant: &Grant) -> Result<ServingPermit, Problem> {
        self.require_readable()?;
        let permit = self.admission.read(self.sender(grant)).await;
        permit.map_err(|_| self.overloaded("Too many requests read at the same time."))
    }

    /// Waits until a request may add up usages.
    pub(crate) async fn admit_sums(&self, grant: &Grant) -> Result<[ServingPermit; 2], Problem> {
        self.require_readable()?;
        let permit = self.admission.sum(self.sender(grant)).await;
        let permit = permit
            .map_err(|_| self.overloaded("Too many requests add up usages at the same time."))?;
        Ok([permit, self.admit_reading(grant).await?])
    }

    /// Reads from the store, once it is the client's turn.
    ///
    /// # Errors
    /// 503 where there is no turn in time, or the store does not answer.
    pub(crate) async fn read_store<T, F>(
        &self,
        grant: &Grant,
        call: impl FnOnce(Arc<dyn Reading>) -> F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let permit = self.admit_reading(grant).await?;
        let read = to_its_end(permit, call(Arc::clone(&self.parts.reading))).await;
        read.map_err(|failure| self.not_read(&failure))
    }
}

/// Completes a call of the store, and holds its permits until then. The database continues a call
/// whose client has gone: without this, a client that leaves and comes again would have it work on any
/// number of them.
pub(crate) async fn to_its_end<T, F>(permits: impl Send + 'static, call: F) -> Result<T, StoreError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, StoreError>> + Send + 'static,
{
    let made = tokio::spawn(async move {
        let outcome = call.await;
        drop(permits);
        outcome
    });
    made.await
        .unwrap_or_else(|ended| Err(StoreError::Unknown(Box::new(ended))))
}

/// The resources to which reading is limited; none where it is not.
pub(crate) fn readable_resources(grant: &Grant) -> Option<Vec<Id>> {
    match grant.readable() {
        Reach::Everything => None,
        Reach::Resources(resources) => Some(resources.iter().map(Id::from_store).collect()),
    }
}

/// Limits a query for `target` to resources that the grant allows reading. Returns whether any is left.
pub(crate) fn restrict(
    resources: &mut Option<Vec<Id>>,
    target: &TargetFilter,
    grant: &Grant,
) -> bool {
    let Some(mut readable) = readable_resources(grant) else {
        return true;
    };
    if let Some(resource) = target.get("resource_id") {
        readable.retain(|id| id == resource);
    }
    let is_any_left = !readable.is_empty();
    *resources = Some(readable);
    is_any_left
}
