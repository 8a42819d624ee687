//! Who gets in, for what, and what becomes of that when the token server is away.

use std::sync::Arc;
use std::time::Duration;

use sampler_domain::ClientId;
use sampler_oauth::{Algorithm, Pace};
use sampler_service::environment::{Clock, SystemClock};
use sampler_service::security::Authenticator;
use sampler_store_testing::memory::MemoryStore;
use sampler_testkit::build::{stop_event, with};
use sampler_testkit::now_millis;
use sampler_testkit::uaa::{Discovery, SigningKey, StandInUaa, Trouble};
use serde_json::{Value, json};

use crate::auth_fixture::{
    WRITE, ask, ask_with, claims, configured, fetched, options, router, router_to, router_with,
    start, token,
};
use crate::log::Log;

const QUICK: Pace = Pace {
    at_least: Duration::ZERO,
    at_most: Duration::from_hours(1),
    age_max: Duration::from_hours(24),
};

fn pair(key: SigningKey) -> (SigningKey, String) {
    let pem = key.public_pem();
    (key, pem)
}

fn mapping() -> Value {
    json!({
        "resource_id": "postgres",
        "plan_id": "large",
        "metering_plan": "m",
        "rating_plan": "r",
        "pricing_plan": "p",
    })
}

/// Fault 17 of the original: anyone with the scope could write for any resource.
#[tokio::test]
async fn fault_17_a_scope_for_one_resource_is_for_that_resource_alone() {
    let key = SigningKey::rsa("key-1").unwrap();
    let router = router(configured(&key.public_pem(), Algorithm::Rs256));
    let bearer = |scopes: &[&str]| {
        let token = token(&key, &claims(|claims| claims["scope"] = json!(scopes)));
        format!("Bearer {token}")
    };
    let own = bearer(&["abacus.sampler.postgres.write", "openid"]);
    let other = bearer(&["abacus.sampler.redis.write", "abacus.sampler.postgres.read"]);
    let stop = stop_event(1, now_millis() + 60_000);
    for (path, body, taken) in [
        ("/v1/events/start", start(), 201),
        ("/v1/events/stop", stop, 201),
        ("/v1/mappings", mapping(), 502),
    ] {
        let refused = ask(&router, path, &[&other], &body).await;
        assert_eq!(
            (refused.status, refused.problem.as_str()),
            (403, "forbidden"),
            "{path}"
        );
        let challenge = refused.challenge.unwrap();
        assert_eq!(
            challenge,
            "Bearer realm=\"cf\", error=\"insufficient_scope\""
        );
        // The mapping gets as far as a provisioning service that is not there.
        assert_eq!(
            ask(&router, path, &[&own], &body).await.status,
            taken,
            "{path}"
        );
    }
    for resource in [
        json!("redis"),
        json!("Postgres"),
        json!("postgres "),
        json!(null),
        json!(7),
        json!(["postgres"]),
        json!({ "resource_id": "postgres" }),
    ] {
        let body = with(start(), "resource_id", resource.clone());
        let answer = ask(&router, "/v1/events/start", &[&own], &body).await;
        assert_eq!(answer.status, 403, "{resource}");
    }
    let answer = ask(&router, "/v1/events/start", &[&own], &json!([])).await;
    assert_eq!(answer.status, 403, "a body that names no resource");
    // What is wrong besides is none of the business of who may not write at all.
    let wrong = with(with(start(), "resource_id", "redis"), "timestamp", "soon");
    let answer = ask(&router, "/v1/events/start", &[&own], &wrong).await;
    assert_eq!(
        (answer.status, answer.text.contains("timestamp")),
        (403, false)
    );
}

#[tokio::test]
async fn each_algorithm_opens_the_door_it_was_configured_for() {
    for (name, algorithm) in Algorithm::ALL {
        let (key, text) = match &name[..2] {
            "HS" => (SigningKey::shared(b"shared"), "shared".to_owned()),
            "RS" => pair(SigningKey::rsa("r").unwrap()),
            _ => pair(SigningKey::p256("p").unwrap()),
        };
        let router = router(configured(&text, algorithm));
        let header = json!({ "alg": name, "kid": "whatever" }).to_string();
        let token = key.token(name, &header, &claims(|_| {}));
        assert_eq!(ask_with(&router, &token).await.status, 201, "{name}");
    }
}

#[tokio::test]
async fn a_new_key_is_taken_without_a_restart_and_old_ones_through_an_outage() {
    let uaa = StandInUaa::start(Discovery::Root).await.unwrap();
    let authenticator = fetched(&uaa, QUICK);
    let router = router(authenticator.clone());
    assert!(!authenticator.is_ready());
    let old = uaa.token(&[WRITE]);
    assert_eq!(ask_with(&router, &old).await.status, 201);
    assert!(authenticator.is_ready());
    uaa.rotate().unwrap();
    let new = uaa.token(&[WRITE]);
    // A second start of the target: the token is taken.
    assert_eq!(ask_with(&router, &new).await.status, 409);
    uaa.trouble(Some(Trouble::Status(500)));
    assert_eq!(ask_with(&router, &old).await.status, 409);
    assert_eq!(ask_with(&router, &new).await.status, 409);
    uaa.rotate().unwrap();
    let unknown = ask_with(&router, &uaa.token(&[WRITE])).await;
    assert_eq!(unknown.status, 503, "it may be good, and nobody can tell");
    assert_eq!(unknown.problem, "token-server-unavailable");
    assert!(!unknown.body_was_read);
    uaa.trouble(None);
    assert_eq!(ask_with(&router, &uaa.token(&[WRITE])).await.status, 409);
}

#[tokio::test]
async fn nobody_gets_in_before_there_are_keys() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let token = uaa.token(&[WRITE]);
    uaa.go_away().await;
    let router = router(fetched(&uaa, QUICK));
    let answer = ask_with(&router, &token).await;
    assert_eq!(
        (answer.status, answer.problem.as_str()),
        (503, "token-server-unavailable")
    );
    for path in ["/v1/events/start", "/v1/events/start/"] {
        let nobody = ask(&router, path, &[], &start()).await;
        assert_eq!(nobody.status, 401, "{path}");
    }
    uaa.come_back().await.unwrap();
    assert_eq!(ask_with(&router, &token).await.status, 201);
}

#[tokio::test]
async fn an_open_door_is_open() {
    let router = router(Authenticator::none());
    let answer = ask(&router, "/v1/events/start", &[], &start()).await;
    assert_eq!(answer.status, 201);
}

#[tokio::test]
async fn a_span_and_the_log_of_refusals_say_which_client_it_was() {
    let key = SigningKey::rsa("key-1").unwrap();
    let store = Arc::new(MemoryStore::new(|| SystemClock.now()));
    let authenticator = configured(&key.public_pem(), Algorithm::Rs256);
    let router = router_to(Arc::clone(&store), authenticator);
    let of = |client: &str| {
        let token = token(&key, &claims(|claims| claims["client_id"] = client.into()));
        format!("Bearer {token}")
    };
    let (start, stop) = (start(), stop_event(1, now_millis() + 1));
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.subscriber());
    for (path, client, body, status) in [
        ("/v1/events/start", "broker", &start, 201),
        ("/v1/events/start", "other-broker", &start, 409),
        ("/v1/events/stop", "operator", &stop, 201),
        ("/v1/events/stop", "late-operator", &stop, 422),
    ] {
        let answer = ask(&router, path, &[&of(client)], body).await;
        assert_eq!(answer.status, status, "{client}: {answer:?}");
    }
    drop(logging);
    let spans = store.all();
    let [kept] = spans.as_slice() else {
        panic!("{} spans", spans.len());
    };
    let span = &kept.span;
    let clients = [&span.start_client, &span.stop_client].map(|client| client.clone().unwrap());
    assert_eq!(
        clients.each_ref().map(ClientId::as_str),
        ["broker", "operator"]
    );
    let refused = log.lines("refused");
    let clients: Vec<_> = refused.iter().map(|line| line["client"].as_str()).collect();
    assert_eq!(clients, [Some("other-broker"), Some("late-operator")]);
}

#[tokio::test]
async fn mappings_can_be_kept_to_the_full_scope() {
    let key = SigningKey::rsa("key-1").unwrap();
    let authenticator = configured(&key.public_pem(), Algorithm::Rs256);
    let bearer = |scope: &str| {
        let token = token(&key, &claims(|claims| claims["scope"] = json!([scope])));
        format!("Bearer {token}")
    };
    let (own, full) = (bearer("abacus.sampler.postgres.write"), bearer(WRITE));
    let mut options = options();
    options.settings.provisioning.full_scope = true;
    let router = router_with(authenticator, options);
    let refused = ask(&router, "/v1/mappings", &[&own], &mapping()).await;
    assert_eq!(
        (refused.status, refused.problem.as_str()),
        (403, "forbidden")
    );
    assert!(refused.challenge.unwrap().contains("insufficient_scope"));
    assert!(!refused.body_was_read);
    // It gets as far as a provisioning service that is not there.
    assert_eq!(
        ask(&router, "/v1/mappings", &[&full], &mapping())
            .await
            .status,
        502
    );
    // Events are as before.
    assert_eq!(
        ask(&router, "/v1/events/start", &[&own], &start())
            .await
            .status,
        201
    );
}
