//! Who gets in, for what, and what becomes of that when the token server is away.

use sampler_domain::ClientId;
use sampler_testkit::uaa::{Discovery, StandInUaa};
use serde_json::{Value, json};

use crate::auth_fixture::{
    WRITE, bearer, claims, fetched, secured, token, until_keys_may_be_fetched,
};
use crate::event::{mapping, on, start, stop, with};
use crate::log::Log;
use crate::reading_scopes::Two;
use crate::tokens::NO_TOKEN;
use crate::world::{EVENTS, MAPPINGS, NOW, START, STOP, UPDATE, World};

const INSUFFICIENT: &str = "Bearer realm=\"cf\", error=\"insufficient_scope\"";

/// The scopes of the tokens that try each operation; the first has no token.
const TOKENS: [Option<&[&str]>; 9] = [
    None,
    // What is nearly a scope.
    Some(&[
        "openid",
        "abacus.usage.read",
        "abacus.usage.write",
        "abacus.usage.sampler.write",
        "abacus.sampler",
        "abacus.sampler.reader",
        "abacus.sampler.writer",
        "abacus.sampler..write",
        "abacus.sampler.write ",
        "abacus.sampler.write.postgres",
        "ABACUS.SAMPLER.WRITE",
        "xabacus.sampler.write",
        "openid abacus.sampler.write",
        "openid\tabacus.sampler.write",
    ]),
    Some(&["abacus.sampler.read"]),
    Some(&["abacus.sampler.write"]),
    Some(&["abacus.sampler.admin"]),
    Some(&["abacus.sampler.postgres.read"]),
    Some(&["abacus.sampler.postgres.write", "openid"]),
    Some(&["abacus.sampler.redis.write", "abacus.sampler.postgres.read"]),
    // The scope for a resource that is called admin.
    Some(&["abacus.sampler.admin.write"]),
];

/// Those of them that are to write something.
const TO_WRITE: [usize; 4] = [3, 6, 7, 8];

/// Which token may do what. What is allowed gets as far as its content lets it: a stop finds no open span, an
/// update has no id, a batch is no list, a mapping has no provisioning service, and an action on a span no
/// `If-Match`.
#[rustfmt::skip]
fn operations(two: &Two) -> Vec<(&'static str, String, [u16; 9])> {
    let (span, cause) = (&two.spans[0], &two.causes[0]);
    vec![
        ("POST", START.to_owned(),             [401, 403, 403, 409, 403, 403, 409, 403, 403]),
        ("POST", STOP.to_owned(),              [401, 403, 403, 422, 403, 403, 422, 403, 403]),
        ("POST", UPDATE.to_owned(),            [401, 403, 403, 400, 403, 403, 400, 403, 403]),
        ("POST", EVENTS.to_owned(),            [401, 403, 403, 400, 403, 403, 400, 400, 400]),
        ("POST", MAPPINGS.to_owned(),          [401, 403, 403, 502, 403, 403, 502, 403, 403]),
        ("GET", "/v1/spans?resource_id=x".to_owned(), [401, 403, 200, 200, 200, 200, 200, 200, 200]),
        ("GET", span.clone(),                  [401, 403, 200, 200, 200, 200, 200, 200, 404]),
        ("GET", format!("{span}/usages"),      [401, 403, 200, 200, 200, 200, 200, 200, 404]),
        ("GET", "/v1/usages?resource_id=x".to_owned(), [401, 403, 200, 200, 200, 200, 200, 200, 200]),
        ("GET", "/v1/suspended".to_owned(),    [401, 403, 200, 200, 200, 200, 200, 200, 200]),
        ("GET", cause.clone(),                 [401, 403, 200, 200, 200, 200, 200, 200, 404]),
        ("GET", "/v1/backlog".to_owned(),      [401, 403, 200, 200, 200, 403, 403, 403, 403]),
        ("GET", "/v1/control".to_owned(),      [401, 403, 403, 403, 200, 403, 403, 403, 403]),
        ("GET", "/v1/audit".to_owned(),        [401, 403, 403, 403, 200, 403, 403, 403, 403]),
        ("POST", format!("{span}/resume"),     [401, 403, 403, 403, 428, 403, 403, 403, 403]),
        ("POST", format!("{span}/skip"),       [401, 403, 403, 403, 428, 403, 403, 403, 403]),
        ("POST", format!("{cause}/resume"),    [401, 403, 403, 403, 202, 403, 403, 403, 403]),
        ("POST", format!("{span}/resend"),     [401, 403, 403, 403, 428, 403, 403, 403, 403]),
        ("GET", "/v1/unconfirmed".to_owned(),  [401, 403, 200, 200, 200, 200, 200, 200, 200]),
        ("POST", "/v1/unconfirmed/u/resend".to_owned(), [401, 403, 403, 403, 404, 403, 403, 403, 403]),
        ("GET", "/v1/nothing".to_owned(),      [401, 403, 404, 404, 404, 404, 404, 404, 404]),
    ]
}

#[tokio::test]
async fn each_operation_is_allowed_to_the_tokens_that_it_is_for() {
    let two = Two::new().await;
    let mut wrong = Vec::new();
    for (method, path, statuses) in operations(&two) {
        let mut row = [0; 9];
        for (token, cell) in row.iter_mut().enumerate() {
            let body = match path.as_str() {
                START => start(NOW),
                STOP => on("nothing", &stop(NOW)),
                UPDATE => with(&start(NOW), "id", ""),
                MAPPINGS => mapping(),
                _ => json!({ "reason": "to try it" }),
            };
            let bearer = TOKENS[token].map(|scopes| two.bearer(scopes));
            let bearers: Vec<_> = bearer.iter().map(String::as_str).collect();
            let asked = two.world.ask(method, &path, &bearers, &body).await;
            let told = asked.challenge().unwrap_or_default();
            // Only what names a resource is read before it is refused, and only for who may write one.
            let is_read = TO_WRITE.contains(&token)
                && [START, STOP, UPDATE, MAPPINGS].contains(&path.as_str());
            let said = (told, asked.body_was_read);
            match asked.status() {
                401 => {
                    asked.answer.problem(401, "unauthorized");
                    assert_eq!(said, (NO_TOKEN, false), "{path}");
                }
                403 => {
                    asked.answer.problem(403, "forbidden");
                    assert_eq!(said, (INSUFFICIENT, is_read), "{path} {token}");
                }
                _ => assert_eq!(told, "", "{path}"),
            }
            *cell = asked.status();
        }
        if row != statuses {
            wrong.push(format!("{method} {path}: {row:?}, not {statuses:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Fault 17 of the original: anyone with the scope could write for any resource.
#[tokio::test]
async fn fault_17_a_scope_for_one_resource_is_for_that_resource_alone() {
    let (key, world) = secured();
    let bearer = bearer(&key, &["abacus.sampler.postgres.write", "openid"]);
    let asked = async |body: Value| world.ask("POST", START, &[&bearer], &body).await;
    assert_eq!(asked(start(NOW)).await.status(), 201);
    for (resource, status) in [
        (json!("redis"), 403),
        (json!("Postgres"), 403),
        (json!("postgres "), 403),
        // No event at all.
        (json!(null), 400),
        (json!(7), 400),
        (json!(["postgres"]), 400),
        (json!({ "resource_id": "postgres" }), 400),
    ] {
        // A client that may not write is not told what else is wrong.
        for body in [start(NOW), with(&start(NOW), "timestamp", "soon")] {
            let asked = asked(with(&body, "resource_id", resource.clone())).await;
            let told = asked.answer.text().contains("timestamp");
            assert_eq!((asked.status(), told), (status, false), "{resource}");
        }
    }
    let unnamed = asked(json!({})).await;
    assert_eq!(unnamed.status(), 403, "a body that names no resource");
}

#[tokio::test]
async fn nobody_gets_in_before_there_are_keys() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let token = uaa.token(&[WRITE]);
    uaa.go_away().await;
    let world = World::secured(fetched(&uaa), |_| {});
    let asked = world.ask_with(&token).await;
    asked.is_turned_away(503, "token-server-unavailable");
    for path in [START, "/v1/events/start/"] {
        let nobody = world.ask("POST", path, &[], &start(NOW)).await;
        assert_eq!(nobody.status(), 401, "{path}");
    }
    uaa.come_back().await.unwrap();
    until_keys_may_be_fetched().await;
    assert_eq!(world.ask_with(&token).await.status(), 201);
}

#[tokio::test]
async fn a_span_and_the_log_of_refusals_say_which_client_it_was() {
    let (key, world) = secured();
    let of = |client: &str| {
        let token = token(&key, &claims(|claims| claims["client_id"] = client.into()));
        format!("Bearer {token}")
    };
    let (start, stop) = (start(NOW), stop(NOW + 1));
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.subscriber());
    for (path, client, body, status) in [
        (START, "broker", &start, 201),
        (START, "other-broker", &start, 409),
        (STOP, "operator", &stop, 201),
        (STOP, "late-operator", &stop, 422),
    ] {
        let asked = world.ask("POST", path, &[&of(client)], body).await;
        assert_eq!(asked.status(), status, "{client}: {asked:?}");
    }
    drop(logging);
    let spans = world.spans();
    let [span] = spans.as_slice() else {
        panic!("{} spans", spans.len());
    };
    let clients = [&span.start_client, &span.stop_client].map(|client| client.clone().unwrap());
    assert_eq!(
        clients.each_ref().map(ClientId::as_str),
        ["broker", "operator"]
    );
    let refused = log.lines("refused");
    let clients: Vec<_> = refused.iter().map(|line| line["client"].as_str()).collect();
    assert_eq!(clients, [Some("other-broker"), Some("late-operator")]);
}
