//! An original and we at work on the same spans, and receivers beside workers.

use bson::{Bson, doc};
use sampler_domain::Next;
use sampler_domain::Refusal;
use sampler_store::{Events, StartOutcome, StopOutcome, Work};
use sampler_store_testing::support::{Changing, LookingUp, must_start, must_stop};
use sampler_store_testing::support::{
    at, done, due, failure, id, kept, new_span, plan_to, start, start_event, stop, target,
};

use crate::original::{HOUR, NOW_DOUBLE, original, policy, stopped_by_original};
use crate::support::beside_original;

/// A failure of ours, then an execution by the original, which knows nothing of failures.
#[tokio::test(flavor = "multi_thread")]
async fn a_failure_counts_no_more_once_an_original_has_executed() {
    let (store, spans) = beside_original("stale_failure").await;
    let by_name = |name: &str| doc! { "start_dedup_id": name };
    for name in ["executed", "waiting", "older"] {
        must_start(&store, Some(name), name, -5 * 3_600_000).await;
        let span = kept(&store, name).await;
        let plan = plan_to(&span, -4 * 3_600_000);
        let mut span = done(store.plan(&span, plan, at(0), at(0)).await);
        for attempts in 1..=2 {
            let failure = failure("full", at(24 * 3_600_000));
            span = done(store.failed(&span, failure).await);
            assert_eq!(span.processing.attempts, attempts);
        }
    }
    // What failed before the version was kept counts as it always did.
    let forget = doc! { "$unset": { "processing.failed_version": "" } };
    spans.update_one(by_name("older"), forget).await.unwrap();
    let last = doc! { "start": NOW_DOUBLE - 5.0 * HOUR, "end": NOW_DOUBLE - 4.0 * HOUR };
    let execution = doc! {
        "$set": { "processing.last_interval": last, "processing.planned_interval": Bson::Null },
        "$inc": { "processing.version": 1 },
    };
    spans
        .update_one(by_name("executed"), execution)
        .await
        .unwrap();
    for name in ["executed", "waiting", "older"] {
        let stop = stopped_by_original(name, -1.0);
        spans.update_one(by_name(name), stop).await.unwrap();
    }
    let adopted = store.adopt(&policy(), at(0), 100).await.unwrap();
    assert_eq!(adopted.stops, 1);
    assert_eq!(due(&store, 0).await, ["executed"]);
    let attempts = async |name| kept(&store, name).await.processing.attempts;
    assert_eq!(attempts("executed").await, 0);
    assert_eq!(attempts("waiting").await, 2);
    assert_eq!(attempts("older").await, 2);

    // The next failure starts to count at zero, and an execution of ours leaves nothing behind.
    let span = kept(&store, "executed").await;
    let plan = plan_to(&span, -3_600_000);
    let span = done(store.plan(&span, plan, at(0), at(0)).await);
    let failure = failure("full", at(1));
    let span = done(store.failed(&span, failure).await);
    assert_eq!(span.processing.attempts, 1);
    assert_eq!(kept(&store, "executed").await, span);
    done(store.executed(&span, Next::Wait, at(0), at(0)).await);
    let document = spans.find_one(by_name("executed")).await.unwrap().unwrap();
    let processing = document.get_document("processing").unwrap();
    for field in ["attempts", "failed_version", "last_error"] {
        assert!(!processing.contains_key(field), "{field}");
    }
}

const UUID: &str = "1f9b525c-6a15-4e73-b9ba-72963436334f";

fn binary(uuid: &str) -> Bson {
    bson::Uuid::parse_str(uuid).unwrap().into()
}

/// Ids as some drivers keep them. No unique index tells them from the texts that we are sent.
#[tokio::test(flavor = "multi_thread")]
async fn ids_that_are_kept_as_binaries_are_recognised() {
    let (store, spans) = beside_original("binary_ids").await;
    // It has no length, so that a repeat of its start stands in nobody's way but by its id.
    let mut ended = original("i", -5.0);
    ended.insert("start_dedup_id", binary(UUID));
    ended.insert("measured_usage", Bson::Array(Vec::new()));
    ended.extend(doc! { "end": NOW_DOUBLE - 5.0 * HOUR, "end_is_set": true });
    ended.insert("end_dedup_id", binary(UUID));
    let its_target = ended.get_document_mut("target").unwrap();
    its_target.insert("correlation_id", "ended");
    spans.insert_one(ended).await.unwrap();
    store.observe_original().await.unwrap();

    let found = store
        .started_by(&target("i"), &id(UUID))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.start_id, Some(id(UUID)));
    assert!(
        store
            .stopped_by(&target("i"), &id(UUID))
            .await
            .unwrap()
            .is_some()
    );
    let repeat = |instance: &str, hours: i64| {
        let mut event = start_event(Some(UUID), instance, hours * 3_600_000);
        event.measures = sampler_domain::Measures::default();
        store.start(new_span(event))
    };
    assert!(matches!(
        repeat("i", -5).await.unwrap(),
        StartOutcome::Repeated { .. }
    ));
    let taken = StartOutcome::Refused(Refusal::IdTaken(vec![sampler_domain::Field::Timestamp]));
    assert_eq!(repeat("i", 0).await.unwrap(), taken);
    // With others in one command, too.
    let (first, other, second) = tokio::join!(
        repeat("i", -5),
        start(&store, Some("other"), "j", 0),
        repeat("i", -5)
    );
    assert!(matches!(first.unwrap(), StartOutcome::Repeated { .. }));
    assert_eq!(other, StartOutcome::Opened);
    assert!(matches!(second.unwrap(), StartOutcome::Repeated { .. }));

    // A repeated stop must not end the next span, which begins where the repeated one ended.
    must_start(&store, None, "i", -5 * 3_600_000).await;
    assert_eq!(
        stop(&store, Some(UUID), "i", -5 * 3_600_000).await,
        StopOutcome::Repeated
    );
    let (repeated, ended) = tokio::join!(
        stop(&store, Some(UUID), "i", -5 * 3_600_000),
        stop(&store, Some("end"), "j", 0),
    );
    assert_eq!(
        (repeated, ended),
        (StopOutcome::Repeated, StopOutcome::Ended)
    );
    let open = doc! { "end": Bson::Null };
    assert_eq!(spans.count_documents(open).await.unwrap(), 1);

    // Once they are texts, or gone, nothing is looked up any more; other ids never were.
    spans
        .delete_one(doc! { "start_dedup_id": binary(UUID) })
        .await
        .unwrap();
    store.observe_original().await.unwrap();
    must_stop(&store, Some(UUID), "i", 0).await;
}
