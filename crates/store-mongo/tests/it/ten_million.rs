//! What reading costs in a ledger of ten million usages: how long a page takes, and what the server
//! examines for it.

use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use mongodb::{Client, Collection};
use sampler_domain::partition::partition_of;
use sampler_domain::{Id, SpanId, Target, Timestamp, WindowLength};
use sampler_store::{Queries, SumQuery, TargetFilter};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_testkit::mongod::{Options, ReplicaSet};

use crate::sums::examined;

const DATABASE: &str = "measured";
const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// The usages of the span that is read, of each other one, and of how many such blocks there are.
const OF_ONE: i32 = 10_000;
const OF_EACH: i32 = 100;
const BLOCKS: i32 = 1_000;

/// Organizations and resources; an instance for each span.
const ORGANIZATIONS: i32 = 1_000;
const RESOURCES: i32 = 4;

/// The first span begins at the first moment, each other one on one of so many days.
const DAYS: i32 = 90;
const BEGIN: i64 = 1_788_220_800_000;

const ROUNDS: usize = 5;

fn target() -> Target {
    Target::from_store([
        "organization0-0000-4000-8000-000000000000",
        "78f79e6a-0000-4000-8000-000000000000",
        "a1e7d724-0000-4000-8000-000000000000",
        "resource-0",
        "large",
        "instance0-0000-4000-8000-000000000000",
    ])
}

fn span() -> SpanId {
    SpanId::Text("span-0".to_owned())
}

/// Makes all usages within the server, as workers write them, before there are indexes.
async fn fill(usages: &Collection<Document>) {
    let named = |prefix: &str, number: Bson| {
        doc! { "$concat": [prefix, { "$toString": number }, "-0000-4000-8000-000000000000"] }
    };
    let modulo = |count: i32| -> Bson { doc! { "$mod": ["$span", count] }.into() };
    let long = |value: Document| doc! { "$toLong": value };
    // 36 characters, in no order.
    let twelve = doc! { "$toString": { "$toLong": { "$add": [
        100_000_000_000_i64, { "$floor": { "$multiply": [{ "$rand": {} }, 899_999_999_999_i64] } },
    ] } } };
    let first = doc! { "$eq": ["$block", 0] };
    let in_hours = doc! { "$multiply": ["$version", HOUR] };
    let day = doc! { "$multiply": [{ "$mod": ["$span", DAYS] }, DAY] };
    let start = doc! { "$add": [BEGIN, day, in_hours] };
    let partition = i32::try_from(partition_of(&target())).unwrap();
    let mod_64 = doc! { "$mod": ["$span", 64] };
    let pipeline = vec![
        doc! { "$documents": [{ "_": 0 }] },
        doc! { "$project": { "block": { "$range": [0, BLOCKS] } } },
        doc! { "$unwind": "$block" },
        doc! { "$project": { "block": 1, "place": { "$range": [0, OF_ONE] } } },
        doc! { "$unwind": "$place" },
        doc! { "$set": {
            "span": { "$cond": [first.clone(), 0, { "$add": [
                { "$multiply": ["$block", OF_ONE / OF_EACH] },
                { "$toInt": { "$floor": { "$divide": ["$place", OF_EACH] } } },
            ] }] },
            "version": { "$cond": [first.clone(), "$place", { "$mod": ["$place", OF_EACH] }] },
        } },
        doc! { "$set": { "start": long(start) } },
        doc! { "$project": {
            "_id": { "$concat": [twelve.clone(), twelve.clone(), twelve] },
            "span": { "$concat": ["span-", { "$toString": "$span" }] },
            "partition": { "$cond": [first, partition, mod_64] },
            "version": { "$toLong": "$version" },
            "target": {
                "organization_id": named("organization", modulo(ORGANIZATIONS)),
                "space_id": "78f79e6a-0000-4000-8000-000000000000",
                "consumer_id": "a1e7d724-0000-4000-8000-000000000000",
                "resource_id": { "$concat": ["resource-", { "$toString": modulo(RESOURCES) }] },
                "plan_id": "large",
                "resource_instance_id": named("instance", "$span".into()),
            },
            "measured_usage": { "$literal": [{ "measure": "memory", "quantity": 512_i64 }] },
            "interval": { "start": "$start", "end": { "$add": ["$start", HOUR] } },
            "timestamp": { "$add": ["$start", HOUR / 2] },
            "duration": { "$literal": HOUR },
            "state": "accepted",
            "attempts": { "$literal": 1_i64 },
            "planned_at": { "$add": ["$start", HOUR] },
            "accepted_at": { "$add": ["$start", HOUR + 1_000] },
            "status": { "$literal": 202 },
            "location": "https://abacus-usage-collector.example.com/v1/metering/collected/usage/t/1788220800000/k/43a8d88a",
            "lifetime": { "$literal": 400 * DAY },
        } },
        doc! { "$out": "spans_usages" },
    ];
    let database = usages.client().database(DATABASE);
    database.aggregate(pipeline).await.unwrap();
}

struct World {
    store: MongoStore,
    usages: Collection<Document>,
}

impl World {
    /// Does something so many times; says how long it took at best, as a rule and at worst, and what the
    /// server examined the last time.
    async fn measure<F: Future<Output = String>>(&self, what: &str, act: impl Fn() -> F) {
        examined(&self.usages).await;
        let (mut times, mut result) = (Vec::new(), String::new());
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            result = act().await;
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        let seen = examined(&self.usages).await;
        let per_round = seen.len() / ROUNDS;
        let keys: i64 = seen.iter().rev().take(per_round).map(|it| it.1).sum();
        let documents: i64 = seen.iter().rev().take(per_round).map(|it| it.2).sum();
        let mut plans: Vec<&str> = seen.iter().map(|it| it.0.as_str()).collect();
        plans.dedup();
        println!(
            "{what}: {result}; {:.1} / {:.1} / {:.1} ms; {per_round} commands, {keys} keys, {documents} \
             documents; {}",
            times[0],
            times[ROUNDS / 2],
            times[ROUNDS - 1],
            plans.join(", ")
        );
    }

    async fn page(&self, after: Option<i64>, limit: usize) -> String {
        let page = self.store.usages(&span(), &target(), after, limit).await;
        format!("{} usages", page.unwrap().entries.len())
    }

    async fn sums(&self, query: &SumQuery) -> String {
        match self.store.sums(query).await {
            Ok(page) => {
                let usages: u64 = page.rows.iter().map(|row| row.usages).sum();
                let more = if page.next.is_some() {
                    ", and more"
                } else {
                    ""
                };
                format!("{} rows of {usages} usages{more}", page.rows.len())
            }
            Err(error) => error.to_string(),
        }
    }
}

fn query(
    [field, value]: [&str; 2],
    length: WindowLength,
    days: i64,
    group_by: &[&'static str],
) -> SumQuery {
    let mut target = TargetFilter::default();
    assert!(target.set(field, Id::from_store(value)));
    let begin = Timestamp::clamped(BEGIN);
    SumQuery {
        target,
        resources: None,
        length,
        windows: length.windows(begin, begin.plus(days * DAY), 366).unwrap(),
        group_by: group_by.to_vec(),
        as_of: None,
        after: None,
        limit: 100,
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures, and takes its time"]
async fn measure_a_ledger_of_ten_million_usages() {
    let set = ReplicaSet::start(Options {
        test_commands: false,
        cache_gb: 2.0,
        ..Options::single()
    });
    let set = set.await.unwrap();
    let uri = set.uri_of(DATABASE);
    let client = Client::with_uri_str(&uri).await.unwrap();
    let usages = client.database(DATABASE).collection("spans_usages");
    let begin = Instant::now();
    fill(&usages).await;
    let count = usages.estimated_document_count().await.unwrap();
    println!(
        "{count} usages after {:.0} s",
        begin.elapsed().as_secs_f64()
    );
    let options = MongoOptions {
        uri,
        database: DATABASE.into(),
        collection: "spans".into(),
        pool_size: 16,
        server_selection_timeout: Duration::from_secs(10),
        operation_timeout: Duration::from_secs(60),
        app_name: "sampler-test".into(),
        shards: None,
    };
    let store = MongoStore::connect(options).await.unwrap();
    store.migrate().await.unwrap();
    println!("indexes after {:.0} s", begin.elapsed().as_secs_f64());
    let world = World { store, usages };
    world.read().await;
}

impl World {
    async fn read(&self) {
        for (after, limit) in [
            (None, 100),
            (None, 1_000),
            (Some(4_999), 1_000),
            (Some(8_999), 1_000),
        ] {
            let what = format!("a page of {limit} of a span, behind {after:?}");
            self.measure(&what, || self.page(after, limit)).await;
        }
        let some = self.usages.find_one(doc! {}).await.unwrap().unwrap();
        let id = some.get_str("_id").unwrap();
        self.measure("a usage by its id", async || {
            let found = self.store.usage(id).await.unwrap();
            format!("{}", found.is_some())
        })
        .await;
        let organization = [
            "organization_id",
            "organization7-0000-4000-8000-000000000000",
        ];
        let resource = ["resource_id", "resource-1"];
        let instance = [
            "resource_instance_id",
            "instance107-0000-4000-8000-000000000000",
        ];
        let (day, month) = (WindowLength::Day, WindowLength::Month);
        let by_instance = &["resource_id", "plan_id", "resource_instance_id"][..];
        for (what, of, length, days, group_by) in [
            ("an organization, a day", organization, day, 1, &[][..]),
            (
                "an organization, 30 days",
                organization,
                day,
                30,
                &["resource_id"],
            ),
            (
                "an organization, 3 months",
                organization,
                month,
                91,
                by_instance,
            ),
            ("an instance, 30 days", instance, day, 30, &[]),
            (
                "a resource, an hour's windows of a day",
                resource,
                WindowLength::Hour,
                1,
                &[],
            ),
            ("a resource, a day", resource, day, 1, &["plan_id"]),
            ("a resource, a month", resource, month, 30, &["plan_id"]),
        ] {
            let mut query = query(of, length, days, group_by);
            self.measure(&format!("sums of {what}"), || self.sums(&query))
                .await;
            query.as_of = Some(Timestamp::clamped(BEGIN + 20 * DAY));
            self.measure("    as of the 20th day", || self.sums(&query))
                .await;
        }
    }
}
