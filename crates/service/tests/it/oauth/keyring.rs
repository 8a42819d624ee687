//! Keys that are fetched.

use std::sync::Arc;

use sampler_service::oauth::keyring::{AGE_MAX, AT_LEAST, AT_MOST};
use sampler_service::oauth::{Algorithm, Keyring, TokenError, TokenServer};
use sampler_testkit::uaa::{Discovery, Offer, StandInUaa, Trouble};
use sampler_testkit::wait_until;
use tokio::task::{JoinSet, yield_now};

use super::{PATIENCE, discoverer, discoverer_of, later, policy, why};

/// A UAA that can be found so, and its keys, of which none are fetched.
async fn world(discovery: Discovery) -> (StandInUaa, Arc<Keyring>) {
    let uaa = StandInUaa::start(discovery).await.unwrap();
    let keyring = Keyring::fetched(discoverer(&uaa), policy(Algorithm::RS256));
    (uaa, keyring)
}

/// Fetches the keys as soon as they may be fetched again.
async fn refresh(keyring: &Arc<Keyring>) -> bool {
    later(AT_LEAST).await;
    keyring.refresh().await
}

fn say(keyring: &Keyring, token: &str) -> Result<(), TokenError> {
    keyring.current()?.verify(token).map(drop)
}

#[tokio::test]
async fn keys_are_found_in_each_of_the_ways_there_are() {
    for discovery in [Discovery::Info, Discovery::Root, Discovery::Login] {
        let (uaa, keyring) = world(discovery).await;
        assert!(keyring.current().is_err());
        assert!(keyring.refresh().await, "{discovery:?}");
        assert_eq!(say(&keyring, &uaa.token(&["a"])), Ok(()));
    }
    let uaa = StandInUaa::start(Discovery::Info).await.unwrap();
    let issuer = TokenServer::Oidc(uaa.issuer().parse().unwrap());
    let issuer = discoverer_of(issuer, None);
    let keyring = Keyring::fetched(issuer, policy(Algorithm::RS256));
    assert!(keyring.refresh().await);
    assert_eq!(say(&keyring, &uaa.token(&["a"])), Ok(()));
}

#[tokio::test]
async fn keys_change_without_a_restart_and_withdrawn_ones_go() {
    let (uaa, keyring) = world(Discovery::Info).await;
    let old = uaa.token(&["a"]);
    assert!(keyring.claims(&old).await.is_ok());
    uaa.rotate().unwrap();
    let new = uaa.token(&["a"]);
    let unknown = Err(TokenError::UnknownKey);
    assert_eq!(keyring.claims(&new).await, unknown, "too soon");
    later(AT_LEAST).await;
    assert!(keyring.claims(&new).await.is_ok());
    assert_eq!(say(&keyring, &old), Ok(()));
    uaa.withdraw_old_keys();
    assert!(refresh(&keyring).await);
    assert_eq!(say(&keyring, &old), Err(TokenError::UnknownKey));
    assert_eq!(say(&keyring, &new), Ok(()));
    // A key that keys fetched for this token lack does not exist.
    later(AT_LEAST).await;
    let refused = TokenError::Refused("it is signed with an unknown key");
    assert_eq!(keyring.claims(&old).await, Err(refused));
    uaa.withdraw_all_keys();
    assert!(!refresh(&keyring).await);
    assert!(keyring.current().is_err());
    later(AT_LEAST).await;
    assert_eq!(keyring.claims(&new).await, unknown, "there are none");
}

#[tokio::test]
async fn the_keys_stay_through_an_outage_of_a_day() {
    let (uaa, keyring) = world(Discovery::Root).await;
    assert!(keyring.refresh().await);
    let token = uaa.token(&["a"]);
    for trouble in [Trouble::Status(500), Trouble::Hang, Trouble::Nonsense] {
        uaa.trouble(Some(trouble));
        assert!(!refresh(&keyring).await, "{trouble:?}");
        assert_eq!(say(&keyring, &token), Ok(()));
    }
    uaa.trouble(None);
    uaa.go_away().await;
    assert!(!refresh(&keyring).await);
    assert_eq!(say(&keyring, &token), Ok(()));
    later(AGE_MAX).await;
    assert!(keyring.current().is_err(), "they are too old");
    uaa.come_back().await.unwrap();
    assert!(refresh(&keyring).await);
    assert_eq!(say(&keyring, &token), Ok(()));
}

#[tokio::test]
async fn keys_are_not_fetched_more_often_than_agreed_whoever_asks() {
    let (uaa, keyring) = world(Discovery::Info).await;
    let mut asking = JoinSet::new();
    for _ in 0..500 {
        let keyring = Arc::clone(&keyring);
        asking.spawn(async move { keyring.refresh().await });
    }
    let fetched = asking.join_all().await;
    assert_eq!(fetched.iter().filter(|&&fetched| fetched).count(), 1);
    later(AT_LEAST / 2).await;
    assert!(!keyring.refresh().await);
    let asked = [Offer::Keys, Offer::Discovery].map(|offer| uaa.asked(offer));
    assert_eq!(asked, [1, 2]);
}

/// Lets time pass once no fetch is under way.
async fn wait(keyring: &Arc<Keyring>, by: std::time::Duration) {
    keyring.refresh().await;
    for _ in 0..100 {
        yield_now().await;
    }
    later(by).await;
}

/// Whoever waits for a fetch that takes as long as it may does not begin another.
#[tokio::test]
async fn a_token_server_that_hangs_is_asked_once_for_all() {
    let (uaa, keyring) = world(Discovery::Info).await;
    uaa.trouble(Some(Trouble::Hang));
    let mut asking = JoinSet::new();
    for _ in 0..3 {
        let keyring = Arc::clone(&keyring);
        asking.spawn(async move { keyring.refresh().await });
    }
    let is_asked = async || uaa.asked(Offer::Discovery) > 0;
    wait_until("it is asked", PATIENCE, is_asked).await;
    later(AT_LEAST).await;
    assert_eq!(asking.join_all().await, [false; 3]);
    assert_eq!(uaa.asked(Offer::Discovery), 1);
}

#[tokio::test]
async fn keys_are_looked_at_again_though_nobody_asks() {
    let (uaa, keyring) = world(Discovery::Info).await;
    uaa.trouble(Some(Trouble::Status(503)));
    let (refreshing, mut tasks) = (Arc::clone(&keyring), JoinSet::new());
    tasks.spawn(async move { refreshing.keep_fresh().await });
    wait(&keyring, AT_LEAST).await;
    let has_failed = async || uaa.asked(Offer::Discovery) > 2;
    wait_until("it has failed twice", PATIENCE, has_failed).await;
    uaa.trouble(None);
    uaa.withdraw_all_keys();
    wait(&keyring, AT_LEAST).await;
    let is_asked = async || uaa.asked(Offer::Keys) > 0;
    wait_until("it has none", PATIENCE, is_asked).await;
    // Soon where there are none, and otherwise later.
    for pause in [AT_LEAST, AT_MOST] {
        uaa.rotate().unwrap();
        let token = uaa.token(&[]);
        wait(&keyring, pause).await;
        let is_known = async || say(&keyring, &token).is_ok();
        wait_until("the new key", PATIENCE, is_known).await;
    }
}

#[tokio::test]
async fn an_identity_zone_without_keys_of_its_own_is_told_by_its_issuer() {
    let (uaa, keyring) = world(Discovery::Root).await;
    assert!(keyring.refresh().await);
    assert_eq!(say(&keyring, &uaa.token(&["a"])), Ok(()));
    let of_zone = uaa.token_of_zone("tenant", &["a"]);
    assert_eq!(say(&keyring, &of_zone), Err(why::ISSUER));
}

#[tokio::test]
async fn a_server_that_does_not_say_which_issuer_it_is_is_not_trusted() {
    let (uaa, keyring) = world(Discovery::Root).await;
    uaa.names_no_issuer();
    assert!(!keyring.refresh().await);
    assert!(keyring.current().is_err());
    // Once it has said so, its keys can be withdrawn even while it does not.
    let (uaa, keyring) = world(Discovery::Root).await;
    assert!(keyring.refresh().await);
    let old = uaa.token(&["a"]);
    uaa.names_no_issuer();
    uaa.rotate().unwrap();
    uaa.withdraw_old_keys();
    assert!(refresh(&keyring).await);
    assert_eq!(say(&keyring, &old), Err(TokenError::UnknownKey));
    let mut policy = policy(Algorithm::RS256);
    policy.issuer = Some("https://tenant".to_owned());
    let configured = Keyring::fetched(discoverer(&uaa), policy);
    assert!(configured.refresh().await);
    assert_eq!(say(&configured, &uaa.token(&["a"])), Err(why::ISSUER));
}
