//! Tokens, keys and the token server, against a stand-in for UAA.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

mod basic;
mod code_flow;
mod credentials;
mod keyring;
mod verify;

use std::time::Duration;

use sampler_oauth::http::client;
use sampler_oauth::{CaBundle, Discoverer, HttpOptions, TokenServer};
use sampler_testkit::uaa::StandInUaa;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

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
