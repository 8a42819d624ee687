//! A receiver that needs tokens, and requests with tokens of all kinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures_util::stream;
use sampler_service::oauth::http::client;
use sampler_service::oauth::{
    Algorithm, CaBundle, Discoverer, HttpOptions, Keyring, Keys, Policy, TokenServer, keyring,
};
use sampler_service::security::Authenticator;
use sampler_testkit::now_millis;
use sampler_testkit::uaa::{SigningKey, StandInUaa};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::event::start;
use crate::world::{NOW, START, World};

/// The scope that allows everything.
pub(crate) const WRITE: &str = "abacus.sampler.write";

const POLICY: Policy = Policy {
    algorithm: Algorithm::RS256,
    issuer: None,
    audiences: None,
};

/// An authenticator whose one key is configured.
pub(crate) fn configured(key: &SigningKey) -> Authenticator {
    let keys = Keys::configured(&key.public_pem(), &POLICY).unwrap();
    Authenticator::bearer(Keyring::configured(keys))
}

/// Lets the time pass before which keys are not fetched again.
pub(crate) async fn until_keys_may_be_fetched() {
    tokio::time::pause();
    tokio::time::advance(keyring::AT_LEAST).await;
    tokio::time::resume();
}

/// An authenticator whose keys are those of a token server.
pub(crate) fn fetched(uaa: &StandInUaa) -> Authenticator {
    let options = HttpOptions {
        timeout: Duration::from_secs(5),
        skip_ssl_validation: false,
        authorities: CaBundle::default(),
    };
    let api = TokenServer::CloudFoundry(uaa.base_url().parse().unwrap());
    let server = Discoverer::new(api, client(&options).unwrap(), None);
    Authenticator::bearer(Keyring::fetched(server, POLICY))
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

/// A receiver that believes this key.
pub(crate) fn secured() -> (SigningKey, World) {
    let key = SigningKey::rsa("key-1").unwrap();
    let world = World::secured(configured(&key), |_| {});
    (key, world)
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

/// An answer, and whether the body of its request was read.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) answer: Answer,
    pub(crate) body_was_read: bool,
}

impl Asked {
    pub(crate) fn status(&self) -> u16 {
        self.answer.status
    }

    pub(crate) fn challenge(&self) -> Option<&str> {
        self.answer.header("www-authenticate")
    }

    /// Turned away with this problem, and before the body was read.
    #[track_caller]
    pub(crate) fn is_turned_away(&self, status: u16, slug: &str) {
        self.answer.problem(status, slug);
        assert!(!self.body_was_read, "the body was read");
    }
}

impl World {
    /// Sends a request with these headers `Authorization`.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        authorizations: &[&str],
        body: &Value,
    ) -> Asked {
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
        let answer = self.answer(request.body(body).unwrap()).await;
        Asked {
            answer,
            body_was_read: read.load(Ordering::Relaxed),
        }
    }

    /// Sends a good start with a token.
    pub(crate) async fn ask_with(&self, token: &str) -> Asked {
        let authorization = format!("Bearer {token}");
        let event = start(NOW);
        self.ask("POST", START, &[&authorization], &event).await
    }
}
