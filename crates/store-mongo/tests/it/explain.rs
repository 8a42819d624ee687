//! What the server looks at: as much as is due, however much is idle or finished.

use std::slice;

use bson::{Bson, Document, doc};
use mongodb::Collection;
use sampler_domain::{Refusal, Target};
use sampler_store::{DueQuery, StartOutcome, StopOutcome, Work};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{
    at, everything, must_start, must_stop, next_page, start, stop, target,
};

use crate::original::policy;
use crate::profile::{Command, assert_cost, examined};
use crate::support::{database_of, placed, placement, store_and_spans};

/// Spans that are idle and spans that are finished, three to one.
const SPANS: i32 = 1_000_000;

/// How many of them are idle: of 256 that follow one another, 192.
pub(crate) const IDLE: i32 = SPANS / 4 * 3;

/// When they fall due.
pub(crate) const NEXT_YEAR: i64 = 365 * 24 * HOUR;

pub(crate) const HOUR: i64 = 3_600_000;

/// Makes them within the server: open ones sampled to now or an hour ago and due next year, stopped ones
/// complete. Their ids are all of one length, as ids of a kind are.
async fn fill(store: &MongoStore, spans: &Collection<Document>) {
    let now = at(0).as_millis();
    // The partition is the number modulo 64: nothing else must follow from that.
    let modulo = |divisor: i32, modulo: i32| {
        let quotient = doc! { "$divide": ["$number", divisor] };
        doc! { "$mod": [{ "$floor": quotient }, modulo] }
    };
    let open = doc! { "$ne": [modulo(64, 4), 0] };
    let ago = doc! { "$cond": [open.clone(), { "$multiply": [modulo(256, 2), HOUR] }, 0] };
    let either =
        |if_open: Bson, if_complete: Bson| doc! { "$cond": [open.clone(), if_open, if_complete] };
    let text = doc! { "$toString": "$number" };
    // A bare number would ask for a field to be kept.
    let moment = |millis: i64| doc! { "$literal": Bson::Int64(millis) };
    let pipeline = vec![
        doc! { "$documents": [{ "_": 0 }] },
        doc! { "$project": { "number": { "$range": [SPANS, 2 * SPANS] } } },
        doc! { "$unwind": "$number" },
        doc! { "$project": {
            "_id": text.clone(),
            "target": {
                "organization_id": "organization", "space_id": "space", "consumer_id": "consumer",
                "resource_id": "resource", "plan_id": "plan", "resource_instance_id": text.clone(),
                "correlation_id": either("00000000-0000-0000-0000-000000000000".into(), text.into()),
            },
            "measured_usage": { "$literal": [] },
            "start": moment(now - 1_000),
            "end": either(Bson::Null, Bson::Int64(now)),
            "processing": {
                "complete": { "$not": [open.clone()] },
                "last_interval": {
                    "start": moment(now - 1_000), "end": { "$toLong": { "$subtract": [now, ago] } },
                },
                "planned_interval": Bson::Null,
                "version": { "$literal": 1 },
                "due_at": moment(now + NEXT_YEAR),
                "partition": { "$mod": ["$number", 64] },
                // As long as a key, and in no order.
                "key": { "$substrBytes": [{ "$toString": { "$toHashedIndexKey": "$number" } }, 0, 16] },
            },
        } },
        doc! { "$out": "spans" },
    ];
    let database = database_of(spans);
    // Indexes of a whole collection are built faster than one key after the other.
    spans.drop_indexes().await.unwrap();
    database.aggregate(pipeline).await.unwrap();
    store.migrate().await.unwrap();
}

/// Spans that are due and have failed, but belong to no month that closes.
const FAILED: usize = 1_000;

/// Has spans fail that were idle.
async fn have_some_fail(spans: &Collection<Document>) {
    let later = Bson::Int64(at(1).as_millis());
    let idle = (SPANS..).filter(|number| number / 64 % 4 != 0);
    for number in idle.take(FAILED) {
        let name = number.to_string();
        let mut set = doc! {
            "processing.attempts": 1,
            "processing.due_at": &later,
            "processing.last_interval.end": at(1).plus(1).as_millis(),
        };
        // They are driven, so it must be the one of their targets.
        set.extend(placed(&target(&name)));
        let filter = doc! { "_id": name };
        let updated = spans.update_one(filter, doc! { "$set": set }).await;
        assert_eq!(updated.unwrap().matched_count, 1);
    }
}

/// Sees to it that the server examined little more than was returned since it was last asked; says
/// how much that was.
async fn look_at_what_they_return(spans: &Collection<Document>) -> i64 {
    let commands = examined(spans).await;
    for command in &commands {
        // One more key for each of the 64 partitions, where its range ends.
        let (keys, documents) = (command.returned + 64, command.returned + 64);
        assert_cost(slice::from_ref(command), keys, documents);
    }
    commands.iter().map(|command| command.returned).sum()
}

/// Fault 10 of the original, among others: every stop scanned the collection twice.
#[tokio::test(flavor = "multi_thread")]
async fn fault_10_work_is_found_among_a_million_idle_and_finished_spans_by_looking_at_what_is_due()
{
    let (store, spans) = store_and_spans("million").await;
    fill(&store, &spans).await;
    crate::backlog::a_count_reads_the_index_of_what_is_due(&store, &spans).await;
    for number in 0..200 {
        let name = format!("due-{number}");
        must_start(&store, Some(&name), &name, number - 1_000).await;
    }
    have_some_fail(&spans).await;
    examined(&spans).await;
    for page in [100, 200, 1_000] {
        let mut pages = store.due(DueQuery {
            partitions: everything(),
            now: at(2),
            page,
        });
        let mut found = 0;
        while let Some(page) = next_page(&mut pages).await {
            found += page.len();
            let returned = look_at_what_they_return(&spans).await;
            assert_eq!(usize::try_from(returned), Ok(page.len()));
        }
        assert_eq!(found, 200 + FAILED);
        assert_eq!(look_at_what_they_return(&spans).await, 0);
    }
    // Nothing else that the two programs ask for looks at more than it returns, either.
    store.take_over(&policy(), at(0)).await.unwrap();
    store.completed_before(at(-1), 100).await.unwrap();
    // One key for each partition, where its range ends, and one behind the last.
    assert_cost(&examined(&spans).await, 65, 4);
    must_stop(&store, Some("stop"), "due-7", 5).await;
    must_start(&store, None, "due-7", 5).await;
    assert_eq!(
        start(&store, None, "due-7", 5).await,
        StartOutcome::Refused(Refusal::AlreadyOpen)
    );
    assert_eq!(
        stop(&store, Some("stop"), "due-7", 5).await,
        StopOutcome::Repeated
    );
    let operations = examined(&spans).await;
    assert!(operations.len() >= 6, "{operations:?}");
    assert_cost(&operations, 8, 4);
}

/// Spans of one resource that name the instance of another's.
const OF_OTHERS: i32 = 15_000;

/// A span of another target that names the victim's instance.
fn of_another(space: &str, number: i32, end: i64) -> Document {
    let of = Target::from_store(["other", space, "consumer", "other", "plan", "victim"]);
    let mut processing = doc! { "complete": true };
    processing.extend(placement(&of));
    doc! {
        "target": {
            "organization_id": "other", "space_id": space, "consumer_id": "consumer",
            "resource_id": "other", "plan_id": "plan", "resource_instance_id": "victim",
            "correlation_id": number.to_string(),
        },
        "start": at(-1_000_000).as_millis(),
        "end": at(end).as_millis(),
        "processing": processing,
    }
}

/// Sees to it that none of the commands that start and stop the victim reads what others have.
async fn look_at_what_the_victim_costs(store: &MongoStore, spans: &Collection<Document>) {
    examined(spans).await;
    // Alone, and in one command with others.
    must_start(store, Some("a"), "victim", 0).await;
    must_stop(store, Some("b"), "victim", 5).await;
    let together = tokio::join!(
        start(store, Some("c"), "victim", 5),
        start(store, Some("c"), "another", 5),
        start(store, Some("c"), "a third", 5),
    );
    let opened = || StartOutcome::Opened;
    assert_eq!(together, (opened(), opened(), opened()));
    assert_eq!(
        start(store, Some("d"), "victim", 9).await,
        StartOutcome::Refused(Refusal::AlreadyOpen)
    );
    assert_eq!(
        stop(store, Some("b"), "victim", 5).await,
        StopOutcome::Repeated
    );
    let operations = examined(spans).await;
    assert!(operations.len() >= 8, "{operations:?}");
    assert_cost(&operations, 12, 4);
}

/// An index that began with the instance had them all read for each start. They need not end later than the
/// start: a search that named the instance alone had to step over each of their targets.
#[tokio::test(flavor = "multi_thread")]
async fn spans_and_targets_of_others_that_name_the_same_instance_cost_a_start_nothing() {
    let spans_of_one = |number| of_another("space", number, 1_000_000 + i64::from(number));
    let targets = |number: i32| of_another(&number.to_string(), number, -1_000);
    let all: [fn(i32) -> Document; 2] = [spans_of_one, targets];
    for of_others in all {
        let (store, spans) = store_and_spans("same_instance").await;
        let others = (0..OF_OTHERS).map(of_others);
        spans.insert_many(others).await.unwrap();
        look_at_what_the_victim_costs(&store, &spans).await;
    }
}

/// What it needs to know of a span is in its index.
#[tokio::test(flavor = "multi_thread")]
async fn the_search_before_starts_reads_the_index_alone() {
    let (store, spans) = store_and_spans("covered").await;
    for name in ["a", "b", "c"] {
        must_start(&store, None, name, 0).await;
        must_stop(&store, None, name, 10).await;
    }
    examined(&spans).await;
    let overlaps = || StartOutcome::Refused(Refusal::Overlaps { until: at(10) });
    let together = tokio::join!(
        start(&store, None, "a", 5),
        start(&store, None, "b", 5),
        start(&store, None, "c", 5),
    );
    assert_eq!(together, (overlaps(), overlaps(), overlaps()));
    let operations = examined(&spans).await;
    let is_covered = |command: &Command| command.returned > 0 && command.documents == 0;
    assert!(operations.iter().any(is_covered), "{operations:?}");
}
