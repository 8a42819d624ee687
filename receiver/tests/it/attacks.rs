//! Whoever should not get in: a table of attacks, each on the real router.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sampler_oauth::{Algorithm, Pace};
use sampler_testkit::now_millis;
use sampler_testkit::uaa::{Discovery, Offer, SigningKey, StandInUaa};
use serde_json::{Value, json};

use crate::auth_fixture::{
    Answer, WRITE, ask, ask_with, claims, configured, fetched, router, start, token,
};

const NO_TOKEN: &str = "Bearer realm=\"cf\"";
pub(crate) const INVALID: &str = "Bearer realm=\"cf\", error=\"invalid_token\"";
const INSUFFICIENT: &str = "Bearer realm=\"cf\", error=\"insufficient_scope\"";

/// Turned away with this challenge, and before the body was read.
pub(crate) fn assert_refused(what: &str, answer: &Answer, status: u16, challenge: &str) {
    assert_eq!(answer.status, status, "{what}: {answer:?}");
    assert_eq!(answer.challenge.as_deref(), Some(challenge), "{what}");
    let problem = if status == 401 {
        "unauthorized"
    } else {
        "forbidden"
    };
    assert_eq!(answer.problem, problem, "{what}");
    assert!(!answer.body_was_read, "{what}: the body was read");
}

pub(crate) fn seconds(from_now: i64) -> i64 {
    now_millis() / 1000 + from_now
}

/// A token whose header says anything, with a signature that is good all the same.
pub(crate) fn with_header(key: &SigningKey, header: &Value) -> String {
    key.token("RS256", &header.to_string(), &claims(|_| {}))
}

type Forgeries = Vec<(&'static str, String)>;

/// Tokens that must not be believed, though some are signed with the right key.
fn forgeries(key: &SigningKey) -> Forgeries {
    let mut all = broken(key);
    all.extend(signed_otherwise(key));
    all.extend(with_odd_headers(key));
    all.extend(with_odd_claims(key));
    all
}

/// What is no token at all, or a good one that was tampered with.
fn broken(key: &SigningKey) -> Forgeries {
    let good = claims(|_| {});
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let valid = token(key, &good);
    let (message, signature) = valid.rsplit_once('.').unwrap();
    let (header, _) = message.split_once('.').unwrap();
    let list = format!("{}.{}.{signature}", encode("[]"), encode(&good));
    let others = encode(&claims(|claims| claims["client_id"] = "x".into()));
    vec![
        ("garbage", "garbage".to_owned()),
        ("an empty token", String::new()),
        ("only dots", "..".to_owned()),
        ("too many parts", format!("{valid}.x")),
        ("no signature", format!("{message}.")),
        ("no base64", format!("{header}.%%%.{signature}")),
        ("a list for a header", list),
        ("other claims", format!("{header}.{others}.{signature}")),
    ]
}

/// Signed with another key, or in another way than was agreed on.
fn signed_otherwise(key: &SigningKey) -> Forgeries {
    let other = SigningKey::rsa(key.id()).unwrap();
    let own = SigningKey::p256(key.id()).unwrap();
    let public = SigningKey::shared(key.public_pem().as_bytes());
    let trimmed = SigningKey::shared(key.public_pem().trim().as_bytes());
    let good = claims(|_| {});
    let says = |algorithm: &str| json!({ "alg": algorithm, "kid": key.id() }).to_string();
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let unsigned = format!("{}.{}.", encode(&says("none")), encode(&good));
    vec![
        ("another key of the same name", token(&other, &good)),
        ("none", unsigned),
        ("none, signed", key.token("RS256", &says("none"), &good)),
        ("None", key.token("RS256", &says("None"), &good)),
        (
            "HS256 with the public key",
            public.token("HS256", &says("HS256"), &good),
        ),
        (
            "the same, trimmed",
            trimmed.token("HS256", &says("HS256"), &good),
        ),
        (
            "HS256 that says RS256",
            public.token("HS256", &says("RS256"), &good),
        ),
        ("another hash", key.token("RS512", &says("RS512"), &good)),
        (
            "another hash, hidden",
            key.token("RS512", &says("RS256"), &good),
        ),
        ("another family", own.token("ES256", &says("ES256"), &good)),
    ]
}

/// Headers that bring a key along, or ask for what is not understood.
fn with_odd_headers(key: &SigningKey) -> Forgeries {
    let other = SigningKey::rsa(key.id()).unwrap();
    let good = claims(|_| {});
    let named = |more: Value| {
        let mut header = json!({ "alg": "RS256", "kid": key.id() });
        for (name, value) in more.as_object().unwrap() {
            header[name] = value.clone();
        }
        header.to_string()
    };
    let embedded = named(json!({ "jwk": other.jwk() }));
    let led_astray = named(json!({ "jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/" }));
    let nameless = json!({ "alg": "RS256", "jwk": other.jwk() }).to_string();
    let critical = named(json!({ "crit": ["b64"], "b64": false }));
    let twice = format!(r#"{{"alg":"none","alg":"RS256","kid":"{}"}}"#, key.id());
    let no_algorithm = json!({ "kid": key.id() }).to_string();
    vec![
        ("an embedded key", other.token("RS256", &embedded, &good)),
        (
            "an embedded key without a name",
            other.token("RS256", &nameless, &good),
        ),
        (
            "an address of keys",
            other.token("RS256", &led_astray, &good),
        ),
        ("a critical header", key.token("RS256", &critical, &good)),
        (
            "for a logout",
            key.token("RS256", &named(json!({ "typ": "logout+jwt" })), &good),
        ),
        ("the algorithm twice", key.token("RS256", &twice, &good)),
        ("no algorithm", key.token("RS256", &no_algorithm, &good)),
    ]
}

/// Claims that are signed as they should be, and not good enough.
fn with_odd_claims(key: &SigningKey) -> Forgeries {
    let with = |name: &str, value: Value| token(key, &claims(|claims| claims[name] = value));
    let end = seconds(60);
    let end_twice = format!(r#"{{"scope":["{WRITE}"],"exp":1,"exp":{end}}}"#);
    let scope_twice = format!(r#"{{"scope":[],"scope":["{WRITE}"],"exp":{end}}}"#);
    vec![
        ("expired", with("exp", seconds(-11).into())),
        ("expired long ago", with("exp", 1.into())),
        ("not yet valid", with("nbf", seconds(30).into())),
        ("no end", with("exp", Value::Null)),
        ("an end that is text", with("exp", "9999999999".into())),
        ("the end twice", token(key, &end_twice)),
        ("the scope twice", token(key, &scope_twice)),
        ("scopes in an object", with("scope", json!({ WRITE: 1 }))),
        ("a refresh token", with("jti", "abc-r".into())),
        ("no end in sight", with("exp", seconds(3 * 86_400).into())),
        ("an end beyond all bounds", with("exp", json!(1e300))),
        (
            "bound by a certificate",
            with("cnf", json!({ "x5t#S256": "bwcK0esc3ACC3DB2Y5_lESsX" })),
        ),
        (
            "bound by DPoP",
            with("cnf", json!({ "jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2Hg" })),
        ),
        ("a huge token", with("pad", "x".repeat(20_000).into())),
    ]
}

#[tokio::test]
async fn forged_tokens_are_refused_whether_the_key_is_configured_or_fetched() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let key = SigningKey::rsa("key-1").unwrap();
    let router_of_pem = router(configured(&key.public_pem(), Algorithm::Rs256));
    let good = ask_with(&router_of_pem, &token(&key, &claims(|_| {}))).await;
    assert_eq!(good.status, 201, "{good:?}");
    for (what, forgery) in forgeries(&key) {
        let answer = ask_with(&router_of_pem, &forgery).await;
        assert_refused(what, &answer, 401, INVALID);
        assert!(
            !forgery.is_empty() || answer.text.contains("malformed"),
            "{what}"
        );
    }
    // The same against the keys of a token server, one of which has the same name.
    let router_of_uaa = router(fetched(&uaa, Pace::default()));
    assert_eq!(
        ask_with(&router_of_uaa, &uaa.token(&[WRITE])).await.status,
        201
    );
    for (what, forgery) in forgeries(&key) {
        assert_refused(
            what,
            &ask_with(&router_of_uaa, &forgery).await,
            401,
            INVALID,
        );
    }
    assert!(uaa.asked(Offer::Keys) <= 2, "{}", uaa.asked(Offer::Keys));
}

#[tokio::test]
async fn who_shows_no_token_is_told_that_one_is_needed() {
    let key = SigningKey::rsa("key-1").unwrap();
    let router = router(configured(&key.public_pem(), Algorithm::Rs256));
    let good = token(&key, &claims(|_| {}));
    let in_query = format!("/v1/events/start?access_token={good}");
    for (what, path, authorization) in [
        ("no header", "/v1/events/start", None),
        ("the token in the address", in_query.as_str(), None),
        (
            "Basic",
            "/v1/events/stop",
            Some("Basic aWQ6c2VjcmV0".to_owned()),
        ),
        ("no scheme", "/v1/mappings", Some(good.clone())),
        (
            "the scheme alone",
            "/v1/events/start",
            Some("Bearer".to_owned()),
        ),
        (
            "another scheme",
            "/v1/events/start",
            Some(format!("Bearer2 {good}")),
        ),
        ("an unknown path", "/v1/nothing/here", None),
    ] {
        let headers: Vec<&str> = authorization.iter().map(String::as_str).collect();
        let answer = ask(&router, path, &headers, &start()).await;
        assert_refused(what, &answer, 401, NO_TOKEN);
        assert!(!answer.text.contains(&good), "{what}: the token is echoed");
    }
    let bearer = format!("Bearer {good}");
    let twice = ask(&router, "/v1/events/start", &[&bearer, &bearer], &start()).await;
    assert_refused("two headers", &twice, 401, INVALID);
    let unknown = ask(&router, "/v1/nothing/here", &[&bearer], &start()).await;
    assert_eq!(
        (unknown.status, unknown.problem.as_str()),
        (404, "not-found")
    );
    let lower = format!("bearer  {good}");
    let answer = ask(&router, "/v1/events/start", &[&lower], &start()).await;
    assert_eq!(
        answer.status, 201,
        "the scheme's case does not count: {answer:?}"
    );
}

#[tokio::test]
async fn other_methods_need_a_token_as_well() {
    use tower::ServiceExt;
    let key = SigningKey::rsa("key-1").unwrap();
    let router = router(configured(&key.public_pem(), Algorithm::Rs256));
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "FOO"] {
        let request = axum::http::Request::builder()
            .method(method)
            .uri("/v1/events/start");
        let request = request.body(axum::body::Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 401, "{method}");
    }
}

#[tokio::test]
async fn scopes_that_are_nearly_right_are_not_enough() {
    let key = SigningKey::rsa("key-1").unwrap();
    let router = router(configured(&key.public_pem(), Algorithm::Rs256));
    for scope in [
        json!(null),
        json!([]),
        json!(""),
        json!("abacus.sampler.read"),
        json!("abacus.sampler.writer"),
        json!("abacus.sampler"),
        json!("ABACUS.SAMPLER.WRITE"),
        json!("abacus.usage.sampler.write"),
        json!("abacus.usage.write"),
        json!("abacus.sampler..write"),
        json!(["openid abacus.sampler.write"]),
        json!(["abacus.sampler.write "]),
        json!("abacus.sampler.write.postgres"),
        json!("xabacus.sampler.write"),
        json!("openid\tabacus.sampler.write"),
    ] {
        let token = token(&key, &claims(|claims| claims["scope"] = scope.clone()));
        let answer = ask_with(&router, &token).await;
        assert_refused(&scope.to_string(), &answer, 403, INSUFFICIENT);
    }
}

#[tokio::test]
async fn a_flood_of_unknown_keys_makes_no_flood_of_fetches() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let pace = Pace {
        at_least: Duration::from_hours(1),
        at_most: Duration::from_hours(1),
        age_max: Duration::from_hours(24),
    };
    let router = router(fetched(&uaa, pace));
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
    let honest = ask_with(&router, &uaa.token(&[WRITE])).await;
    assert_eq!(honest.status, 201, "{honest:?}");
    let mut asking = Vec::new();
    for name in names {
        let header = json!({ "alg": "RS256", "kid": name });
        let forgery = with_header(&key, &header);
        let router = router.clone();
        asking.push(tokio::spawn(async move {
            (name, ask_with(&router, &forgery).await)
        }));
    }
    for asked in asking {
        let (name, answer) = asked.await.unwrap();
        // Whether there is such a key by now, nobody can say before the keys may be fetched again.
        assert_eq!(answer.status, 503, "{name:?}: {answer:?}");
        assert_eq!(answer.problem, "token-server-unavailable");
        assert!(!answer.body_was_read);
        assert!(
            name.is_empty() || !answer.text.contains(&name),
            "{name:?} is echoed"
        );
    }
    assert_eq!(uaa.asked(Offer::Keys), 1);
    let honest = ask_with(&router, &uaa.token(&[WRITE])).await;
    assert_eq!(honest.status, 409, "others are served: {honest:?}");
}
