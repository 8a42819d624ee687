//! The console of this receiver, if there is one, and its parts.

use std::sync::Arc;

use axum::Router;
use sampler_console::{Console, Keys, Parts};
use sampler_service::environment::{Clock, Random};
use sampler_service::oauth::Client;
use sampler_service::security::Authenticator;
use sampler_settings::Settings;
use sampler_steering::Steering;
use tracing::warn;

/// The scopes that people who sign in are asked to grant.
const SCOPE: &str = "openid abacus.sampler.read abacus.sampler.admin";

/// The routes of the console, where there is one.
pub fn routes(
    settings: &Settings,
    api: Router,
    authenticator: Authenticator,
    steering: &Arc<Steering>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
) -> anyhow::Result<Router> {
    if !settings.console.enabled {
        return Ok(Router::new());
    }
    let Some((sign_in, keys)) = access(settings, &*random)? else {
        return Ok(Router::new());
    };
    let console = Console::new(Parts {
        api,
        authenticator,
        sign_in,
        keys,
        is_paused: {
            let steering = Arc::clone(steering);
            Box::new(move || steering.is_sampling_paused())
        },
        units: settings.reading.units(),
        clock,
        random,
    });
    Ok(console.routes())
}

/// The sign-in of people, and the keys of their cookies. None if the settings do not suffice.
fn access(
    settings: &Settings,
    random: &dyn Random,
) -> anyhow::Result<Option<(Option<Client>, Keys)>> {
    let (console, security) = (&settings.console, &settings.security);
    let own = console.client_id.clone().zip(console.client_secret.clone());
    let sign_in = security.client(own, SCOPE)?;
    let client = sign_in.as_ref().map_or("", |client| &client.id);
    let [issuer, audiences] = security.installation();
    let installation = [issuer.as_str(), audiences.as_str(), client];
    let key = console.key.as_ref();
    let keys = key.and_then(|key| Keys::parse(key, &installation));
    if !security.secured {
        // Nothing but the tokens of forms is in the cookies.
        return Ok(Some((None, keys.unwrap_or_else(|| Keys::random(random)))));
    }
    if let (Some(sign_in), Some(keys)) = (sign_in, keys) {
        return Ok(Some((Some(sign_in), keys)));
    }
    warn!(
        code = "console.off",
        "the console is off: SAMPLER_CONSOLE_KEY, a client or a token server is missing"
    );
    Ok(None)
}
