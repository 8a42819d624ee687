//! The hard limit (`MAX_INFLIGHT`) of events, batches and mappings in flight.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{RequestKind, TurnedAway};

/// A number of requests at a time. A quarter of them, rounded down, is for single stops.
#[derive(Debug)]
pub(super) struct InFlightLimit {
    all: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

/// A request that counts against the limit, until this is dropped.
#[derive(Debug)]
pub struct InFlightPermit {
    _all: OwnedSemaphorePermit,
    _others: Option<OwnedSemaphorePermit>,
}

impl InFlightLimit {
    pub(super) fn new(limit: usize) -> Self {
        let others = (limit - limit / 4).max(1);
        Self {
            all: Arc::new(Semaphore::new(limit)),
            others: Arc::new(Semaphore::new(others)),
        }
    }

    pub(super) fn acquire(&self, kind: RequestKind) -> Result<InFlightPermit, TurnedAway> {
        let others = match kind {
            RequestKind::Stop | RequestKind::BatchStop => None,
            RequestKind::Start | RequestKind::BatchStart | RequestKind::Mapping => {
                Some(take(&self.others)?)
            }
        };
        Ok(InFlightPermit {
            _all: take(&self.all)?,
            _others: others,
        })
    }
}

fn take(permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, TurnedAway> {
    Arc::clone(permits)
        .try_acquire_owned()
        .map_err(|_| TurnedAway::Limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_limit_is_for_stops() {
        let limit = InFlightLimit::new(8);
        let take = |kind| limit.acquire(kind);
        let others: Vec<_> = (0..6).map(|_| take(RequestKind::Start).unwrap()).collect();
        assert_eq!(take(RequestKind::Mapping).unwrap_err(), TurnedAway::Limit);
        let stops: Vec<_> = (0..2).map(|_| take(RequestKind::Stop).unwrap()).collect();
        assert_eq!(take(RequestKind::Stop).unwrap_err(), TurnedAway::Limit);
        drop(others);
        take(RequestKind::Stop).unwrap();
        drop(stops);
    }

    #[test]
    fn the_lowest_limit_still_lets_one_in() {
        let limit = InFlightLimit::new(1);
        let permit = limit.acquire(RequestKind::Start).unwrap();
        assert!(limit.acquire(RequestKind::Stop).is_err());
        drop(permit);
        assert!(limit.acquire(RequestKind::Stop).is_ok());
    }
}
