//! Suspended spans in MongoDB: what the original leaves behind.

use bson::{Bson, RawDocumentBuf, doc};
use sampler_domain::{CauseId, Span};
use sampler_store::{Causes, Probe, Resumption};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{Changing, at, done, kept, last_refusal, plan_to, started};

use crate::support::store_and_spans;
use crate::unreadable::{BROKEN, broken};

const HOUR: i64 = 3_600_000;

fn resumption() -> Resumption {
    Resumption {
        now: at(HOUR),
        refusals: 2,
    }
}

/// The original knows no suspensions. What it executes is suspended no longer, and what it leaves
/// behind is removed with the cause.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_original_executes_is_suspended_no_longer() {
    let (store, spans) = store_and_spans("suspension_original").await;
    let span = started(&store, "a", "i", -HOUR).await;
    let planned = store.plan(&span, plan_to(&span, 0), at(0), at(0)).await;
    let planned = done(planned);
    let failed = store.failed(&planned, last_refusal("no mapping", 0));
    let span = done(failed.await);
    let cause = span.processing.suspended.unwrap().cause;
    let update = doc! {
        "$set": { "processing.planned_interval": Bson::Null },
        "$inc": { "processing.version": 1 },
    };
    spans.update_one(doc! {}, update).await.unwrap();
    let read = kept(&store, "a").await;
    assert_eq!(read.processing.suspended, None);
    assert_eq!(read.processing.refusals, 0);
    // The cause has no span left to probe.
    assert_eq!(
        store.probe(cause, resumption(), HOUR).await.unwrap(),
        Probe::NoSpan
    );
    let resumed = store.resume_batch(cause, at(HOUR), resumption(), 10).await;
    assert_eq!(resumed.unwrap(), 1);
    assert_eq!(
        store.probe(cause, resumption(), HOUR).await.unwrap(),
        Probe::NoSpan
    );
    let read = kept(&store, "a").await;
    assert_eq!((read.processing.probe, read.processing.attempts), (None, 0));
}

/// A span that is suspended `millis` after the present.
async fn suspended(store: &MongoStore, name: &str, error: &str, millis: i64) -> Span {
    let span = started(store, name, name, -HOUR).await;
    let planned = store.plan(&span, plan_to(&span, 0), at(0), at(0)).await;
    let planned = done(planned);
    let failed = store.failed(&planned, last_refusal(error, millis));
    done(failed.await)
}

/// What is in front of a cause's spans, and cannot be read or has no error, hides neither the cause
/// nor those behind it.
#[tokio::test(flavor = "multi_thread")]
async fn causes_are_found_behind_spans_that_tell_none() {
    let (store, spans) = store_and_spans("suspension_missing").await;
    let mut ids = Vec::new();
    for error in ["no mapping", "no licence"] {
        for (name, millis) in [("broken", 0), ("forgetful", 1), ("good", 2)] {
            let span = suspended(&store, &format!("{name} {error}"), error, millis).await;
            ids.push(span.processing.suspended.unwrap().cause);
        }
        let filter = doc! { "target.resource_instance_id": format!("broken {error}") };
        let mut document = spans.find_one(filter.clone()).await.unwrap().unwrap();
        document.insert(
            "measured_usage",
            [doc! { "measure": BROKEN, "quantity": 1 }],
        );
        spans.delete_one(filter).await.unwrap();
        let raw = spans.clone_with_type::<RawDocumentBuf>();
        raw.insert_one(broken(&document)).await.unwrap();
    }
    let forget = doc! { "$unset": { "processing.last_error": "" } };
    let some = doc! { "target.resource_instance_id": { "$ne": "good no licence" } };
    spans.update_many(some, forget).await.unwrap();
    assert_eq!(store.register_missing(at(3), at(4)).await.unwrap(), 2);
    let causes = store.due_causes(at(4), 10).await.unwrap();
    let error_of = |id: CauseId| {
        let of = causes.iter().find(|cause| cause.id == id);
        of.map(|cause| (cause.cause.status, cause.cause.error.as_str()))
    };
    assert_eq!(error_of(ids[5]), Some((Some(400), "no licence")));
    // Nobody knows any more; they go on together all the same.
    assert_eq!(error_of(ids[2]), Some((None, "unknown")));
    assert_eq!(causes[0].cause.plan_id.as_str(), "plan");
}
