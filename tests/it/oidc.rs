//! Both programs with tokens of a certified `OpenID` provider that is not ours.

use std::cell::Cell;

use sampler_testkit::build::{start_event, stop_event, with};
use sampler_testkit::node::OidcProvider;
use sampler_testkit::program::Launch;
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::{Value, json};

use crate::landscape::{DAY, Landscape, PATIENCE};
use crate::secured::unbound_audiences;

const SAMPLER: &str = "urn:sampler";
const ABACUS: &str = "urn:abacus";
const USAGES: &str = "abacus.usage.sampler.write";
const WRITE: &str = "abacus.sampler.write";
const POSTGRES: &str = "abacus.sampler.postgres.write";
const REDIS: &str = "abacus.sampler.redis.write";

/// Characters that RFC 6749 wants encoded within HTTP Basic.
const SECRET: &str = "hush: 100% +secret/of&ours";
const BROKER: (&str, &str) = ("broker", "hush-hush-broker");

async fn provider() -> OidcProvider {
    let scopes = [WRITE, POSTGRES, REDIS, USAGES].join(" ");
    let ours = [USAGES, "abacus.usage.write"].join(" ");
    let clients = [
        ("sampler", SECRET, ours.as_str()),
        (BROKER.0, BROKER.1, scopes.as_str()),
    ];
    OidcProvider::start(&clients).await.unwrap()
}

fn secured(launch: Launch, provider: &OidcProvider) -> Launch {
    launch
        .env("SECURED", "true")
        .env("SAMPLER_OIDC_ISSUER", provider.issuer())
        .env("SAMPLER_TOKEN_AUDIENCE", SAMPLER)
        .env("CLIENT_ID", "sampler")
        .env("CLIENT_SECRET", SECRET)
        .env("LOG_LEVEL", "debug")
}

/// What an event with this token is answered.
async fn sent(
    world: &Landscape,
    receiver: &Program,
    path: &str,
    event: &Value,
    token: &str,
) -> u16 {
    let url = format!("{}{path}", receiver.base_url());
    let request = world.http.post(url).json(event).bearer_auth(token);
    request.send().await.unwrap().status().as_u16()
}

/// Starts and stops a target, and waits until it is billed.
async fn use_for_a_day(world: &Landscape, receiver: &Program, token: &str, target: u64) {
    let start = now_millis() - 2 * DAY;
    let (start, stop) = (start_event(target, start), stop_event(target, start + DAY));
    for (path, event) in [("/v1/events/start", start), ("/v1/events/stop", stop)] {
        let status = sent(world, receiver, path, &event, token).await;
        assert_eq!(status, 201, "{path}");
    }
    let instance = format!("instance-{target}");
    wait_until("it is billed", PATIENCE, async || {
        world.billed(&instance) == i128::from(DAY)
    })
    .await;
}

/// The answer to a stop with this token once fresh keys have decided: until then, an unknown key gets 503. No span
/// is open, so a good token gets 422.
async fn decided(world: &Landscape, receiver: &Program, token: &str) -> u16 {
    let (event, status) = (stop_event(99, now_millis()), Cell::new(503));
    wait_until("fresh keys decide", PATIENCE, async || {
        status.set(sent(world, receiver, "/v1/events/stop", &event, token).await);
        status.get() != 503
    })
    .await;
    status.get()
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_certified_provider_open_the_doors_they_are_for_and_no_others() {
    let (world, provider, stranger) = (
        Landscape::new("oidc").await,
        provider().await,
        provider().await,
    );
    let check = provider.check(ABACUS, USAGES).await.unwrap();
    world.abacus.check_tokens(check);
    let receiver = world.ready(secured(world.receiver(), &provider)).await;
    let worker = secured(world.worker(), &provider).start().await.unwrap();
    let token =
        async |scope: &str, audience: &str| provider.token(BROKER, scope, audience).await.unwrap();

    use_for_a_day(&world, &receiver, &token(WRITE, SAMPLER).await, 1).await;
    let postgres = token(&format!("{POSTGRES} {USAGES}"), SAMPLER).await;
    use_for_a_day(&world, &receiver, &postgres, 2).await;
    let redis = with(start_event(3, now_millis()), "resource_id", "redis");
    for (token, status) in [(postgres, 403), (token(REDIS, SAMPLER).await, 201)] {
        let sent = sent(&world, &receiver, "/v1/events/start", &redis, &token);
        assert_eq!(sent.await, status);
    }
    for (what, token, status) in [
        ("a scope of Abacus", token(USAGES, SAMPLER).await, 403),
        ("for Abacus", token(WRITE, ABACUS).await, 401),
        (
            "of another provider",
            stranger.token(BROKER, WRITE, SAMPLER).await.unwrap(),
            401,
        ),
    ] {
        assert_eq!(decided(&world, &receiver, &token).await, status, "{what}");
    }

    // A new key is taken without a restart, and tokens of the one before stay good.
    let first = token(WRITE, SAMPLER).await;
    provider.rotate().await.unwrap();
    for token in [token(WRITE, SAMPLER).await, first] {
        assert_eq!(decided(&world, &receiver, &token).await, 422);
    }

    // Abacus does check: what opens the receiver does not open it.
    let url = format!("{}/v1/metering/collected/usage", world.abacus.base_url());
    let ours = world
        .http
        .post(url)
        .json(&json!({}))
        .bearer_auth(token(USAGES, SAMPLER).await);
    assert_eq!(ours.send().await.unwrap().status(), 401);
    assert_eq!(unbound_audiences(&receiver), 0);
    for program in [&receiver, &worker] {
        let output = program.lines().join("\n");
        let is_told = output.contains(SECRET) || output.contains("eyJ");
        assert!(!is_told, "a secret is in the output");
    }
}
