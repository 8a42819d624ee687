//! Ids and secrets that somebody shows.

use std::sync::Arc;
use std::time::Duration;

use sampler_oauth::{BasicCheck, Verdict};
use sampler_testkit::uaa::{Discovery, Offer, StandInUaa, Trouble};
use sampler_testkit::wait_until;
use tokio::task::JoinSet;

use crate::{PATIENCE, discoverer};

const SCOPE: &str = "abacus.system.read";

#[tokio::test]
async fn the_token_server_decides_and_is_asked_rarely() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    uaa.add_client("hystrix", "hush", &[SCOPE]);
    uaa.add_client("other", "hush", &["something.else"]);
    let check = BasicCheck::new(discoverer(&uaa), SCOPE);
    for _ in 0..50 {
        assert_eq!(check.check("hystrix", "hush".into()).await, Verdict::Yes);
    }
    assert_eq!(uaa.asked(Offer::Token), 1);
    for (id, secret) in [
        ("hystrix", "hus"),
        ("hystrix", ""),
        ("other", "hush"),
        ("nobody", "hush"),
    ] {
        let verdict = async || check.check(id, secret.into()).await;
        assert_ne!(verdict().await, Verdict::Yes);
        wait_until("a no", PATIENCE, async || verdict().await == Verdict::No).await;
    }
    assert_eq!(check.check("hystrix", "hush".into()).await, Verdict::Yes);
    assert_eq!(uaa.asked(Offer::Token), 5);
}

#[tokio::test]
async fn a_flood_of_guesses_reaches_the_token_server_once_a_second() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let check = Arc::new(BasicCheck::new(discoverer(&uaa), SCOPE));
    let mut guesses = Vec::new();
    for guess in 0..200 {
        let check = check.clone();
        let guess = format!("guess {guess}");
        guesses.push(tokio::spawn(async move {
            check.check("id", guess.into()).await
        }));
    }
    for guess in guesses {
        assert_ne!(guess.await.unwrap(), Verdict::Yes);
    }
    assert!(uaa.asked(Offer::Token) <= 2, "{}", uaa.asked(Offer::Token));
}

#[tokio::test]
async fn nobody_is_let_in_because_the_token_server_is_away() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    uaa.add_client("hystrix", "hush", &[SCOPE]);
    uaa.trouble(Some(Trouble::Status(500)));
    let check = BasicCheck::new(discoverer(&uaa), SCOPE);
    assert_eq!(
        check.check("hystrix", "hush".into()).await,
        Verdict::Unknown
    );
    uaa.trouble(None);
    let yes = async || check.check("hystrix", "hush".into()).await == Verdict::Yes;
    wait_until("it is back", PATIENCE, yes).await;
    uaa.go_away().await;
    assert!(yes().await, "who was admitted a moment ago stays");
    assert_eq!(
        check.check("hystrix", "guess".into()).await,
        Verdict::Unknown
    );
}

/// A monitor asks now and then. Meanwhile everything that it was told before is too old to go by,
/// and guesses take each question that may be asked about credentials nobody knows.
#[tokio::test]
async fn a_flood_of_guesses_does_not_lock_out_who_was_right_before() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    uaa.add_client("monitor", "hush", &[SCOPE]);
    uaa.add_client("other-monitor", "hush", &[SCOPE]);
    let check = Arc::new(BasicCheck::new(discoverer(&uaa), SCOPE));
    let monitors = ["monitor", "other-monitor"];
    let said = async |id: &str| check.check(id, "hush".into()).await;
    for id in monitors {
        wait_until("yes", PATIENCE, async || said(id).await == Verdict::Yes).await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_hours(1)).await;
    tokio::time::resume();
    let guesses: JoinSet<_> = (0..100)
        .map(|number| {
            let (check, secret) = (Arc::clone(&check), format!("guess {number}"));
            async move {
                loop {
                    let verdict = check.check("monitor", secret.as_str().into()).await;
                    assert_ne!(verdict, Verdict::Yes);
                    tokio::task::yield_now().await;
                }
            }
        })
        .collect();
    let asked = uaa.asked(Offer::Token);
    let has_asked = async || uaa.asked(Offer::Token) > asked + 1;
    wait_until("guesses were asked about", PATIENCE, has_asked).await;
    for _ in 0..50 {
        for id in monitors {
            assert_eq!(said(id).await, Verdict::Yes, "{id}");
        }
    }
    drop(guesses);
}

#[tokio::test]
async fn credentials_that_are_not_right_any_more_are_refused() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    uaa.add_client("monitor", "hush", &[SCOPE]);
    let check = BasicCheck::new(discoverer(&uaa), SCOPE);
    let said = async || check.check("monitor", "hush".into()).await;
    assert_eq!(said().await, Verdict::Yes);
    uaa.remove_client("monitor");
    assert_eq!(said().await, Verdict::Yes, "for a minute");
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(2)).await;
    tokio::time::resume();
    assert_eq!(said().await, Verdict::No);
    assert_ne!(said().await, Verdict::Yes);
    uaa.go_away().await;
    assert_eq!(said().await, Verdict::Unknown, "they are forgotten");
}
