//! Taking over a collection as the original Sampler leaves it: doubles, nulls, UUID binaries and all.

use std::collections::BTreeSet;

use bson::{Bson, Document, doc, oid::ObjectId};
use mongodb::Collection;
use sampler_domain::{Granularities, Granularity, Interval, Policy, Refusal, Span};
use sampler_store::{Events, StartOutcome, StopOutcome};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{
    Changing, LookingUp, NOW, at, due, id, kept, must_start, must_stop, new_span, next, start,
    start_event, stop, target,
};

use crate::migration::NAMES;
use crate::support::{
    beside, beside_original, database_of, index_names, make_original_indexes, store_and_spans,
};

const HOUR: f64 = 3_600_000.0;
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
const NOW_DOUBLE: f64 = NOW as f64;

fn policy() -> Policy {
    Policy {
        granularities: Granularities::all(Granularity::Hour),
        stop_grace: 0,
    }
}

/// An open span as the original's receiver inserts it, `hours` from now.
fn original(name: &str, hours: f64) -> Document {
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
fn stopped_by_original(name: &str, hours: f64) -> Document {
    doc! { "$set": {
        "end": NOW_DOUBLE + hours * HOUR,
        "end_is_set": true,
        "end_dedup_id": format!("stop-{name}"),
        "target.correlation_id": ObjectId::new().to_hex(),
    } }
}

/// What its worker sets: it has planned to this hour, under an id of its own, or executed that.
fn sampled(name: &str, member: &str, to: f64, version: impl Into<Bson>) -> Document {
    let mut span = original(name, -5.0);
    let interval = doc! {
        "start": NOW_DOUBLE - 5.0 * HOUR, "end": NOW_DOUBLE + to * HOUR, "usage_guid": "its-own",
    };
    let processing = span.get_document_mut("processing").unwrap();
    processing.insert(member, interval);
    processing.insert("version", version.into());
    span
}

fn with(mut span: Document, path: &str, value: impl Into<Bson>) -> Document {
    match path.split_once('.') {
        Some((member, rest)) => {
            let inner = span.get_document(member).unwrap().clone();
            span.insert(member, with(inner, rest, value));
        }
        None => drop(span.insert(path, value)),
    }
    span
}

/// A span that its receiver has stopped.
fn stopped(span: Document, hours: f64) -> Document {
    let name = span.get_document("target").unwrap();
    let name = name.get_str("resource_instance_id").unwrap().to_owned();
    let update = stopped_by_original(&name, hours);
    let mut span = span;
    for (path, value) in update.get_document("$set").unwrap() {
        span = with(span, path, value.clone());
    }
    span
}

fn complete(name: &str) -> Document {
    let span = sampled(name, "last_interval", -4.0, 3.0);
    with(stopped(span, -4.0), "processing.complete", true)
}

async fn take_over(store: &MongoStore) {
    store.take_over(&policy(), at(0)).await.unwrap();
}

async fn all(spans: &Collection<Document>) -> Vec<Document> {
    let mut cursor = spans.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
    let mut all = Vec::new();
    while cursor.advance().await.unwrap() {
        all.push(cursor.deserialize_current().unwrap());
    }
    all
}

async fn unconverted(spans: &Collection<Document>) -> u64 {
    let without = doc! { "processing.partition": Bson::Null };
    spans.count_documents(without).await.unwrap()
}

fn last(span: &Span) -> (i64, i64) {
    let last = span.processing.last;
    (last.start.since(at(0)), last.end.since(at(0)))
}

const MILLIS_OF_HOUR: i64 = 3_600_000;

#[tokio::test(flavor = "multi_thread")]
async fn documents_in_every_state_are_converted() {
    let (store, spans) = beside_original("states").await;
    let mut without = original("without", 0.5);
    without.remove("start_dedup_id");
    let processing = without.get_document_mut("processing").unwrap();
    processing.remove("planned_interval");
    spans
        .insert_many([
            original("new", -5.0),
            sampled("planned", "planned_interval", -4.0, 2),
            sampled("executed", "last_interval", -4.0, 3.0),
            stopped(original("stopped", -5.0), -3.0),
            stopped(sampled("back", "last_interval", 0.0, 5), -2.5),
            stopped(original("ahead", 0.25), 2.0),
            complete("complete"),
            without,
        ])
        .await
        .unwrap();
    assert_eq!(due(&store, 0).await, Vec::<String>::new());
    take_over(&store).await;

    let mut names = due(&store, 0).await;
    names.sort();
    assert_eq!(names, ["back", "executed", "new", "planned", "stopped"]);
    let mut names = due(&store, MILLIS_OF_HOUR).await;
    names.sort();
    // The one without an id is due at its boundary, too.
    assert_eq!(names[..2], ["", "ahead"]);
    let planned = kept(&store, "planned").await;
    let plan = planned.processing.planned.clone().unwrap();
    assert_eq!(plan.usage_guid, "its-own");
    let interval = Interval {
        start: at(-5 * MILLIS_OF_HOUR),
        end: at(-4 * MILLIS_OF_HOUR),
    };
    assert_eq!(plan.interval, interval);
    // The original may have posted it.
    assert!(plan.unanswered && plan.by.is_none());
    let after = store.must_make(&planned, next(&planned, 0)).await;
    assert_eq!(after, kept(&store, "planned").await);
    let executed = kept(&store, "executed").await;
    assert_eq!(executed.processing.version, 3);
    let interval = (-5 * MILLIS_OF_HOUR, -4 * MILLIS_OF_HOUR);
    assert_eq!(last(&executed), interval);
    let quantity = executed.measures.as_slice()[1].quantity.as_json();
    assert_eq!(quantity.as_f64(), Some(3_000_000_000.0));
    assert_eq!(index_names(&spans).await, names_of_ours());
}

fn names_of_ours() -> BTreeSet<String> {
    NAMES.map(str::to_owned).into()
}

/// Events find what the original has kept, and ids count within their targets.
#[tokio::test(flavor = "multi_thread")]
async fn events_go_on_where_the_original_has_left_off() {
    let (store, spans) = beside_original("go_on").await;
    let documents = [original("a", -5.0), complete("complete")];
    spans.insert_many(documents).await.unwrap();
    take_over(&store).await;
    // A start that the original kept, repeated to us; its quantities come back as integers.
    let json = r#"[512, 3000000000, {"a": [1, null, true, "x"]}]"#;
    let values: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
    let names = ["memory", "bytes", "tag"];
    let measures = names.into_iter().zip(values).map(|(name, value)| {
        sampler_domain::Measure::new(name, sampler_domain::Quantity::new(value).unwrap()).unwrap()
    });
    let mut event = start_event(Some("a"), "a", -5 * MILLIS_OF_HOUR);
    event.measures = sampler_domain::Measures::new(measures.collect()).unwrap();
    let repeated = store.start(new_span(event)).await.unwrap();
    assert!(matches!(repeated, StartOutcome::Repeated { .. }));
    assert_eq!(
        start(&store, Some("b"), "a", 0).await,
        StartOutcome::Refused(Refusal::AlreadyOpen)
    );
    must_stop(&store, Some("z"), "a", -3 * MILLIS_OF_HOUR).await;
    assert_eq!(due(&store, 0).await, ["a"]);
    let repeated = stop(
        &store,
        Some("stop-complete"),
        "complete",
        -4 * MILLIS_OF_HOUR,
    )
    .await;
    assert_eq!(repeated, StopOutcome::Repeated);
    // The ids of others block nobody.
    must_start(&store, Some("a"), "other", 0).await;
    must_stop(&store, Some("stop-complete"), "other", 1).await;
}

const UUID: &str = "1f9b525c-6a15-4e73-b9ba-72963436334f";

fn binary(uuid: &str) -> Bson {
    bson::Uuid::parse_str(uuid).unwrap().into()
}

/// Ids as some of its drivers keep them.
#[tokio::test(flavor = "multi_thread")]
async fn ids_that_are_kept_as_binaries_become_texts() {
    let (store, spans) = beside_original("binary_ids").await;
    let ended = with(complete("ended"), "start_dedup_id", binary(UUID));
    let ended = with(ended, "end_dedup_id", binary(UUID));
    // The same id as a text, of another target.
    let other = with(original("other", -5.0), "start_dedup_id", UUID);
    spans.insert_many([ended, other]).await.unwrap();
    take_over(&store).await;
    for instance in ["ended", "other"] {
        let found = store.started_by(&target(instance), &id(UUID)).await;
        assert_eq!(found.unwrap().unwrap().start_id, Some(id(UUID)));
    }
    let stopped = store.stopped_by(&target("ended"), &id(UUID)).await;
    assert!(stopped.unwrap().is_some());
    let binaries = doc! { "$or": [
        { "start_dedup_id": { "$type": "binData" } }, { "end_dedup_id": { "$type": "binData" } },
    ] };
    assert_eq!(spans.count_documents(binaries).await.unwrap(), 0);
    // A repeated stop must not end the next span, which begins where the repeated one ended.
    must_start(&store, None, "ended", -4 * MILLIS_OF_HOUR).await;
    let repeated = stop(&store, Some(UUID), "ended", -4 * MILLIS_OF_HOUR).await;
    assert_eq!(repeated, StopOutcome::Repeated);
}

/// No index of the original tells that a text and its binary are the same id.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_the_original_has_kept_twice_keeps_its_id_once() {
    for which in ["start_dedup_id", "end_dedup_id"] {
        let (store, spans) = beside_original("kept_twice").await;
        let first = with(complete("i"), which, binary(UUID));
        let second = stopped(original("i", -3.0), -2.0);
        let second = with(second, "start_dedup_id", "second");
        let second = with(second, "end_dedup_id", "stop-second");
        let second = with(second, which, UUID);
        spans.insert_many([first, second]).await.unwrap();
        take_over(&store).await;
        assert_eq!(unconverted(&spans).await, 0, "{which}");
        let with_id = doc! { which: UUID };
        assert_eq!(spans.count_documents(with_id).await.unwrap(), 1, "{which}");
        let others = ["start_dedup_id", "end_dedup_id"].into_iter();
        for other in others.filter(|other| *other != which) {
            let with_other = doc! { other: { "$exists": true } };
            let count = spans.count_documents(with_other).await.unwrap();
            assert!(count > 0, "{other} stays");
        }
    }
}

/// What cannot be read is left, and whatever else there is goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_cannot_be_read_blocks_nobody() {
    let (store, spans) = beside_original("left").await;
    let bad = with(original("bad", -5.0), "start", "yesterday");
    // Its target has an open span already, which an index of the original would have refused.
    let second = with(original("good", -4.0), "target.correlation_id", "none");
    let second = with(second, "start_dedup_id", "second");
    let documents = [bad.clone(), original("good", -4.0), second];
    spans.insert_many(documents).await.unwrap();
    let same = doc! { "$set": { "target.correlation_id": "00000000-0000-0000-0000-000000000000" } };
    spans.drop_index("unique_target").await.unwrap();
    let by_id = doc! { "start_dedup_id": "second" };
    spans.update_one(by_id, same).await.unwrap();
    take_over(&store).await;
    assert_eq!(unconverted(&spans).await, 2);
    assert_eq!(due(&store, 0).await.len(), 1);
    assert!(all(&spans).await.contains(&bad));
    // Corrected, it is taken over by the next worker that starts.
    let by_id = doc! { "start_dedup_id": "bad" };
    let correction = doc! { "$set": { "start": NOW_DOUBLE - 5.0 * HOUR } };
    spans.update_one(by_id, correction).await.unwrap();
    take_over(&store).await;
    assert_eq!(unconverted(&spans).await, 1);
    assert!(due(&store, 0).await.contains(&"bad".to_owned()));
}

/// Receivers keep nothing before that.
#[tokio::test(flavor = "multi_thread")]
async fn the_format_is_there_once_all_is_converted() {
    // A collection that nobody has used gets the format from whoever comes first.
    let (store, spans) = store_and_spans("format_unused").await;
    assert!(store.has_format().await.unwrap());
    assert!(beside(&spans).await.has_format().await.unwrap());
    // The original may be about to write.
    let (store, spans) = beside_original("format_original").await;
    assert!(!store.has_format().await.unwrap());
    spans.insert_one(original("a", -5.0)).await.unwrap();
    assert!(!store.has_format().await.unwrap());
    take_over(&store).await;
    assert!(store.has_format().await.unwrap());
    assert!(beside(&spans).await.has_format().await.unwrap());
    // Its indexes need not be there.
    let (store, spans) = store_and_spans("format_documents").await;
    spans.insert_one(original("a", -5.0)).await.unwrap();
    assert!(!store.has_format().await.unwrap());
    take_over(&store).await;
    assert!(store.has_format().await.unwrap());
    // What a later release has written is left to it.
    let control = database_of(&spans).collection::<Document>("spans_control");
    let later = doc! { "$set": { "version": 2 } };
    let updated = control.update_one(doc! { "_id": "format" }, later).await;
    assert_eq!(updated.unwrap().modified_count, 1);
    assert!(store.has_format().await.is_err());
    assert!(store.take_over(&policy(), at(0)).await.is_err());
}

/// Puts the collection into the state in which a worker has died that had converted so many of the
/// documents, and removed so many of the original's indexes.
async fn died(label: &str, converted: usize, removed: usize) -> (MongoStore, Collection<Document>) {
    let (store, spans) = beside_original(label).await;
    let documents = (0..6).map(|number| original(&number.to_string(), -5.0));
    let documents: Vec<Document> = documents.collect();
    if converted > 0 {
        spans.insert_many(&documents[..converted]).await.unwrap();
        take_over(&store).await;
        let control = database_of(&spans).collection::<Document>("spans_control");
        control.delete_one(doc! { "_id": "format" }).await.unwrap();
        make_original_indexes(&database_of(&spans)).await;
    }
    if converted < documents.len() {
        spans.insert_many(&documents[converted..]).await.unwrap();
    }
    let there = index_names(&spans).await;
    let of_original = there
        .difference(&names_of_ours())
        .cloned()
        .collect::<Vec<_>>();
    for name in of_original.iter().take(removed) {
        spans.drop_index(name).await.unwrap();
    }
    (store, spans)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_is_continued_by_the_next() {
    let states = [(0, 0), (0, 1), (0, 4), (0, 5), (1, 5), (5, 5), (6, 5)];
    for (converted, removed) in states {
        let (store, spans) = died("died", converted, removed).await;
        assert!(!store.has_format().await.unwrap(), "{converted} {removed}");
        take_over(&store).await;
        assert_eq!(unconverted(&spans).await, 0, "{converted} {removed}");
        assert_eq!(index_names(&spans).await, names_of_ours());
        assert!(store.has_format().await.unwrap());
        let before = all(&spans).await;
        take_over(&store).await;
        assert_eq!(all(&spans).await, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_start_at_once_convert_each_document_once() {
    let (store, spans) = beside_original("at_once").await;
    let documents = (0..3_000).map(|number| original(&number.to_string(), -5.0));
    spans.insert_many(documents).await.unwrap();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let worker = beside(&spans).await;
        workers.spawn(async move { worker.take_over(&policy(), at(0)).await.unwrap() });
    }
    workers.join_all().await;
    assert_eq!(unconverted(&spans).await, 0);
    assert_eq!(due(&store, 0).await.len(), 3_000);
    assert_eq!(index_names(&spans).await, names_of_ours());
}

fn keys(document: &Document) -> String {
    document.keys().cloned().collect::<Vec<_>>().join(" ")
}

/// The documents that we write are those of the paper, with the nulls of the original, whether a
/// start goes out alone or with others. The server orders the outermost members as it likes.
#[tokio::test(flavor = "multi_thread")]
async fn our_documents_are_those_of_the_paper() {
    let (store, spans) = beside_original("paper").await;
    let new = |instance| new_span(start_event(Some(instance), instance, 0));
    // The first command takes what there is; what comes meanwhile shares the next one.
    let starts = ["i", "j", "k"].map(|instance| store.start(new(instance)));
    for opened in futures_util::future::join_all(starts).await {
        assert_eq!(opened.unwrap(), StartOutcome::Opened);
    }
    for instance in ["i", "j", "k"] {
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
        assert_eq!(processing.get("version"), Some(&Bson::Int64(1)));
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
