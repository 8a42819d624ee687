//! Who signs in, by the ID token.

use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_oauth::code_flow::person;
use sampler_oauth::{Algorithm, Audiences, Keys, Policy, TokenError};
use sampler_testkit::uaa::SigningKey;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::clamped(1_773_144_000_000);
const NOW_S: i64 = 1_773_144_000;

/// The name in an ID token with other claims than a good one.
fn name(change: &Value) -> Result<String, TokenError> {
    let mut claims = json!({
        "iss": "https://issuer", "aud": "console", "nonce": "n", "sub": "42", "exp": NOW_S + 60,
        "preferred_username": "alice",
    });
    for (name, value) in change.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let key = SigningKey::shared(b"a secret");
    let header = json!({ "alg": "HS256", "typ": "JWT" }).to_string();
    let token = key.token("HS256", &header, &claims.to_string());
    let policy = Policy {
        algorithm: Algorithm::Hs256,
        issuer: Some("https://issuer".to_owned()),
        // That of access tokens, which does not count here.
        audiences: Some(Audiences::parse("abacus.sampler").unwrap()),
        lifetime_max: Duration::from_hours(24),
        leeway: Duration::from_secs(5),
    };
    let keys = Keys::configured("a secret", Algorithm::Hs256).unwrap();
    person(&token, &keys, NOW, &policy, "console", "n")
}

#[test]
fn a_person_is_called_as_the_issuer_says() {
    assert_eq!(name(&json!({})).as_deref(), Ok("alice"));
    assert_eq!(name(&json!({ "user_name": "al" })).as_deref(), Ok("al"));
    let subject = json!({ "preferred_username": null });
    assert_eq!(name(&subject).as_deref(), Ok("42"));
    let several = json!({ "aud": ["console", "other"], "azp": "console" });
    assert_eq!(name(&several).as_deref(), Ok("alice"));
}

#[test]
fn an_id_token_of_another_attempt_client_issuer_or_time_is_refused() {
    for (change, error) in [
        (json!({ "nonce": "m" }), TokenError::Nonce),
        (json!({ "nonce": null }), TokenError::Nonce),
        (json!({ "aud": "other" }), TokenError::Audience),
        (json!({ "aud": "abacus.sampler" }), TokenError::Audience),
        (json!({ "aud": null }), TokenError::Audience),
        (json!({ "aud": ["console", "other"] }), TokenError::Audience),
        (json!({ "azp": "other" }), TokenError::Audience),
        (json!({ "iss": "https://other" }), TokenError::Issuer),
        (json!({ "exp": NOW_S - 60 }), TokenError::Expired),
        (json!({ "exp": null }), TokenError::NoEnd),
    ] {
        assert_eq!(name(&change), Err(error), "{change}");
    }
}
