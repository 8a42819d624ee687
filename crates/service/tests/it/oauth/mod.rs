//! Tokens, keys and the token server, against a stand-in for UAA.

mod code_flow;
mod credentials;
mod keyring;
mod verify;

use std::time::Duration;

use sampler_service::oauth::http::client;
use sampler_service::oauth::{Algorithm, CaBundle, Discoverer, HttpOptions, Policy, TokenServer};
use sampler_testkit::now_millis;
use sampler_testkit::uaa::StandInUaa;
use serde_json::Value;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// Why tokens are refused.
mod why {
    use sampler_service::oauth::TokenError;

    pub(super) const TOO_LONG: TokenError = TokenError::Refused("it is too long");
    pub(super) const MALFORMED: TokenError = TokenError::Refused("it is malformed");
    pub(super) const ALGORITHM: TokenError =
        TokenError::Refused("it is signed with another algorithm");
    pub(super) const SIGNATURE: TokenError = TokenError::Refused("its signature is wrong");
    pub(super) const TYPE: TokenError = TokenError::Refused("it is not an access token");
    pub(super) const NO_END: TokenError = TokenError::Refused("it has no expiry (exp)");
    pub(super) const SENDER_BOUND: TokenError =
        TokenError::Refused("it is bound to its sender (cnf), so it is not a bearer token");
    pub(super) const EXPIRED: TokenError = TokenError::Refused("it has expired");
    pub(super) const NOT_YET: TokenError = TokenError::Refused("it is not valid yet");
    pub(super) const ISSUER: TokenError = TokenError::Refused("it is from another issuer");
    pub(super) const AUDIENCE: TokenError = TokenError::Refused("it is for another audience");
    pub(super) const NONCE: TokenError =
        TokenError::Refused("it belongs to another attempt to sign in");
}

/// The present, in seconds.
fn now() -> i64 {
    now_millis() / 1000
}

/// What tokens must be, of any issuer and for any audience.
fn policy(algorithm: Algorithm) -> Policy {
    Policy {
        algorithm,
        issuer: None,
        audiences: None,
    }
}

/// The same claims with others, or other values.
fn with(mut claims: Value, more: &Value) -> Value {
    let more = more.as_object().unwrap().clone();
    claims.as_object_mut().unwrap().extend(more);
    claims
}

fn discoverer(uaa: &StandInUaa) -> Discoverer {
    let api = TokenServer::CloudFoundry(uaa.base_url().parse().unwrap());
    discoverer_of(api)
}

fn discoverer_of(server: TokenServer) -> Discoverer {
    let options = HttpOptions {
        timeout: Duration::from_millis(500),
        skip_ssl_validation: false,
        authorities: CaBundle::default(),
    };
    Discoverer::new(server, client(&options).unwrap())
}
