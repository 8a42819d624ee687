//! Whoever should not get in: each attack on the real router, and what becomes of tokens with unknown keys.

use sampler_testkit::uaa::{Discovery, SigningKey, StandInUaa, Trouble};
use serde_json::{Value, json};

use crate::auth_fixture::{
    Asked, WRITE, claims, fetched, secured, token, until_keys_may_be_fetched,
};
use crate::event::start;
use crate::log::Log;
use crate::world::{MAPPINGS, NOW, START, STOP, World};

pub(crate) const NO_TOKEN: &str = "Bearer realm=\"cf\"";
const INVALID: &str = "Bearer realm=\"cf\", error=\"invalid_token\"";

/// Turned away with this challenge, and before the body was read.
#[track_caller]
fn assert_refused(what: &str, asked: &Asked, status: u16, challenge: &str) {
    assert_eq!(asked.challenge(), Some(challenge), "{what}: {asked:?}");
    let problem = if status == 401 {
        "unauthorized"
    } else {
        "forbidden"
    };
    asked.is_turned_away(status, problem);
}

/// A token whose header says anything, with a signature that is good all the same.
fn with_header(key: &SigningKey, header: &Value) -> String {
    key.token("RS256", &header.to_string(), &claims(|_| {}))
}

/// A token that names a key that nobody has.
fn of_unknown_key(name: &str) -> String {
    let key = SigningKey::rsa("unknown").unwrap();
    with_header(&key, &json!({ "alg": "RS256", "kid": name }))
}

/// Requests without a good token: their paths, headers `Authorization`, and how they are challenged.
#[rustfmt::skip]
fn without_good_token(key: &SigningKey, good: &str) -> Vec<(&'static str, String, Vec<String>, &'static str)> {
    let bearer = |token: &str| vec![format!("Bearer {token}")];
    let of = |name: &str, value: Value| bearer(&token(key, &claims(|claims| claims[name] = value)));
    let unsigned = format!("{}.", good.rsplit_once('.').unwrap().0);
    let other = SigningKey::rsa(key.id()).unwrap();
    let odd = with_header(key, &json!({ "alg": "RS256", "kid": key.id(), "crit": ["b64"] }));
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
        ("another key", START, bearer(&token(&other, &claims(|_| {}))), INVALID),
        ("a critical header", START, bearer(&odd), INVALID),
        ("expired", START, of("exp", 1.into()), INVALID),
        ("a refresh token", START, of("jti", "abc-r".into()), INVALID),
        ("bound to a key", START, of("cnf", json!({ "jkt": "0ZcO" })), INVALID),
    ];
    rows.into_iter().map(|(what, path, headers, told)| (what, path.to_owned(), headers, told)).collect()
}

/// Why a token is not accepted, `sampler-service` shows; here is what that is answered.
#[tokio::test]
async fn who_shows_no_good_token_is_told_so_before_the_body_is_read() {
    let (key, world) = secured();
    let good = token(&key, &claims(|_| {}));
    let bearer = format!("Bearer {good}");
    for (what, path, authorizations, challenge) in without_good_token(&key, &good) {
        let headers: Vec<&str> = authorizations.iter().map(String::as_str).collect();
        let asked = world.ask("POST", &path, &headers, &start(NOW)).await;
        assert_refused(what, &asked, 401, challenge);
        let text = asked.answer.text();
        assert!(!text.contains(&good), "{what}: the token is echoed");
        assert!(what != "an empty token" || text.contains("malformed"));
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "FOO"] {
        let asked = world.ask(method, START, &[], &Value::Null).await;
        assert_eq!(asked.status(), 401, "{method}");
    }
    let unknown = "/v1/nothing/here";
    let unknown = world.ask("POST", unknown, &[&bearer], &start(NOW)).await;
    unknown.answer.problem(404, "not-found");
    // The scheme's case does not count.
    let lower = format!("bearer  {good}");
    let asked = world.ask("POST", START, &[&lower], &start(NOW)).await;
    assert_eq!(asked.status(), 201, "{asked:?}");
}

/// Whether there is such a key by now, nobody can say before the keys may be fetched again: a token that is signed
/// with a new key is never told that it is wrong.
#[tokio::test]
async fn a_token_of_an_unknown_key_waits_for_the_keys_and_is_refused_once_they_lack_its_key() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let world = World::secured(fetched(&uaa), |_| {});
    let old = uaa.token(&[WRITE]);
    let honest = world.ask_with(&old).await;
    assert_eq!(honest.status(), 201, "{honest:?}");
    let unknown = of_unknown_key("withdrawn");
    let asked = world.ask_with(&unknown).await;
    asked.is_turned_away(503, "token-server-unavailable");
    assert_eq!(asked.answer.header("retry-after"), Some("10"));
    until_keys_may_be_fetched().await;
    let asked = world.ask_with(&unknown).await;
    assert_refused("the keys lack its key", &asked, 401, INVALID);
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
async fn a_flood_of_bad_tokens_is_no_flood_of_lines_and_what_they_say_of_their_client_is_cut() {
    let (key, world) = secured();
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.subscriber());
    for _ in 0..500 {
        assert_eq!(world.ask_with("garbage").await.status(), 401);
    }
    let without_scope = claims(|claims| {
        claims["scope"] = json!([]);
        claims["client_id"] = "x\n".repeat(2_000).into();
    });
    let without_scope = token(&key, &without_scope);
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
