//! Documents that are no spans stand in nobody's way: each test puts them in front of good ones.

use bson::raw::{RawArrayBuf, RawDocumentBuf};
use bson::{Bson, Document, doc, rawdoc};
use futures_util::StreamExt;
use mongodb::Collection;
use sampler_store::{DueQuery, Events, Reading, StartOutcome, StopOutcome, Work};
use sampler_store_testing::support::{
    at, due, everything, id, kept, must_start, new_stop, span_query, start, started, suspended,
};

use crate::support::{database_of, store_and_spans};

/// A text that becomes bytes that are not UTF-8.
const BROKEN: &str = "BROKEN";

/// The document, with bytes that are not UTF-8 for each [`BROKEN`].
fn broken(document: &Document) -> RawDocumentBuf {
    let mut bytes = document.to_vec().unwrap();
    for place in 0..bytes.len() - BROKEN.len() {
        if bytes[place..].starts_with(BROKEN.as_bytes()) {
            bytes[place] = 0xff;
        }
    }
    RawDocumentBuf::from_bytes(bytes).unwrap()
}

/// Adds copies of a span that cannot be read, in front of it.
async fn spoil(spans: &Collection<Document>, name: &str) {
    let by_name = doc! { "start_dedup_id": name };
    let good = spans.find_one(by_name).await.unwrap().unwrap();
    let mut list = RawArrayBuf::new();
    let odd: [(Bson, &str, Bson); 4] = [
        ("odd-1".into(), "measured_usage", BROKEN.into()),
        (7.into(), "start", "yesterday".into()),
        (doc! { "a": BROKEN }.into(), "note", 1.into()),
        ("odd-2".into(), "note", BROKEN.into()),
    ];
    for (number, (id, member, value)) in odd.into_iter().enumerate() {
        let mut document = good.clone();
        document.insert("_id", id);
        document.insert(member, value);
        document.insert("start_dedup_id", format!("odd {number}"));
        let target = document.get_document_mut("target").unwrap();
        target.insert("correlation_id", format!("odd {number}"));
        let processing = document.get_document_mut("processing").unwrap();
        if number == 0 {
            processing.insert("version", "first");
        }
        list.push(broken(&document));
    }
    let command = rawdoc! { "insert": spans.name(), "documents": list, "ordered": false };
    let answer = database_of(spans).run_raw_command(command).await.unwrap();
    assert!(!answer.contains_key("writeErrors"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_and_lists_step_over_them() {
    let (store, spans) = store_and_spans("unreadable").await;
    must_start(&store, Some("a"), "a", 0).await;
    spoil(&spans, "a").await;
    must_start(&store, Some("b"), "b", 1).await;
    let mut names = due(&store, 5).await;
    names.retain(|name| !name.starts_with("odd"));
    assert_eq!(names, ["a", "b"]);
    // A page of nothing but them does not end the search.
    let query = DueQuery {
        partitions: everything(),
        now: at(5),
        page: 1,
    };
    let pages: Vec<_> = store.due(query).collect().await;
    assert!(pages.iter().all(Result::is_ok));
    let query = span_query(&[("organization_id", "organization")]);
    let listed = store.spans(&query).await.unwrap();
    let listed = listed.spans.iter().filter_map(|span| span.start_id.clone());
    let listed: Vec<_> = listed
        .filter(|id| !id.as_str().starts_with("odd"))
        .collect();
    assert_eq!(listed, [id("b"), id("a")]);
    assert!(store.span("odd-1", None).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_changes_and_causes_of_others_go_on() {
    let (store, spans) = store_and_spans("unreadable_others").await;
    let first = suspended(&store, "a", 0).await;
    spoil(&spans, "a").await;
    let second = suspended(&store, "b", 5).await;
    let cause = first.suspension().unwrap().cause;
    assert_eq!(second.suspension().unwrap().cause, cause);
    assert_eq!(store.suspended_causes(10).await.unwrap(), [cause]);
    let repeated = start(&store, Some("b"), "b", -3_600_000).await;
    assert!(matches!(repeated, StartOutcome::Repeated { .. }));
    let stopped = store.stop(new_stop(None, "b", 9)).await.unwrap();
    assert_eq!(stopped, StopOutcome::Ended);
    assert_eq!(kept(&store, "b").await.end, Some(at(9)));
    let other = started(&store, "c", "c", 0).await;
    let read = store.read(&other.id, &other.target).await.unwrap();
    assert_eq!(read, Some(other));
}
