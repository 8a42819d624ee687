//! Documents that are no spans stand in nobody's way: each test puts them in front of good ones.

use bson::raw::{RawArrayBuf, RawDocumentBuf};
use bson::{Bson, Document, doc, rawdoc};
use futures_util::future::join_all;
use mongodb::Collection;
use sampler_domain::Refusal;
use sampler_store::{DueQuery, Events, StartOutcome, StopOutcome, StoreError, Work};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{Changing, LookingUp, must_plan, must_start, must_stop};
use sampler_store_testing::support::{
    NOW, at, due, everything, id, kept, lost, new_stop, next_page, start, started, target,
};

use crate::original::{original, policy};
use crate::support::{beside_original, database_of, placed};

const HOUR: i64 = 3_600_000;
/// A text that becomes bytes that are not UTF-8.
pub(crate) const BROKEN: &str = "BROKEN";

/// A document of the original, as it is once it was taken over: due `millis` after now.
fn taken_in(name: &str, millis: i64) -> Document {
    let mut span = original(name, -1.0);
    set(&mut span, "processing.due_at", NOW + millis);
    for (path, value) in placed(&target(name)) {
        set(&mut span, &path, value);
    }
    span
}

fn set(document: &mut Document, path: &str, value: impl Into<Bson>) {
    match path.split_once('.') {
        Some((member, rest)) => set(document.get_document_mut(member).unwrap(), rest, value),
        None => drop(document.insert(path, value)),
    }
}

/// The document, with bytes that are not UTF-8 for each [`BROKEN`].
pub(crate) fn broken(document: &Document) -> RawDocumentBuf {
    let mut bytes = document.to_vec().unwrap();
    let mut is_broken = false;
    for place in 0..bytes.len() - BROKEN.len() {
        if bytes[place..].starts_with(BROKEN.as_bytes()) {
            bytes[place] = 0xff;
            is_broken = true;
        }
    }
    assert!(is_broken, "nothing to break in {document}");
    RawDocumentBuf::from_bytes(bytes).unwrap()
}

/// A value that is not UTF-8, once [`broken`].
fn with_broken_usage(mut span: Document) -> Document {
    set(
        &mut span,
        "measured_usage",
        [doc! { "measure": BROKEN, "quantity": 1 }],
    );
    span
}

/// The document under `processing` becomes the only member of a list, beside one that is not UTF-8.
fn with_listed_processing(mut span: Document) -> Document {
    let mut processing = span.get_document("processing").unwrap().clone();
    processing.insert("note", BROKEN);
    span.insert("processing", [processing]);
    span
}

/// Documents of each kind that cannot be read, made of such as `make` gives for a name.
fn of_each_kind(make: impl Fn(&str) -> Document) -> Vec<RawDocumentBuf> {
    let mut with_broken_id = make("with-broken-id");
    with_broken_id.insert("_id", BROKEN);
    let mut with_broken_name = make("with-broken-name");
    with_broken_name.insert(BROKEN, 1);
    let mut with_a_number = with_broken_usage(make("with-a-number"));
    with_a_number.insert("_id", 7);
    let mut with_a_document = with_broken_usage(make("with-a-document"));
    with_a_document.insert("_id", doc! { "a": BROKEN });
    [
        with_broken_id,
        with_broken_name,
        with_a_number,
        with_a_document,
        with_broken_usage(make("with-broken-usage")),
        with_listed_processing(make("with-listed-processing")),
    ]
    .iter()
    .map(broken)
    .collect()
}

/// The driver's own `insert_many` reads each `_id`.
async fn put(spans: &Collection<Document>, documents: impl IntoIterator<Item = RawDocumentBuf>) {
    let mut list = RawArrayBuf::new();
    documents
        .into_iter()
        .for_each(|document| list.push(document));
    let command = rawdoc! { "insert": spans.name(), "documents": list, "ordered": false };
    let database = database_of(spans);
    let answer = database.run_raw_command(command).await.unwrap();
    assert!(!answer.contains_key("writeErrors"), "{answer}");
}

fn good(span: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(span).unwrap()
}

/// All documents, byte by byte.
async fn bytes(spans: &Collection<Document>) -> Vec<Vec<u8>> {
    let mut cursor = spans.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
    let mut all = Vec::new();
    while cursor.advance().await.unwrap() {
        all.push(cursor.current().as_bytes().to_vec());
    }
    all
}

/// The sizes of the pages of a search, and the start ids on them.
async fn pages(store: &MongoStore, page: usize) -> (usize, Vec<String>) {
    let mut pages = store.due(DueQuery {
        partitions: everything(),
        now: at(0),
        page,
    });
    let (mut count, mut ids) = (0, Vec::new());
    while let Some(page) = next_page(&mut pages).await {
        count += 1;
        ids.extend(page);
    }
    (count, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_search_steps_over_them_and_leaves_them_as_they_are() {
    let (store, spans) = beside_original("unreadable_due").await;
    put(&spans, of_each_kind(|name| taken_in(name, -10))).await;
    put(&spans, [good(&taken_in("good", -5))]).await;
    let before = bytes(&spans).await;
    for _ in 0..2 {
        // Each page is a sign of life, also where nothing on it can be read.
        assert_eq!(pages(&store, 2).await, (4, vec!["good".to_owned()]));
    }
    assert_eq!(bytes(&spans).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_original_started_behind_them_is_taken_over_and_they_stay_as_they_are() {
    let (store, spans) = beside_original("unreadable_takeover").await;
    put(&spans, of_each_kind(|name| original(name, -1.0))).await;
    let with_end = |name: &str, end: Bson| {
        let mut span = original(name, -1.0);
        set(&mut span, "end", end);
        set(&mut span, "target.correlation_id", name);
        good(&span)
    };
    put(
        &spans,
        [
            with_end("text", "yesterday".into()),
            with_end("nan", f64::NAN.into()),
            with_end("fraction", 1.5.into()),
            with_end("list", vec![Bson::Int64(NOW - 1)].into()),
            with_end("date", bson::DateTime::from_millis(NOW - 1).into()),
        ],
    )
    .await;
    let before = bytes(&spans).await;
    let names = ["a", "b", "c"];
    put(&spans, names.map(|name| good(&original(name, -1.0)))).await;
    store.take_over(&policy(), at(0)).await.unwrap();
    let mut found = due(&store, 0).await;
    // All of them are due at the same moment.
    found.sort();
    assert_eq!(found, names);
    let after = bytes(&spans).await;
    assert!(before.iter().all(|document| after.contains(document)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clean_up_removes_what_is_behind_them() {
    let (store, spans) = beside_original("unreadable_clean_up").await;
    let complete = |name: &str, millis: i64| {
        let mut span = taken_in(name, 0);
        set(&mut span, "target.correlation_id", name);
        set(&mut span, "processing.complete", true);
        set(&mut span, "processing.last_interval.end", NOW + millis);
        span
    };
    put(&spans, of_each_kind(|name| complete(name, -10))).await;
    put(&spans, ["a", "b"].map(|name| good(&complete(name, -5)))).await;
    let mut removed = Vec::new();
    for _ in 0..4 {
        let ids = store.completed_before(at(0), 1).await.unwrap();
        removed.push(store.remove(&ids).await.unwrap());
    }
    // Two of them have ids like ours, and are complete beyond doubt.
    assert_eq!(removed, [1, 1, 1, 1]);
    assert_eq!(store.completed_before(at(0), 1).await.unwrap(), []);
    let listed = doc! { "start_dedup_id": "with-listed-processing" };
    assert_eq!(spans.count_documents(listed).await.unwrap(), 1);
    assert_eq!(spans.count_documents(doc! {}).await.unwrap(), 4);
}

/// How many events come at once; more than go out alone.
const EVENTS: usize = 40;

/// On one thread, all of them share one command.
#[tokio::test]
async fn events_that_do_not_concern_them_have_their_answers() {
    let (store, spans) = beside_original("unreadable_look").await;
    let name = |number: usize| format!("instance-{number}");
    for number in 0..EVENTS {
        if number == 7 {
            let span = with_broken_usage(taken_in(&name(number), 0));
            put(&spans, [broken(&span)]).await;
        } else {
            must_start(&store, Some(&name(number)), &name(number), 0).await;
        }
    }
    let starts = (0..EVENTS).map(|number| {
        let event =
            sampler_store_testing::support::start_event(Some(&name(number)), &name(number), 0);
        store.start(sampler_store_testing::support::new_span(event))
    });
    for (number, answer) in join_all(starts).await.into_iter().enumerate() {
        match answer {
            Err(StoreError::Refused(_)) => assert_eq!(number, 7),
            answer => assert!(
                matches!(answer.unwrap(), StartOutcome::Repeated { .. }),
                "{number}"
            ),
        }
    }
    // Too early for all of them, so that each is looked at.
    let stops = (0..EVENTS).map(|number| store.stop(new_stop(None, &name(number), -2 * HOUR)));
    for (number, answer) in join_all(stops).await.into_iter().enumerate() {
        let StopOutcome::Refused(Refusal::BeforeStart { start }) = answer.unwrap() else {
            panic!("{number} is too early");
        };
        assert!(start == at(0) || number == 7, "{number}: {start}");
    }
    assert!(
        store
            .started_by(&target(&name(7)), &id(&name(7)))
            .await
            .is_err()
    );
    // It can still be ended: its measures need not be read for that.
    must_stop(&store, Some("end"), &name(7), 1).await;
    let stopped = store.stopped_by(&target(&name(7)), &id("end")).await;
    assert!(stopped.unwrap().is_some());
}

/// On one thread, all of them share one command.
#[tokio::test]
async fn changes_of_other_spans_are_made_or_lost_as_ever() {
    let (store, spans) = beside_original("unreadable_changes").await;
    let mut read = Vec::new();
    for number in 0..EVENTS {
        let name = number.to_string();
        read.push(started(&store, &name, &name, -HOUR).await);
    }
    for span in &read {
        must_plan(&store, span, 0).await;
    }
    let broken_one = doc! { "start_dedup_id": "7" };
    let mut document = spans.find_one(broken_one.clone()).await.unwrap().unwrap();
    document.insert("measured_usage", [doc! { "measure": BROKEN }]);
    spans.delete_one(broken_one).await.unwrap();
    put(&spans, [broken(&document)]).await;
    let changes = read.iter().map(|span| store.postpone(span, at(5)));
    for (number, answer) in join_all(changes).await.into_iter().enumerate() {
        assert!(lost(answer), "{number}");
    }
    assert!(store.read(&read[7].id, &read[7].target).await.is_err());
    assert_eq!(kept(&store, "8").await.processing.version, 2);
}

/// A start is compared with the ends of other spans of its instance alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_refused_inside_a_previous_span_that_cannot_be_read() {
    let (store, spans) = beside_original("unreadable_previous").await;
    let mut ended = with_broken_usage(taken_in("i", 0));
    set(&mut ended, "end", NOW + HOUR);
    set(&mut ended, "target.correlation_id", "ended");
    put(&spans, [broken(&ended)]).await;
    let answer = start(&store, Some("a"), "i", 0).await;
    assert_eq!(
        answer,
        StartOutcome::Refused(Refusal::Overlaps { until: at(HOUR) })
    );
}
