//! The decision, token by token, and the keys that it is made with.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sampler_domain::ClientId;
use sampler_service::oauth::keys::{is_shared, shared_key_len};
use sampler_service::oauth::verify::claimed_end;
use sampler_service::oauth::{
    ALGORITHMS, Algorithm, Audiences, Claims, KeyError, Keys, Policy, TokenError, verify,
};
use sampler_testkit::uaa::SigningKey;
use serde_json::{Value, json};

use super::{now, policy, why, with};

fn header(algorithm: &str) -> String {
    json!({ "alg": algorithm, "kid": "any" }).to_string()
}

/// What is said to a token of these claims, signed as it should be.
fn say(claims: &Value, policy: &Policy) -> Result<Claims, TokenError> {
    say_to(&header("HS256"), &claims.to_string(), policy)
}

fn say_to(header: &str, claims: &str, policy: &Policy) -> Result<Claims, TokenError> {
    let token = SigningKey::shared(b"a secret").token("HS256", header, claims);
    let keys = Keys::configured("a secret", Algorithm::HS256).unwrap();
    verify(&token, &keys, policy)
}

fn valid(more: &Value) -> Value {
    with(json!({ "exp": now() + 60 }), more)
}

#[test]
fn every_algorithm_is_believed_with_its_own_key_only() {
    let rsa = SigningKey::rsa("r").unwrap();
    let p256 = SigningKey::p256("p").unwrap();
    let shared = SigningKey::shared(b"a secret");
    for algorithm in ALGORITHMS {
        let name = &format!("{algorithm:?}");
        let (key, text) = match &name[..2] {
            "HS" => (&shared, "a secret".to_owned()),
            "RS" => (&rsa, rsa.public_pem()),
            _ => (&p256, p256.public_pem()),
        };
        let claims = valid(&json!({ "scope": "a b", "client_id": "c" })).to_string();
        let token = key.token(name, &header(name), &claims);
        for text in [text.clone(), text.replace('\n', "\\n")] {
            let keys = Keys::configured(&text, algorithm).unwrap();
            let claims = verify(&token, &keys, &policy(algorithm)).unwrap();
            assert_eq!(claims.client, ClientId::new("c"));
            assert!(claims.scopes.contains("a") && claims.scopes.contains("b"));
            for another in ALGORITHMS {
                if another != algorithm {
                    let said = verify(&token, &keys, &policy(another));
                    assert_eq!(said, Err(why::ALGORITHM), "{name} for {another:?}");
                }
            }
        }
        if is_shared(algorithm) {
            let other = Keys::configured("another secret", algorithm).unwrap();
            let said = verify(&token, &other, &policy(algorithm));
            assert_eq!(said, Err(why::SIGNATURE));
        } else {
            let set = json!({ "keys": [rsa.jwk(), p256.jwk(), shared.jwk(), "odd", {"kty": "?"}] });
            let keys = Keys::fetched(&set, algorithm).unwrap();
            assert_eq!(keys.count(), 1);
            let said = verify(&token, &keys, &policy(algorithm));
            assert_eq!(said, Err(TokenError::UnknownKey), "the name counts");
            let named = json!({ "alg": name, "kid": key.id() }).to_string();
            let token = key.token(name, &named, &claims);
            assert!(verify(&token, &keys, &policy(algorithm)).is_ok());
        }
    }
}

/// What is not a token, was tampered with, is signed otherwise than was agreed on, or brings a key along.
#[rustfmt::skip]
fn forgeries(key: &SigningKey) -> Vec<(&'static str, String, TokenError)> {
    use why::{ALGORITHM, MALFORMED, SIGNATURE, TOO_LONG, TYPE};
    let (other, own) = (SigningKey::rsa(key.id()).unwrap(), SigningKey::p256(key.id()).unwrap());
    let public = SigningKey::shared(key.public_pem().as_bytes());
    let trimmed = SigningKey::shared(key.public_pem().trim().as_bytes());
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let good = valid(&json!({})).to_string();
    let more = valid(&json!({ "client_id": "x" })).to_string();
    let huge = valid(&json!({ "pad": "x".repeat(20_000) })).to_string();
    let says = |algorithm: &str, more: Value| {
        let mut header = json!({ "alg": algorithm, "kid": key.id() });
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        header.to_string()
    };
    let plain = |algorithm| says(algorithm, json!({}));
    let token = key.token("RS256", &plain("RS256"), &good);
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (header, _) = message.split_once('.').unwrap();
    let jwk = says("RS256", json!({ "jwk": other.jwk() }));
    let nameless = json!({ "alg": "RS256", "jwk": other.jwk() }).to_string();
    let address = says("RS256", json!({ "jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/" }));
    let critical = says("RS256", json!({ "crit": ["b64"], "b64": false }));
    let logout = says("RS256", json!({ "typ": "logout+jwt" }));
    let twice = format!(r#"{{"alg":"none","alg":"RS256","kid":"{}"}}"#, key.id());
    let no_algorithm = json!({ "kid": key.id() }).to_string();
    vec![
        ("garbage", "garbage".to_owned(), MALFORMED),
        ("an empty token", String::new(), MALFORMED),
        ("only dots", "..".to_owned(), MALFORMED),
        ("a list for a header", format!("{}.{}.{signature}", encode("[]"), encode(&good)), MALFORMED),
        ("too many parts", format!("{token}.x"), MALFORMED),
        ("no signature", format!("{message}."), SIGNATURE),
        ("no base64", format!("{header}.%%%.{signature}"), SIGNATURE),
        ("other claims", format!("{header}.{}.{signature}", encode(&more)), SIGNATURE),
        ("a huge token", key.token("RS256", &plain("RS256"), &huge), TOO_LONG),
        ("another key of the same name", other.token("RS256", &plain("RS256"), &good), SIGNATURE),
        ("none", format!("{}.{}.", encode(&plain("none")), encode(&good)), MALFORMED),
        ("none, signed", key.token("RS256", &plain("none"), &good), MALFORMED),
        ("None", key.token("RS256", &plain("None"), &good), MALFORMED),
        ("HS256 with the public key", public.token("HS256", &plain("HS256"), &good), ALGORITHM),
        ("the same, trimmed", trimmed.token("HS256", &plain("HS256"), &good), ALGORITHM),
        ("HS256 that says RS256", public.token("HS256", &plain("RS256"), &good), SIGNATURE),
        ("another hash", key.token("RS512", &plain("RS512"), &good), ALGORITHM),
        ("another hash, hidden", key.token("RS512", &plain("RS256"), &good), SIGNATURE),
        ("another family", own.token("ES256", &plain("ES256"), &good), ALGORITHM),
        ("an embedded key", other.token("RS256", &jwk, &good), SIGNATURE),
        ("an embedded key without a name", other.token("RS256", &nameless, &good), SIGNATURE),
        ("an address of keys", other.token("RS256", &address, &good), SIGNATURE),
        ("a critical header", key.token("RS256", &critical, &good), MALFORMED),
        ("for a logout", key.token("RS256", &logout, &good), TYPE),
        ("the algorithm twice", key.token("RS256", &twice, &good), MALFORMED),
        ("no algorithm", key.token("RS256", &no_algorithm, &good), MALFORMED),
    ]
}

#[test]
fn forged_tokens_are_refused_whether_the_key_is_configured_or_fetched() {
    let key = SigningKey::rsa("key-1").unwrap();
    let configured = Keys::configured(&key.public_pem(), Algorithm::RS256).unwrap();
    let fetched = Keys::fetched(&json!({ "keys": [key.jwk()] }), Algorithm::RS256).unwrap();
    for keys in [configured, fetched] {
        for (what, token, error) in forgeries(&key) {
            let said = verify(&token, &keys, &policy(Algorithm::RS256));
            assert_eq!(said, Err(error), "{what}");
        }
    }
}

#[test]
fn claims_and_headers_count_though_the_signature_is_good() {
    use why::{EXPIRED, MALFORMED, NO_END, NOT_YET, SENDER_BOUND, TYPE};
    let with = |more: Value| valid(&more).to_string();
    let exp = |end: Value| json!({ "exp": end }).to_string();
    let end = now() + 60;
    for (claims, expected) in [
        (exp(json!(now() - 5)), Ok(())),
        (exp(json!(now() - 12)), Err(EXPIRED)),
        (exp(json!(now() as f64 + 0.5)), Ok(())),
        (exp(json!(1)), Err(EXPIRED)),
        (exp(json!(-1)), Err(NO_END)),
        (exp(json!(null)), Err(NO_END)),
        ("{}".to_owned(), Err(NO_END)),
        (exp(json!("4102444800")), Err(MALFORMED)),
        (format!(r#"{{"exp":1,"exp":{end}}}"#), Err(MALFORMED)),
        (
            format!(r#"{{"scope":[],"scope":["a"],"exp":{end}}}"#),
            Err(MALFORMED),
        ),
        (with(json!({ "nbf": now() + 5 })), Ok(())),
        (with(json!({ "nbf": now() + 15 })), Err(NOT_YET)),
        // The mark of a refresh token of UAA.
        (with(json!({ "jti": "0123-r" })), Err(TYPE)),
        // Bound to a certificate or a key of its sender: it is not a bearer token.
        (
            with(json!({ "cnf": { "x5t#S256": "bwcK0esc3ACC3DB2" } })),
            Err(SENDER_BOUND),
        ),
        (
            with(json!({ "cnf": { "jkt": "0ZcOCORZNYy-DWpqq30jZ" } })),
            Err(SENDER_BOUND),
        ),
        (with(json!({ "cnf": {} })), Err(SENDER_BOUND)),
        (with(json!({ "cnf": "odd" })), Err(SENDER_BOUND)),
        (with(json!({ "cnf": null })), Ok(())),
    ] {
        let said = say_to(&header("HS256"), &claims, &policy(Algorithm::HS256));
        assert_eq!(said.map(|_| ()), expected, "{claims}");
    }
    for (header, expected) in [
        (r#"{"alg":"HS256","typ":"at+JWT"}"#, Ok(())),
        (r#"{"alg":"HS256","typ":"logout+jwt"}"#, Err(TYPE)),
        (r#"{"alg":"HS256","crit":["exp"]}"#, Err(MALFORMED)),
        (r#"{"alg":"HS256","alg":"HS256"}"#, Err(MALFORMED)),
    ] {
        let said = say_to(header, &with(json!({})), &policy(Algorithm::HS256));
        assert_eq!(said.map(|_| ()), expected, "{header}");
    }
}

/// A UAA signs for all of its identity zones that have no keys of their own, and writes an audience for each
/// scope, without the last part of the scope.
#[test]
fn issuer_and_audience_count_where_they_are_known() {
    const UAA: &str = "https://uaa.example/oauth/token";
    const ZONE: &str = "https://tenant.uaa.example/oauth/token";
    let slash = format!("{ZONE}/");
    let keys = Keys::configured("a secret", Algorithm::HS256).unwrap();
    let (of_nobody, of_uaa) = (keys.clone(), keys.of_issuer(UAA));
    for (keys, configured, issuer, is_known) in [
        (&of_nobody, None, Some(UAA), true),
        (&of_nobody, Some("https://uaa/"), Some("https://uaa"), true),
        (&of_nobody, Some("https://uaa/"), Some(UAA), false),
        (&of_nobody, Some("https://uaa/"), None, false),
        // The issuer of the keys counts where none is configured.
        (&of_uaa, None, Some(UAA), true),
        (&of_uaa, None, Some(ZONE), false),
        (&of_uaa, Some(slash.as_str()), Some(ZONE), true),
        (&of_uaa, Some(slash.as_str()), Some(UAA), false),
    ] {
        let mut policy = policy(Algorithm::HS256);
        policy.issuer = configured.map(str::to_owned);
        let claims = valid(&json!({ "iss": issuer })).to_string();
        let token = SigningKey::shared(b"a secret").token("HS256", &header("HS256"), &claims);
        let said = verify(&token, keys, &policy).map(|_| ());
        assert_eq!(said.is_ok(), is_known, "{configured:?}, {issuer:?}");
    }
    let of_scopes = "abacus.sampler, abacus.sampler.*";
    for (audiences, audience, is_meant) in [
        ("sampler", json!("sampler"), true),
        ("sampler", json!(["x", "sampler"]), true),
        ("sampler", json!(null), false),
        ("sampler", json!("sampler2"), false),
        ("sampler", json!([]), false),
        ("a b,c", json!("b"), true),
        ("a b,c", json!("c"), true),
        (of_scopes, json!(["abacus.sampler", "broker"]), true),
        (
            of_scopes,
            json!(["broker", "abacus.sampler.postgres"]),
            true,
        ),
        (of_scopes, json!("abacus.sampler.my.resource"), true),
        (of_scopes, json!(["abacus.sampler.*x"]), true),
        (of_scopes, json!(["abacus"]), false),
        (of_scopes, json!(["abacus.sampler."]), false),
        (of_scopes, json!(["abacus.samplers"]), false),
        (of_scopes, json!(["x"]), false),
        (of_scopes, json!([""]), false),
        ("abacus.sampler.*", json!("abacus.sampler"), false),
    ] {
        let mut policy = policy(Algorithm::HS256);
        policy.audiences = Some(Audiences::parse(audiences).unwrap());
        let said = say(&valid(&json!({ "aud": audience })), &policy).map(|_| ());
        let expected = is_meant.then_some(()).ok_or(why::AUDIENCE);
        assert_eq!(said, expected, "{audiences}, {audience}");
    }
    for none in ["", " , ", "*", "a,*"] {
        assert!(Audiences::parse(none).is_none(), "{none:?}");
    }
}

#[test]
fn scopes_are_lists_or_texts_in_either_claim() {
    let scopes = |claims: Value| {
        let claims = say(&valid(&claims), &policy(Algorithm::HS256));
        claims.unwrap().scopes.into_iter().collect::<Vec<_>>()
    };
    for claim in ["scope", "scp"] {
        assert_eq!(scopes(json!({ claim: ["b", "a"] })), ["a", "b"]);
        assert_eq!(scopes(json!({ claim: "b  a" })), ["a", "b"]);
        assert_eq!(scopes(json!({ claim: ["a b"] })), ["a b"]);
        assert_eq!(scopes(json!({ claim: "b\ta" })), ["b\ta"]);
        for none in [json!(""), json!([]), json!(null)] {
            assert_eq!(scopes(json!({ claim: none })), [] as [&str; 0]);
        }
    }
    let both = json!({ "scope": "openid a", "scp": ["b"] });
    assert_eq!(scopes(both), ["a", "b", "openid"]);
}

/// Whoever has read a public key that is configured as a shared one could sign tokens.
#[test]
fn keys_that_could_not_tell_good_from_bad_are_refused() {
    use Algorithm::{HS256, HS384, HS512, RS256};
    let rsa = SigningKey::rsa("r").unwrap();
    let pem = rsa.public_pem();
    for public in [
        pem.as_str(),
        &format!("\n  {pem}"),
        &format!("\\n{}", pem.replace('\n', "\\n")),
        "-----BEGIN CERTIFICATE-----",
        "ssh-rsa AAAAB3NzaC1yc2E somebody@somewhere",
        " ssh-ed25519 AAAAC3NzaC1lZDI1",
        "",
        " \n",
    ] {
        for algorithm in [HS256, HS384, HS512] {
            let said = Keys::configured(public, algorithm).err();
            assert_eq!(said, Some(KeyError::Family), "{public:?}");
        }
    }
    for (text, algorithm, error) in [
        ("a secret", RS256, KeyError::Family),
        (rsa.private_pem().as_str(), RS256, KeyError::Unreadable),
        ("-----BEGIN nothing", RS256, KeyError::Unreadable),
    ] {
        assert_eq!(Keys::configured(text, algorithm).err(), Some(error));
    }
    // Any other text is a shared key, and should be as long as the hash.
    for shared in [
        "encode",
        "a passphrase of words, with spaces: 'quotes' and \"more\"",
        "tokenkey-with-BEGINNING",
        "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow",
        "100% {braces} [brackets]",
    ] {
        assert!(Keys::configured(shared, HS256).is_ok(), "{shared}");
    }
    for (algorithm, length) in [(HS256, 32), (HS384, 48), (HS512, 64)] {
        assert_eq!(shared_key_len(algorithm), length);
    }
    assert_eq!(shared_key_len(RS256), 0);
}

#[test]
fn lists_of_keys_are_read_with_care() {
    let rsa = SigningKey::rsa("r").unwrap();
    let with = |name: &str, value: Value| {
        let mut jwk = rsa.jwk();
        jwk[name] = value;
        Keys::fetched(&json!({ "keys": [jwk] }), Algorithm::RS256).map(|keys| keys.count())
    };
    for (name, value, count) in [
        ("alg", json!("RS256"), 1),
        ("alg", json!("RS512"), 0),
        ("use", json!("enc"), 0),
        ("key_ops", json!(["encrypt"]), 0),
        ("n", json!("not base64!"), 0),
        ("kty", json!("oct"), 0),
    ] {
        assert_eq!(with(name, value.clone()), Some(count), "{name} {value}");
    }
    let shared = json!([SigningKey::shared(b"x").jwk()]);
    for (document, algorithm, expected) in [
        (json!({}), Algorithm::RS256, None),
        (json!({ "keys": "none" }), Algorithm::RS256, None),
        (json!({ "keys": [] }), Algorithm::RS256, Some(0)),
        (json!({ "keys": shared }), Algorithm::HS256, Some(0)),
    ] {
        let count = Keys::fetched(&document, algorithm).map(|keys| keys.count());
        assert_eq!(count, expected, "{document}");
    }
}

#[test]
fn a_token_without_a_key_name_is_believed_where_there_is_no_choice() {
    let (one, two) = (SigningKey::rsa("1").unwrap(), SigningKey::rsa("2").unwrap());
    let claims = valid(&json!({})).to_string();
    let token = one.token("RS256", r#"{"alg":"RS256"}"#, &claims);
    for (keys, expected) in [
        (json!([one.jwk()]), Ok(())),
        (json!([one.jwk(), two.jwk()]), Err(TokenError::UnknownKey)),
        (json!([two.jwk()]), Err(why::SIGNATURE)),
    ] {
        let keys = Keys::fetched(&json!({ "keys": keys }), Algorithm::RS256).unwrap();
        let said = verify(&token, &keys, &policy(Algorithm::RS256));
        assert_eq!(said.map(|_| ()), expected);
    }
}

#[test]
fn what_a_token_says_of_its_end_is_read() {
    let key = SigningKey::shared(b"anything");
    let of = |claims: &str| claimed_end(&key.token("HS256", &header("HS256"), claims));
    assert_eq!(of(r#"{"exp":12.5}"#), Some(12.5));
    for odd in ["{}", r#"{"exp":"12"}"#, r#"{"exp":1,"exp":2}"#, ""] {
        assert_eq!(of(odd), None, "{odd}");
    }
    assert_eq!(claimed_end("no token"), None);
}
