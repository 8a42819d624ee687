//! Checking somebody who shows an id and a secret: the token server grants him a scope, or not.
//!
//! The token server is asked one question at a time and never more than one a second, whoever
//! comes; what it said yes to holds for a minute, and for longer while it cannot be asked.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::warn;

use crate::credentials::{Client, grants};
use crate::discovery::Discoverer;

/// How long a yes holds.
const HOLDS: Duration = Duration::from_mins(1);

/// How long it holds while the token server cannot be asked.
const HOLDS_IN_NEED: Duration = Duration::from_mins(15);

/// Between two questions, at the least.
const PAUSE: Duration = Duration::from_secs(1);

/// How many may wait for an answer at once.
const WAITING_MAX: usize = 16;

/// What is known of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// He is who he says, and may.
    Yes,
    /// He is not, or may not.
    No,
    /// That cannot be said at the moment.
    Unknown,
}

/// Checks ids and secrets for one scope.
#[derive(Debug)]
pub struct BasicCheck {
    discoverer: Discoverer,
    scope: &'static str,
    accepted: Mutex<Option<Accepted>>,
    last_asked: tokio::sync::Mutex<Option<Instant>>,
    waiting: Semaphore,
}

/// The last yes. What is kept is a digest: the secret is not ours to keep.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    digest: [u8; 32],
    at: Instant,
}

impl BasicCheck {
    /// Nobody is known yet.
    pub fn new(discoverer: Discoverer, scope: &'static str) -> Self {
        Self {
            discoverer,
            scope,
            accepted: Mutex::default(),
            last_asked: tokio::sync::Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }

    /// Whether the client `id`, which shows `secret`, has the scope.
    pub async fn check(&self, id: &str, secret: SecretString) -> Verdict {
        let digest = digest_of(id, &secret);
        if self.is_accepted(&digest, HOLDS) {
            return Verdict::Yes;
        }
        let Ok(_place) = self.waiting.try_acquire() else {
            return self.in_need(&digest);
        };
        let mut last_asked = self.last_asked.lock().await;
        if self.is_accepted(&digest, HOLDS) {
            return Verdict::Yes;
        }
        if last_asked.is_some_and(|last| last.elapsed() < PAUSE) {
            return self.in_need(&digest);
        }
        *last_asked = Some(Instant::now());
        let client = Client {
            id: id.to_owned(),
            secret,
            scope: self.scope,
        };
        match grants(&self.discoverer, &client).await {
            Ok(true) => {
                let at = Instant::now();
                self.set(Some(Accepted { digest, at }));
                Verdict::Yes
            }
            Ok(false) => {
                if self.is_accepted(&digest, HOLDS_IN_NEED) {
                    self.set(None);
                }
                Verdict::No
            }
            Err(error) => {
                warn!(error = %error, "credentials could not be checked");
                self.in_need(&digest)
            }
        }
    }

    fn set(&self, accepted: Option<Accepted>) {
        *self.accepted.lock().unwrap_or_else(PoisonError::into_inner) = accepted;
    }

    fn in_need(&self, digest: &[u8; 32]) -> Verdict {
        if self.is_accepted(digest, HOLDS_IN_NEED) {
            Verdict::Yes
        } else {
            Verdict::Unknown
        }
    }

    fn is_accepted(&self, digest: &[u8; 32], holds: Duration) -> bool {
        let accepted = *self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.is_some_and(|accepted| {
            accepted.at.elapsed() < holds
                && verify_slices_are_equal(&accepted.digest, digest).is_ok()
        })
    }
}

/// An id has no NUL, so no two pairs run together.
fn digest_of(id: &str, secret: &SecretString) -> [u8; 32] {
    let text = SecretString::from(format!("{id}\0{}", secret.expose_secret()));
    let bytes = digest(&SHA256, text.expose_secret().as_bytes());
    bytes.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
