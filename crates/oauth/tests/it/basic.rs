//! Ids and secrets that somebody shows.

use sampler_oauth::{BasicCheck, Verdict};
use sampler_testkit::uaa::{Discovery, Offer, StandInUaa, Trouble};
use sampler_testkit::wait_until;

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
    let check = std::sync::Arc::new(BasicCheck::new(discoverer(&uaa), SCOPE));
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
    assert!(yes().await, "who was let in a moment ago stays");
    assert_eq!(
        check.check("hystrix", "guess".into()).await,
        Verdict::Unknown
    );
}
