//! What starts, changes and stops cost the server in batches of 64, and the room that a span takes.
//! The figures are in `docs/performance.md`; run it with
//! `cargo test --release -p sampler-store-mongo --test it -- --ignored --nocapture measure`.

mod beside;

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::future::join_all;
use mongodb::Client;
use mongodb::options::{Acknowledgment, CollectionOptions, ReadConcern, WriteConcern};
use sampler_domain::{Change, Changed, Interval, Next, Planned, Span, Target};
use sampler_store::contract::support::{at, id, new_span, new_stop, start_event};
use sampler_store::{Events, NewSpan, NewStop, StartOutcome, StopOutcome, Work};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_testkit::mongod::{Options, ReplicaSet};
use uuid::Uuid;

const BATCH: u64 = 64;
const SPANS: u64 = 500 * BATCH;
const HOUR: i64 = 3_600_000;

/// A GUID that follows from a number.
fn guid(kind: u64, number: u64) -> String {
    let name = format!("{kind}-{number}");
    Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()).to_string()
}

/// Ids as Cloud Foundry has them: GUIDs for all but service and plan.
fn target(number: u64) -> Target {
    Target {
        organization_id: id(&guid(0, number % 1_000)),
        space_id: id(&guid(1, number % 3_000)),
        consumer_id: id(&guid(2, number)),
        resource_id: id("postgres"),
        plan_id: id("large"),
        resource_instance_id: id(&guid(3, number)),
    }
}

fn start(number: u64, round: u64) -> NewSpan {
    let millis = i64::try_from(round).expect("few") * 10 * HOUR;
    let event_id = guid(4 + round, number);
    let mut event = start_event(Some(&event_id), "", millis);
    event.target = target(number);
    let name =
        sampler_domain::Measure::new("memory", sampler_domain::Quantity::new(512.into()).unwrap());
    event.measures = sampler_domain::Measures::new(vec![name.unwrap()]).unwrap();
    new_span(event)
}

fn stop(number: u64, round: u64) -> NewStop {
    let millis = i64::try_from(round).expect("few") * 10 * HOUR + 2 * HOUR;
    let event_id = guid(14 + round, number);
    let mut new = new_stop(Some(&event_id), "", millis);
    new.event.target = target(number);
    new.correlation_id = Uuid::new_v5(&Uuid::NAMESPACE_URL, event_id.as_bytes());
    new
}

/// Processor time of all threads of a process, in microseconds.
fn spent(pid: i32) -> u64 {
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let path = task.unwrap().path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let first = text
            .split(' ')
            .next()
            .and_then(|text| text.parse::<u64>().ok());
        nanos += first.unwrap_or(0);
    }
    nanos / 1_000
}

struct World {
    store: MongoStore,
    client: Client,
    pid: i32,
}

impl World {
    /// Does something in batches of 64; says what each cost the server, in microseconds.
    async fn each<F: Future<Output = ()>>(&self, what: &str, act: impl Fn(u64) -> F) {
        let before = spent(self.pid);
        for batch in 0..SPANS / BATCH {
            join_all((0..BATCH).map(|number| act(batch * BATCH + number))).await;
        }
        let each = (spent(self.pid) - before) as f64 / SPANS as f64;
        println!("{what}: {each:.1} µs of the server's processor time each");
    }

    async fn room(&self, what: &str) {
        self.room_of(what, "measured").await;
    }

    async fn room_of(&self, what: &str, database: &str) {
        let admin = self.client.database("admin");
        admin.run_command(doc! { "fsync": 1 }).await.unwrap();
        let stats = self.client.database(database);
        let stats = stats
            .run_command(doc! { "collStats": "spans" })
            .await
            .unwrap();
        let number = |document: &Document, name: &str| match document.get(name) {
            Some(Bson::Int32(number)) => f64::from(*number),
            Some(Bson::Int64(number)) => *number as f64,
            Some(Bson::Double(number)) => *number,
            _ => 0.0,
        };
        let count = number(&stats, "count");
        println!(
            "{what}: {count} spans; bytes each: {:.0} as sent, {:.0} on disk, {:.0} of indexes",
            number(&stats, "size") / count,
            number(&stats, "storageSize") / count,
            number(&stats, "totalIndexSize") / count
        );
        for (name, size) in stats.get_document("indexSizes").unwrap() {
            let size = match size {
                Bson::Int32(size) => f64::from(*size),
                Bson::Int64(size) => *size as f64,
                other => panic!("{other}"),
            };
            println!("    {name}: {:.0}", size / count);
        }
    }
}

async fn world(set: &ReplicaSet) -> World {
    let uri = set.uri_of("measured");
    let store = MongoStore::connect(MongoOptions {
        uri: uri.clone(),
        database: "measured".into(),
        collection: "spans".into(),
        pool_size: 16,
        server_selection_timeout: Duration::from_secs(10),
        operation_timeout: Duration::from_secs(20),
        app_name: "sampler-test".into(),
        shards: None,
    })
    .await
    .unwrap();
    store.migrate().await.unwrap();
    World {
        store,
        client: Client::with_uri_str(&uri).await.unwrap(),
        pid: set.pid(0).await.unwrap(),
    }
}

fn plan(span: &Span) -> Change {
    let start = span.sampled_to();
    let interval = Interval {
        start,
        end: start.plus(HOUR),
    };
    Change::Plan {
        planned: Planned::new(span, interval, at(0)),
        due_at: start.plus(HOUR),
    }
}

async fn change(store: &MongoStore, span: &Span, change: Change) {
    assert_eq!(
        store.change(span, &change, at(0)).await.unwrap(),
        Changed::Made
    );
}

/// On one thread, 64 calls at once share one command.
#[tokio::test]
#[ignore = "it measures, and takes its time"]
async fn measure_what_events_and_changes_cost_the_server() {
    let set = ReplicaSet::start(Options {
        test_commands: false,
        cache_gb: 2.0,
        ..Options::single()
    });
    let set = set.await.unwrap();
    let world = world(&set).await;
    let store = &world.store;
    let spans: Vec<NewSpan> = (0..SPANS).map(|number| start(number, 0)).collect();
    let span = |number: u64| &spans[usize::try_from(number).unwrap()];
    world
        .each("start", async |number| {
            assert_eq!(
                store.start(span(number).clone()).await.unwrap(),
                StartOutcome::Opened
            );
        })
        .await;
    world.room("open").await;
    world
        .each("plan", async |number| {
            let span = &span(number).span;
            change(store, span, plan(span)).await;
        })
        .await;
    world
        .each("execution", async |number| {
            let first = &span(number).span;
            let span = first.after(&plan(first));
            let due_at = at(HOUR);
            change(
                store,
                &span,
                Change::Executed {
                    next: Next::Wait,
                    due_at,
                },
            )
            .await;
        })
        .await;
    world
        .each("stop", async |number| {
            assert_eq!(
                store.stop(stop(number, 0)).await.unwrap(),
                StopOutcome::Ended
            );
        })
        .await;
    world.room("ended").await;
    world
        .each("second start", async |number| {
            assert_eq!(
                store.start(start(number, 1)).await.unwrap(),
                StartOutcome::Opened
            );
        })
        .await;
    world
        .each("second stop", async |number| {
            assert_eq!(
                store.stop(stop(number, 1)).await.unwrap(),
                StopOutcome::Ended
            );
        })
        .await;
    world.room("two ended of each target").await;
    let before = spent(world.pid);
    for number in 0..2_000 {
        assert_eq!(
            store.start(start(number, 2)).await.unwrap(),
            StartOutcome::Opened
        );
    }
    println!(
        "start alone: {:.1} µs",
        (spent(world.pid) - before) as f64 / 2_000.0
    );
    world
        .each("repeated start", async |number| {
            assert!(matches!(
                store.start(start(number, 1)).await.unwrap(),
                StartOutcome::Repeated { .. }
            ));
        })
        .await;
    world
        .each("repeated stop", async |number| {
            let mut repeated_stop = stop(number, 1);
            repeated_stop.correlation_id =
                Uuid::new_v5(&Uuid::NAMESPACE_DNS, &number.to_be_bytes());
            assert_eq!(
                store.stop(repeated_stop).await.unwrap(),
                StopOutcome::Repeated
            );
        })
        .await;
}

/// What the indexes that lists are read by cost a start: none, the two that there are, and a third.
#[tokio::test]
#[ignore = "it measures, and takes its time"]
async fn measure_what_lists_cost_a_start() {
    for (what, lists) in [("no lists", 0), ("two", 2), ("three", 3), ("two again", 2)] {
        let set = ReplicaSet::start(Options {
            test_commands: false,
            cache_gb: 2.0,
            ..Options::single()
        });
        let set = set.await.unwrap();
        let world = world(&set).await;
        let spans = world.client.database("measured");
        let spans = spans.collection::<Document>("spans");
        if lists == 0 {
            for name in ["list_organization", "list_resource"] {
                spans.drop_index(name).await.unwrap();
            }
        }
        if lists == 3 {
            let keys = doc! { "target.resource_instance_id": 1, "start": 1, "_id": 1 };
            let index = mongodb::IndexModel::builder().keys(keys).build();
            spans.create_index(index).await.unwrap();
        }
        for round in 0..2 {
            let what = format!("{what}, start {round}");
            let store = &world.store;
            world
                .each(&what, async |number| {
                    let answer = store.start(start(number, round)).await.unwrap();
                    assert_eq!(answer, StartOutcome::Opened);
                })
                .await;
            if round == 0 {
                world.room(&what).await;
            }
            world
                .each("stop", async |number| {
                    let answer = store.stop(stop(number, round)).await.unwrap();
                    assert_eq!(answer, StopOutcome::Ended);
                })
                .await;
        }
    }
}

/// How long a read takes on an idle set that must not be rolled back, in three ways.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it measures, and takes its time"]
async fn measure_reads_that_must_not_be_rolled_back() {
    for (what, options) in [("one", Options::single()), ("three", Options::three())] {
        let set = ReplicaSet::start(options).await.unwrap();
        let client = Client::with_uri_str(set.uri_of("measured")).await.unwrap();
        let database = client.database("measured");
        let of = |read: ReadConcern, write: WriteConcern| {
            let options = CollectionOptions::builder()
                .read_concern(read)
                .write_concern(write);
            database.collection_with_options::<Document>("spans", options.build())
        };
        let durable = |w: Acknowledgment| WriteConcern::builder().w(w).journal(true).build();
        let spans = of(
            ReadConcern::linearizable(),
            durable(Acknowledgment::Majority),
        );
        let majority = of(ReadConcern::majority(), durable(Acknowledgment::Majority));
        let journalled = of(ReadConcern::majority(), durable(Acknowledgment::Nodes(1)));
        spans.insert_one(doc! { "_id": 1 }).await.unwrap();
        let touch = || vec![doc! { "$set": { "at": "$$NOW" } }];
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..40 {
            let began = std::time::Instant::now();
            spans.find_one(doc! { "_id": 1 }).await.unwrap();
            times[0].push(began.elapsed().as_secs_f64() * 1e3);

            let began = std::time::Instant::now();
            majority
                .update_one(doc! { "_id": 2 }, touch())
                .upsert(true)
                .await
                .unwrap();
            majority.find_one(doc! { "_id": 1 }).await.unwrap();
            times[1].push(began.elapsed().as_secs_f64() * 1e3);

            let began = std::time::Instant::now();
            let read = tokio::spawn({
                let spans = spans.clone();
                async move { spans.find_one(doc! { "_id": 1 }).await.unwrap() }
            });
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                if read.is_finished() {
                    break;
                }
                journalled
                    .update_one(doc! { "_id": 2 }, touch())
                    .upsert(true)
                    .await
                    .unwrap();
            }
            read.await.unwrap();
            times[2].push(began.elapsed().as_secs_f64() * 1e3);
        }
        for (way, times) in [
            "linearizable",
            "majority write, majority read",
            "linearizable, journal asked for",
        ]
        .iter()
        .zip(&mut times)
        {
            times.sort_by(f64::total_cmp);
            println!(
                "{what} member(s), {way}: median {:.1} ms, most {:.1} ms",
                times[20], times[39]
            );
        }
    }
}
