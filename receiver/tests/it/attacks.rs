//! Whoever should not get in: each attack on the real router.

use std::sync::Arc;
use std::time::Duration;

use sampler_testkit::now_millis;
use sampler_testkit::uaa::{Discovery, Offer, SigningKey, StandInUaa};
use serde_json::{Value, json};

use crate::auth_fixture::{Asked, WRITE, claims, fetched, pace, secured, token};
use crate::event::start;
use crate::world::{MAPPINGS, NOW, START, STOP, World};

pub(crate) const NO_TOKEN: &str = "Bearer realm=\"cf\"";
pub(crate) const INVALID: &str = "Bearer realm=\"cf\", error=\"invalid_token\"";

/// Turned away with this challenge, and before the body was read.
#[track_caller]
pub(crate) fn assert_refused(what: &str, asked: &Asked, status: u16, challenge: &str) {
    assert_eq!(asked.challenge(), Some(challenge), "{what}: {asked:?}");
    let problem = if status == 401 {
        "unauthorized"
    } else {
        "forbidden"
    };
    asked.is_turned_away(status, problem);
}

pub(crate) fn seconds(from_now: i64) -> i64 {
    now_millis() / 1000 + from_now
}

/// A token whose header says anything, with a signature that is good all the same.
pub(crate) fn with_header(key: &SigningKey, header: &Value) -> String {
    key.token("RS256", &header.to_string(), &claims(|_| {}))
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
        ("a huge token", START, of("pad", "x".repeat(20_000).into()), INVALID),
    ];
    rows.into_iter().map(|(what, path, headers, told)| (what, path.to_owned(), headers, told)).collect()
}

/// Why a token is not accepted, `sampler-oauth` shows; here is what that is answered.
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
    let unknown = "/v1/nothing/here";
    let unknown = world.ask("POST", unknown, &[&bearer], &start(NOW)).await;
    unknown.answer.problem(404, "not-found");
    // The scheme's case does not count.
    let lower = format!("bearer  {good}");
    let asked = world.ask("POST", START, &[&lower], &start(NOW)).await;
    assert_eq!(asked.status(), 201, "{asked:?}");
}

#[tokio::test]
async fn other_methods_need_a_token_as_well() {
    let (_, world) = secured();
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "FOO"] {
        let asked = world.ask(method, START, &[], &Value::Null).await;
        assert_eq!(asked.status(), 401, "{method}");
    }
}

#[tokio::test]
async fn a_flood_of_unknown_keys_makes_no_flood_of_fetches() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let pace = pace(Duration::from_hours(1));
    let world = Arc::new(World::secured(fetched(&uaa, pace), |_| {}));
    let key = SigningKey::rsa("unknown").unwrap();
    let odd = [
        "../../etc/passwd",
        "' OR 1=1 --",
        "http://127.0.0.1:1/keys",
        "\u{0}\n\r\u{202e}",
        "$ne",
        "",
        "*",
    ];
    let long = "k".repeat(8_000);
    let names = (0..300).map(|number| format!("unknown-{number}"));
    let names = names.chain(odd.map(str::to_owned)).chain([long]);
    // The keys are known, and were fetched a moment ago.
    let honest = world.ask_with(&uaa.token(&[WRITE])).await;
    assert_eq!(honest.status(), 201, "{honest:?}");
    let mut asking = Vec::new();
    for name in names {
        let header = json!({ "alg": "RS256", "kid": name });
        let forgery = with_header(&key, &header);
        let world = Arc::clone(&world);
        asking.push(tokio::spawn(async move {
            (name, world.ask_with(&forgery).await)
        }));
    }
    for asked in asking {
        let (name, asked) = asked.await.unwrap();
        // Whether there is such a key by now, nobody can say before the keys may be fetched again.
        asked.is_turned_away(503, "token-server-unavailable");
        let is_echoed = !name.is_empty() && asked.answer.text().contains(&name);
        assert!(!is_echoed, "{name:?} is echoed");
    }
    assert_eq!(uaa.asked(Offer::Keys), 1);
    let honest = world.ask_with(&uaa.token(&[WRITE])).await;
    assert_eq!(honest.status(), 409, "others are served: {honest:?}");
}
