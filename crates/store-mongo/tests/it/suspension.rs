//! Suspended spans in MongoDB: what it costs to find them, and what the original leaves behind.

use bson::{Bson, Document, RawDocumentBuf, doc};
use mongodb::Collection;
use sampler_domain::{Cause, CauseId, Failure, Span};
use sampler_store::{CauseQuery, Causes, Probe, Reading, Resumption};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{
    Changing, at, done, kept, last_refusal, plan_to, start_event, started,
};

use crate::profile::{assert_cost, cost, examined};
use crate::support::{database_of, store_and_spans};
use crate::unreadable::{BROKEN, broken};

const HOUR: i64 = 3_600_000;

/// Spans that are suspended under one cause, and under another.
const MANY: i32 = 5_000;
const FEW: i32 = 20;

fn resumption() -> Resumption {
    Resumption {
        now: at(HOUR),
        refusals: 2,
    }
}

fn cause(error: &str) -> Cause {
    let span = Span::open(
        sampler_domain::SpanId::new(at(0), 1),
        start_event(None, "i", 0),
    );
    let failure: Failure = last_refusal(error, 0);
    failure.cause(&span).unwrap()
}

/// Makes suspended spans within the server, and one that is not.
async fn fill(spans: &Collection<Document>, first: i32, count: i32, cause: CauseId) {
    let text = doc! { "$toString": "$number" };
    // They are not driven, so it need not be the one of their targets.
    let text_key = text.clone();
    let moment = |millis: i64| doc! { "$literal": Bson::Int64(at(millis).as_millis()) };
    let interval = doc! { "start": moment(-HOUR), "end": moment(-HOUR) };
    let planned = doc! {
        "start": moment(-HOUR), "end": moment(0), "usage_guid": text.clone(),
    };
    let since = Bson::Int64(at(0).as_millis());
    let since = doc! { "$add": [{ "$literal": since }, "$number"] };
    let one = doc! { "$literal": Bson::Int64(2) };
    let documents: Vec<Document> = vec![
        doc! { "$documents": [{ "_": 0 }] },
        doc! { "$project": { "number": { "$range": [first, first + count] } } },
        doc! { "$unwind": "$number" },
        doc! { "$project": {
            "_id": text.clone(),
            "target": {
                "organization_id": "organization", "space_id": "space", "consumer_id": "consumer",
                "resource_id": "resource", "plan_id": "plan", "resource_instance_id": text.clone(),
                "correlation_id": text,
            },
            "measured_usage": { "$literal": [] },
            "start": moment(-HOUR),
            "end": moment(0),
            "processing": {
                "complete": { "$literal": false },
                "last_interval": interval,
                "planned_interval": planned,
                "version": one.clone(),
                "failed_version": one.clone(),
                "attempts": one.clone(),
                "due_at": { "$literal": Bson::Int64(253_402_300_800_000) },
                "partition": { "$mod": ["$number", 64] },
                "key": text_key,
                "suspended": {
                    "cause": { "$literal": cause.to_string() }, "version": one, "since": since,
                },
            },
        } },
        doc! { "$merge": { "into": "spans", "whenMatched": "fail" } },
    ];
    database_of(spans).aggregate(documents).await.unwrap();
}

async fn two_causes(label: &str) -> (MongoStore, Collection<Document>, [CauseId; 2]) {
    let (store, spans) = store_and_spans(label).await;
    let causes = [cause("no mapping"), cause("no licence")];
    let ids = causes.each_ref().map(Cause::id);
    fill(&spans, 0, MANY, ids[0]).await;
    fill(&spans, MANY, FEW, ids[1]).await;
    for cause in &causes {
        store.register(cause, at(0), at(0)).await.unwrap();
    }
    (store, spans, ids)
}

/// Whatever the number of suspended spans is, a probe reads one of them, and a batch those that go on.
#[tokio::test(flavor = "multi_thread")]
async fn probes_and_batches_read_as_much_as_they_change() {
    let (store, spans, ids) = two_causes("suspension_cost").await;
    examined(&spans).await;
    assert_eq!(
        store.probe(ids[0], resumption(), HOUR).await.unwrap(),
        Probe::Begun
    );
    assert_eq!(
        store.probe(ids[1], resumption(), HOUR).await.unwrap(),
        Probe::Begun
    );
    assert_cost(&examined(&spans).await, 2, 2);
    let resumed = store.resume_batch(ids[0], at(HOUR), resumption(), 1_000);
    assert_eq!(resumed.await.unwrap(), 1_000);
    // Each is found by the one index, and changed by the other.
    let (keys, documents) = cost(&examined(&spans).await);
    assert!(keys <= 2_100, "{keys} keys");
    assert!(documents <= 2_100, "{documents} documents");
    let left = doc! { "processing.suspended.cause": ids[0].to_string() };
    let left = spans.count_documents(left).await.unwrap();
    assert_eq!(left, u64::try_from(MANY).unwrap() - 1_001);
    // Those that are suspended later are left alone.
    let earlier = store.resume_batch(ids[1], at(5_000), resumption(), 1_000);
    assert_eq!(earlier.await.unwrap(), 0);
    assert_eq!(store.register_missing(at(0), at(0)).await.unwrap(), 0);
}

/// Each cause that is there has a part of what may be counted, also where nothing is left of it. A number
/// that is known is not cut to that.
#[tokio::test(flavor = "multi_thread")]
async fn the_largest_of_many_causes_has_its_whole_number() {
    let (store, spans, ids) = two_causes("suspension_numbers").await;
    let idle = |number: usize| {
        doc! {
            "_id": cause(&format!("idle {number}")).id().to_string(), "status": 422,
            "error": format!("idle {number}"), "resource_id": "resource", "plan_id": "plan",
            "since": at(0).as_millis(), "probe_at": at(0).as_millis(), "touched_at": at(0).as_millis(),
        }
    };
    let causes: Collection<Document> = database_of(&spans).collection("spans_causes");
    let idle: Vec<Document> = (0..500).map(idle).collect();
    causes.insert_many(idle).await.unwrap();
    let query = CauseQuery {
        resources: None,
        of_each: CauseQuery::LIMIT_MAX,
        limit: CauseQuery::LIMIT_MAX,
    };
    let listed = store.causes(&query).await.unwrap();
    let counted = listed.iter().map(|it| (it.kept.id, it.spans));
    let expected = [(ids[0], MANY), (ids[1], FEW)];
    let expected = expected.map(|(id, spans)| (id, u64::try_from(spans).unwrap()));
    assert_eq!(counted.collect::<Vec<_>>(), expected);
    let (many, few) = (store.cause(ids[0]).await, store.cause(ids[1]).await);
    assert_eq!([many, few].map(|it| it.unwrap().unwrap()), listed[..]);
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
