//! Who may read the health and the metrics of a program.

use crate::oauth::Claims;
use http::HeaderMap;

use super::authenticator::{Authenticator, forbidden};
use super::grant::Grant;
use crate::problem::Problem;

/// The scope of Abacus for reading the health of any program of it.
const SYSTEM_READ: &str = "abacus.system.read";

/// Who may read the health, and who the metrics.
#[derive(Clone)]
pub struct Access {
    pub health: Monitors,
    pub metrics: Monitors,
}

#[derive(Clone)]
pub enum Monitors {
    /// Everybody who reaches the program.
    Anybody,
    /// Whoever shows a token that these believe.
    WithToken(Authenticator),
}

impl Monitors {
    /// Requires the scope for reading the health of any program, or any scope of Sampler.
    pub(crate) async fn admit_to_health(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match self.claims(headers).await? {
            Some(claims) if !may_monitor(&claims) && Grant::of_claims(&claims).is_none() => Err(
                forbidden("This needs the scope abacus.system.read, or a scope of Sampler."),
            ),
            Some(_) | None => Ok(()),
        }
    }

    /// Requires the scope for reading the health of any program, or a scope for reading everything.
    pub(crate) async fn admit_to_metrics(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match self.claims(headers).await? {
            Some(claims) if !may_monitor(&claims) => match Grant::of_claims(&claims) {
                Some(grant) => grant.require_read_everything(),
                None => Err(forbidden(
                    "This needs the scope abacus.system.read or abacus.sampler.read.",
                )),
            },
            Some(_) | None => Ok(()),
        }
    }

    /// The claims of the token; none where no token is needed.
    async fn claims(&self, headers: &HeaderMap) -> Result<Option<Claims>, Problem> {
        match self {
            Self::Anybody => Ok(None),
            Self::WithToken(tokens) => tokens.claims_of_monitor(headers).await.map(Some),
        }
    }
}

fn may_monitor(claims: &Claims) -> bool {
    claims.scopes.contains(SYSTEM_READ)
}
