//! Tokens of our own.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sampler_service::oauth::credentials::PAUSE;
use sampler_service::oauth::{AccessToken, Client, ClientCredentials, Discoverer, TokenServer};
use sampler_testkit::uaa::{Discovery, Offer, StandInUaa, Trouble};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use url::Url;

use super::{discoverer, discoverer_of, later};

const SCOPE: &str = "abacus.usage.sampler.write";

fn sampler(server: Discoverer) -> Client {
    Client {
        id: "sampler".to_owned(),
        secret: "hu:sh %".into(),
        scope: SCOPE.to_owned(),
        audience: None,
        server,
    }
}

async fn world() -> (StandInUaa, Arc<ClientCredentials>) {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    uaa.add_client("sampler", "hu:sh %", &[SCOPE]);
    let client = sampler(discoverer(&uaa));
    (uaa, ClientCredentials::new(client))
}

fn text(token: &AccessToken) -> String {
    let header = token.header();
    assert!(header.is_sensitive());
    let text = header.to_str().unwrap().strip_prefix("Bearer ");
    text.unwrap().to_owned()
}

#[tokio::test]
async fn many_who_need_a_token_make_one_request() {
    let (uaa, credentials) = world().await;
    let needing = (0..200).map(|_| {
        let credentials = Arc::clone(&credentials);
        tokio::spawn(async move { credentials.token().await })
    });
    for needed in needing.collect::<Vec<_>>() {
        assert_eq!(text(&needed.await.unwrap().unwrap()), uaa.given_out()[0]);
    }
    assert_eq!(uaa.asked(Offer::Token), 1);
    assert_eq!(uaa.wanted(), [("sampler".to_owned(), SCOPE.to_owned())]);
    let shown = format!("{credentials:?} {:?}", credentials.token().await.unwrap());
    for secret in ["hu:sh", &uaa.given_out()[0]] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[tokio::test]
async fn a_token_is_renewed_before_its_end_and_used_through_an_outage_until_then() {
    let (uaa, credentials) = world().await;
    let life = Duration::from_mins(10);
    uaa.set_life(life);
    let first = text(&credentials.token().await.unwrap());
    later(life / 2).await;
    assert_eq!(text(&credentials.token().await.unwrap()), first);
    later(life / 4).await;
    assert_ne!(text(&credentials.token().await.unwrap()), first);
    assert_eq!(uaa.asked(Offer::Token), 2);
    uaa.go_away().await;
    for _ in 0..9 {
        later(life / 10).await;
        credentials.token().await.expect("it is still good");
    }
    later(life / 10).await;
    assert!(credentials.token().await.is_err());
    uaa.come_back().await.unwrap();
    later(PAUSE).await;
    credentials.token().await.expect("a new one");
}

/// Fault 16 of the original: an outage of UAA multiplied its refresh timers.
#[tokio::test]
async fn fault_16_an_outage_is_not_answered_with_a_storm() {
    let (uaa, credentials) = world().await;
    uaa.trouble(Some(Trouble::Status(500)));
    for _ in 0..3 {
        for _ in 0..100 {
            let error = credentials.token().await.unwrap_err().to_string();
            assert!(error.contains("500 (server_error)"), "{error}");
        }
        later(PAUSE).await;
    }
    // Each is a question for the endpoints, at both places.
    assert_eq!(uaa.asked(Offer::Discovery), 3 * 2);
    uaa.trouble(None);
    assert!(credentials.token().await.is_ok());
}

#[tokio::test]
async fn a_token_that_is_refused_is_dropped_once() {
    let (uaa, credentials) = world().await;
    let first = credentials.token().await.unwrap();
    // It is too young: another would be no better.
    assert!(!credentials.refused(&first));
    later(PAUSE).await;
    assert!(credentials.refused(&first));
    let second = credentials.token().await.unwrap();
    assert_ne!(text(&first), text(&second));
    // The others who had sent the first one hear of the second.
    assert!(credentials.refused(&first));
    assert_eq!(text(&credentials.token().await.unwrap()), text(&second));
    assert_eq!(uaa.asked(Offer::Token), 2);
}

#[tokio::test]
async fn a_client_that_is_unknown_gets_no_token_and_no_secret_out() {
    let (uaa, _) = world().await;
    let mut client = sampler(discoverer(&uaa));
    client.secret = "wrong-secret".into();
    let error = ClientCredentials::new(client).token().await.unwrap_err();
    let expected = "no token for it: the token server answered 401 (unauthorized)";
    assert_eq!(error.to_string(), expected);
}

/// A request for a token: its headers and its form.
type Request = (HeaderMap, String);

/// An issuer that takes the credentials by these methods. Returns its address, and the requests for
/// tokens as they arrive.
async fn issuer(methods: &Value, named: Option<&str>) -> (Url, UnboundedReceiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let metadata = Json(json!({
        "issuer": named.unwrap_or(&address),
        "token_endpoint": format!("{address}token"),
        "jwks_uri": format!("{address}keys"),
        "token_endpoint_auth_methods_supported": methods,
    }));
    let (seen, requests) = unbounded_channel();
    let give = async move |headers: HeaderMap, form: String| {
        seen.send((headers, form)).unwrap();
        Json(json!({ "access_token": "a-token", "token_type": "Bearer" }))
    };
    let metadata = get(async move || metadata);
    let router = Router::new().route("/.well-known/openid-configuration", metadata);
    let router = router.route("/token", post(give));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address.parse().unwrap(), requests)
}

/// The request for a token, as an issuer with these methods gets it: its `Authorization` and its form.
async fn asked_by(
    methods: &Value,
    client: impl FnOnce(Discoverer) -> Client,
) -> (Option<String>, String) {
    let (address, mut requests) = issuer(methods, None).await;
    let server = discoverer_of(TokenServer::Oidc(address), None);
    let credentials = ClientCredentials::new(client(server));
    credentials.token().await.unwrap();
    let (headers, form) = requests.recv().await.unwrap();
    let shown = headers.get(AUTHORIZATION).map(|shown| {
        let encoded = shown.to_str().unwrap().strip_prefix("Basic ").unwrap();
        String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap()
    });
    (shown, form)
}

#[tokio::test]
async fn an_issuer_that_is_no_uaa_gets_the_credentials_by_the_method_that_it_names() {
    let form = format!("grant_type=client_credentials&scope={SCOPE}");
    for methods in [
        json!(null),
        json!([]),
        json!(["private_key_jwt"]),
        json!(["client_secret_basic"]),
        json!(["client_secret_post", "client_secret_basic"]),
    ] {
        // Servers that compare bytes do not decode them: what needs no encoding has none.
        let plain = |server| Client {
            id: "sampler-worker".to_owned(),
            secret: "a-b_c.d~e".into(),
            ..sampler(server)
        };
        let asked = asked_by(&methods, plain).await;
        let shown = Some("sampler-worker:a-b_c.d~e".to_owned());
        assert_eq!(asked, (shown, form.clone()), "{methods}");
    }
    let (shown, _) = asked_by(&json!(null), sampler).await;
    assert_eq!(shown.as_deref(), Some("sampler:hu%3Ash%20%25"));
    let asked = asked_by(&json!(["client_secret_post"]), sampler).await;
    let form = form + "&client_id=sampler&client_secret=hu%3Ash+%25";
    assert_eq!(asked, (None, form));
}

#[tokio::test]
async fn a_scope_and_an_audience_go_into_the_request() {
    let client = |server| Client {
        scope: "api://abacus/.default".to_owned(),
        audience: Some("https://abacus".to_owned()),
        ..sampler(server)
    };
    let (_, form) = asked_by(&json!(null), client).await;
    let expected = "grant_type=client_credentials&scope=api%3A%2F%2Fabacus%2F.default\
                    &audience=https%3A%2F%2Fabacus";
    assert_eq!(form, expected);
}

#[tokio::test]
async fn the_metadata_may_name_the_issuer_that_is_configured_and_no_other() {
    let (address, _requests) = issuer(&json!(null), Some("https://tenant/v2.0")).await;
    let server = TokenServer::Oidc(address);
    for (configured, is_believed) in [(None, false), (Some("https://tenant/v2.0"), true)] {
        let client = sampler(discoverer_of(server.clone(), configured));
        let token = ClientCredentials::new(client).token().await;
        assert_eq!(token.is_ok(), is_believed, "{configured:?}");
    }
}

#[tokio::test]
async fn a_server_on_this_machine_does_not_lead_out_of_it_without_tls() {
    let (uaa, credentials) = world().await;
    uaa.known_as("http://uaa.invalid");
    let error = credentials.token().await.unwrap_err().to_string();
    assert!(error.ends_with("the token server leads to http"), "{error}");
}
