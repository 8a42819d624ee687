//! Commands that fail, or whose answers are lost, while many share them.

use bson::{Bson, Document, doc};
use futures_util::future::join_all;
use mongodb::{Client, Collection};
use sampler_domain::Changed;
use sampler_store::{Events, StartOutcome, StopOutcome, StoreError, Work};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_store_testing::support as contract;
use sampler_store_testing::support::{LookingUp, at, kept, must_start};
use sampler_testkit::mongod::{Options, ReplicaSet};

use crate::support::{database_of, options_of};

/// What makes a command fail: it is not done, or it is done and nobody is told.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// The connection is closed before the command is done.
    Cut,
    /// The server says that it is no longer the primary.
    NotPrimary,
    /// The command is done, but the answer is that a majority is not known to have it.
    Unconfirmed,
    /// The server answers with this code.
    Code(i32),
}

const FAILURES: [Failure; 3] = [Failure::Cut, Failure::NotPrimary, Failure::Unconfirmed];

async fn connected(set: &ReplicaSet, app_name: &str) -> MongoStore {
    let store = MongoStore::connect(MongoOptions {
        app_name: app_name.into(),
        ..options_of(set.uri_of("faults"), "faults")
    });
    store.await.unwrap()
}

/// A server of its own, whose commands can be made to fail.
struct World {
    set: ReplicaSet,
    store: MongoStore,
    spans: Collection<Document>,
}

impl World {
    async fn new() -> Self {
        let set = ReplicaSet::start(Options::single()).await.unwrap();
        let store = connected(&set, "store").await;
        store.migrate().await.unwrap();
        let client = Client::with_uri_str(set.uri_of("faults")).await.unwrap();
        let spans = client.database("faults").collection("spans");
        Self { set, store, spans }
    }

    /// The next commands of this name that the store sends fail, so many of them. What says later
    /// that they did.
    async fn fail(&self, command: &str, failure: Failure, times: i32) -> Failing {
        // Of the spans alone: the store also writes to have the journal written, and that may fail.
        let namespace = self.spans.namespace().to_string();
        let mut data =
            doc! { "failCommands": [command], "appName": "store", "namespace": namespace };
        match failure {
            Failure::Cut => data.insert("closeConnection", true),
            Failure::NotPrimary => data.insert("errorCode", 10_107),
            Failure::Code(code) => data.insert("errorCode", code),
            Failure::Unconfirmed => data.insert(
                "writeConcernError",
                doc! { "code": 64, "errmsg": "waiting for replication timed out" },
            ),
        };
        let order =
            doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        let before = self.set.command(0, order).await.unwrap();
        Failing {
            before: before.get_i32("count").unwrap(),
            least: times,
        }
    }

    /// Makes sure that the commands failed that were to fail.
    async fn all_failed(&self, failing: Failing) {
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        let after = self.set.command(0, off).await.unwrap();
        let failed = after.get_i32("count").unwrap() - failing.before;
        assert!(failed >= failing.least, "{failed} of {}", failing.least);
    }
}

/// How many commands had failed on this server before, and how many more must.
#[must_use]
struct Failing {
    before: i32,
    least: i32,
}

/// How many writes come at once; more than go out alone.
const WRITES: usize = 40;

fn instance(number: usize) -> String {
    format!("instance-{number}")
}

/// Where the answer is lost, each caller is told so; the repeat says what became of it. On one thread, all of
/// them share one command.
#[tokio::test]
async fn starts_without_an_answer_are_unknown_and_their_repeats_decide() {
    let world = World::new().await;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let name = |number| format!("{round}-{}", instance(number));
        let failing = world.fail("insert", failure, 1).await;
        let begin = async |number| {
            let event = contract::start_event(Some(&name(number)), &name(number), 0);
            world.store.start(contract::new_span(event)).await
        };
        for answer in join_all((0..WRITES).map(begin)).await {
            let unknown = matches!(answer, Err(StoreError::Unknown(_)));
            // Those that did not share the command.
            assert!(unknown || answer.is_ok(), "{failure:?}: {answer:?}");
        }
        world.all_failed(failing).await;
        for answer in join_all((0..WRITES).map(begin)).await {
            let answer = answer.unwrap();
            let is_kept = matches!(answer, StartOutcome::Repeated { .. } | StartOutcome::Opened);
            assert!(is_kept, "{failure:?}: {answer:?}");
        }
        let kept = world.spans.count_documents(doc! {}).await.unwrap();
        assert_eq!(kept, u64::try_from((round + 1) * WRITES).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_stop_without_an_answer_is_unknown_and_its_repeat_decides() {
    let world = World::new().await;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let name = instance(round);
        must_start(&world.store, Some(&name), &name, 0).await;
        let failing = world.fail("findAndModify", failure, 1).await;
        let end = async || {
            let event = contract::new_stop(Some(&name), &name, 1_000);
            world.store.stop(event).await
        };
        let answer = end().await;
        assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
        world.all_failed(failing).await;
        let is_done = matches!(failure, Failure::Unconfirmed);
        let expected = if is_done {
            StopOutcome::Repeated
        } else {
            StopOutcome::Ended
        };
        assert_eq!(end().await.unwrap(), expected, "{failure:?}");
        let span = kept(&world.store, &name).await;
        assert_eq!((span.end, span.processing.version), (Some(at(1_000)), 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_without_an_answer_end_their_span_alone() {
    let world = World::new().await;
    let store = &world.store;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let name = |number| format!("{round}-{}", instance(number));
        let start = async |number| must_start(store, Some(&name(number)), &name(number), 0).await;
        join_all((0..WRITES).map(start)).await;
        let failing = world.fail("update", failure, 1).await;
        join_all((0..WRITES).map(async |number| {
            // The same event is sent until there is an answer.
            let end = async || {
                let event = contract::new_stop(Some("end"), &name(number), 1_000);
                store.stop(event).await
            };
            while end().await.is_err() {}
            // The next span begins where this one ends, and is left alone by whatever comes late.
            let next = format!("{}-next", name(number));
            let begin = async || {
                let event = contract::start_event(Some(&next), &name(number), 1_000);
                store.start(contract::new_span(event)).await
            };
            while begin().await.is_err() {}
        }))
        .await;
        world.all_failed(failing).await;
        let kept = join_all((0..WRITES).map(async |number| {
            let next = kept(store, &format!("{}-next", name(number))).await;
            (kept(store, &name(number)).await.end, next.end)
        }));
        assert_eq!(kept.await, vec![(Some(at(1_000)), None); WRITES]);
    }
}

/// A change without an answer may be made or not: the version says so, and it is made once.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_without_an_answer_is_unknown_and_made_once_at_most() {
    let world = World::new().await;
    let store = &world.store;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let spans = join_all((0..WRITES).map(async |number| {
            let name = format!("{round}-{}", instance(number));
            contract::started(store, &name, &name, 0).await
        }));
        let spans = spans.await;
        let failing = world.fail("update", failure, 1).await;
        let mut unknown = 0;
        let changes = spans.iter().map(async |span| {
            let plan = contract::next(span, 3_600_000);
            (store.change(span, &plan, at(1)).await, plan)
        });
        for (answer, plan) in join_all(changes).await {
            let now = &plan.after;
            let now = store.read(&now.id, &now.target).await.unwrap().unwrap();
            match answer {
                Ok(answer) => assert_eq!((answer, now), (Changed::Made, plan.after)),
                Err(StoreError::Unknown(_)) => {
                    unknown += 1;
                    let is_made = now == plan.after;
                    assert_eq!(now.processing.version, if is_made { 2 } else { 1 });
                }
                Err(error) => panic!("{failure:?}: {error}"),
            }
        }
        world.all_failed(failing).await;
        assert!(unknown > 0, "{failure:?}");
    }
}

/// A document that the server takes no stop on: somebody has made a rule for the collection.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_refused_harms_no_other() {
    let world = World::new().await;
    let store = &world.store;
    for number in 0..WRITES {
        must_start(store, None, &instance(number), 0).await;
    }
    let others = doc! { "target.resource_instance_id": { "$ne": instance(7) } };
    let rule = doc! { "$or": [others, { "end": Bson::Null }] };
    let database = database_of(&world.spans);
    let command = doc! { "collMod": "spans", "validator": rule };
    database.run_command(command).await.unwrap();
    let answers = join_all((0..WRITES).map(async |number| {
        let event = contract::new_stop(None, &instance(number), 1_000);
        store.stop(event).await
    }));
    for (number, answer) in answers.await.into_iter().enumerate() {
        match answer {
            Err(StoreError::Refused(_)) => assert_eq!(number, 7),
            answer => assert_eq!(answer.unwrap(), StopOutcome::Ended),
        }
    }
}

/// A server that has too little of something, or is busy with something else, says nothing of what
/// was asked.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_the_moment_is_no_refusal() {
    let world = World::new().await;
    // TemporarilyUnavailable, OutOfDiskSpace, WriteConflict, LockTimeout, UnsatisfiableWriteConcern.
    for code in [365, 14_031, 112, 24, 100] {
        for (command, name) in [("update", "a"), ("find", "b")] {
            let failing = world.fail(command, Failure::Code(code), 1).await;
            let answer = if command == "update" {
                let event = contract::start_event(Some(name), name, 0);
                world.store.start(contract::new_span(event)).await.err()
            } else {
                let (target, id) = (contract::target(name), contract::id(name));
                world.store.started_by(&target, &id).await.err()
            };
            let is_unknown = matches!(answer, Some(StoreError::Unknown(_)));
            assert!(is_unknown, "{code}: {answer:?}");
            world.all_failed(failing).await;
        }
    }
    must_start(&world.store, Some("a"), "a", 0).await;
}
