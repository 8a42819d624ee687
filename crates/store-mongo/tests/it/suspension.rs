//! Suspended spans in MongoDB: what it costs to find them, and what an original leaves behind.

use bson::{Bson, Document, doc};
use mongodb::Collection;
use sampler_domain::{Cause, CauseId, Failure, Span};
use sampler_store::contract::support::{
    Changing, at, done, kept, last_refusal, plan_to, start_event, started,
};
use sampler_store::{Causes, Probe, Resumption};
use sampler_store_mongo::MongoStore;

use crate::explain::examined;
use crate::support::store_and_spans;

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
                "suspended": {
                    "cause": { "$literal": cause.to_string() }, "version": one, "since": since,
                },
            },
        } },
        doc! { "$merge": "spans" },
    ];
    let database = spans.client().database(&spans.namespace().db);
    database.aggregate(documents).await.unwrap();
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
        store.probe(ids[0], resumption()).await.unwrap(),
        Probe::Begun
    );
    assert_eq!(
        store.probe(ids[1], resumption()).await.unwrap(),
        Probe::Begun
    );
    for (keys, documents, _) in examined(&spans).await {
        assert!(
            keys <= 2 && documents <= 2,
            "{keys} keys, {documents} documents"
        );
    }
    let resumed = store.resume_batch(ids[0], at(HOUR), resumption(), 1_000);
    assert_eq!(resumed.await.unwrap(), 1_000);
    let (mut keys_of_all, mut documents_of_all) = (0, 0);
    for (keys, documents, _) in examined(&spans).await {
        keys_of_all += keys;
        documents_of_all += documents;
    }
    // Each is found by the one index, and changed by the other.
    assert!(keys_of_all <= 2_100, "{keys_of_all} keys");
    assert!(documents_of_all <= 2_100, "{documents_of_all} documents");
    let left = doc! { "processing.suspended.cause": ids[0].to_string() };
    let left = spans.count_documents(left).await.unwrap();
    assert_eq!(left, u64::try_from(MANY).unwrap() - 1_001);
    // Those that are suspended later are left alone.
    let earlier = store.resume_batch(ids[1], at(5_000), resumption(), 1_000);
    assert_eq!(earlier.await.unwrap(), 0);
    assert_eq!(store.register_missing(at(0), at(0)).await.unwrap(), 0);
}

/// An original knows no suspensions. What it executes is suspended no longer, and what it leaves
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
    let resumed = store.resume_batch(cause, at(HOUR), resumption(), 10).await;
    assert_eq!(resumed.unwrap(), 1);
    assert_eq!(
        store.probe(cause, resumption()).await.unwrap(),
        Probe::NoSpan
    );
    let read = kept(&store, "a").await;
    assert_eq!((read.processing.probe, read.processing.attempts), (None, 0));
}
