//! The stand-in as an HTTP server.

use std::future::pending;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{Discovery, Offer, Shared, Trouble};

/// UAA describes itself a second time, below its issuer.
const OF_TOKENS: &str = "/oauth/token/.well-known/openid-configuration";

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(answer).with_state(shared)
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, Json<Value>) {
    let offer = match uri.path() {
        "/oauth/token" => Offer::Token,
        "/token_keys" => Offer::Keys,
        _ => Offer::Discovery,
    };
    let trouble = {
        let mut state = shared.state();
        state.asked.push(offer);
        state.trouble
    };
    let (status, document) = match trouble {
        Some(Trouble::Hang) => pending().await,
        Some(Trouble::Status(status)) => (status, json!({ "error": "server_error" })),
        Some(Trouble::Nonsense) => (200, json!(["nonsense"])),
        None => match (offer, &method) {
            (Offer::Token, &Method::POST) => token(&shared, &headers, &body),
            (Offer::Keys, &Method::GET) => (200, shared.state().jwks()),
            (Offer::Discovery, &Method::GET) => discovery(&shared, uri.path()),
            _ => (405, json!({})),
        },
    };
    let status = StatusCode::from_u16(status).unwrap_or_default();
    (status, Json(document))
}

fn discovery(shared: &Shared, path: &str) -> (u16, Value) {
    let kind = shared.state().discovery;
    let base = shared.known_as();
    match (path, kind) {
        ("/v2/info", Discovery::Info) => (200, json!({ "token_endpoint": base })),
        ("/", Discovery::Root) => {
            let links = json!({ "uaa": { "href": base }, "login": { "href": "http://x.invalid" } });
            (200, json!({ "links": links }))
        }
        ("/", Discovery::Login) => (200, json!({ "links": { "login": { "href": base } } })),
        ("/.well-known/openid-configuration" | OF_TOKENS, _) => {
            let Some(issuer) = shared.issuer() else {
                return (404, json!({}));
            };
            let token = format!("{base}/oauth/token");
            let keys = format!("{base}/token_keys");
            let document = json!({ "issuer": issuer, "token_endpoint": token, "jwks_uri": keys });
            (200, document)
        }
        _ => (404, json!({})),
    }
}

fn token(shared: &Shared, headers: &HeaderMap, body: &str) -> (u16, Value) {
    let field = |name: &str| {
        let value = body.split('&').find_map(|pair| pair.strip_prefix(name));
        let value = value.and_then(|value| value.strip_prefix('='))?;
        let value = value.replace('+', " ");
        Some(percent_decode_str(&value).decode_utf8_lossy().into_owned())
    };
    if field("grant_type").as_deref() != Some("client_credentials") {
        return (400, json!({ "error": "unsupported_grant_type" }));
    }
    let Some((id, secret)) = basic(headers) else {
        return (401, json!({ "error": "unauthorized" }));
    };
    let scope = field("scope").unwrap_or_default();
    let issuer = shared.issuer().unwrap_or_default();
    shared.state().grant(&issuer, &id, &secret, &scope)
}

fn basic(headers: &HeaderMap) -> Option<(String, String)> {
    let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let bytes = STANDARD.decode(text.strip_prefix("Basic ")?).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((id.to_owned(), secret.to_owned()))
}
