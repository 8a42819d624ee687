//! Checks an id and a secret by requesting a token with a scope for them.
//!
//! The token server gets at most one such request a second for unknown credentials, and one a second
//! for each credentials that were right before. A positive answer is valid for a minute, and for
//! longer while the token server is unavailable.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::warn;

use crate::credentials::{Client, grants};
use crate::discovery::Discoverer;

/// How long a positive answer is valid.
const HOLDS: Duration = Duration::from_mins(1);

/// How long it is valid while the token server is unavailable.
const HOLDS_IN_NEED: Duration = Duration::from_mins(15);

/// The shortest time between two requests for unknown credentials, and between two for the same ones.
const PAUSE: Duration = Duration::from_secs(1);

/// The most checks that wait for an answer.
const WAITING_MAX: usize = 16;

/// The most credentials that are remembered.
const KNOWN_MAX: usize = 16;

/// How long credentials that were right are remembered.
const REMEMBERED: Duration = Duration::from_hours(24);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The credentials are right, and have the scope.
    Yes,
    /// The credentials are wrong, or do not have the scope.
    No,
    /// The token server cannot be asked now.
    Unknown,
}

/// Checks ids and secrets for one scope.
///
/// Credentials that were right before are checked separately, one request at a time for each. Only a
/// client that knows them can cause these requests, so a flood of guesses does not lock out a monitor.
#[derive(Debug)]
pub struct BasicCheck {
    discoverer: Discoverer,
    scope: &'static str,
    known: Mutex<Vec<Known>>,
    guesses: Lane,
    renewals: Lane,
}

/// Credentials that were right at the last request. Only their digest is kept, not the secret.
#[derive(Clone, Copy, Debug)]
struct Known {
    digest: [u8; 32],
    accepted_at: Instant,
    asked_at: Instant,
}

/// Requests to the token server, one at a time.
#[derive(Debug)]
struct Lane {
    last_asked: tokio::sync::Mutex<Option<Instant>>,
    waiting: Semaphore,
}

impl Lane {
    fn new() -> Self {
        Self {
            last_asked: tokio::sync::Mutex::default(),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }
}

impl BasicCheck {
    /// A check that knows no credentials yet.
    pub fn new(discoverer: Discoverer, scope: &'static str) -> Self {
        Self {
            discoverer,
            scope,
            known: Mutex::default(),
            guesses: Lane::new(),
            renewals: Lane::new(),
        }
    }

    /// Whether the client `id`, which shows `secret`, has the scope.
    pub async fn check(&self, id: &str, secret: SecretString) -> Verdict {
        let digest = digest_of(id, &secret);
        if self.is_accepted(&digest, HOLDS) {
            return Verdict::Yes;
        }
        let is_known = self.find(&digest).is_some();
        let lane = if is_known {
            &self.renewals
        } else {
            &self.guesses
        };
        let Ok(_permit) = lane.waiting.try_acquire() else {
            return self.in_need(&digest);
        };
        let mut last_asked = lane.last_asked.lock().await;
        if self.is_accepted(&digest, HOLDS) {
            return Verdict::Yes;
        }
        let last = match self.find(&digest) {
            Some(known) => Some(known.asked_at),
            None => *last_asked,
        };
        if last.is_some_and(|last| last.elapsed() < PAUSE) {
            return self.in_need(&digest);
        }
        *last_asked = Some(Instant::now());
        self.note_question(&digest);
        self.ask(id, secret, &digest).await
    }

    async fn ask(&self, id: &str, secret: SecretString, digest: &[u8; 32]) -> Verdict {
        let client = Client {
            id: id.to_owned(),
            secret,
            scope: self.scope,
        };
        match grants(&self.discoverer, &client).await {
            Ok(true) => {
                self.accept(*digest);
                Verdict::Yes
            }
            Ok(false) => {
                self.known().retain(|known| !known.is(digest));
                Verdict::No
            }
            Err(error) => {
                warn!(
                    code = "health.credentials_unchecked",
                    error = %error,
                    "credentials could not be checked"
                );
                self.in_need(digest)
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, digest: &[u8; 32]) -> Option<Known> {
        self.known()
            .iter()
            .find(|known| known.accepted_at.elapsed() < REMEMBERED && known.is(digest))
            .copied()
    }

    fn note_question(&self, digest: &[u8; 32]) {
        let mut all = self.known();
        let known = all.iter_mut().find(|known| known.is(digest));
        if let Some(known) = known {
            known.asked_at = Instant::now();
        }
    }

    /// Remembers these credentials. If there are too many, forgets those that were right the longest
    /// time ago.
    fn accept(&self, digest: [u8; 32]) {
        let now = Instant::now();
        let mut all = self.known();
        all.retain(|known| !known.is(&digest));
        all.truncate(KNOWN_MAX - 1);
        let known = Known {
            digest,
            accepted_at: now,
            asked_at: now,
        };
        all.insert(0, known);
    }

    fn in_need(&self, digest: &[u8; 32]) -> Verdict {
        if self.is_accepted(digest, HOLDS_IN_NEED) {
            Verdict::Yes
        } else {
            Verdict::Unknown
        }
    }

    fn is_accepted(&self, digest: &[u8; 32], holds: Duration) -> bool {
        let known = self.find(digest);
        known.is_some_and(|known| known.accepted_at.elapsed() < holds)
    }
}

impl Known {
    fn is(&self, digest: &[u8; 32]) -> bool {
        verify_slices_are_equal(&self.digest, digest).is_ok()
    }
}

/// The digest of an id and a secret, separated by a NUL. An id has none, so no two pairs are equal.
fn digest_of(id: &str, secret: &SecretString) -> [u8; 32] {
    let text = SecretString::from(format!("{id}\0{}", secret.expose_secret()));
    let bytes = digest(&SHA256, text.expose_secret().as_bytes());
    bytes.as_ref().try_into().expect("SHA-256 has 32 bytes")
}
