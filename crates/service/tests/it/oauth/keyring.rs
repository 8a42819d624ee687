//! Keys that are fetched.

use std::sync::Arc;
use std::time::Duration;

use sampler_service::oauth::{
    Algorithm, Issuer, Keyring, NoIssuer, NotNow, Pace, TokenError, TokenServer, verify,
};
use sampler_testkit::uaa::{Discovery, Offer, StandInUaa, Trouble};
use sampler_testkit::wait_until;
use tokio::task::JoinSet;

use super::{PATIENCE, discoverer, discoverer_of, policy, why};

const QUICK: Pace = Pace {
    at_least: Duration::ZERO,
    at_most: Duration::from_hours(1),
    age_max: Duration::from_hours(1),
};

fn keyring(uaa: &StandInUaa, pace: Pace) -> Arc<Keyring> {
    Keyring::fetched(discoverer(uaa), Algorithm::RS256, Issuer::Discovered, pace)
}

/// A UAA that can be found so, and keys of it that can be fetched at any time.
async fn quick(discovery: Discovery) -> (StandInUaa, Arc<Keyring>) {
    let uaa = StandInUaa::start(discovery).await.unwrap();
    let keyring = keyring(&uaa, QUICK);
    (uaa, keyring)
}

/// Keys of an issuer.
fn of_issuer(issuer: &str) -> Arc<Keyring> {
    let discoverer = discoverer_of(TokenServer::Oidc(issuer.parse().unwrap()));
    let configured = Issuer::Configured;
    Keyring::fetched(discoverer, Algorithm::RS256, configured, QUICK)
}

/// Keys that are kept fresh until the task is dropped.
fn kept_fresh(uaa: &StandInUaa, pace: Pace) -> (Arc<Keyring>, JoinSet<Result<(), NoIssuer>>) {
    let keyring = keyring(uaa, pace);
    let refreshing = Arc::clone(&keyring);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { refreshing.keep_fresh().await });
    (keyring, tasks)
}

fn say(keyring: &Keyring, token: &str) -> Result<(), TokenError> {
    let policy = policy(Algorithm::RS256);
    let keys = keyring.current().ok_or(TokenError::UnknownKey)?;
    verify(token, &keys, &policy).map(|_| ())
}

#[tokio::test]
async fn keys_are_found_in_each_of_the_ways_there_are() {
    for discovery in [Discovery::Info, Discovery::Root, Discovery::Login] {
        let (uaa, keyring) = quick(discovery).await;
        assert!(keyring.current().is_none());
        assert_eq!(keyring.refresh().await, Ok(()), "{discovery:?}");
        assert_eq!(say(&keyring, &uaa.token(&["a"])), Ok(()));
    }
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let keyring = of_issuer(&uaa.issuer());
    assert_eq!(keyring.refresh().await, Ok(()));
    assert_eq!(say(&keyring, &uaa.token(&["a"])), Ok(()));
}

#[tokio::test]
async fn an_issuer_that_says_it_is_another_is_not_believed() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let keyring = of_issuer(&uaa.issuer().replace("127.0.0.1", "localhost"));
    assert!(keyring.refresh().await.is_err());
    assert!(keyring.current().is_none());
}

#[tokio::test]
async fn keys_change_without_a_restart_and_withdrawn_ones_go() {
    let (uaa, keyring) = quick(Discovery::Info).await;
    keyring.refresh().await.unwrap();
    let old = uaa.token(&["a"]);
    uaa.rotate().unwrap();
    let new = uaa.token(&["a"]);
    assert_eq!(say(&keyring, &new), Err(TokenError::UnknownKey));
    assert_eq!(keyring.refresh().await, Ok(()));
    assert_eq!((say(&keyring, &new), say(&keyring, &old)), (Ok(()), Ok(())));
    uaa.withdraw_old_keys();
    keyring.refresh().await.unwrap();
    assert_eq!(say(&keyring, &old), Err(TokenError::UnknownKey));
    assert_eq!(say(&keyring, &new), Ok(()));
}

#[tokio::test]
async fn the_keys_stay_through_an_outage() {
    let (uaa, keyring) = quick(Discovery::Root).await;
    keyring.refresh().await.unwrap();
    let token = uaa.token(&["a"]);
    for trouble in [Trouble::Status(500), Trouble::Hang, Trouble::Nonsense] {
        uaa.trouble(Some(trouble));
        assert!(keyring.refresh().await.is_err(), "{trouble:?}");
        assert_eq!(say(&keyring, &token), Ok(()));
    }
    uaa.trouble(None);
    uaa.go_away().await;
    assert!(keyring.refresh().await.is_err());
    assert_eq!(say(&keyring, &token), Ok(()));
    uaa.come_back().await.unwrap();
    assert_eq!(keyring.refresh().await, Ok(()));
}

#[tokio::test]
async fn keys_are_not_fetched_more_often_than_agreed_whoever_asks() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let pace = Pace {
        at_least: Duration::from_hours(1),
        ..QUICK
    };
    let keyring = keyring(&uaa, pace);
    let mut asking = Vec::new();
    for _ in 0..500 {
        let keyring = Arc::clone(&keyring);
        asking.push(tokio::spawn(async move { keyring.refresh().await }));
    }
    for asked in asking {
        let _ = asked.await.unwrap();
    }
    assert_eq!(uaa.asked(Offer::Keys), 1);
    assert!(matches!(keyring.refresh().await, Err(NotNow(_))));
    let asked = [Offer::Keys, Offer::Discovery].map(|offer| uaa.asked(offer));
    assert_eq!(asked, [1, 2]);
}

#[tokio::test]
async fn keys_are_looked_at_again_though_nobody_asks() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    uaa.trouble(Some(Trouble::Status(503)));
    let pace = Pace {
        at_least: Duration::from_millis(20),
        at_most: Duration::from_millis(50),
        ..QUICK
    };
    let (keyring, _tasks) = kept_fresh(&uaa, pace);
    let has_failed = async || uaa.asked(Offer::Discovery) > 3;
    wait_until("it has failed", PATIENCE, has_failed).await;
    assert!(keyring.current().is_none());
    uaa.trouble(None);
    wait_until("keys", PATIENCE, async || keyring.current().is_some()).await;
    uaa.rotate().unwrap();
    let token = uaa.token(&[]);
    let is_known = async || say(&keyring, &token).is_ok();
    wait_until("the new key", PATIENCE, is_known).await;
}

#[tokio::test]
async fn an_identity_zone_without_keys_of_its_own_is_told_by_its_issuer() {
    let (uaa, keyring) = quick(Discovery::Root).await;
    keyring.refresh().await.unwrap();
    assert_eq!(say(&keyring, &uaa.token(&["a"])), Ok(()));
    let of_zone = uaa.token_of_zone("tenant", &["a"]);
    assert_eq!(say(&keyring, &of_zone), Err(why::ISSUER));
}

#[tokio::test]
async fn a_server_that_does_not_say_which_issuer_it_is_is_not_trusted() {
    let (uaa, serving) = quick(Discovery::Root).await;
    serving.refresh().await.unwrap();
    uaa.names_no_issuer();
    // What was known stays: keys change all the same, and other issuers stay outside.
    let of_nobody = uaa.token(&["a"]);
    assert_eq!(serving.refresh().await, Ok(()));
    assert_eq!(say(&serving, &of_nobody), Err(why::ISSUER));
    let starting = keyring(&uaa, Pace::default());
    assert_eq!(starting.keep_fresh().await, Err(NoIssuer));
    assert!(starting.current().is_none());
    // One that is away is asked again, and one that fails.
    uaa.trouble(Some(Trouble::Status(503)));
    let waiting = keyring(&uaa, QUICK);
    assert!(waiting.refresh().await.is_err());
    uaa.trouble(None);
    assert_eq!(waiting.keep_fresh().await, Err(NoIssuer));
}

#[tokio::test]
async fn a_list_without_keys_ends_those_before() {
    let (uaa, keyring) = quick(Discovery::Info).await;
    keyring.refresh().await.unwrap();
    uaa.withdraw_all_keys();
    assert_eq!(keyring.refresh().await, Ok(()));
    assert!(keyring.current().is_none());
    uaa.rotate().unwrap();
    assert_eq!(keyring.refresh().await, Ok(()));
    assert_eq!(say(&keyring, &uaa.token(&["a"])), Ok(()));
}

#[tokio::test]
async fn a_list_without_keys_is_looked_at_again_soon() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    uaa.withdraw_all_keys();
    let pace = Pace {
        at_least: Duration::from_millis(20),
        ..QUICK
    };
    let (keyring, _tasks) = kept_fresh(&uaa, pace);
    wait_until("it has none", PATIENCE, async || uaa.asked(Offer::Keys) > 1).await;
    assert!(keyring.current().is_none());
    uaa.rotate().unwrap();
    let token = uaa.token(&[]);
    wait_until("the key", PATIENCE, async || say(&keyring, &token).is_ok()).await;
}

#[tokio::test]
async fn keys_that_are_too_old_are_not_in_force() {
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let pace = Pace {
        age_max: Duration::from_millis(200),
        ..QUICK
    };
    let keyring = keyring(&uaa, pace);
    keyring.refresh().await.unwrap();
    assert!(keyring.current().is_some());
    uaa.go_away().await;
    let is_over = async || keyring.current().is_none();
    wait_until("they are too old", PATIENCE, is_over).await;
    assert!(keyring.refresh().await.is_err());
    uaa.come_back().await.unwrap();
    assert_eq!(keyring.refresh().await, Ok(()));
    assert_eq!(say(&keyring, &uaa.token(&["a"])), Ok(()));
}
