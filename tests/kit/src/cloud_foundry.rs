//! A stand-in for a Cloud Foundry: its UAA, and of its Cloud Controller what tells which apps, tasks and
//! service instances run, and ran.
//!
//! Lists of usage events are by id, or with `order_by` by time; pages count rows. Rows can be pruned, and purged and
//! reseeded. Faults can be ordered.

mod server;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;

pub use state::{Events, World};

use crate::serving::{Serving, listen};
use crate::uaa::{Discovery, StandInUaa};

/// The client that sees everything, and its secret.
pub const CLIENT: (&str, &str) = ("usage", "usage-secret");
/// The scope that it needs.
const AUDITOR: &str = "cloud_controller.global_auditor";

/// What goes wrong with the next request of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 429 with this `Retry-After`, in seconds, as JSON that says it is text.
    RateLimit(u64),
    /// A router in front of it answers this, as a web page.
    Gateway(u16),
    /// The token has expired: 401.
    Expired,
    /// The connection breaks in the middle of the answer.
    Cut,
    /// The last row of the page comes twice.
    Twice,
    /// 403.
    Forbidden,
}

/// A running stand-in. It goes when this value goes.
pub struct StandInCloudFoundry {
    pub uaa: StandInUaa,
    shared: Arc<Shared>,
    serving: Serving,
}

#[derive(Debug)]
struct Shared {
    base_url: String,
    uaa: String,
    world: Mutex<World>,
    faults: Mutex<Vec<Fault>>,
    asked: Mutex<Vec<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StandInCloudFoundry {
    /// Starts serving on the runtime that is running.
    pub async fn start() -> Result<Self> {
        let uaa = StandInUaa::start(Discovery::Root).await?;
        uaa.add_client(CLIENT.0, CLIENT.1, &[AUDITOR, "cloud_controller.read"]);
        let (listener, base_url) = listen().await?;
        let shared = Arc::new(Shared {
            base_url,
            uaa: uaa.base_url(),
            world: Mutex::default(),
            faults: Mutex::default(),
            asked: Mutex::default(),
        });
        let serving = Serving::start(listener, server::router(Arc::clone(&shared)))?;
        Ok(Self {
            uaa,
            shared,
            serving,
        })
    }

    /// Its address: what `--cf-api` takes.
    pub fn api(&self) -> String {
        self.serving.base_url()
    }

    /// Everything that it knows, to change it.
    pub fn world(&self) -> MutexGuard<'_, World> {
        locked(&self.shared.world)
    }

    /// Lets the next requests of lists go wrong, in this order.
    pub fn faults(&self, faults: &[Fault]) {
        locked(&self.shared.faults).extend(faults);
    }

    /// How many ordered faults have not happened.
    pub fn faults_left(&self) -> usize {
        locked(&self.shared.faults).len()
    }

    /// The path and query of each request.
    pub fn asked(&self) -> Vec<String> {
        locked(&self.shared.asked).clone()
    }
}
