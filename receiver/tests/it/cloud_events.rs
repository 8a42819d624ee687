//! CloudEvents: in batches, in structured and in binary mode.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::batches::{CLOUD_EVENTS, results, statuses};
use crate::event::{by, start, stop, with, without};
use crate::world::{EVENTS, HOUR, NOW, START, World, request_as};

const STRUCTURED: &str = "application/cloudevents+json";

/// 2018-08-03T00:00:00 UTC is [`NOW`].
const TIME: &str = "2018-08-03T02:00:00.000999+02:00";

/// An event as a CloudEvent; `id` and `timestamp` of the event itself are left off.
fn cloud_event(kind: &str, event: &Value) -> Value {
    json!({
        "specversion": "1.0",
        "type": format!("com.example.usage.{kind}"),
        "source": "/brokers/a",
        "id": "1",
        "time": TIME,
        "data": without(event, "timestamp"),
    })
}

async fn structured(world: &World, event: &Value) -> Answer {
    let request = request_as(STRUCTURED, EVENTS, event.to_string());
    world.send(request).await
}

/// An event whose attributes are headers; `id` and `timestamp` of the event itself are left off.
pub(crate) fn binary(kind: &str, source: &str, id: &str, event: &Value) -> Request<Body> {
    let body = without(event, "timestamp").to_string();
    let mut request = request_as("application/json", EVENTS, body);
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-type", &format!("usage.{kind}")),
        ("ce-source", source),
        ("ce-id", id),
        ("ce-time", TIME),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}

fn kept(event: &Value) -> Value {
    by("/brokers/a\u{1f}1", event)
}

#[tokio::test]
async fn a_cloud_event_is_answered_as_the_event_that_it_is() {
    let world = World::new();
    let event = cloud_event("start", &start(NOW));
    let answer = structured(&world, &event).await;
    answer.is_created();
    assert!(answer.header("location").is_some());
    structured(&world, &event).await.is_replayed();
    let of_another_source = with(&event, "source", "/brokers/b");
    let refused = structured(&world, &of_another_source).await;
    refused.names(409, "open-span", &[]);
    let mut end = cloud_event("stop", &stop(NOW));
    end["time"] = json!("2018-08-03T01:00:00Z");
    // Other attributes mean nothing, and those that are null are not there.
    end["subject"] = json!("x");
    end["traceparent"] = json!("00-x");
    end["dataschema"] = Value::Null;
    // Neither do those that have the name of a member of an event, of whatever type.
    end["plan_id"] = json!("another");
    end["timestamp"] = json!(1);
    end["previous"] = json!({ "plan_id": "small" });
    end["partitionkey"] = json!({ "of": ["no", "type"] });
    end["datacontenttype"] = json!("application/json; charset=utf-8");
    structured(&world, &end).await.is_created();
    world.assert_kept(&[(&kept(&start(NOW)), Some(&kept(&stop(NOW + HOUR))))]);
    // No id that a provider writes can be that of a CloudEvent.
    let forged = world.post(START, &kept(&start(NOW))).await;
    forged.names(400, "invalid-event", &["#/id"]);
}

#[tokio::test]
async fn attributes_may_be_headers() {
    let world = World::new();
    let binary = |kind: &str, event: &Value| {
        let mut request = binary(kind, "%2Fbrokers/a", "\"\\1\"", event);
        let headers = request.headers_mut();
        headers.insert("ce-subject", "x".parse().unwrap());
        request
    };
    world.send(binary("start", &start(NOW))).await.is_created();
    world.send(binary("start", &start(NOW))).await.is_replayed();
    let same = cloud_event("start", &start(NOW));
    structured(&world, &same).await.is_replayed();
    world.send(binary("stop", &stop(NOW))).await.is_created();
    world.assert_kept(&[(&kept(&start(NOW)), Some(&kept(&stop(NOW))))]);
    let mut wrong = binary("begin", &start(NOW));
    let headers = wrong.headers_mut();
    headers.remove("ce-id");
    headers.append("ce-source", "again".parse().unwrap());
    headers.insert("ce-time", "1533254400000".parse().unwrap());
    headers.insert("ce-specversion", "0.3".parse().unwrap());
    let mut undecodable = binary("stop", &start(NOW));
    let headers = undecodable.headers_mut();
    headers.insert("ce-source", "%ff".parse().unwrap());
    let all = ["ce-specversion", "ce-type", "ce-source", "ce-id", "ce-time"];
    for (wrong, places) in [
        (wrong, &all[..]),
        (undecodable, &["ce-source", "#/measured_usage"]),
    ] {
        let answer = world.send(wrong).await;
        answer.names(400, "invalid-event", places);
    }
}

/// What is no event, and the places that are named. A time must say of which zone it is; RFC 3339 knows no
/// other.
#[rustfmt::skip]
fn wrong_events() -> Vec<(Value, &'static [&'static str])> {
    const NONE: &[&str] = &["#/specversion", "#/type", "#/source", "#/id", "#/time", "#/data"];
    const ODD: &[&str] = &["#/datacontenttype", "#/source", "#/id", "#/time", "#/data/plan_id", "#/data/timestamp"];
    const TIME: &[&str] = &["#/time"];
    let good = cloud_event("start", &start(NOW));
    let mut odd = cloud_event("start", &without(&start(NOW), "plan_id"));
    odd["source"] = json!("a\u{1f}b");
    odd["id"] = json!("");
    odd["time"] = json!("yesterday");
    odd["datacontenttype"] = json!("text/xml");
    odd["data"]["timestamp"] = json!(NOW);
    let nulls = json!({"specversion": null, "type": null, "source": null, "id": null,
        "time": null, "data": null, "data_base64": null});
    let binary = with(&without(&good, "data"), "data_base64", "e30=");
    let wrong: &[(Value, &'static [&'static str])] = &[
        (odd, ODD),
        (json!({}), NONE),
        (nulls, NONE),
        (binary, &["#/data_base64", "#/data"]),
        (json!([good]), &["#"]),
        (with(&good, "id", 1), &["#/id"]),
        (with(&good, "time", json!(["now"])), &["#/time"]),
        (with(&good, "data", "e30="), &["#/data"]),
        (with(&good, "datacontenttype", 7), &["#/datacontenttype"]),
        (with(&good, "source", "x".repeat(1_023)), &["#/id"]),
        (without(&good, "specversion"), &["#/specversion"]),
        (with(&good, "specversion", "0.3"), &["#/specversion"]),
    ];
    let times = [
        "2018-08-03T02:00:00",
        "2018-08-03",
        "1533254400000",
        "2018-08-03T02:00:00+0200",
        "2018-08-03T25:00:00Z",
        "",
    ];
    let of_times = times.map(|time| (with(&good, "time", time), TIME));
    [wrong, &of_times].concat()
}

#[tokio::test]
async fn what_is_wrong_is_named_together_alone_and_in_a_batch() {
    let world = World::new();
    let (events, pointers): (Vec<Value>, Vec<_>) = wrong_events().into_iter().unzip();
    let mut problems = Vec::new();
    for (event, pointers) in events.iter().zip(pointers) {
        let answer = structured(&world, event).await;
        answer.names(400, "invalid-event", pointers);
        problems.push(answer.any_problem());
    }
    let batch = request_as(CLOUD_EVENTS, EVENTS, json!(events).to_string());
    let results = results(&world.send(batch).await);
    let in_batch = results.iter().map(|result| &result["problem"]);
    assert!(in_batch.eq(&problems), "{results:?}");
    assert_eq!(world.store.calls(), 0);
}

#[tokio::test]
async fn a_source_may_be_long_and_a_time_have_any_form_of_rfc_3339() {
    let world = World::new();
    let good = cloud_event("start", &start(NOW));
    for (id, name, value) in [
        ("1", "source", "x".repeat(1_022)),
        ("2", "time", "2018-08-03t00:00:00z".to_owned()),
        ("3", "time", "2018-08-03T00:00:00-00:00".to_owned()),
    ] {
        let mut event = with(&by(id, &good), name, value);
        event["data"]["resource_instance_id"] = json!(id);
        structured(&world, &event).await.is_created();
    }
}

#[tokio::test]
async fn a_batch_of_cloud_events_is_answered_as_a_batch() {
    let world = World::new();
    let mut update = cloud_event("update", &with(&start(NOW), "plan_id", "larger"));
    update["data"]["previous"] = json!({"plan_id": "large"});
    update["id"] = json!("2");
    let wrong = with(&cloud_event("start", &start(NOW)), "data", json!({}));
    let mut end = cloud_event("stop", &with(&stop(NOW), "plan_id", "larger"));
    end["id"] = json!("3");
    let events = json!([cloud_event("start", &start(NOW)), wrong, 7, update, end]);
    for repeats in [0, 3] {
        let batch = request_as(CLOUD_EVENTS, EVENTS, events.to_string());
        let answer = world.send(batch).await;
        assert_eq!(statuses(&answer), [201, 400, 400, 201, 201]);
        assert_eq!(answer.json()["replayed"], repeats);
    }
    assert_eq!(world.ended(), 2);
}

#[tokio::test]
async fn headers_are_percent_decoded_once_and_hold_no_separator() {
    let world = World::new();
    let binary = |source: &str, id: &str| binary("start", source, id, &start(NOW));
    // Two sources and ids that would be one, if the separator could stand in them.
    for (source, id, wrong) in [
        ("a%1Fb", "1", &["ce-source"][..]),
        ("a", "b%1f1", &["ce-id"]),
        ("%00", "%0A", &["ce-source", "ce-id"]),
        ("", "1", &["ce-source"]),
        ("a", "%C3", &["ce-id"]),
    ] {
        let answer = world.send(binary(source, id)).await;
        answer.names(400, "invalid-event", wrong);
    }
    assert_eq!(world.store.calls(), 0);
    // "%2525" is "%25"; what is no escape stays.
    let answer = world.send(binary("/%C3%A4/%2525", "100%")).await;
    answer.is_created();
    let mut same = cloud_event("start", &start(NOW));
    same["source"] = json!("/\u{e4}/%25");
    same["id"] = json!("100%");
    structured(&world, &same).await.is_replayed();
}
