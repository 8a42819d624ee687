//! Who is let in while how many are in flight.

use std::sync::Arc;

use sampler_service::problem::Problem;

use crate::problems;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Seconds after which a client that was turned away may come again.
const RETRY_AFTER: u64 = 1;

/// Room for so many requests at once. A quarter of it is for stops alone: a start that is turned
/// away bills too little for a moment, a stop that is turned away bills too much.
#[derive(Debug)]
pub struct Admission {
    all: Arc<Semaphore>,
    others: Arc<Semaphore>,
}

/// A request's place; given up when dropped.
#[derive(Debug)]
pub struct Place {
    _all: OwnedSemaphorePermit,
    _others: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// Room for `limit` requests.
    pub fn new(limit: usize) -> Self {
        let others = (limit - limit / 4).max(1);
        Self {
            all: Arc::new(Semaphore::new(limit)),
            others: Arc::new(Semaphore::new(others)),
        }
    }

    /// Lets a stop in.
    ///
    /// # Errors
    /// Where there is no room.
    pub fn stop(&self) -> Result<Place, Problem> {
        let all = Arc::clone(&self.all)
            .try_acquire_owned()
            .map_err(|_| overloaded())?;
        Ok(Place {
            _all: all,
            _others: None,
        })
    }

    /// Lets any other request in.
    ///
    /// # Errors
    /// Where there is no room.
    pub fn other(&self) -> Result<Place, Problem> {
        let others = Arc::clone(&self.others)
            .try_acquire_owned()
            .map_err(|_| overloaded())?;
        let place = self.stop()?;
        Ok(Place {
            _others: Some(others),
            ..place
        })
    }
}

fn overloaded() -> Problem {
    let detail = "As many requests as this instance takes are in flight. Nothing was kept.";
    Problem::new(&problems::OVERLOADED, detail).retry_after(RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_room_is_for_stops() {
        let admission = Admission::new(8);
        let others: Vec<_> = (0..6).map(|_| admission.other().unwrap()).collect();
        assert_eq!(admission.other().unwrap_err().kind(), &problems::OVERLOADED);
        let stops: Vec<_> = (0..2).map(|_| admission.stop().unwrap()).collect();
        assert_eq!(admission.stop().unwrap_err().kind(), &problems::OVERLOADED);
        drop(others);
        admission.stop().unwrap();
        drop(stops);
    }

    #[test]
    fn the_smallest_room_still_takes_one() {
        let admission = Admission::new(1);
        let place = admission.other().unwrap();
        assert!(admission.stop().is_err());
        drop(place);
        assert!(admission.stop().is_ok());
    }
}
