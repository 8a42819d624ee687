//! A collection as the original Sampler leaves it: doubles, nulls and all.

use bson::{Bson, Document, doc, oid::ObjectId};
use sampler_domain::Next;
use sampler_domain::{Granularities, Granularity, Interval, Policy, Refusal, Span};
use sampler_store::{Adopted, Events, StartOutcome, Work};
use sampler_store_testing::support::{Changing, LookingUp, must_start, must_stop};
use sampler_store_testing::support::{
    NOW, at, done, due, id, kept, lost, new_span, start, start_event, target,
};

use crate::support::beside_original;

pub(crate) const HOUR: f64 = 3_600_000.0;
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub(crate) const NOW_DOUBLE: f64 = NOW as f64;

pub(crate) fn policy() -> Policy {
    Policy {
        granularities: Granularities::all(Granularity::Hour),
        stop_grace: 0,
    }
}

/// An open span as the original's receiver inserts it, `hours` from now.
pub(crate) fn original(name: &str, hours: f64) -> Document {
    let start = NOW_DOUBLE + hours * HOUR;
    doc! {
        "_id": ObjectId::new(),
        "target": {
            "organization_id": "organization", "space_id": "space", "consumer_id": "consumer",
            "resource_id": "resource", "plan_id": "plan", "resource_instance_id": name,
            "correlation_id": "00000000-0000-0000-0000-000000000000",
        },
        "measured_usage": [
            { "measure": "memory", "quantity": 512 },
            { "measure": "bytes", "quantity": 3_000_000_000.0 },
            { "measure": "tag", "quantity": { "a": [1, Bson::Null, true, "x"] } },
        ],
        "start": start,
        "start_dedup_id": name,
        "end": Bson::Null,
        "processing": {
            "complete": false,
            "last_interval": { "start": start, "end": start },
            "planned_interval": Bson::Null,
            "last_change_at": start,
            "version": 1,
        },
    }
}

/// What the original's receiver sets when a stop comes, `hours` from now.
pub(crate) fn stopped_by_original(name: &str, hours: f64) -> Document {
    doc! { "$set": {
        "end": NOW_DOUBLE + hours * HOUR,
        "end_is_set": true,
        "end_dedup_id": format!("stop-{name}"),
        "target.correlation_id": ObjectId::new().to_hex(),
    } }
}

fn interval(span: &Span) -> (i64, i64) {
    let last = span.processing.last;
    (last.start.since(at(0)), last.end.since(at(0)))
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_taken_in_in_every_state() {
    let (store, spans) = beside_original("states").await;
    let mut planned = original("planned", -5.0);
    let plan = doc! { "start": NOW_DOUBLE - 5.0 * HOUR, "end": NOW_DOUBLE - 4.0 * HOUR, "usage_guid": "its-own" };
    planned
        .get_document_mut("processing")
        .unwrap()
        .extend(doc! { "planned_interval": plan, "version": 2 });
    let mut executed = original("executed", -5.0);
    let last = doc! { "start": NOW_DOUBLE - 5.0 * HOUR, "end": NOW_DOUBLE - 4.0 * HOUR, "usage_guid": "its-own-2" };
    executed
        .get_document_mut("processing")
        .unwrap()
        .extend(doc! { "last_interval": last, "version": 3.0 });
    let mut complete = original("complete", -5.0);
    complete
        .get_document_mut("processing")
        .unwrap()
        .insert("complete", true);
    let mut without = original("without", 0.5);
    without.remove("start_dedup_id");
    without
        .get_document_mut("processing")
        .unwrap()
        .remove("planned_interval");
    spans
        .insert_many([original("new", -5.0), planned, executed, complete, without])
        .await
        .unwrap();
    assert_eq!(due(&store, 0).await, Vec::<String>::new());
    let adopted = store.adopt(&policy(), at(0), 100).await.unwrap();
    assert_eq!(
        adopted,
        Adopted {
            starts: 5,
            stops: 0
        }
    );
    assert_eq!(
        store.adopt(&policy(), at(0), 100).await.unwrap(),
        Adopted::default()
    );

    let mut names = due(&store, 0).await;
    names.sort();
    assert_eq!(names, ["executed", "new", "planned"]);
    let names = due(&store, 3_600_000).await;
    assert!(
        names.contains(&String::new()),
        "the one without an id is due at its boundary"
    );

    let span = kept(&store, "planned").await;
    let plan = span.processing.planned.clone().unwrap();
    assert_eq!(plan.usage_guid, "its-own");
    assert_eq!(
        plan.interval,
        Interval {
            start: at(-5 * 3_600_000),
            end: at(-4 * 3_600_000)
        }
    );
    let span = done(store.executed(&span, Next::Wait, at(0), at(1)).await);
    assert_eq!(span, kept(&store, "planned").await);
    let span = kept(&store, "executed").await;
    assert_eq!(span.processing.version, 3);
    assert_eq!(interval(&span), (-5 * 3_600_000, -4 * 3_600_000));
    let quantity = span.measures.as_slice()[1].quantity.as_json();
    assert_eq!(quantity.as_f64(), Some(3_000_000_000.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_that_an_original_receiver_writes_are_noticed() {
    let (store, spans) = beside_original("stops").await;
    for (name, hours) in [("ours", -5), ("future", -5), ("failing", -5)] {
        must_start(&store, Some(name), name, hours * 3_600_000).await;
        let span = kept(&store, name).await;
        done(store.postpone(&span, at(24 * 3_600_000)).await);
    }
    spans.insert_one(original("theirs", -5.0)).await.unwrap();
    store.adopt(&policy(), at(0), 100).await.unwrap();
    let theirs = kept(&store, "theirs").await;
    done(store.postpone(&theirs, at(24 * 3_600_000)).await);
    for (name, hours) in [("ours", -1.0), ("theirs", -2.0), ("future", 3.0)] {
        let filter = doc! { "target.resource_instance_id": name };
        let update = stopped_by_original(name, hours);
        assert_eq!(
            spans
                .update_one(filter, update)
                .await
                .unwrap()
                .modified_count,
            1
        );
    }
    assert_eq!(due(&store, 0).await, Vec::<String>::new());
    let adopted = store.adopt(&policy(), at(0), 100).await.unwrap();
    assert_eq!(
        adopted,
        Adopted {
            starts: 0,
            stops: 3
        }
    );
    assert_eq!(
        store.adopt(&policy(), at(0), 100).await.unwrap(),
        Adopted::default()
    );
    assert_eq!(due(&store, 0).await, ["theirs", "ours"]);
    assert_eq!(
        due(&store, 3 * 3_600_000).await,
        ["theirs", "ours", "future"]
    );
    assert!(
        lost(store.postpone(&theirs, at(0)).await),
        "it was read before the stop"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_both_receivers_meet_in_one_collection() {
    let (store, spans) = beside_original("side_by_side").await;
    spans.insert_one(original("a", -5.0)).await.unwrap();
    // A start that the original kept, repeated to us; its quantities come back as integers.
    let json = r#"[512, 3000000000, {"a": [1, null, true, "x"]}]"#;
    let values: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    let names = ["memory", "bytes", "tag"];
    let measures = names.into_iter().zip(values).map(|(name, value)| {
        sampler_domain::Measure::new(name, sampler_domain::Quantity::new(value).unwrap()).unwrap()
    });
    let mut event = sampler_store_testing::support::start_event(Some("a"), "a", -5 * 3_600_000);
    event.measures = sampler_domain::Measures::new(measures.collect()).unwrap();
    let new = sampler_store_testing::support::new_span(event);
    assert!(matches!(
        store.start(new).await.unwrap(),
        StartOutcome::Repeated { .. }
    ));
    assert_eq!(
        start(&store, Some("b"), "a", 0).await,
        StartOutcome::Refused(Refusal::AlreadyOpen)
    );
    // A stop of ours, before the span was taken in, is not undone by taking it in.
    must_stop(&store, Some("z"), "a", -3 * 3_600_000).await;
    let adopted = store.adopt(&policy(), at(0), 100).await.unwrap();
    assert_eq!(
        adopted,
        Adopted {
            starts: 1,
            stops: 0
        }
    );
    assert_eq!(due(&store, 0).await, ["a"]);
    let document = spans
        .find_one(doc! { "start_dedup_id": "a" })
        .await
        .unwrap()
        .unwrap();
    assert!(document.get_bool("end_is_set").unwrap());
    assert_eq!(
        store
            .stopped_by(&target("a"), &id("z"))
            .await
            .unwrap()
            .unwrap()
            .end,
        Some(at(-3 * 3_600_000))
    );
}

fn keys(document: &Document) -> String {
    document.keys().cloned().collect::<Vec<_>>().join(" ")
}

/// The documents that we write are those of the paper, with the nulls of the original, whether a
/// start goes out alone or with others. The server orders the outermost members as it likes; an
/// original compares targets as a whole, so theirs must keep their order.
#[tokio::test(flavor = "multi_thread")]
async fn our_documents_are_those_of_the_paper() {
    let (store, spans) = beside_original("paper").await;
    for (instance, as_with_others) in [("i", false), ("j", true)] {
        let mut new = new_span(start_event(Some(instance), instance, 0));
        // With that, there is nothing to be looked at, and one is inserted as many are.
        new.may_overlap = as_with_others;
        assert_eq!(store.start(new).await.unwrap(), StartOutcome::Opened);
        let filter = doc! { "start_dedup_id": instance };
        let open = spans.find_one(filter).await.unwrap().unwrap();
        let mut names: Vec<&str> = open.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names.join(" "),
            "_id end measured_usage processing start start_dedup_id target"
        );
        assert_eq!(open.get("end"), Some(&Bson::Null));
        let processing = open.get_document("processing").unwrap();
        assert_eq!(
            keys(processing),
            "complete last_interval planned_interval last_change_at version due_at partition key"
        );
        assert_eq!(processing.get("planned_interval"), Some(&Bson::Null));
        assert_eq!(processing.get("version"), Some(&Bson::Int32(1)));
        let target = open.get_document("target").unwrap();
        assert_eq!(
            keys(target),
            "organization_id space_id consumer_id resource_id plan_id resource_instance_id \
             correlation_id"
        );
        assert_eq!(
            target.get_str("correlation_id").unwrap(),
            "00000000-0000-0000-0000-000000000000"
        );
    }
    must_stop(&store, Some("z"), "i", 1).await;
    let filter = doc! { "start_dedup_id": "i" };
    let ended = spans.find_one(filter).await.unwrap().unwrap();
    let target = ended.get_document("target").unwrap();
    assert_ne!(
        target.get_str("correlation_id").unwrap(),
        "00000000-0000-0000-0000-000000000000"
    );
    assert_eq!(ended.get_str("end_dedup_id").unwrap(), "z");
    assert_eq!(ended.get("end"), Some(&Bson::Int64(NOW + 1)));
}

/// A document that nobody can read is reported and left alone; the others are sampled.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_cannot_be_read_blocks_nobody() {
    let (store, spans) = beside_original("unreadable").await;
    let mut bad = original("bad", -5.0);
    bad.insert("start", "yesterday");
    spans
        .insert_many([bad, original("good", -4.0)])
        .await
        .unwrap();
    assert_eq!(store.adopt(&policy(), at(0), 100).await.unwrap().starts, 2);
    assert_eq!(due(&store, 0).await, ["good"]);
    assert_eq!(due(&store, 0).await, ["good"]);
    let bad = spans
        .find_one(doc! { "start_dedup_id": "bad" })
        .await
        .unwrap()
        .unwrap();
    let error = bad
        .get_document("processing")
        .unwrap()
        .get_document("last_error")
        .unwrap();
    assert_eq!(
        error.get_str("message").unwrap(),
        "the member start is not a whole number"
    );
    assert_eq!(bad.get_str("start").unwrap(), "yesterday");
}
