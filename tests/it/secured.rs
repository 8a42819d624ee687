//! Both programs with `SECURED=true`: who gets in, with what token they call others, and what
//! they never say.

use reqwest::RequestBuilder;
use sampler_testkit::build::{start_event, stop_event};
use sampler_testkit::program::Launch;
use sampler_testkit::uaa::{Discovery, StandInUaa};
use sampler_testkit::{Program, now_millis, wait_until};
use serde_json::{Value, json};

use crate::landscape::{DAY, Landscape, PATIENCE};
use crate::metrics::free_port;

const WRITE: &str = "abacus.sampler.write";
const SECRET: &str = "hush-hush-client";

pub(crate) async fn uaa() -> StandInUaa {
    let uaa = StandInUaa::start(Discovery::Root).await.unwrap();
    let scopes = ["abacus.usage.sampler.write", "abacus.usage.write"];
    uaa.add_client("sampler", SECRET, &scopes);
    uaa
}

pub(crate) fn secured(launch: Launch, uaa: &StandInUaa) -> Launch {
    launch
        .env("SECURED", "true")
        .env("HEALTHCHECK_SECURED", "true")
        .env("AUTH_SERVER", uaa.base_url())
        .env("CLIENT_ID", "sampler")
        .env("CLIENT_SECRET", SECRET)
        .env("LOG_LEVEL", "debug")
}

fn post(world: &Landscape, receiver: &Program, path: &str, event: &Value) -> RequestBuilder {
    let url = format!("{}{path}", receiver.base_url());
    world.http.post(url).json(event)
}

async fn sent(request: RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

/// How often a receiver has warned that it takes tokens for any audience.
pub(crate) fn unbound_audiences(receiver: &Program) -> usize {
    let lines = receiver.logs().into_iter();
    let unbound = lines.filter(|line| line["code"] == "security.audience_unbound");
    unbound.count()
}

/// Waits until a request is answered so: the token server is asked about keys and credentials.
async fn until_answered(request: RequestBuilder, status: u16) {
    wait_until("it is answered so", PATIENCE, async || {
        sent(request.try_clone().unwrap()).await == status
    })
    .await;
}

/// Starts and stops a target with a token.
async fn use_for_a_day(world: &Landscape, receiver: &Program, token: &str, target: u64) {
    let start = now_millis() - 2 * DAY;
    for (path, event) in [
        ("/v1/events/start", start_event(target, start)),
        ("/v1/events/stop", stop_event(target, start + DAY)),
    ] {
        let request = post(world, receiver, path, &event).bearer_auth(token);
        assert_eq!(sent(request).await, 201, "{path}");
    }
}

/// What is left of all output: none of the secrets that took part.
fn assert_discreet(programs: &[&Program], secrets: &[String]) {
    for program in programs {
        let output = program.lines().join("\n");
        for secret in secrets {
            assert!(
                !output.contains(secret.as_str()),
                "a secret is in the output"
            );
            // Nor a piece of a token that would be enough to know it by.
            let signature = secret.rsplit('.').next().unwrap();
            assert!(!output.contains(signature), "a signature is in the output");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secured_programs_bill_with_tokens_of_uaa_and_say_nothing_of_them() {
    let (world, uaa) = (Landscape::new("secured").await, uaa().await);
    uaa.give_out("first.token.of-the-sampler");
    world
        .abacus
        .check_tokens(|token| token == "first.token.of-the-sampler");
    let receiver = world.ready(secured(world.receiver(), &uaa)).await;
    let worker = secured(world.worker(), &uaa).start().await.unwrap();
    let token = uaa.token(&[WRITE]);

    let event = start_event(50, now_millis());
    let nobody = post(&world, &receiver, "/v1/events/start", &event);
    assert_eq!(sent(nobody).await, 401);
    let other = uaa.token(&["abacus.sampler.redis.write"]);
    let other = post(&world, &receiver, "/v1/events/start", &event).bearer_auth(other);
    assert_eq!(sent(other).await, 403);

    let mapping = json!({ "resource_id": "postgres", "plan_id": "large", "metering_plan": "m",
        "rating_plan": "r", "pricing_plan": "p" });
    let mapping = post(&world, &receiver, "/v1/mappings", &mapping).bearer_auth(&token);
    assert_eq!(sent(mapping).await, 201);
    use_for_a_day(&world, &receiver, &token, 1).await;
    world.until_complete(1).await;
    assert_eq!(world.billed("instance-1"), i128::from(DAY));

    // Abacus takes another token from now on: the old one is dropped, and billing continues.
    uaa.give_out("second.token.of-the-sampler");
    world
        .abacus
        .check_tokens(|token| token == "second.token.of-the-sampler");
    use_for_a_day(&world, &receiver, &token, 2).await;
    world.until_complete(2).await;
    assert_eq!(world.billed("instance-2"), i128::from(DAY));
    let wanted = uaa.wanted();
    let by_worker = (
        "sampler".to_owned(),
        "abacus.usage.sampler.write".to_owned(),
    );
    let asked = wanted.iter().filter(|&wanted| *wanted == by_worker).count();
    assert!((2..=4).contains(&asked), "{wanted:?}");
    assert!(wanted.contains(&("sampler".to_owned(), "abacus.usage.write".to_owned())));

    assert_eq!(unbound_audiences(&receiver), 1);
    let secrets = [
        SECRET,
        "first.token.of-the-sampler",
        "second.token.of-the-sampler",
        &token,
    ];
    assert_discreet(&[&receiver, &worker], &secrets.map(str::to_owned));
}

/// On a port of their own, metrics are for whoever reaches it.
#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_are_for_those_with_a_token_and_the_other_two_say_nothing_else() {
    let (world, uaa) = (Landscape::new("health_secured").await, uaa().await);
    let token = |scope: &str| uaa.token(&[scope]);
    let read = token("abacus.sampler.read");
    for launch in [world.receiver(), world.worker()] {
        let port = free_port().to_string();
        let launch = secured(launch, &uaa).env("SAMPLER_METRICS_PORT", port.as_str());
        let program = world.ready(launch).await;
        let get = |path: &str| world.http.get(format!("{}{path}", program.base_url()));
        let refused = get("/healthcheck").send().await.unwrap();
        assert_eq!(refused.status(), 401);
        assert_eq!(refused.headers()["www-authenticate"], "Bearer realm=\"cf\"");
        assert_eq!(sent(get("/metrics")).await, 401);
        assert_eq!(sent(get("/healthz/live")).await, 200);
        for (token, health, metrics) in [
            (token("abacus.system.read"), 200, 200),
            (read.clone(), 200, 200),
            (token("abacus.sampler.postgres.read"), 200, 403),
            (token("abacus.usage.write"), 403, 403),
            (format!("{read}x"), 401, 401),
        ] {
            for (path, status) in [("/healthcheck", health), ("/metrics", metrics)] {
                until_answered(get(path).bearer_auth(&token), status).await;
            }
        }
        let apart = world.http.get(format!("http://127.0.0.1:{port}/metrics"));
        let apart = apart.send().await.unwrap().text().await.unwrap();
        assert!(apart.contains("sampler_build_info{"), "{apart}");
        assert_discreet(&[&program], &[SECRET.to_owned()]);
    }
}

/// What the driver says of a refusal may hold what it was given.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_the_database_refuses_is_in_no_log() {
    let world = Landscape::new("password").await;
    let secret = "hush-hush-database";
    let nowhere = format!("mongodb://sampler:{secret}@127.0.0.1:1/spans");
    let uri = world.database.uri();
    let refused = uri.replacen("://", &format!("://sampler:{secret}@"), 1);
    assert_ne!(uri, refused);
    for uri in [nowhere, refused] {
        for launch in [world.receiver(), world.worker()] {
            let launch = launch.env("DB_URI", &uri).env("LOG_LEVEL", "debug");
            let program = launch.start().await.unwrap();
            wait_until("it has met the database", PATIENCE, async || {
                let errors = program.logs();
                errors.iter().any(|line| line["error"].is_string()) || program.exit_code().is_some()
            })
            .await;
            assert_discreet(&[&program], &[secret.to_owned()]);
        }
    }
}
