//! Collections of any size, which the server itself fills.
//!
//! Whatever the size, the same few spans are *asked* for and the same number is suspended; all others
//! grow in number. The fields that queries search by are as the programs write them. A span and its
//! usages need not add up: no worker runs here.

use std::ops::Range;

use crate::support::placement;
use bson::{Bson, Document, doc};
use futures_util::{StreamExt, TryStreamExt, stream};
use mongodb::Database;
use sampler_domain::partition::{PARTITIONS, partition_of};
use sampler_domain::{Cause, Id, SUSPENDED_DUE_AT, Target};
use sampler_store_testing::support::at;

/// The first spans are asked for. They are of so many instances.
pub(crate) const ASKED: i64 = 1_000;
pub(crate) const INSTANCES: i64 = 100;

/// The spans behind them are suspended, for so many causes.
pub(crate) const SUSPENDED: i64 = 20_000;
pub(crate) const CAUSES: i64 = 20;

/// Entries that the first span has beside its others.
pub(crate) const OF_FIRST: i64 = 10_000;

/// The first acts are by the one who is asked for, about span [`ACTED_ON`].
pub(crate) const ACTS: i64 = 50;
pub(crate) const ACTED_ON: i64 = 7;

pub(crate) const HOUR: i64 = 3_600_000;

/// Starts and usages are spread over so many days before [`at`]`(0)`.
pub(crate) const DAYS: i64 = 60;

/// Documents that one command makes, and commands at once.
const AT_ONCE: i64 = 50_000;
const WRITERS: usize = 2;

/// A prime, and a number below it. Products modulo the prime come in no order, and none twice.
const SPREAD_BELOW: i64 = 99_999_999_977;
const SPREAD: i64 = 61_803_398_875;
/// Added to a number below the prime, it makes twelve digits.
const TWELVE_DIGITS: i64 = 100_000_000_000;

/// How many documents there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) spans: i64,
    pub(crate) usages_of_each: i64,
}

impl Size {
    pub(crate) fn usages(self) -> i64 {
        self.spans * self.usages_of_each
    }
}

/// The target of the spans that are asked for, of one of their instances.
pub(crate) fn asked(instance: i64) -> Target {
    let instance = format!("asked-{instance}");
    Target::from_store(["asked", "asked", "asked", "asked", "asked", &instance])
}

/// The id of a span, in hexadecimal.
pub(crate) fn span_id(number: i64) -> String {
    let spread = number * SPREAD % SPREAD_BELOW + TWELVE_DIGITS;
    format!("{}{spread}", number + TWELVE_DIGITS)
}

/// The id of a usage.
pub(crate) fn usage_id(number: i64) -> String {
    let spread = (number * SPREAD % SPREAD_BELOW + TWELVE_DIGITS).to_string();
    format!("{}-{}-5000-8000-000000000000", &spread[4..], &spread[..4])
}

/// The causes that spans are suspended for.
pub(crate) fn causes() -> impl Iterator<Item = Cause> {
    (0..CAUSES).map(|number| Cause {
        status: Some(400),
        error: format!("error {number}"),
        resource_id: Id::from_store("redis"),
        plan_id: Id::from_store("plan-1"),
    })
}

/// Makes the spans, usages, causes and acts of a size that a smaller size does not have.
pub(crate) async fn grow(database: &Database, from: Size, to: Size) {
    if from.spans == 0 {
        let causes: Vec<Document> = causes().map(cause_document).collect();
        let collection = database.collection("spans_causes");
        collection.insert_many(causes).await.unwrap();
        // Numbers that no other usage has, and versions behind those of the others.
        let numbers = 100_000_000..100_000_000 + OF_FIRST;
        let of_first = entry(doc! { "$toLong": 0 }, doc! { "$toLong": "$n" });
        make(database, "spans_usages", numbers, of_first).await;
    }
    make(database, "spans", from.spans..to.spans, span()).await;
    make(
        database,
        "spans_audit",
        from.spans / 10..to.spans / 10,
        act(),
    )
    .await;
    let each = to.usages_of_each;
    let span = doc! { "$toLong": { "$floor": { "$divide": ["$n", each] } } };
    let entry = entry(span, doc! { "$toLong": { "$mod": ["$n", each] } });
    make(database, "spans_usages", from.usages()..to.usages(), entry).await;
}

/// Makes a document of each number `n`, by these stages.
async fn make(database: &Database, collection: &str, numbers: Range<i64>, stages: Vec<Document>) {
    let into = doc! { "into": collection, "whenMatched": "fail" };
    let parts = (numbers.start..numbers.end).step_by(usize::try_from(AT_ONCE).unwrap());
    let commands = parts.map(|start| {
        let mut pipeline = vec![
            doc! { "$documents": [{ "_": 0 }] },
            doc! { "$project": { "n": { "$range": [start, numbers.end.min(start + AT_ONCE)] } } },
            doc! { "$unwind": "$n" },
        ];
        pipeline.extend_from_slice(&stages);
        pipeline.push(doc! { "$merge": into.clone() });
        async move { database.aggregate(pipeline).await.map(drop) }
    });
    let all = stream::iter(commands).buffer_unordered(WRITERS);
    all.try_collect::<()>().await.unwrap();
}

fn cond(is: impl Into<Bson>, then: impl Into<Bson>, or: impl Into<Bson>) -> Document {
    doc! { "$cond": [is.into(), then.into(), or.into()] }
}

/// A constant: a bare number would ask for a field to be kept.
fn literal(value: impl Into<Bson>) -> Document {
    doc! { "$literal": value.into() }
}

fn modulo(value: impl Into<Bson>, of: i64) -> Document {
    doc! { "$mod": [value.into(), of] }
}

/// A text with a number at its end.
fn numbered(prefix: &str, number: impl Into<Bson>) -> Document {
    doc! { "$concat": [prefix, { "$toString": number.into() }] }
}

/// Twelve digits that come in no order.
fn spread(number: &str) -> Document {
    let product = doc! { "$multiply": [number, SPREAD] };
    doc! { "$toString": { "$add": [modulo(product, SPREAD_BELOW), TWELVE_DIGITS] } }
}

fn hexadecimal(number: &str) -> Document {
    let first = doc! { "$toString": { "$add": [number, TWELVE_DIGITS] } };
    doc! { "$concat": [first, spread(number)] }
}

/// A moment that follows from `n`: the start of an hour.
fn hour() -> Document {
    let number = modulo(doc! { "$multiply": ["$n", 7_919_i64] }, DAYS * 24);
    let first = at(-DAYS * 24 * HOUR).as_millis();
    doc! { "$add": [first, { "$multiply": [number, HOUR] }] }
}

/// The target of span `s`, and its partition.
fn target_and_partition() -> (Document, Document) {
    let is_asked = doc! { "$lt": ["$s", ASKED] };
    let or = |other: Document| cond(is_asked.clone(), "asked", other);
    let instance = modulo("$s", INSTANCES);
    let resource = cond(doc! { "$eq": [modulo("$s", 2), 1] }, "postgres", "redis");
    // One span of ten thousand is of a plan that few have.
    let is_rare = doc! { "$eq": [modulo("$s", 10_000), 9_999] };
    let plan = cond(is_rare, "rare", numbered("plan-", modulo("$s", 3)));
    let target = doc! {
        "organization_id": or(numbered("organization-", modulo("$s", 997))),
        "space_id": or(numbered("space-", modulo("$s", 3_001))),
        "consumer_id": or(numbered("consumer-", "$s")),
        "resource_id": or(resource),
        "plan_id": or(plan),
        "resource_instance_id": cond(
            is_asked.clone(),
            numbered("asked-", instance.clone()),
            numbered("instance-", "$s"),
        ),
    };
    let partitions = (0..INSTANCES).map(|number| i64::from(partition_of(&asked(number))));
    let of_asked = doc! { "$arrayElemAt": [partitions.collect::<Vec<_>>(), instance] };
    let partition = cond(is_asked, of_asked, modulo("$s", i64::from(PARTITIONS)));
    (target, doc! { "$toInt": partition })
}

/// What stands for the key of span `s`; of what is asked for, it is the key.
fn key() -> Document {
    let keys = (0..INSTANCES).map(|number| placement(&asked(number)).get("key").cloned());
    let of_asked = doc! { "$arrayElemAt": [keys.collect::<Vec<_>>(), modulo("$s", INSTANCES)] };
    cond(
        doc! { "$lt": ["$s", ASKED] },
        of_asked,
        numbered("key-", "$s"),
    )
}

/// Spans: of ten, three are open and one is stopped and due; the others are complete.
fn span() -> Vec<Document> {
    let is = |kind: &str| doc! { "$eq": ["$kind", kind] };
    let digit = modulo("$n", 10);
    let kind = doc! { "$switch": {
        "branches": [
            { "case": { "$lt": ["$n", INSTANCES] }, "then": "open" },
            { "case": { "$lt": ["$n", ASKED] }, "then": "complete" },
            { "case": { "$lt": ["$n", ASKED + SUSPENDED] }, "then": "suspended" },
            { "case": { "$lt": [&digit, 3] }, "then": "open" },
            { "case": { "$eq": [&digit, 4] }, "then": "stopped" },
        ],
        "default": "complete",
    } };
    let has_end = doc! { "$in": ["$kind", ["stopped", "complete"]] };
    let id = hexadecimal("$n");
    let (mut target, partition) = target_and_partition();
    let open = "00000000-0000-0000-0000-000000000000";
    target.insert("correlation_id", cond(has_end.clone(), id.clone(), open));
    let end = doc! { "$add": ["$start", 5 * HOUR] };
    let ids: Vec<String> = causes().map(|cause| cause.id().to_string()).collect();
    let suspension = doc! {
        "cause": { "$arrayElemAt": [ids, modulo("$n", CAUSES)] },
        "since": "$start",
        "version": 5_i64,
    };
    let due_at = doc! { "$switch": {
        "branches": [
            { "case": is("stopped"), "then": at(-HOUR).as_millis() },
            { "case": is("suspended"), "then": SUSPENDED_DUE_AT.as_millis() },
        ],
        "default": at(HOUR).as_millis(),
    } };
    let document = doc! {
        "_id": { "$toObjectId": id },
        "target": target,
        "measured_usage": literal(measures()),
        "start": "$start",
        "end": cond(has_end.clone(), end, Bson::Null),
        "start_dedup_id": numbered("start-", "$n"),
        "end_dedup_id": cond(has_end, numbered("stop-", "$n"), "$$REMOVE"),
        "processing": {
            "complete": is("complete"),
            "last_interval": { "start": "$start", "end": { "$add": ["$start", HOUR] } },
            "planned_interval": Bson::Null,
            "last_change_at": "$start",
            "version": literal(5_i64),
            "due_at": due_at,
            "partition": partition,
            "key": key(),
            "suspended": cond(is("suspended"), suspension, "$$REMOVE"),
        },
    };
    vec![
        doc! { "$set": { "s": "$n", "kind": kind, "start": hour() } },
        doc! { "$project": document },
    ]
}

/// Entries of a span, both by expressions.
fn entry(span: Document, version: Document) -> Vec<Document> {
    let (target, partition) = target_and_partition();
    let digits = |from: i32, count: i32| doc! { "$substrBytes": ["$spread", from, count] };
    let id = doc! { "$concat": [digits(4, 8), "-", digits(0, 4), "-5000-8000-000000000000"] };
    let end = doc! { "$add": ["$hour", HOUR] };
    let location = "https://abacus-usage-collector.example.com/v1/metering/collected/usage/t/";
    let document = doc! {
        "_id": id,
        "span": { "$toObjectId": hexadecimal("$s") },
        "partition": partition,
        "version": version,
        "target": target,
        "measured_usage": literal(measures()),
        "interval": { "start": "$hour", "end": end.clone() },
        "timestamp": { "$add": ["$hour", HOUR / 2] },
        "duration": literal(HOUR),
        "state": "accepted",
        "attempts": literal(1_i64),
        "planned_at": end.clone(),
        "accepted_at": { "$add": [end, 59_i64] },
        "status": literal(202),
        "location": { "$concat": [location, { "$toString": "$hour" }, "/k/", "$spread"] },
        "lifetime": literal(DAYS * 24 * HOUR),
    };
    vec![
        doc! { "$set": { "s": span, "hour": hour(), "spread": spread("$n") } },
        doc! { "$project": document },
    ]
}

fn measures() -> Vec<Document> {
    vec![doc! { "measure": "memory", "quantity": 512_i64 }]
}

/// Acts: the first ones are by one operator about one span.
fn act() -> Vec<Document> {
    let is_asked = doc! { "$lt": ["$n", ACTS] };
    let text = |number: &str| doc! { "$concat": ["00000000-0000-4000-8000-", spread(number)] };
    let document = doc! {
        "_id": text("$n"),
        "at": hour(),
        "act": "span.resume",
        "subject": "$span",
        "span": "$span",
        "who": cond(is_asked, "asked", numbered("operator-", modulo("$n", 100))),
        "reason": "Abacus knows the plan now.",
        "before": "null",
        "after": "null",
        "outcome": "done",
    };
    let span = cond(doc! { "$lt": ["$n", ACTS] }, ACTED_ON, "$n");
    vec![
        doc! { "$set": { "s": span } },
        doc! { "$set": { "span": hexadecimal("$s") } },
        doc! { "$project": document },
    ]
}

fn cause_document(cause: Cause) -> Document {
    let since = at(-HOUR).as_millis();
    doc! {
        "_id": cause.id().to_string(),
        "status": 400,
        "error": cause.error,
        "resource_id": cause.resource_id.as_str(),
        "plan_id": cause.plan_id.as_str(),
        "since": since,
        "probe_at": at(HOUR).as_millis(),
        "touched_at": since,
    }
}
