//! Tokens, keys and the token server, against a stand-in for UAA.

mod credentials;
mod keyring;
mod verify;

use std::time::Duration;

use sampler_service::oauth::http::client;
use sampler_service::oauth::{Algorithm, CaBundle, Discoverer, HttpOptions, Policy, TokenServer};
use sampler_testkit::now_millis;
use sampler_testkit::uaa::StandInUaa;
use tokio::time::{advance, pause, resume};

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// Why tokens are refused.
mod why {
    use sampler_service::oauth::TokenError::{self, Refused};

    pub(super) const MALFORMED: TokenError = Refused("it is malformed");
    pub(super) const ALGORITHM: TokenError = Refused("it is signed with another algorithm");
    pub(super) const SIGNATURE: TokenError = Refused("its signature is wrong");
    pub(super) const TYPE: TokenError = Refused("it is not an access token");
    pub(super) const NO_END: TokenError = Refused("it has no expiry (exp)");
    pub(super) const SENDER_BOUND: TokenError =
        Refused("it is bound to its sender (cnf), so it is not a bearer token");
    pub(super) const EXPIRED: TokenError = Refused("it has expired");
    pub(super) const NOT_YET: TokenError = Refused("it is not valid yet");
    pub(super) const ISSUER: TokenError = Refused("it is from another issuer");
    pub(super) const AUDIENCE: TokenError = Refused("it is for another audience");
    pub(super) const NONCE: TokenError = Refused("it belongs to another attempt to sign in");
}

/// The present, in seconds.
fn now() -> i64 {
    now_millis() / 1000
}

/// Lets time pass, but not for what the system's clock decides.
async fn later(by: Duration) {
    pause();
    advance(by).await;
    resume();
}

/// What tokens must be, of any issuer and for any audience.
fn policy(algorithm: Algorithm) -> Policy {
    Policy {
        algorithm,
        issuer: None,
        audiences: None,
    }
}

fn discoverer(uaa: &StandInUaa) -> Discoverer {
    let api = uaa.base_url().parse().unwrap();
    discoverer_of(TokenServer::CloudFoundry(api), None)
}

fn discoverer_of(server: TokenServer, issuer: Option<&str>) -> Discoverer {
    let options = HttpOptions {
        timeout: Duration::from_millis(500),
        skip_ssl_validation: false,
        authorities: CaBundle::default(),
    };
    let client = client(&options).unwrap();
    Discoverer::new(server, client, issuer.map(str::to_owned))
}
