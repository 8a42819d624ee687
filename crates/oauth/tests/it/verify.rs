//! The decision, token by token.

use std::time::Duration;

use sampler_domain::{ClientId, Timestamp};
use sampler_oauth::verify::claimed_issue;
use sampler_oauth::{Algorithm, Audiences, Claims, KeyError, Keys, Policy, TokenError, verify};
use sampler_testkit::uaa::SigningKey;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::clamped(1_773_144_000_000);
const NOW_S: i64 = 1_773_144_000;

fn policy(algorithm: Algorithm) -> Policy {
    Policy {
        algorithm,
        issuer: None,
        audiences: None,
        lifetime_max: Duration::from_hours(24),
        leeway: Duration::from_secs(5),
    }
}

fn header(algorithm: &str) -> String {
    json!({ "alg": algorithm, "kid": "any" }).to_string()
}

/// What is said to a token of these claims, signed as it should be.
fn say(claims: &Value, policy: &Policy) -> Result<Claims, TokenError> {
    let key = SigningKey::shared(b"a secret");
    let keys = Keys::configured("a secret", Algorithm::Hs256).unwrap();
    let token = key.token("HS256", &header("HS256"), &claims.to_string());
    verify(&token, &keys, NOW, policy)
}

fn valid(more: &Value) -> Value {
    let mut claims = json!({ "exp": NOW_S + 60 });
    for (name, value) in more.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

#[test]
fn every_algorithm_is_believed_with_its_own_key_only() {
    let (rsa, p256) = (
        SigningKey::rsa("r").unwrap(),
        SigningKey::p256("p").unwrap(),
    );
    let shared = SigningKey::shared(b"a secret");
    for (name, algorithm) in Algorithm::ALL {
        let (key, text) = match &name[..2] {
            "HS" => (&shared, "a secret".to_owned()),
            "RS" => (&rsa, rsa.public_pem()),
            _ => (&p256, p256.public_pem()),
        };
        let claims = valid(&json!({ "scope": "a b", "client_id": "c" })).to_string();
        let token = key.token(name, &header(name), &claims);
        for text in [text.clone(), text.replace('\n', "\\n")] {
            let keys = Keys::configured(&text, algorithm).unwrap();
            let claims = verify(&token, &keys, NOW, &policy(algorithm)).unwrap();
            assert_eq!(claims.client, ClientId::new("c"));
            assert!(claims.scopes.contains("a") && claims.scopes.contains("b"));
            for (other, another) in Algorithm::ALL {
                if other != name {
                    let said = verify(&token, &keys, NOW, &policy(another));
                    assert_eq!(said, Err(TokenError::Algorithm), "{name} for {other}");
                }
            }
        }
        if algorithm.is_shared() {
            let other = Keys::configured("another secret", algorithm).unwrap();
            assert_eq!(
                verify(&token, &other, NOW, &policy(algorithm)),
                Err(TokenError::Signature)
            );
        } else {
            let set = json!({ "keys": [rsa.jwk(), p256.jwk(), shared.jwk(), "odd", {"kty": "?"}] });
            let keys = Keys::fetched(&set, algorithm).unwrap();
            assert_eq!(keys.count(), 1);
            let said = verify(&token, &keys, NOW, &policy(algorithm));
            assert_eq!(said, Err(TokenError::UnknownKey), "the name counts");
            let named = json!({ "alg": name, "kid": key.id() }).to_string();
            let token = key.token(name, &named, &claims);
            assert!(verify(&token, &keys, NOW, &policy(algorithm)).is_ok());
        }
    }
}

#[test]
fn keys_that_could_not_tell_good_from_bad_are_refused() {
    let (rsa, p256) = (
        SigningKey::rsa("r").unwrap(),
        SigningKey::p256("p").unwrap(),
    );
    let refused = |text: &str, algorithm| Keys::configured(text, algorithm).unwrap_err();
    for algorithm in [Algorithm::Hs256, Algorithm::Hs384, Algorithm::Hs512] {
        assert_eq!(refused(&rsa.public_pem(), algorithm), KeyError::Family);
        assert_eq!(refused("", algorithm), KeyError::Family);
    }
    assert_eq!(refused("a secret", Algorithm::Rs256), KeyError::Family);
    assert_eq!(
        refused(&p256.public_pem(), Algorithm::Rs256),
        KeyError::Unreadable
    );
    assert_eq!(
        refused(&rsa.public_pem(), Algorithm::Es256),
        KeyError::Unreadable
    );
    assert_eq!(
        refused(&rsa.private_pem(), Algorithm::Rs256),
        KeyError::Unreadable
    );
    assert_eq!(
        refused("-----BEGIN nothing", Algorithm::Rs256),
        KeyError::Unreadable
    );
}

#[test]
fn lists_of_keys_are_read_with_care() {
    let rsa = SigningKey::rsa("r").unwrap();
    let with = |name: &str, value: Value| {
        let mut jwk = rsa.jwk();
        jwk[name] = value;
        Keys::fetched(&json!({ "keys": [jwk] }), Algorithm::Rs256).map(|keys| keys.count())
    };
    assert_eq!(with("alg", json!("RS256")), Ok(1));
    for (name, value) in [
        ("alg", json!("RS512")),
        ("use", json!("enc")),
        ("key_ops", json!(["encrypt"])),
        ("n", json!("AQAB")),
        ("n", json!("not base64!")),
        ("kty", json!("oct")),
    ] {
        assert_eq!(with(name, value.clone()), Ok(0), "{name} {value}");
    }
    let none = |document| Keys::fetched(&document, Algorithm::Rs256).unwrap_err();
    assert_eq!(none(json!({})), KeyError::NoList);
    assert_eq!(none(json!({ "keys": "none" })), KeyError::NoList);
    let count = |list, algorithm| {
        let keys = Keys::fetched(&json!({ "keys": list }), algorithm);
        keys.unwrap().count()
    };
    assert_eq!(count(json!([]), Algorithm::Rs256), 0);
    let shared = json!([SigningKey::shared(b"x").jwk()]);
    assert_eq!(count(shared, Algorithm::Hs256), 0);
}

#[test]
fn a_token_without_a_key_name_is_believed_where_there_is_no_choice() {
    let (one, two) = (SigningKey::rsa("1").unwrap(), SigningKey::rsa("2").unwrap());
    let token = one.token(
        "RS256",
        r#"{"alg":"RS256"}"#,
        &valid(&json!({})).to_string(),
    );
    let say = |keys: Value| {
        let keys = Keys::fetched(&json!({ "keys": keys }), Algorithm::Rs256).unwrap();
        verify(&token, &keys, NOW, &policy(Algorithm::Rs256)).map(|_| ())
    };
    assert_eq!(say(json!([one.jwk()])), Ok(()));
    assert_eq!(
        say(json!([one.jwk(), two.jwk()])),
        Err(TokenError::UnknownKey)
    );
    assert_eq!(say(json!([two.jwk()])), Err(TokenError::Signature));
}

#[test]
fn time_counts_with_a_bounded_leeway() {
    let policy = policy(Algorithm::Hs256);
    let at = |claims: Value| say(&claims, &policy).map(|_| ());
    assert_eq!(at(json!({ "exp": NOW_S - 4 })), Ok(()));
    assert_eq!(at(json!({ "exp": NOW_S - 5 })), Err(TokenError::Expired));
    assert_eq!(at(json!({ "exp": f64::from(1_773_143_995) + 0.5 })), Ok(()));
    assert_eq!(at(json!({ "exp": NOW_S + 86_405 })), Ok(()));
    assert_eq!(
        at(json!({ "exp": NOW_S + 86_406 })),
        Err(TokenError::EndTooFar)
    );
    assert_eq!(at(json!({ "exp": 1e300 })), Err(TokenError::EndTooFar));
    assert_eq!(at(json!({ "exp": -1 })), Err(TokenError::Expired));
    assert_eq!(at(json!({})), Err(TokenError::NoEnd));
    assert_eq!(at(json!({ "exp": null })), Err(TokenError::NoEnd));
    assert_eq!(
        at(json!({ "exp": "1773144060" })),
        Err(TokenError::Malformed)
    );
    assert_eq!(at(valid(&json!({ "nbf": NOW_S + 5 }))), Ok(()));
    assert_eq!(
        at(valid(&json!({ "nbf": NOW_S + 6 }))),
        Err(TokenError::NotYet)
    );
    let generous = Policy {
        leeway: Duration::from_hours(1),
        ..policy.clone()
    };
    assert!(say(&json!({ "exp": NOW_S - 59 }), &generous).is_ok());
    assert_eq!(
        say(&json!({ "exp": NOW_S - 60 }), &generous),
        Err(TokenError::Expired)
    );
}

#[test]
fn issuer_and_audience_count_where_they_are_known() {
    let mut policy = policy(Algorithm::Hs256);
    policy.issuer = Some("https://uaa/".to_owned());
    let said = |policy: &Policy, claims: Value| say(&valid(&claims), policy).map(|_| ());
    assert_eq!(said(&policy, json!({ "iss": "https://uaa" })), Ok(()));
    assert_eq!(
        said(&policy, json!({ "iss": "https://other" })),
        Err(TokenError::Issuer)
    );
    assert_eq!(said(&policy, json!({})), Err(TokenError::Issuer));
    policy.issuer = None;
    policy.audiences = Some(Audiences::parse("sampler").unwrap());
    assert_eq!(said(&policy, json!({ "aud": "sampler" })), Ok(()));
    assert_eq!(said(&policy, json!({ "aud": ["x", "sampler"] })), Ok(()));
    for aud in [
        json!({}),
        json!({ "aud": "sampler2" }),
        json!({ "aud": [] }),
    ] {
        assert_eq!(said(&policy, aud), Err(TokenError::Audience));
    }
}

#[test]
fn scopes_are_a_list_or_a_text() {
    let policy = policy(Algorithm::Hs256);
    let scopes = |scope: Value| {
        let claims = say(&valid(&json!({ "scope": scope })), &policy).unwrap();
        claims.scopes.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(scopes(json!(["b", "a"])), ["a", "b"]);
    assert_eq!(scopes(json!("b  a")), ["a", "b"]);
    assert_eq!(scopes(json!(["a b"])), ["a b"]);
    assert_eq!(scopes(json!("")), [] as [&str; 0]);
    let odd = say(&valid(&json!({ "scope": { "a": 1 } })), &policy);
    assert_eq!(odd, Err(TokenError::Malformed));
}

#[test]
fn tokens_for_other_purposes_are_none() {
    let policy = policy(Algorithm::Hs256);
    let refresh = say(&valid(&json!({ "jti": "0123-r" })), &policy);
    assert_eq!(refresh, Err(TokenError::Type));
    let key = SigningKey::shared(b"a secret");
    let keys = Keys::configured("a secret", Algorithm::Hs256).unwrap();
    let claims = valid(&json!({})).to_string();
    for (header, expected) in [
        (r#"{"alg":"HS256","typ":"at+JWT"}"#, Ok(())),
        (
            r#"{"alg":"HS256","typ":"logout+jwt"}"#,
            Err(TokenError::Type),
        ),
        (
            r#"{"alg":"HS256","crit":["exp"]}"#,
            Err(TokenError::Malformed),
        ),
        (
            r#"{"alg":"HS256","alg":"HS256"}"#,
            Err(TokenError::Malformed),
        ),
        (r#"["HS256"]"#, Err(TokenError::Malformed)),
    ] {
        let said = verify(&key.token("HS256", header, &claims), &keys, NOW, &policy);
        assert_eq!(said.map(|_| ()), expected, "{header}");
    }
}

/// UAA writes an audience for each scope, without the last part of the scope.
#[test]
fn audiences_are_a_list_and_may_end_in_a_star() {
    let mut policy = policy(Algorithm::Hs256);
    let mut said = |audiences: &str, aud: Value| {
        policy.audiences = Some(Audiences::parse(audiences).unwrap());
        let said = say(&valid(&json!({ "aud": aud })), &policy);
        assert!(
            matches!(said, Ok(_) | Err(TokenError::Audience)),
            "{said:?}"
        );
        said.is_ok()
    };
    let of_uaa = "abacus.sampler, abacus.sampler.*";
    assert!(said(of_uaa, json!(["abacus.sampler", "broker"])));
    assert!(said(of_uaa, json!(["broker", "abacus.sampler.postgres"])));
    assert!(said(of_uaa, json!("abacus.sampler.my.resource")));
    assert!(said("a b,c", json!("b")) && said("a b,c", json!("c")));
    for other in [
        "abacus",
        "abacus.sampler.",
        "abacus.samplers",
        "abacus.sampler.*x",
        "x",
        "",
    ] {
        let exact = other == "abacus.sampler.*x";
        assert_eq!(said(of_uaa, json!([other])), exact, "{other}");
    }
    assert!(!said("abacus.sampler.*", json!("abacus.sampler")));
    for none in ["", " , ", "*", "a,*"] {
        assert!(Audiences::parse(none).is_err(), "{none:?}");
    }
}

#[test]
fn a_token_that_is_bound_to_its_sender_is_no_bearer_token() {
    let policy = policy(Algorithm::Hs256);
    let bound = |cnf: Value| say(&valid(&json!({ "cnf": cnf })), &policy).map(|_| ());
    for cnf in [
        json!({ "x5t#S256": "bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2" }),
        json!({ "jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" }),
        json!({}),
        json!("odd"),
    ] {
        assert_eq!(bound(cnf), Err(TokenError::SenderBound));
    }
    assert_eq!(bound(json!(null)), Ok(()));
}

/// A UAA signs for all of its identity zones that have no keys of their own.
#[test]
fn the_issuer_of_the_keys_counts_where_none_is_configured() {
    let key = SigningKey::shared(b"a secret");
    let keys = Keys::configured("a secret", Algorithm::Hs256).unwrap();
    let keys = keys.of_issuer("https://uaa.example/oauth/token");
    let of_zone = |zone: &str, configured: Option<&str>| {
        let claims = valid(&json!({ "iss": format!("https://{zone}uaa.example/oauth/token") }));
        let policy = Policy {
            issuer: configured.map(str::to_owned),
            ..policy(Algorithm::Hs256)
        };
        let token = key.token("HS256", &header("HS256"), &claims.to_string());
        verify(&token, &keys, NOW, &policy).map(|_| ())
    };
    assert_eq!(of_zone("", None), Ok(()));
    assert_eq!(of_zone("tenant.", None), Err(TokenError::Issuer));
    let configured = Some("https://tenant.uaa.example/oauth/token/");
    assert_eq!(of_zone("tenant.", configured), Ok(()));
    assert_eq!(of_zone("", configured), Err(TokenError::Issuer));
}

#[test]
fn what_a_token_says_of_its_issue_is_read_without_its_signature() {
    let key = SigningKey::shared(b"anything");
    let of = |claims: &str| claimed_issue(&key.token("HS256", &header("HS256"), claims));
    assert_eq!(of(r#"{"iat":12.5}"#), Some(12.5));
    for odd in ["{}", r#"{"iat":"12"}"#, r#"{"iat":1,"iat":2}"#, "[12]", ""] {
        assert_eq!(of(odd), None, "{odd}");
    }
    assert_eq!(claimed_issue("no token"), None);
}
