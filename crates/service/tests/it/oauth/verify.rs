//! The decision, token by token, and the keys that it is made with.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sampler_domain::{ClientId, Timestamp};
use sampler_service::oauth::verify::shared_key_len;
use sampler_service::oauth::{
    ALGORITHMS, Algorithm, Audiences, Claims, KeyError, Keys, Policy, TokenError,
};
use sampler_testkit::uaa::SigningKey;
use serde_json::{Value, json};

use super::{now, policy, why};

fn header(algorithm: &str) -> String {
    json!({ "alg": algorithm, "kid": "any" }).to_string()
}

fn configured(text: &str, policy: &Policy) -> Keys {
    Keys::configured(text, policy).unwrap()
}

fn fetched(keys: &Value, algorithm: Algorithm) -> Option<Keys> {
    Keys::fetched(&json!({ "keys": keys }), &policy(algorithm))
}

/// A token that is signed with "a secret".
fn signed(header: &str, claims: &str) -> String {
    SigningKey::shared(b"a secret").token("HS256", header, claims)
}

/// What is said to a token of these claims, signed as it should be.
fn say(claims: &Value, policy: &Policy) -> Result<Claims, TokenError> {
    let token = signed(&header("HS256"), &claims.to_string());
    configured("a secret", policy).verify(&token)
}

/// Claims of a token that has not expired.
fn valid(more: &Value) -> Value {
    let mut claims = json!({ "exp": now() + 60 });
    let more = more.as_object().unwrap().clone();
    claims.as_object_mut().unwrap().extend(more);
    claims
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
        let end = now() + 60;
        let claims = json!({ "scope": "a b", "client_id": "c", "exp": end }).to_string();
        let token = key.token(name, &header(name), &claims);
        for text in [text.clone(), text.replace('\n', "\\n")] {
            let claims = configured(&text, &policy(algorithm))
                .verify(&token)
                .unwrap();
            assert_eq!(claims.client, ClientId::new("c"));
            assert_eq!(claims.scopes, ["a", "b"]);
            assert_eq!(claims.until, Timestamp::clamped(end * 1000));
        }
        for another in ALGORITHMS.into_iter().filter(|it| *it != algorithm) {
            if let Ok(keys) = Keys::configured(&text, &policy(another)) {
                let said = keys.verify(&token);
                assert_eq!(said, Err(why::ALGORITHM), "{name} for {another:?}");
            }
        }
        if shared_key_len(algorithm) > 0 {
            let said = configured("another secret", &policy(algorithm)).verify(&token);
            assert_eq!(said, Err(why::SIGNATURE));
        } else {
            let set = json!([rsa.jwk(), p256.jwk(), shared.jwk(), "odd", { "kty": "?" }]);
            let keys = fetched(&set, algorithm).unwrap();
            assert_eq!(keys.count(), 1);
            let said = keys.verify(&token);
            assert_eq!(said, Err(TokenError::UnknownKey), "the name counts");
            let named = json!({ "alg": name, "kid": key.id() }).to_string();
            assert!(keys.verify(&key.token(name, &named, &claims)).is_ok());
        }
    }
}

/// What is not a token, was tampered with, is signed otherwise than was agreed on, or brings a key along.
#[rustfmt::skip]
fn forgeries(key: &SigningKey) -> Vec<(&'static str, String, TokenError)> {
    use why::{ALGORITHM, MALFORMED, SIGNATURE, TYPE};
    let (other, own) = (SigningKey::rsa(key.id()).unwrap(), SigningKey::p256(key.id()).unwrap());
    let public = SigningKey::shared(key.public_pem().as_bytes());
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let good = valid(&json!({})).to_string();
    let more = valid(&json!({ "client_id": "x" })).to_string();
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
        ("a list for a header", format!("{}.{}.{signature}", encode("[]"), encode(&good)), MALFORMED),
        ("too many parts", format!("{token}.x"), MALFORMED),
        ("no signature", format!("{message}."), SIGNATURE),
        ("no base64", format!("{header}.%%%.{signature}"), SIGNATURE),
        ("other claims", format!("{header}.{}.{signature}", encode(&more)), SIGNATURE),
        ("another key of the same name", other.token("RS256", &plain("RS256"), &good), SIGNATURE),
        ("none", format!("{}.{}.", encode(&plain("none")), encode(&good)), MALFORMED),
        ("none, signed", key.token("RS256", &plain("none"), &good), MALFORMED),
        ("HS256 with the public key", public.token("HS256", &plain("HS256"), &good), ALGORITHM),
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
    let configured = configured(&key.public_pem(), &policy(Algorithm::RS256));
    let fetched = fetched(&json!([key.jwk()]), Algorithm::RS256).unwrap();
    for keys in [configured, fetched] {
        for (what, token, error) in forgeries(&key) {
            assert_eq!(keys.verify(&token), Err(error), "{what}");
        }
    }
}

#[test]
fn claims_count_though_the_signature_is_good() {
    use why::{EXPIRED, MALFORMED, NO_END, NOT_YET, SENDER_BOUND, TYPE};
    let with = |more: Value| valid(&more).to_string();
    let exp = |end: Value| json!({ "exp": end }).to_string();
    let end = now() + 60;
    let bound = |how: Value| with(json!({ "cnf": how }));
    let scope_twice = format!(r#"{{"scope":[],"scope":["a"],"exp":{end}}}"#);
    let keys = configured("a secret", &policy(Algorithm::HS256));
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
        (scope_twice, Err(MALFORMED)),
        (with(json!({ "nbf": now() + 5 })), Ok(())),
        (with(json!({ "nbf": now() + 15 })), Err(NOT_YET)),
        // The mark of a refresh token of UAA.
        (with(json!({ "jti": "0123-r" })), Err(TYPE)),
        // Bound to a certificate or a key of its sender: it is not a bearer token.
        (bound(json!({ "x5t#S256": "bwcK0esc" })), Err(SENDER_BOUND)),
        (bound(json!({ "jkt": "0ZcOCORZNYy" })), Err(SENDER_BOUND)),
        (bound(json!({})), Err(SENDER_BOUND)),
        (bound(json!(null)), Ok(())),
    ] {
        let said = keys.verify(&signed(&header("HS256"), &claims));
        assert_eq!(said.map(drop), expected, "{claims}");
    }
    let of_rfc_9068 = signed(r#"{"alg":"HS256","typ":"at+JWT"}"#, &with(json!({})));
    assert!(keys.verify(&of_rfc_9068).is_ok());
}

/// A UAA signs for all of its identity zones that have no keys of their own, and writes an audience for each
/// scope, without the last part of the scope.
#[test]
fn issuer_and_audience_count_where_they_are_known() {
    for (configured, issuer, is_known) in [
        (None, Some("https://uaa"), true),
        (Some("https://uaa/"), Some("https://uaa"), true),
        (Some("https://uaa"), Some("https://uaa/"), true),
        (Some("https://uaa/"), Some("https://tenant.uaa"), false),
        (Some("https://uaa/"), None, false),
    ] {
        let mut policy = policy(Algorithm::HS256);
        policy.issuer = configured.map(str::to_owned);
        let said = say(&valid(&json!({ "iss": issuer })), &policy);
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
        (of_scopes, json!(["x", "abacus.sampler.postgres"]), true),
        (of_scopes, json!("abacus.sampler.my.resource"), true),
        (of_scopes, json!(["abacus.sampler.*x"]), true),
        (of_scopes, json!(["abacus"]), false),
        (of_scopes, json!(["abacus.sampler."]), false),
        (of_scopes, json!(["abacus.samplers"]), false),
        ("abacus.sampler.*", json!("abacus.sampler"), false),
    ] {
        let mut policy = policy(Algorithm::HS256);
        policy.audiences = Some(Audiences::parse(audiences).unwrap());
        let said = say(&valid(&json!({ "aud": audience })), &policy).map(drop);
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
        claims.unwrap().scopes
    };
    for claim in ["scope", "scp"] {
        assert_eq!(scopes(json!({ claim: ["b", "a"] })), ["b", "a"]);
        assert_eq!(scopes(json!({ claim: "b  a" })), ["b", "a"]);
        assert_eq!(scopes(json!({ claim: ["a b"] })), ["a b"]);
        assert_eq!(scopes(json!({ claim: "b\ta" })), ["b\ta"]);
        for none in [json!(""), json!([]), json!(null)] {
            assert_eq!(scopes(json!({ claim: none })), [] as [&str; 0]);
        }
    }
    let both = json!({ "scope": "openid a", "scp": ["b"] });
    assert_eq!(scopes(both), ["openid", "a", "b"]);
}

/// Whoever has read a public key that is configured as a shared one could sign tokens.
#[test]
fn keys_that_could_not_tell_good_from_bad_are_refused() {
    use Algorithm::{ES256, HS256, HS384, HS512, RS256};
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
            let said = Keys::configured(public, &policy(algorithm)).err();
            assert_eq!(said, Some(KeyError), "{public:?}");
        }
    }
    for (text, algorithm) in [
        ("a secret", RS256),
        (rsa.private_pem().as_str(), RS256),
        ("-----BEGIN nothing", RS256),
        (pem.as_str(), ES256),
    ] {
        let said = Keys::configured(text, &policy(algorithm)).err();
        assert_eq!(said, Some(KeyError), "{text}");
    }
    // Any other text is a shared key, and should be as long as the hash.
    for shared in [
        "encode",
        "a passphrase of words, with spaces: 'quotes' and \"more\"",
        "100% {braces} [brackets]",
    ] {
        assert!(Keys::configured(shared, &policy(HS256)).is_ok(), "{shared}");
    }
    for (algorithm, length) in [(HS256, 32), (HS384, 48), (HS512, 64), (RS256, 0)] {
        assert_eq!(shared_key_len(algorithm), length);
    }
}

#[test]
fn lists_of_keys_are_read_with_care() {
    let rsa = SigningKey::rsa("r").unwrap();
    for (name, value, count) in [
        ("alg", json!("RS256"), 1),
        ("alg", json!("RS512"), 0),
        ("use", json!("enc"), 0),
        ("key_ops", json!(["encrypt"]), 0),
        ("n", json!("not base64!"), 0),
        ("kty", json!("oct"), 0),
    ] {
        let mut jwk = rsa.jwk();
        jwk[name] = value.clone();
        let keys = fetched(&json!([jwk]), Algorithm::RS256).unwrap();
        assert_eq!(keys.count(), count, "{name} {value}");
    }
    let shared = json!([SigningKey::shared(b"x").jwk()]);
    for (keys, algorithm, expected) in [
        (json!(null), Algorithm::RS256, None),
        (json!("none"), Algorithm::RS256, None),
        (json!([]), Algorithm::RS256, Some(0)),
        (shared, Algorithm::HS256, Some(0)),
    ] {
        let count = fetched(&keys, algorithm).map(|keys| keys.count());
        assert_eq!(count, expected, "{keys}");
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
        let said = fetched(&keys, Algorithm::RS256).unwrap().verify(&token);
        assert_eq!(said.map(drop), expected);
    }
}

#[test]
fn an_id_token_names_a_person_to_its_client_and_attempt_alone() {
    let named = |name: &str| Ok(ClientId::new(name).unwrap());
    let policy = Policy {
        issuer: Some("https://issuer".to_owned()),
        // That of access tokens, which does not count here.
        audiences: Some(Audiences::parse("abacus.sampler").unwrap()),
        ..policy(Algorithm::HS256)
    };
    let keys = configured("a secret", &policy);
    let several = ["console", "other"];
    for (change, expected) in [
        (json!({}), named("alice")),
        (json!({ "user_name": "al" }), named("al")),
        (json!({ "preferred_username": null }), named("42")),
        (json!({ "aud": several, "azp": "console" }), named("alice")),
        (json!({ "aud": several }), Err(why::AUDIENCE)),
        (json!({ "azp": "other" }), Err(why::AUDIENCE)),
        (json!({ "aud": "other" }), Err(why::AUDIENCE)),
        (json!({ "aud": "abacus.sampler" }), Err(why::AUDIENCE)),
        (json!({ "aud": null }), Err(why::AUDIENCE)),
        (json!({ "nonce": "m" }), Err(why::NONCE)),
        (json!({ "nonce": null }), Err(why::NONCE)),
        (json!({ "iss": "https://other" }), Err(why::ISSUER)),
        (json!({ "exp": now() - 60 }), Err(why::EXPIRED)),
        (json!({ "exp": null }), Err(why::NO_END)),
    ] {
        let mut claims = valid(&json!({
            "iss": "https://issuer", "aud": "console", "nonce": "n", "sub": "42",
            "preferred_username": "alice",
        }));
        let more = change.as_object().unwrap().clone();
        claims.as_object_mut().unwrap().extend(more);
        let token = signed(&header("HS256"), &claims.to_string());
        let said = keys.person(&token, "console", "n");
        assert_eq!(said, expected, "{change}");
    }
}
