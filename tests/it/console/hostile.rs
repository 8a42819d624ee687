//! Cookies that come from elsewhere.

use sampler_testkit::Program;
use sampler_testkit::oidc::OidcProvider;
use serde_json::json;

use super::{CLIENT, SCOPE, SECRET, Visitor, secured, with_key};
use crate::landscape::{Landscape, until_ready};

/// All have the same key. Whoever signs in at one installation is nobody at another.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_of_one_installation_is_none_of_another_with_the_same_key() {
    let world = Landscape::new("console_installations").await;
    let provider = async || {
        let people = json!({});
        let provider = OidcProvider::for_people((CLIENT, SECRET, SCOPE), &people, 300);
        provider.await.unwrap()
    };
    let (own, staging) = (provider().await, provider().await);
    let launch = |provider| with_key(secured(world.receiver(), provider));
    let first = launch(&own).start().await.unwrap();
    let second = launch(&own).start().await.unwrap();
    for receiver in [&first, &second] {
        until_ready(&world.http, receiver).await;
    }
    let mut alice = Visitor::new();
    let page = format!("{}/console", first.base_url());
    let (_, status, text) = alice.sign_in(&page, "alice").await;
    assert_eq!(status, 200, "{text}");
    let shows = async |receiver: &Program| {
        let mut same = Visitor::new();
        same.cookies.clone_from(&alice.cookies);
        let page = format!("{}/console", receiver.base_url());
        same.send(&page, None).await.status().as_u16()
    };
    assert_eq!(shows(&second).await, 200, "another instance of the same");
    for (what, other) in [
        ("issuer", launch(&staging)),
        (
            "audience",
            launch(&own).env("SAMPLER_TOKEN_AUDIENCE", "urn:other"),
        ),
        (
            "client",
            launch(&own).env("SAMPLER_CONSOLE_CLIENT_ID", "other"),
        ),
    ] {
        let other = other.start().await.unwrap();
        assert_eq!(shows(&other).await, 303, "another {what}");
    }
}
