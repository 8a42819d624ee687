//! Who signs in, by the ID token.

use sampler_service::oauth::code_flow::person;
use sampler_service::oauth::{Algorithm, Audiences, Keys, Policy, TokenError};
use sampler_testkit::uaa::SigningKey;
use serde_json::{Value, json};

use super::{now, policy, why, with};

/// The name in an ID token with other claims than a good one.
fn name(change: &Value) -> Result<String, TokenError> {
    let claims = json!({
        "iss": "https://issuer", "aud": "console", "nonce": "n", "sub": "42", "exp": now() + 60,
        "preferred_username": "alice",
    });
    let claims = with(claims, change);
    let key = SigningKey::shared(b"a secret");
    let header = json!({ "alg": "HS256", "typ": "JWT" }).to_string();
    let token = key.token("HS256", &header, &claims.to_string());
    let policy = Policy {
        issuer: Some("https://issuer".to_owned()),
        // That of access tokens, which does not count here.
        audiences: Some(Audiences::parse("abacus.sampler").unwrap()),
        ..policy(Algorithm::HS256)
    };
    let keys = Keys::configured("a secret", Algorithm::HS256).unwrap();
    person(&token, &keys, &policy, "console", "n")
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
        (json!({ "nonce": "m" }), why::NONCE),
        (json!({ "nonce": null }), why::NONCE),
        (json!({ "aud": "other" }), why::AUDIENCE),
        (json!({ "aud": "abacus.sampler" }), why::AUDIENCE),
        (json!({ "aud": null }), why::AUDIENCE),
        (json!({ "aud": ["console", "other"] }), why::AUDIENCE),
        (json!({ "azp": "other" }), why::AUDIENCE),
        (json!({ "iss": "https://other" }), why::ISSUER),
        (json!({ "exp": now() - 60 }), why::EXPIRED),
        (json!({ "exp": null }), why::NO_END),
    ] {
        assert_eq!(name(&change), Err(error), "{change}");
    }
}
