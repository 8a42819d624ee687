//! Whatever is sent: no panic, no answer 5xx, nothing kept that is not answered 201, and whatever
//! is answered 201 kept as it was given. `PROPTEST_CASES` says how often.

use std::future::Future;

use axum::body::Body;
use axum::http::{HeaderValue, Request};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use crate::answer::Answer;
use crate::bodies::gzip;
use crate::event;
use crate::fuzz_schema::{Json, near};
use crate::provisioning::StandIn;
use crate::valid_bodies;
use crate::world::{ALL, HOUR, MAPPINGS, NOW, START, STOP, World, request};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs one case to its end.
fn run<T>(case: impl Future<Output = T>) -> T {
    runtime().block_on(case)
}

/// A problem of the client's making.
fn assert_refused(answer: &Answer) {
    answer.any_problem();
    assert!(answer.status < 500, "{answer:?}");
}

/// An event as it must be kept, from what was sent.
fn kept_as(given: &Value) -> Value {
    let event = valid_bodies::as_kept(given);
    let timestamp = &event["timestamp"];
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a timestamp that was taken fits"
    )]
    let millis = timestamp
        .as_i64()
        .unwrap_or_else(|| timestamp.as_f64().unwrap() as i64);
    event::with(&event, "timestamp", millis)
}

fn sent(path: &str, bytes: impl Into<Vec<u8>>, packed: bool) -> Request<Body> {
    let bytes = bytes.into();
    if !packed {
        return request(path, bytes);
    }
    let mut request = request(path, gzip(&bytes));
    let coding = HeaderValue::from_static("gzip");
    request.headers_mut().insert("content-encoding", coding);
    request
}

/// Bytes that are anything, or at least look a little like JSON.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let valid = event::start(NOW).to_string().into_bytes();
    let length = valid.len();
    let flipped = prop::collection::vec((0..length, any::<u8>()), 1..4);
    let flipped = flipped.prop_map(move |flips| {
        let mut bytes = valid.clone();
        for (place, byte) in flips {
            bytes[place] = byte;
        }
        bytes
    });
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        "[\\[\\]{}\",:0-9eE+.\\\\a-z \n-]{0,80}".prop_map(String::into_bytes),
        any::<String>().prop_map(String::into_bytes),
        flipped,
    ]
}

/// Sends bytes to an address; whatever comes of it must be right.
async fn send_bytes(path: &str, bytes: &[u8], request: Request<Body>) {
    let world = World::new();
    let answer = world.send(request).await;
    if path == START && answer.status == 201 {
        let given: Value = serde_json::from_slice(bytes).unwrap();
        world.assert_kept(&[(&kept_as(&given), None)]);
    } else if path == MAPPINGS && answer.status == 502 {
        let given: Value = serde_json::from_slice(bytes).unwrap();
        assert!(given.is_object(), "a mapping that nobody can make");
    } else {
        assert_refused(&answer);
        world.assert_kept(&[]);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered_and_not_kept(
        bytes in bytes(),
        packed in any::<bool>(),
        path in prop::sample::select(ALL.to_vec()),
    ) {
        run(send_bytes(path, &bytes, sent(path, bytes.clone(), packed)));
    }

    #[test]
    fn any_bytes_that_claim_to_be_gzip_are_answered_and_not_kept(
        bytes in bytes(),
        cut in any::<prop::sample::Index>(),
        path in prop::sample::select(ALL.to_vec()),
    ) {
        let mut broken = gzip(&bytes);
        let place = cut.index(broken.len());
        broken[place] ^= 0xff;
        for body in [bytes.clone(), broken] {
            let mut request = request(path, body);
            let coding = HeaderValue::from_static("gzip");
            request.headers_mut().insert("content-encoding", coding);
            run(send_bytes(path, &bytes, request));
        }
    }

    #[test]
    fn any_headers_are_answered(
        name in prop::sample::select(vec!["content-type", "content-encoding", "content-length"]),
        value in prop_oneof![
            prop::collection::vec(prop_oneof![32_u8..127, 128_u8..=255], 0..60),
            "(application|text)/json ?; ?charset=[\"utfUTF8-]{3,7}".prop_map(String::into_bytes),
        ],
        path in prop::sample::select(vec![START, STOP]),
    ) {
        let body = if path == START { event::start(NOW) } else { event::stop(NOW) };
        let mut request = request(path, body.to_string());
        request.headers_mut().insert(name, HeaderValue::from_bytes(&value).unwrap());
        run(async {
            let world = World::new();
            let answer = world.send(request).await;
            if answer.status == 201 {
                world.assert_kept(&[(&body, None)]);
            } else {
                assert_refused(&answer);
                world.assert_kept(&[]);
            }
        });
    }

    #[test]
    fn any_usage_is_kept_as_it_was_given_and_known_when_it_comes_again(
        (start, stop) in valid_bodies::usage(),
        packed in any::<bool>(),
        spread in any::<bool>(),
    ) {
        let text = |event: &Value| if spread {
            serde_json::to_string_pretty(event).unwrap()
        } else {
            event.to_string()
        };
        run(async {
            let world = World::new();
            let (kept, ended) = (valid_bodies::as_kept(&start), valid_bodies::as_kept(&stop));
            for (path, event, again) in [(START, &start, "open-span"), (STOP, &stop, "no-open-span")] {
                world.send(sent(path, text(event), packed)).await.is_created();
                let answer = world.send(sent(path, text(event), !packed)).await;
                if valid_bodies::as_kept(event).get("id").is_some() {
                    answer.is_replayed();
                } else {
                    answer.problem(if path == START { 409 } else { 422 }, again);
                }
                world.assert_kept(&[(&kept, (path == STOP).then_some(&ended))]);
            }
            let start = serde_json::to_string(&kept["measured_usage"]).unwrap();
            let as_kept = &world.kept()[0].0["measured_usage"];
            assert_eq!(serde_json::to_string(as_kept).unwrap(), start);
        });
    }

    #[test]
    fn a_start_near_the_schema_is_kept_as_it_was_given_or_not_at_all(
        json in near(&event::by("a", &event::start(NOW))),
    ) {
        run(async {
            let world = World::new();
            let answer = world.send(request(START, json.text())).await;
            if answer.status == 201 {
                answer.is_created();
                let given = json.value().expect("JSON that can be read in one way");
                world.assert_kept(&[(&kept_as(&given), None)]);
            } else {
                assert_refused(&answer);
                world.assert_kept(&[]);
            }
        });
    }

    #[test]
    fn a_stop_near_the_schema_is_kept_as_it_was_given_or_not_at_all(
        json in near(&event::by("z", &event::stop(NOW))),
    ) {
        run(async {
            let world = World::new();
            let start = event::start(NOW - HOUR);
            world.start(&start).await.is_created();
            let answer = world.send(request(STOP, json.text())).await;
            if answer.status == 201 {
                answer.is_created();
                let given = json.value().expect("JSON that can be read in one way");
                world.assert_kept(&[(&start, Some(&kept_as(&given)))]);
            } else {
                assert_refused(&answer);
                world.assert_kept(&[(&start, None)]);
            }
        });
    }
}

/// Sends a mapping; the service must be asked for it as it was given, or not at all.
async fn send_mapping(world: &World, stand_in: &StandIn, json: &Json) -> u16 {
    let answer = world.send(request(MAPPINGS, json.text())).await;
    let asked = json!(stand_in.take());
    if answer.status == 201 {
        answer.is_created();
        let given = json.value().expect("JSON that can be read in one way");
        let part = |part: &str, plan: &str| {
            json!([part, given["resource_id"], given["plan_id"], given[plan]])
        };
        let expected = [
            part("metering", "metering_plan"),
            part("rating", "rating_plan"),
            part("pricing", "pricing_plan"),
        ];
        assert_eq!(given.as_object().unwrap().len(), 5);
        assert_eq!(asked, json!(expected));
    } else {
        assert_refused(&answer);
        assert_eq!(asked, json!([]));
    }
    answer.status
}

#[test]
fn a_mapping_near_the_schema_is_passed_on_as_it_was_given_or_not_at_all() {
    let runtime = runtime();
    let (stand_in, options) = runtime.block_on(StandIn::start(&[]));
    let world = World::mapping_to(&options);
    proptest!(|(json in near(&event::mapping()))| {
        runtime.block_on(send_mapping(&world, &stand_in, &json));
    });
}

#[test]
fn any_mapping_is_passed_on_as_it_was_given() {
    let runtime = runtime();
    let (stand_in, options) = runtime.block_on(StandIn::start(&[]));
    let world = World::mapping_to(&options);
    proptest!(|(mapping in valid_bodies::mapping())| {
        let json = Json::from(&mapping);
        let status = runtime.block_on(send_mapping(&world, &stand_in, &json));
        assert_eq!(status, 201);
    });
}
