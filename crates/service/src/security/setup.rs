//! The checks of tokens, as the settings want them.

use std::sync::Arc;

use anyhow::Context;
use sampler_oauth::{Issuer, Keyring, Keys, Pace, Policy};
use sampler_settings::SecuritySettings;
use secrecy::ExposeSecret;

use super::authenticator::Authenticator;
use super::monitors::{Access, Monitors};
use crate::environment::Clock;

/// The authenticator of the API. Only if `SECURED` is false does it need no tokens.
///
/// # Errors
/// If a client cannot be set up.
pub fn authenticator(
    settings: &SecuritySettings,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Authenticator> {
    if !settings.secured {
        tracing::warn!(
            code = "security.open",
            "SECURED is false: anybody who reaches this program may write events"
        );
        return Ok(Authenticator::none());
    }
    if settings.token_audience.is_none() {
        tracing::warn!(
            code = "security.audience_unbound",
            "SAMPLER_TOKEN_AUDIENCE is not set: tokens for other services are accepted"
        );
    }
    bearer(settings, clock)
}

/// Who may read the health and the metrics. `tokens` are those of the program's API, if it has one.
///
/// # Errors
/// If a client cannot be set up.
pub fn access(
    settings: &SecuritySettings,
    tokens: Option<&Authenticator>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Access> {
    if !settings.secured && !settings.is_healthcheck_secured() {
        return Ok(Access {
            health: Monitors::Anybody,
            metrics: Monitors::Anybody,
        });
    }
    let tokens = match tokens.filter(|_| settings.secured) {
        Some(tokens) => tokens.clone(),
        None => bearer(settings, clock)?,
    };
    let metrics = Monitors::WithToken(tokens);
    let health = if settings.is_healthcheck_secured() {
        metrics.clone()
    } else {
        Monitors::Anybody
    };
    Ok(Access { health, metrics })
}

fn bearer(settings: &SecuritySettings, clock: Arc<dyn Clock>) -> anyhow::Result<Authenticator> {
    let algorithm = settings.algorithm();
    let keyring = if let Some(key) = &settings.jwt_key {
        Keyring::configured(Keys::configured(key.expose_secret(), algorithm)?)
    } else {
        let discoverer = settings.discoverer()?.context("no token server is known")?;
        let issuer = match settings.issuer() {
            Some(_) => Issuer::Configured,
            None => Issuer::Discovered,
        };
        Keyring::fetched(discoverer, algorithm, issuer, Pace::default())
    };
    let policy = Policy {
        algorithm,
        issuer: settings.issuer(),
        audiences: settings.token_audience.clone(),
    };
    Ok(Authenticator::bearer(keyring, policy, clock))
}
