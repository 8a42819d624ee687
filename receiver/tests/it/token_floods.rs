//! Floods of bad tokens, keys that change, and tokens of others than the token server meant.

use std::sync::Arc;
use std::time::Duration;

use sampler_testkit::uaa::{Discovery, Offer, SigningKey, StandInUaa};
use sampler_testkit::wait_until;
use serde_json::json;
use tokio::task::JoinSet;

use crate::attacks::{INVALID, assert_refused, seconds, with_header};
use crate::auth_fixture::{WRITE, claims, fetched, pace, secured, token};
use crate::log::Log;
use crate::world::{START, World};

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// A forger keeps the keys of a moment ago in force, and then they are changed: a token that is
/// signed with the new one may be told to come again, but not that it is wrong.
#[tokio::test]
async fn a_flood_of_unknown_keys_costs_no_honest_token_a_401_after_a_rotation() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let pace = pace(Duration::from_secs(1));
    let world = Arc::new(World::secured(fetched(&uaa, pace), |_| {}));
    let key = SigningKey::rsa("unknown").unwrap();
    let flood: JoinSet<_> = (0..50)
        .map(|number| {
            let (name, world) = (format!("unknown-{number}"), Arc::clone(&world));
            let forgery = with_header(&key, &json!({ "alg": "RS256", "kid": name }));
            async move {
                loop {
                    let asked = world.ask_with(&forgery).await;
                    assert!([401, 503].contains(&asked.status()), "{asked:?}");
                    tokio::task::yield_now().await;
                }
            }
        })
        .collect();
    for _ in 0..3 {
        let key = uaa.make_key().unwrap();
        let fetched = uaa.asked(Offer::Keys);
        wait_until("the flood has the keys fetched", PATIENCE, async || {
            uaa.asked(Offer::Keys) > fetched
        })
        .await;
        uaa.sign_with(key);
        let honest = uaa.token(&[WRITE]);
        let mut waited = 0;
        loop {
            let asked = world.ask_with(&honest).await;
            if asked.status() != 503 {
                assert!([201, 409].contains(&asked.status()), "{asked:?}");
                break;
            }
            asked.answer.problem(503, "token-server-unavailable");
            waited += 1;
            tokio::task::yield_now().await;
        }
        assert!(waited > 0, "the new key was known at once");
    }
    drop(flood);
}

/// A key that is not shown any more will not be shown again: there is nothing to wait for, flood or
/// no flood, and who is told so fetches a new token.
#[tokio::test]
async fn a_token_of_a_withdrawn_key_is_refused_at_once() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let pace = pace(Duration::from_hours(1));
    let old = SigningKey::rsa("withdrawn").unwrap();
    let issued = |ago: i64| {
        let claims = claims(|claims| claims["iat"] = seconds(-ago).into());
        token(&old, &claims)
    };
    let world = World::secured(fetched(&uaa, pace), |_| {});
    let honest = world.ask_with(&uaa.token(&[WRITE])).await;
    assert_eq!(honest.status(), 201);
    let asked = world.ask_with(&issued(600)).await;
    assert_refused("issued long before", &asked, 401, INVALID);
    assert_eq!(world.ask_with(&issued(5)).await.status(), 503);
    assert_eq!(world.ask_with(&issued(-600)).await.status(), 503);
    assert_eq!(uaa.asked(Offer::Keys), 1);
}

#[tokio::test]
async fn a_token_server_without_keys_lets_nobody_in_and_says_that_it_is_no_ones_fault() {
    let uaa = StandInUaa::start(Discovery::Root).await.unwrap();
    let authenticator = fetched(&uaa, pace(Duration::ZERO));
    let world = World::secured(authenticator.clone(), |_| {});
    let token = uaa.token(&[WRITE]);
    assert_eq!(world.ask_with(&token).await.status(), 201);
    uaa.withdraw_all_keys();
    // A token with an unknown key has the keys fetched.
    let key = SigningKey::rsa("unknown").unwrap();
    let unknown = with_header(&key, &json!({ "alg": "RS256", "kid": "unknown" }));
    assert_eq!(world.ask_with(&unknown).await.status(), 503);
    assert_eq!(world.ask_with(&token).await.status(), 503);
    assert!(!authenticator.is_ready());
}

#[tokio::test]
async fn a_flood_of_bad_tokens_is_not_a_flood_of_lines() {
    let (key, world) = secured();
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.subscriber());
    for _ in 0..500 {
        assert_eq!(world.ask_with("garbage").await.status(), 401);
    }
    let without_scope = claims(|claims| {
        claims["scope"] = json!([]);
        claims["client_id"] = "x\n".repeat(2_000).into();
    });
    let without_scope = token(&key, &without_scope);
    for _ in 0..500 {
        assert_eq!(world.ask_with(&without_scope).await.status(), 403);
    }
    drop(logging);
    assert_eq!(log.lines("a token was refused").len(), 20);
    assert!(log.text().len() < 20_000, "{}", log.text().len());
}

#[tokio::test]
async fn what_a_token_says_of_its_client_is_cut() {
    let (key, world) = secured();
    let log = Log::default();
    let logging = tracing::subscriber::set_default(log.subscriber());
    for scope in ["openid", WRITE] {
        let claims = claims(|claims| {
            claims["scope"] = json!([scope]);
            claims["client_id"] = "x\r\n".repeat(1_000).into();
        });
        let authorization = format!("Bearer {}", token(&key, &claims));
        let bearer = [authorization.as_str()];
        world.ask("POST", START, &bearer, &json!({})).await;
    }
    drop(logging);
    for message in ["a token without a scope for this was refused", "refused"] {
        let lines = log.lines(message);
        let [line] = lines.as_slice() else {
            panic!("{message}: {lines:?}")
        };
        let client = line["client"].as_str().unwrap();
        assert_eq!(client, "x??".repeat(85), "{message}");
    }
}
