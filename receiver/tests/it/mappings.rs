//! Mappings of plans, against a stand-in for the provisioning service.

use std::time::Duration;

use tokio::net::TcpListener;

use crate::event::mapping;
use crate::provisioning::{Asked, Reply, StandIn, options};
use crate::world::{MAPPINGS, NOW, World};

use Reply::{Never, Status, With};

/// What becomes of a mapping.
enum Expected {
    Created,
    /// It is refused with this status and kind of problem, and told when to come again.
    Refused(u16, &'static str, Option<&'static str>),
}

use Expected::{Created, Refused};

const MADE: Reply = Status(200);
const THERE: Reply = Status(409);
const BUSY: Reply = With(429, "retry-after", "17");

fn after(seconds: &'static str) -> Expected {
    Refused(503, "provisioning-busy", Some(seconds))
}

/// The answers of the service, the last of which decides, and what becomes of the mapping.
#[rustfmt::skip]
fn table() -> Vec<(Vec<Reply>, Expected)> {
    let failed = || Refused(502, "provisioning-failed", None);
    let mut rows = vec![
        (vec![MADE, MADE, MADE], Created),
        // The original answers 500 to that.
        (vec![Status(201); 3], Created),
        // A part of it was there.
        (vec![MADE, MADE, THERE], Created),
        (vec![MADE, THERE, MADE], Created),
        (vec![THERE, MADE, MADE], Created),
        (vec![THERE, THERE, MADE], Created),
        (vec![THERE, MADE, THERE], Created),
        (vec![MADE, THERE, THERE], Created),
        (vec![THERE, THERE, THERE], Refused(409, "mapping-exists", None)),
        // A service that asks to wait is obeyed.
        (vec![BUSY], after("17")),
        (vec![MADE, BUSY], after("17")),
        (vec![THERE, MADE, BUSY], after("17")),
        (vec![With(429, "retry-after", "0")], after("1")),
        (vec![With(429, "retry-after", "soon")], after("5")),
        (vec![Status(429)], after("5")),
        // Fault 16 of the original.
        (vec![With(429, "retry-after", "Fri, 03 Aug 2018 00:01:30 GMT")], after("90")),
        // It is not waited for for ever.
        (vec![MADE, Never], failed()),
    ];
    for status in [301, 400, 401, 403, 404, 500, 502, 503] {
        rows.push((vec![Status(status)], failed()));
        rows.push((vec![THERE, MADE, Status(status)], failed()));
    }
    rows
}

#[tokio::test]
async fn fault_16_a_mapping_is_made_of_three_in_their_order_or_refused_as_the_service_says() {
    for (replies, expected) in table() {
        let (stand_in, mut options) = StandIn::start(&replies).await;
        if matches!(replies.last(), Some(Never)) {
            options.http.timeout = Duration::from_millis(100);
        }
        let world = World::mapping_to(&options);
        // Between two seconds the later one is told: nobody is sent back too early.
        world.clock.set(NOW + 1);
        let answer = world.post(MAPPINGS, &mapping()).await;
        assert_eq!(stand_in.take(), calls()[..replies.len()], "{replies:?}");
        assert_eq!(world.store.calls(), 0);
        match expected {
            Created => answer.is_created(),
            Refused(status, slug, after) => {
                assert_eq!(answer.status, status, "{replies:?}");
                answer.names(status, slug, &[]);
                assert_eq!(answer.header("retry-after"), after, "{replies:?}");
            }
        }
        let text = answer.text();
        let is_told = ["secret", "127.0.0.1"].map(|word| text.contains(word));
        assert_eq!(is_told, [false; 2], "{text}");
    }
}

/// The three calls for a mapping, in their order.
fn calls() -> [Asked; 3] {
    let plans = [
        ("metering", "standard"),
        ("rating", "cheap"),
        ("pricing", "fair"),
    ];
    plans.map(|(part, plan)| [part, "postgres", "large", plan].map(str::to_owned))
}

#[tokio::test]
async fn a_service_that_is_away_is_told_and_so_is_none() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let world = World::mapping_to(&options(address));
    let answer = world.post(MAPPINGS, &mapping()).await;
    answer.names(502, "provisioning-failed", &[]);
    let text = answer.text();
    assert!(!text.contains("127.0.0.1"), "{text}");
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
