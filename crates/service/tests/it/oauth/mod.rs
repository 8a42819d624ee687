//! Tokens, keys and the token server, against a stand-in for UAA.

mod code_flow;
mod credentials;
mod keyring;
mod verify;

use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_service::oauth::http::client;
use sampler_service::oauth::{Algorithm, CaBundle, Discoverer, HttpOptions, Policy, TokenServer};
use sampler_testkit::uaa::StandInUaa;
use serde_json::Value;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// When tokens are looked at, in ms and in seconds.
const NOW: Timestamp = Timestamp::clamped(1_773_144_000_000);
const NOW_S: i64 = 1_773_144_000;

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
