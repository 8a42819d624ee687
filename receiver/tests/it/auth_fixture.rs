//! A receiver that needs tokens, and requests with tokens of all kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::BodyExt;
use sampler_domain::Granularity;
use sampler_oauth::http::client;
use sampler_oauth::{
    Algorithm, CaBundle, Discoverer, HttpOptions, Issuer, Keyring, Keys, Pace,
    Policy as TokenPolicy, TokenServer,
};
use sampler_receiver::{Options, Parts, Receiver, SnapshotLimits};
use sampler_service::environment::{Clock, SystemClock, SystemRandom};
use sampler_service::http::{answer, with_fallbacks};
use sampler_service::security::Authenticator;
use sampler_settings::ReceiverSettings;
use sampler_settings::receiver::LimitsSettings;
use sampler_store_testing::memory::MemoryStore;
use sampler_testkit::build::start_event;
use sampler_testkit::now_millis;
use sampler_testkit::uaa::{SigningKey, StandInUaa};
use serde_json::{Value, json};

use crate::world::{DAY, settings};

/// The scope that allows everything.
pub(crate) const WRITE: &str = "abacus.sampler.write";

/// A router with all that the program puts around it.
pub(crate) fn router(authenticator: Authenticator) -> Router {
    let store = Arc::new(MemoryStore::new(|| SystemClock.now()));
    router_to(store, authenticator)
}

/// The same, which keeps its spans in this store.
pub(crate) fn router_to(store: Arc<MemoryStore>, authenticator: Authenticator) -> Router {
    router_of(store, authenticator, options())
}

pub(crate) fn router_with(authenticator: Authenticator, options: Options) -> Router {
    let store = Arc::new(MemoryStore::new(|| SystemClock.now()));
    router_of(store, authenticator, options)
}

pub(crate) fn options() -> Options {
    Options {
        settings: ReceiverSettings {
            limits: LimitsSettings {
                payload: 100_000,
                batch_payload: 1_000_000,
                snapshot_payload: 200 << 20,
                body_timeout: Duration::from_secs(5),
                inflight: Some(50),
            },
            ..settings(Granularity::Hour, DAY, DAY)
        },
        unknown_for: Duration::from_secs(16),
        snapshots: SnapshotLimits::default(),
    }
}

fn router_of(store: Arc<MemoryStore>, authenticator: Authenticator, options: Options) -> Router {
    let parts = Parts {
        events: store.clone(),
        reading: store.clone(),
        operating: store.clone(),
        replication: store,
        provisioning: None,
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
    };
    let receiver = Receiver::new(parts, options);
    receiver.set_prepared();
    with_fallbacks(receiver.routes(authenticator))
}

/// An authenticator whose one key is configured.
pub(crate) fn configured(key: &str, algorithm: Algorithm) -> Authenticator {
    let keyring = Keyring::configured(Keys::configured(key, algorithm).unwrap());
    Authenticator::bearer(keyring, policy(algorithm), Arc::new(SystemClock))
}

/// Keys are fetched again no sooner than this.
pub(crate) const fn pace(at_least: Duration) -> Pace {
    Pace {
        at_least,
        at_most: Duration::from_hours(1),
        age_max: Duration::from_hours(24),
    }
}

/// An authenticator whose keys are those of a token server.
pub(crate) fn fetched(uaa: &StandInUaa, pace: Pace) -> Authenticator {
    let options = HttpOptions {
        timeout: Duration::from_secs(5),
        skip_ssl_validation: false,
        authorities: CaBundle::default(),
    };
    let api = TokenServer::CloudFoundry(uaa.base_url().parse().unwrap());
    let discoverer = Discoverer::new(api, client(&options).unwrap());
    let keyring = Keyring::fetched(discoverer, Algorithm::Rs256, Issuer::Discovered, pace);
    Authenticator::bearer(keyring, policy(Algorithm::Rs256), Arc::new(SystemClock))
}

fn policy(algorithm: Algorithm) -> TokenPolicy {
    TokenPolicy {
        algorithm,
        issuer: None,
        audiences: None,
        lifetime_max: Duration::from_hours(24),
        leeway: Duration::from_secs(10),
    }
}

/// Claims that are good, but for what is changed in them.
pub(crate) fn claims(change: impl FnOnce(&mut Value)) -> String {
    let mut claims = json!({
        "client_id": "broker",
        "scope": [WRITE],
        "exp": now_millis() / 1000 + 300,
    });
    change(&mut claims);
    claims.to_string()
}

/// A router that believes this key.
pub(crate) fn secured() -> (SigningKey, Router) {
    let key = SigningKey::rsa("key-1").unwrap();
    let router = router(configured(&key.public_pem(), Algorithm::Rs256));
    (key, router)
}

/// The header of a token with these scopes.
pub(crate) fn bearer(key: &SigningKey, scopes: &[&str]) -> String {
    let claims = claims(|claims| claims["scope"] = json!(scopes));
    format!("Bearer {}", token(key, &claims))
}

/// A token as UAA signs it.
pub(crate) fn token(key: &SigningKey, claims: &str) -> String {
    let header = json!({ "alg": "RS256", "typ": "JWT", "kid": key.id() });
    key.token("RS256", &header.to_string(), claims)
}

/// A start of the resource `postgres`.
pub(crate) fn start() -> Value {
    start_event(1, now_millis())
}

/// A request with these headers `Authorization`, and whether its body has been read.
pub(crate) fn request(
    method: &str,
    path: &str,
    authorizations: &[&str],
    body: &Value,
) -> (Request<Body>, Arc<AtomicBool>) {
    let read = Arc::new(AtomicBool::new(false));
    let (seen, bytes) = (Arc::clone(&read), Bytes::from(body.to_string()));
    let body = Body::from_stream(stream::once(async move {
        seen.store(true, Ordering::Relaxed);
        Ok::<_, std::io::Error>(bytes)
    }));
    let request = Request::builder().method(method).uri(path);
    let mut request = request.header("content-type", "application/json");
    for authorization in authorizations {
        request = request.header("authorization", *authorization);
    }
    (request.body(body).unwrap(), read)
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) challenge: Option<String>,
    pub(crate) problem: String,
    pub(crate) link: Option<String>,
    pub(crate) text: String,
    pub(crate) body_was_read: bool,
}

/// Sends a request to the router.
pub(crate) async fn ask(
    router: &Router,
    path: &str,
    authorizations: &[&str],
    body: &Value,
) -> Answer {
    ask_by(router, "POST", path, authorizations, body).await
}

/// The same by any method.
pub(crate) async fn ask_by(
    router: &Router,
    method: &str,
    path: &str,
    authorizations: &[&str],
    body: &Value,
) -> Answer {
    let (request, read) = request(method, path, authorizations, body);
    let response = answer(router.clone(), request).await;
    let status = response.status().as_u16();
    let [challenge, link] = ["www-authenticate", "link"].map(|name| {
        let value = response.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    });
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap_or_default();
    let problem = document["type"].as_str().unwrap_or_default();
    Answer {
        status,
        challenge,
        problem: problem.replace("/problems/", ""),
        link,
        text,
        body_was_read: read.load(Ordering::Relaxed),
    }
}

/// Sends a good start with a token.
pub(crate) async fn ask_with(router: &Router, token: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    ask(router, "/v1/events/start", &[&authorization], &start()).await
}
