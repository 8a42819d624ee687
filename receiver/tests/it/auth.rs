//! Who gets in, for what, and what becomes of that when the token server is away. Why a token is not accepted,
//! `sampler-service` shows; here is what that is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures_util::stream;
use sampler_domain::ClientId;
use sampler_service::oauth::http::client;
use sampler_service::oauth::{
    Algorithm, CaBundle, Discoverer, HttpOptions, Keyring, Keys, Policy, TokenServer, keyring,
};
use sampler_service::security::Authenticator;
use sampler_testkit::now_millis;
use sampler_testkit::uaa::{Discovery, SigningKey, StandInUaa, Trouble};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::event::{mapping, on, start, stop, with};
use crate::reading_scopes::Two;
use crate::world::{EVENTS, Log, MAPPINGS, NOW, START, STOP, UPDATE, World};

/// The scope that allows everything.
pub(crate) const WRITE: &str = "abacus.sampler.write";

const NO_TOKEN: &str = "Bearer realm=\"cf\"";
const INVALID: &str = "Bearer realm=\"cf\", error=\"invalid_token\"";
const INSUFFICIENT: &str = "Bearer realm=\"cf\", error=\"insufficient_scope\"";

const POLICY: Policy = Policy {
    algorithm: Algorithm::RS256,
    issuer: None,
    audiences: None,
};

/// A receiver that believes a key that is configured.
pub(crate) fn secured() -> (SigningKey, World) {
    let key = SigningKey::rsa("key-1").unwrap();
    let keys = Keys::configured(&key.public_pem(), &POLICY).unwrap();
    let world = World::secured(Authenticator::bearer(Keyring::configured(keys)));
    (key, world)
}

/// A receiver that fetches the keys of a token server.
fn fetching(uaa: &StandInUaa) -> World {
    let options = HttpOptions {
        timeout: Duration::from_secs(5),
        skip_ssl_validation: false,
        authorities: CaBundle::default(),
    };
    let api = TokenServer::CloudFoundry(uaa.base_url().parse().unwrap());
    let server = Discoverer::new(api, client(&options).unwrap(), None);
    World::secured(Authenticator::bearer(Keyring::fetched(server, POLICY)))
}

/// Lets the time pass before which keys are not fetched again.
async fn until_keys_may_be_fetched() {
    tokio::time::pause();
    tokio::time::advance(keyring::AT_LEAST).await;
    tokio::time::resume();
}

/// A token as UAA signs it. Its claims are good, but for what is changed in them.
fn token(key: &SigningKey, change: impl FnOnce(&mut Value)) -> String {
    with_header(
        key,
        &json!({ "alg": "RS256", "typ": "JWT", "kid": key.id() }),
        change,
    )
}

/// A token whose header says anything, with a signature that is good all the same.
fn with_header(key: &SigningKey, header: &Value, change: impl FnOnce(&mut Value)) -> String {
    let mut claims = json!({
        "client_id": "broker",
        "scope": [WRITE],
        "exp": now_millis() / 1000 + 300,
    });
    change(&mut claims);
    key.token("RS256", &header.to_string(), &claims.to_string())
}

/// The header of a token with these scopes.
pub(crate) fn bearer(key: &SigningKey, scopes: &[&str]) -> String {
    let token = token(key, |claims| claims["scope"] = json!(scopes));
    format!("Bearer {token}")
}

/// The header of a token of another client, with the scope for everything.
pub(crate) fn bearer_of(key: &SigningKey, client: &str) -> String {
    let token = token(key, |claims| claims["client_id"] = client.into());
    format!("Bearer {token}")
}

/// An answer, and whether the body of its request was read.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) answer: Answer,
    body_was_read: bool,
}

impl Asked {
    pub(crate) fn status(&self) -> u16 {
        self.answer.status
    }

    fn challenge(&self) -> &str {
        self.answer.header("www-authenticate").unwrap_or_default()
    }

    /// Turned away with this problem, and before the body was read.
    #[track_caller]
    fn is_turned_away(&self, status: u16, slug: &str) {
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
    async fn ask_with(&self, token: &str) -> Asked {
        let authorization = format!("Bearer {token}");
        let event = start(NOW);
        self.ask("POST", START, &[&authorization], &event).await
    }
}

/// The scopes of the tokens that try each operation; the first has no token.
const TOKENS: [Option<&[&str]>; 9] = [
    None,
    // What is nearly a scope.
    Some(&[
        "openid",
        "abacus.usage.read",
        "abacus.usage.write",
        "abacus.usage.sampler.write",
        "abacus.sampler",
        "abacus.sampler.reader",
        "abacus.sampler.writer",
        "abacus.sampler..write",
        "abacus.sampler.write ",
        "abacus.sampler.write.postgres",
        "ABACUS.SAMPLER.WRITE",
        "xabacus.sampler.write",
        "openid abacus.sampler.write",
        "openid\tabacus.sampler.write",
    ]),
    Some(&["abacus.sampler.read"]),
    Some(&["abacus.sampler.write"]),
    Some(&["abacus.sampler.admin"]),
    Some(&["abacus.sampler.postgres.read"]),
    Some(&["abacus.sampler.postgres.write", "openid"]),
    Some(&["abacus.sampler.redis.write", "abacus.sampler.postgres.read"]),
    // The scope for a resource that is called admin.
    Some(&["abacus.sampler.admin.write"]),
];

/// Those of them that are to write something.
const TO_WRITE: [usize; 4] = [3, 6, 7, 8];

/// Which token may do what. What is allowed gets as far as its content lets it: a stop finds no open span, an
/// update has no id, a batch is no list, a mapping has no provisioning service, and an action on a span no
/// `If-Match`.
#[rustfmt::skip]
fn operations(two: &Two) -> Vec<(&'static str, String, [u16; 9])> {
    let (span, cause) = (&two.spans[0], &two.causes[0]);
    vec![
        ("POST", START.to_owned(),             [401, 403, 403, 409, 403, 403, 409, 403, 403]),
        ("POST", STOP.to_owned(),              [401, 403, 403, 422, 403, 403, 422, 403, 403]),
        ("POST", UPDATE.to_owned(),            [401, 403, 403, 400, 403, 403, 400, 403, 403]),
        ("POST", EVENTS.to_owned(),            [401, 403, 403, 400, 403, 403, 400, 400, 400]),
        ("POST", MAPPINGS.to_owned(),          [401, 403, 403, 502, 403, 403, 502, 403, 403]),
        ("GET", "/v1/spans?resource_id=x".to_owned(), [401, 403, 200, 200, 200, 200, 200, 200, 200]),
        ("GET", span.clone(),                  [401, 403, 200, 200, 200, 200, 200, 200, 404]),
        ("GET", format!("{span}/usages"),      [401, 403, 200, 200, 200, 200, 200, 200, 404]),
        ("GET", "/v1/usages?resource_id=x".to_owned(), [401, 403, 200, 200, 200, 200, 200, 200, 200]),
        ("GET", "/v1/suspended".to_owned(),    [401, 403, 200, 200, 200, 200, 200, 200, 200]),
        ("GET", cause.clone(),                 [401, 403, 200, 200, 200, 200, 200, 200, 404]),
        ("GET", "/v1/backlog".to_owned(),      [401, 403, 200, 200, 200, 403, 403, 403, 403]),
        ("GET", "/v1/control".to_owned(),      [401, 403, 403, 403, 200, 403, 403, 403, 403]),
        ("GET", "/v1/audit".to_owned(),        [401, 403, 403, 403, 200, 403, 403, 403, 403]),
        ("POST", format!("{span}/resume"),     [401, 403, 403, 403, 428, 403, 403, 403, 403]),
        ("POST", format!("{span}/skip"),       [401, 403, 403, 403, 428, 403, 403, 403, 403]),
        ("POST", format!("{cause}/resume"),    [401, 403, 403, 403, 202, 403, 403, 403, 403]),
        ("POST", format!("{span}/resend"),     [401, 403, 403, 403, 428, 403, 403, 403, 403]),
        ("GET", "/v1/unconfirmed".to_owned(),  [401, 403, 200, 200, 200, 200, 200, 200, 200]),
        ("POST", "/v1/unconfirmed/u/resend".to_owned(), [401, 403, 403, 403, 404, 403, 403, 403, 403]),
        ("GET", "/v1/nothing".to_owned(),      [401, 403, 404, 404, 404, 404, 404, 404, 404]),
    ]
}

#[tokio::test]
async fn each_operation_is_allowed_to_the_tokens_that_it_is_for() {
    let two = Two::new().await;
    let mut wrong = Vec::new();
    for (method, path, statuses) in operations(&two) {
        let mut row = [0; 9];
        for (token, cell) in row.iter_mut().enumerate() {
            let body = match path.as_str() {
                START => start(NOW),
                STOP => on("nothing", &stop(NOW)),
                UPDATE => with(&start(NOW), "id", ""),
                MAPPINGS => mapping(),
                _ => json!({ "reason": "to try it" }),
            };
            let bearer = TOKENS[token].map(|scopes| two.bearer(scopes));
            let bearers: Vec<_> = bearer.iter().map(String::as_str).collect();
            let asked = two.world.ask(method, &path, &bearers, &body).await;
            let told = asked.challenge();
            // Only what names a resource is read before it is refused, and only for who may write one.
            let is_read = TO_WRITE.contains(&token)
                && [START, STOP, UPDATE, MAPPINGS].contains(&path.as_str());
            let said = (told, asked.body_was_read);
            match asked.status() {
                401 => {
                    asked.answer.problem(401, "unauthorized");
                    assert_eq!(said, (NO_TOKEN, false), "{path}");
                }
                403 => {
                    asked.answer.problem(403, "forbidden");
                    assert_eq!(said, (INSUFFICIENT, is_read), "{path} {token}");
                }
                _ => assert_eq!(told, "", "{path}"),
            }
            *cell = asked.status();
        }
        if row != statuses {
            wrong.push(format!("{method} {path}: {row:?}, not {statuses:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Fault 17 of the original: anyone with the scope could write for any resource.
#[tokio::test]
async fn fault_17_a_scope_for_one_resource_is_for_that_resource_alone() {
    let (key, world) = secured();
    let bearer = bearer(&key, &["abacus.sampler.postgres.write", "openid"]);
    let asked = async |body: Value| world.ask("POST", START, &[&bearer], &body).await;
    assert_eq!(asked(start(NOW)).await.status(), 201);
    for (resource, status) in [
        (json!("redis"), 403),
        (json!("Postgres"), 403),
        (json!("postgres "), 403),
        // No event at all.
        (json!(null), 400),
        (json!(7), 400),
        (json!(["postgres"]), 400),
        (json!({ "resource_id": "postgres" }), 400),
    ] {
        // A client that may not write is not told what else is wrong.
        for body in [start(NOW), with(&start(NOW), "timestamp", "soon")] {
            let asked = asked(with(&body, "resource_id", resource.clone())).await;
            let told = asked.answer.text().contains("timestamp");
            assert_eq!((asked.status(), told), (status, false), "{resource}");
        }
    }
    let unnamed = asked(json!({})).await;
    assert_eq!(unnamed.status(), 403, "a body that names no resource");
}

/// Requests without a good token: their paths, headers `Authorization`, and how they are challenged.
#[rustfmt::skip]
fn without_good_token(key: &SigningKey, good: &str) -> Vec<(&'static str, String, Vec<String>, &'static str)> {
    let bearer = |token: &str| vec![format!("Bearer {token}")];
    let of = |name: &str, value: Value| bearer(&token(key, |claims| claims[name] = value));
    let unsigned = format!("{}.", good.rsplit_once('.').unwrap().0);
    let other = SigningKey::rsa(key.id()).unwrap();
    let odd = with_header(key, &json!({ "alg": "RS256", "kid": key.id(), "crit": ["b64"] }), |_| {});
    let in_query = format!("{START}?access_token={good}");
    let rows = [
        ("no header", START, vec![], NO_TOKEN),
        ("the token in the address", &in_query, vec![], NO_TOKEN),
        ("Basic", STOP, vec!["Basic aWQ6c2VjcmV0".to_owned()], NO_TOKEN),
        ("no scheme", MAPPINGS, vec![good.to_owned()], NO_TOKEN),
        ("the scheme alone", START, vec!["Bearer".to_owned()], NO_TOKEN),
        ("another scheme", START, vec![format!("Bearer2 {good}")], NO_TOKEN),
        ("an unknown path", "/v1/nothing/here", vec![], NO_TOKEN),
        ("an unknown path", "/v1/nothing/here", bearer("garbage"), INVALID),
        ("two headers", START, [bearer(good), bearer(good)].concat(), INVALID),
        ("an empty token", START, bearer(""), INVALID),
        ("garbage", START, bearer("garbage"), INVALID),
        ("no signature", START, bearer(&unsigned), INVALID),
        ("another key", START, bearer(&token(&other, |_| {})), INVALID),
        ("a critical header", START, bearer(&odd), INVALID),
        ("expired", START, of("exp", 1.into()), INVALID),
        ("a refresh token", START, of("jti", "abc-r".into()), INVALID),
        ("bound to a key", START, of("cnf", json!({ "jkt": "0ZcO" })), INVALID),
    ];
    rows.into_iter().map(|(what, path, headers, told)| (what, path.to_owned(), headers, told)).collect()
}

#[tokio::test]
async fn who_shows_no_good_token_is_told_so_before_the_body_is_read() {
    let (key, world) = secured();
    let good = token(&key, |_| {});
    for (what, path, authorizations, challenge) in without_good_token(&key, &good) {
        let headers: Vec<&str> = authorizations.iter().map(String::as_str).collect();
        let asked = world.ask("POST", &path, &headers, &start(NOW)).await;
        assert_eq!(asked.challenge(), challenge, "{what}: {asked:?}");
        asked.is_turned_away(401, "unauthorized");
        let text = asked.answer.text();
        assert!(!text.contains(&good), "{what}: the token is echoed");
        assert!(what != "an empty token" || text.contains("malformed"));
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "FOO"] {
        let asked = world.ask(method, START, &[], &Value::Null).await;
        assert_eq!(asked.status(), 401, "{method}");
    }
    // The scheme's case does not count.
    let lower = format!("bearer  {good}");
    let asked = world.ask("POST", START, &[&lower], &start(NOW)).await;
    assert_eq!(asked.status(), 201, "{asked:?}");
}

#[tokio::test]
async fn nobody_gets_in_before_there_are_keys() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let token = uaa.token(&[WRITE]);
    uaa.go_away().await;
    let world = fetching(&uaa);
    let asked = world.ask_with(&token).await;
    asked.is_turned_away(503, "token-server-unavailable");
    for path in [START, "/v1/events/start/"] {
        let nobody = world.ask("POST", path, &[], &start(NOW)).await;
        assert_eq!(nobody.status(), 401, "{path}");
    }
    uaa.come_back().await.unwrap();
    until_keys_may_be_fetched().await;
    assert_eq!(world.ask_with(&token).await.status(), 201);
}

/// Whether there is such a key by now, nobody can say before the keys may be fetched again: a token that is signed
/// with a new key is never told that it is wrong.
#[tokio::test]
async fn a_token_of_an_unknown_key_waits_for_the_keys_and_is_refused_once_they_lack_its_key() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let world = fetching(&uaa);
    let old = uaa.token(&[WRITE]);
    let honest = world.ask_with(&old).await;
    assert_eq!(honest.status(), 201, "{honest:?}");
    let unknown = token(&SigningKey::rsa("withdrawn").unwrap(), |_| {});
    let asked = world.ask_with(&unknown).await;
    asked.is_turned_away(503, "token-server-unavailable");
    assert_eq!(asked.answer.header("retry-after"), Some("10"));
    until_keys_may_be_fetched().await;
    let asked = world.ask_with(&unknown).await;
    assert_eq!(asked.challenge(), INVALID);
    asked.is_turned_away(401, "unauthorized");
    uaa.rotate().unwrap();
    let new = uaa.token(&[WRITE]);
    assert_eq!(world.ask_with(&new).await.status(), 503);
    uaa.trouble(Some(Trouble::Status(500)));
    until_keys_may_be_fetched().await;
    assert_eq!(world.ask_with(&new).await.status(), 503);
    // A second start of the target: the token is accepted, through an outage as well.
    assert_eq!(world.ask_with(&old).await.status(), 409);
    uaa.trouble(None);
    until_keys_may_be_fetched().await;
    assert_eq!(world.ask_with(&new).await.status(), 409);
}

#[tokio::test]
async fn a_span_and_the_log_of_refusals_say_which_client_it_was() {
    let (key, world) = secured();
    let (start, stop) = (start(NOW), stop(NOW + 1));
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.subscriber());
    for (path, client, body, status) in [
        (START, "broker", &start, 201),
        (START, "other-broker", &start, 409),
        (STOP, "operator", &stop, 201),
        (STOP, "late-operator", &stop, 422),
    ] {
        let asked = world
            .ask("POST", path, &[&bearer_of(&key, client)], body)
            .await;
        assert_eq!(asked.status(), status, "{client}: {asked:?}");
    }
    drop(logging);
    let spans = world.spans();
    let [span] = spans.as_slice() else {
        panic!("{} spans", spans.len());
    };
    let clients = [&span.start_client, &span.stop_client].map(|client| client.clone().unwrap());
    assert_eq!(
        clients.each_ref().map(ClientId::as_str),
        ["broker", "operator"]
    );
    let refused = log.lines("refused");
    let clients: Vec<_> = refused.iter().map(|line| line["client"].as_str()).collect();
    assert_eq!(clients, [Some("other-broker"), Some("late-operator")]);
}

#[tokio::test]
async fn a_flood_of_bad_tokens_is_no_flood_of_lines_and_what_they_say_of_their_client_is_cut() {
    let (key, world) = secured();
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.subscriber());
    for _ in 0..500 {
        assert_eq!(world.ask_with("garbage").await.status(), 401);
    }
    let without_scope = token(&key, |claims| {
        claims["scope"] = json!([]);
        claims["client_id"] = "x\n".repeat(2_000).into();
    });
    for _ in 0..500 {
        assert_eq!(world.ask_with(&without_scope).await.status(), 403);
    }
    drop(logging);
    assert_eq!(log.lines("a token was refused").len(), 20);
    let lines = log.lines("a token without a scope for this was refused");
    let client = lines[0]["client"].as_str().unwrap();
    assert_eq!(client, &"x?".repeat(128)[..255]);
    assert!(log.text().len() < 20_000, "{}", log.text().len());
}
