//! Who may read the health and the metrics of a program.

use http::HeaderMap;

use super::authenticator::{Authenticator, forbidden};
use super::grant::Grant;
use crate::problem::Problem;

/// The scope of Abacus for reading the health of any program of it.
const SYSTEM_READ: &str = "abacus.system.read";

/// The checks of who reads the health, and of who reads the metrics.
#[derive(Clone)]
pub struct Access {
    pub health: Authenticator,
    pub metrics: Authenticator,
}

impl Authenticator {
    /// Requires the scope for reading the health of any program, or any scope of Sampler.
    pub(crate) async fn admit_to_health(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let needed = "This needs the scope abacus.system.read, or a scope of Sampler.";
        self.admit_monitor(headers, needed).await.map(drop)
    }

    /// Requires the scope for reading the health of any program, or a scope for reading everything.
    pub(crate) async fn admit_to_metrics(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let needed = "This needs the scope abacus.system.read or abacus.sampler.read.";
        let grant = self.admit_monitor(headers, needed).await?;
        grant.require_read_everything()
    }

    /// The grant of a token with the scope for reading the health of any program, or with a scope of Sampler.
    async fn admit_monitor(&self, headers: &HeaderMap, needed: &str) -> Result<Grant, Problem> {
        match self.claims_of_monitor(headers).await? {
            Some(claims) if !claims.scopes.contains(SYSTEM_READ) => {
                Grant::of_claims(&claims).ok_or_else(|| forbidden(needed))
            }
            Some(_) | None => Ok(Grant::without_token()),
        }
    }
}
