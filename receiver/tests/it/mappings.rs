//! Mappings of plans, against a stand-in for the provisioning service.

use std::time::Duration;

use tokio::net::TcpListener;

use crate::answer::Answer;
use crate::event::{mapping, with};
use crate::provisioning::{Asked, Reply, StandIn, options};
use crate::world::{MAPPINGS, World};

use Reply::{Never, Status, With};

/// The three calls for a mapping, in their order.
fn calls() -> [Asked; 3] {
    let plans = [
        ("metering", "standard"),
        ("rating", "cheap"),
        ("pricing", "fair"),
    ];
    plans.map(|(part, plan)| [part, "postgres", "large", plan].map(str::to_owned))
}

/// Maps with a service that replies like this; checks how far it came.
async fn map(replies: &[Reply], asked: usize) -> Answer {
    let (stand_in, mut options) = StandIn::start(replies).await;
    if matches!(replies.last(), Some(Never)) {
        options.http.timeout = Duration::from_millis(100);
    }
    let world = World::mapping_to(&options);
    let answer = world.post(MAPPINGS, &mapping()).await;
    assert_eq!(stand_in.take(), calls()[..asked], "{replies:?}");
    assert_eq!(world.store.calls(), 0);
    answer
}

#[tokio::test]
async fn a_mapping_is_made_of_three_in_their_order() {
    map(&[], 3).await.is_created();
}

/// The original answers 500 to that.
#[tokio::test]
async fn a_part_that_is_answered_with_another_success_is_made() {
    map(&[Status(201); 3], 3).await.is_created();
}

#[tokio::test]
async fn a_mapping_of_which_a_part_was_there_is_made() {
    let (made, there) = (Status(200), Status(409));
    let some = [
        [made, made, there],
        [made, there, made],
        [there, made, made],
        [there, there, made],
        [there, made, there],
        [made, there, there],
    ];
    for replies in some {
        map(&replies, 3).await.is_created();
    }
}

#[tokio::test]
async fn a_mapping_of_which_all_was_there_is_a_conflict() {
    let answer = map(&[Status(409); 3], 3).await;
    answer.names(409, "mapping-exists", &[]);
}

#[tokio::test]
async fn a_service_that_asks_to_wait_is_obeyed() {
    let busy = With(429, "retry-after", "17");
    for (replies, asked) in [
        (&[busy][..], 1),
        (&[Status(200), busy], 2),
        (&[Status(409), Status(200), busy], 3),
    ] {
        let answer = map(replies, asked).await;
        answer.names(503, "provisioning-busy", &[]);
        assert_eq!(answer.header("retry-after"), Some("17"));
    }
    for (given, told) in [("0", "1"), ("soon", "5")] {
        let answer = map(&[With(429, "retry-after", given)], 1).await;
        answer.names(503, "provisioning-busy", &[]);
        assert_eq!(answer.header("retry-after"), Some(told), "{given}");
    }
    let answer = map(&[Status(429)], 1).await;
    answer.names(503, "provisioning-busy", &[]);
    assert_eq!(answer.header("retry-after"), Some("5"));
}

#[tokio::test]
async fn fault_16_a_date_at_which_to_come_again_is_obeyed() {
    let replies = [With(429, "retry-after", "Fri, 03 Aug 2018 00:01:30 GMT")];
    let answer = map(&replies, 1).await;
    answer.names(503, "provisioning-busy", &[]);
    assert_eq!(answer.header("retry-after"), Some("90"));
    // Between two seconds, the later one is told: nobody is sent back too early.
    let (_stand_in, options) = StandIn::start(&replies).await;
    let world = World::mapping_to(&options);
    world.clock.set(crate::world::NOW + 1);
    let answer = world.post(MAPPINGS, &mapping()).await;
    assert_eq!(answer.header("retry-after"), Some("90"));
}

#[tokio::test]
async fn a_service_that_fails_is_told_without_its_words() {
    for status in [301, 400, 401, 403, 404, 500, 502, 503] {
        for (replies, asked) in [
            (&[Status(status)][..], 1),
            (&[Status(409), Status(200), Status(status)], 3),
        ] {
            let answer = map(replies, asked).await;
            answer.names(502, "provisioning-failed", &[]);
            let text = String::from_utf8(answer.body.to_vec()).unwrap();
            assert!(
                !text.contains("secret") && !text.contains("127.0.0.1"),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn a_service_that_never_answers_is_not_waited_for() {
    let answer = map(&[Status(200), Never], 2).await;
    answer.names(502, "provisioning-failed", &[]);
}

#[tokio::test]
async fn a_service_that_is_away_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let world = World::mapping_to(&options(address));
    let answer = world.post(MAPPINGS, &mapping()).await;
    answer.names(502, "provisioning-failed", &[]);
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(!text.contains("127.0.0.1"), "{text}");
}

#[tokio::test]
async fn without_a_service_no_mapping_is_made() {
    let answer = World::new().post(MAPPINGS, &mapping()).await;
    answer.names(502, "provisioning-failed", &[]);
}

#[tokio::test]
async fn mappings_do_not_wait_for_the_database() {
    let (stand_in, options) = StandIn::start(&[]).await;
    let world = World::unprepared(Some(&options), |_| {});
    world.post(MAPPINGS, &mapping()).await.is_created();
    assert_eq!(stand_in.take(), calls());
}

#[tokio::test]
async fn names_reach_the_service_as_they_are() {
    let (stand_in, options) = StandIn::start(&[]).await;
    let world = World::mapping_to(&options);
    let names = [
        "%",
        "100%2",
        "?x=1#y",
        "é \u{1f388}",
        "v1.2.3",
        "a+b;c",
        " ",
    ];
    for name in names {
        let body = with(&mapping(), "resource_id", name);
        let body = with(&body, "plan_id", name);
        let body = with(&body, "metering_plan", name);
        world.post(MAPPINGS, &body).await.is_created();
        let asked = stand_in.take();
        assert_eq!(asked[0], ["metering", name, name, name].map(str::to_owned));
        assert_eq!(asked[2], ["pricing", name, name, "fair"].map(str::to_owned));
    }
    let body = with(&mapping(), "resource_id", "a?b c");
    world.post(MAPPINGS, &body).await.is_created();
    let path = "/base/v1/provisioning/mappings/pricing/resources/a%3Fb%20c/plans/large/fair";
    assert_eq!(stand_in.paths().last().map(String::as_str), Some(path));
}

#[tokio::test]
async fn what_is_not_valid_never_reaches_the_service() {
    let (stand_in, options) = StandIn::start(&[]).await;
    let world = World::mapping_to(&options);
    for name in [
        "resource_id",
        "plan_id",
        "metering_plan",
        "rating_plan",
        "pricing_plan",
    ] {
        let elsewhere = [
            "/",
            "a/b",
            "\\",
            "a\\b",
            "a/../b",
            "...",
            "a..b",
            "..;",
            "%2e",
            "%2e%2E",
            "%2F",
            "%5c",
            "a%2fb",
            "..%2f",
            "%252f",
            "%25252e%2e",
        ];
        for wrong in ["", ".", "..", "\n"].into_iter().chain(elsewhere) {
            let answer = world.post(MAPPINGS, &with(&mapping(), name, wrong)).await;
            answer.names(400, "invalid-event", &[&format!("#/{name}")]);
        }
    }
    let answer = world.post(MAPPINGS, &with(&mapping(), "extra", "x")).await;
    answer.names(400, "invalid-event", &["#/extra"]);
    assert_eq!(stand_in.take(), Vec::<Asked>::new());
}
