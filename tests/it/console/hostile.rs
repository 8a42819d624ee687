//! Forms and cookies that come from elsewhere.

use reqwest::header::{COOKIE, HOST, ORIGIN, SET_COOKIE};
use sampler_testkit::Program;
use sampler_testkit::oidc::OidcProvider;
use serde_json::json;

use super::{CLIENT, SCOPE, SECRET, Visitor, secured, with_key};
use crate::landscape::{Landscape, until_ready};

/// The secret that the forms of a page repeat.
fn csrf_of(page: &str) -> &str {
    let behind = page.split("name=\"csrf\" value=\"").nth(1).unwrap();
    behind.split('"').next().unwrap()
}

/// The secret of the session is right each time: what the browser says of the page decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_a_page_of_another_site_sends_is_refused() {
    let world = Landscape::new("console_foreign_form").await;
    let receiver = world.receiver().start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    let base = receiver.base_url();
    let mut somebody = Visitor::new();
    let (_, status, page) = somebody
        .follow(&format!("{base}/console/control"), None)
        .await;
    assert_eq!(status, 200);
    let form = format!("csrf={}", csrf_of(&page));
    let cookies = somebody.cookies.clone();
    let send = async |headers: &[(&str, &str)]| {
        let pairs = cookies
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let pairs: Vec<String> = pairs.collect();
        let mut post = somebody.http.post(format!("{base}/console/sign-out"));
        for (name, value) in headers {
            post = post.header(*name, *value);
        }
        let post = post.header("content-type", "application/x-www-form-urlencoded");
        let post = post.header(COOKIE, pairs.join("; ")).body(form.clone());
        let answer = post.send().await.unwrap();
        (
            answer.status().as_u16(),
            answer.headers().contains_key(SET_COOKIE),
        )
    };
    let (site, origin) = ("sec-fetch-site", ORIGIN.as_str());
    let other_port = "http://127.0.0.1:1";
    for foreign in [
        &[(site, "cross-site")][..],
        &[(site, "same-site")],
        &[(origin, "https://evil.example")],
        &[(origin, other_port)],
        &[(origin, "null")],
        &[(site, "cross-site"), (origin, &base)],
        &[(site, "same-origin"), (origin, "https://evil.example")],
    ] {
        assert_eq!(send(foreign).await, (403, false), "{foreign:?}");
    }
    for own in [
        &[][..],
        &[(site, "same-origin"), (origin, &base)],
        &[(origin, &base), (HOST.as_str(), receiver.address())],
    ] {
        assert_eq!(send(own).await, (303, true), "{own:?}");
    }
}

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
