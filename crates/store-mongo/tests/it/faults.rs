//! Commands that fail, or whose answers are lost, while many share them.

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::future::join_all;
use mongodb::{Client, Collection};
use sampler_domain::{Change, Changed, Next};
use sampler_store::{Events, Operating, StartOutcome, StopOutcome, StoreError, Work};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_store_testing::support as contract;
use sampler_store_testing::support::{Changing, LookingUp, must_start};
use sampler_store_testing::support::{at, done, kept, last_refusal, plan_to, start, stop};
use sampler_testkit::mongod::{Options, ReplicaSet};
use sampler_testkit::wait_until;
use uuid::Uuid;

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
        let least = match failure {
            // What is done is found, and not sent again.
            Failure::Unconfirmed => 1,
            _ => times,
        };
        Failing {
            before: before.get_i32("count").unwrap(),
            least,
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

/// On one thread, all of them share one command.
#[tokio::test]
async fn starts_are_answered_and_kept_once_whatever_becomes_of_their_command() {
    let world = World::new().await;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        // As often as a write bears: it is part of one command more at the most.
        let failing = world.fail("insert", failure, 4).await;
        let answers = join_all((0..WRITES).map(async |number| {
            let name = format!("{round}-{}", instance(number));
            start(&world.store, Some(&name), &name, 0).await
        }));
        let answers = answers.await;
        assert_eq!(answers, vec![StartOutcome::Opened; WRITES], "{failure:?}");
        world.all_failed(failing).await;
        let kept = world.spans.count_documents(doc! {}).await.unwrap();
        assert_eq!(kept, u64::try_from((round + 1) * WRITES).unwrap());
    }
}

/// A start that is alone is another command than many.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_start_is_answered_and_kept_once_whatever_becomes_of_its_command() {
    let world = World::new().await;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        for with_id in [true, false] {
            let failing = world.fail("update", failure, 2).await;
            let name = format!("{round}-{with_id}");
            let event_id = with_id.then_some(name.as_str());
            let answer = start(&world.store, event_id, &name, 0).await;
            assert_eq!(answer, StartOutcome::Opened, "{failure:?}");
            world.all_failed(failing).await;
            let filter = doc! { "target.resource_instance_id": name };
            assert_eq!(world.spans.count_documents(filter).await.unwrap(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_are_answered_and_end_their_span_alone_whatever_becomes_of_their_command() {
    let world = World::new().await;
    let store = &world.store;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let name = |number| format!("{round}-{}", instance(number));
        let start = async |number| start(store, Some(&name(number)), &name(number), 0).await;
        join_all((0..WRITES).map(start)).await;
        let failing = world.fail("update", failure, 3).await;
        let answers = join_all((0..WRITES).map(async |number| {
            let ended = stop(store, None, &name(number), 1_000).await;
            // An update: the next span begins where this one ends, and must be left alone by
            // whatever is repeated of the stop.
            let next = format!("{}-next", name(number));
            let started = contract::start(store, Some(&next), &name(number), 1_000).await;
            (ended, started)
        }));
        let answers = answers.await;
        let expected = vec![(StopOutcome::Ended, StartOutcome::Opened); WRITES];
        assert_eq!(answers, expected, "{failure:?}");
        world.all_failed(failing).await;
        let kept = join_all((0..WRITES).map(async |number| {
            let next = kept(store, &format!("{}-next", name(number))).await;
            (kept(store, &name(number)).await.end, next.end)
        }));
        assert_eq!(kept.await, vec![(Some(at(1_000)), None); WRITES]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_made_once_whatever_becomes_of_their_command() {
    let world = World::new().await;
    let store = &world.store;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let name = |number| format!("{round}-{}", instance(number));
        let spans = join_all((0..WRITES).map(async |number| {
            start(store, Some(&name(number)), &name(number), 0).await;
            kept(store, &name(number)).await
        }));
        let spans = spans.await;
        let failing = world.fail("update", failure, 3).await;
        let changed = join_all(spans.iter().map(async |span| {
            let plan = plan_to(span, 1_000);
            let planned = done(store.plan(span, plan, at(1), at(1_000)).await);
            // A second one, based on what the first one was.
            let late = store.plan(span, plan_to(span, 500), at(1), at(1_000)).await;
            assert_eq!(late.unwrap(), None);
            done(store.executed(&planned, Next::Wait, at(2), at(9_000)).await)
        }));
        let changed = changed.await;
        world.all_failed(failing).await;
        for (span, changed) in spans.iter().zip(changed) {
            let now = store.read(&span.id, &span.target).await.unwrap().unwrap();
            assert_eq!(now, changed, "{failure:?}");
            assert_eq!(now.processing.version, span.processing.version + 2);
            assert_eq!(now.sampled_to(), at(1_000));
        }
    }
}

/// The server is slow: the act is done, nobody confirms that, and a worker has gone on with the span
/// by the time that the store looks for the act.
#[tokio::test(flavor = "multi_thread")]
async fn an_act_that_was_done_is_told_as_done_although_a_worker_came_before_the_look() {
    let World { set, store, spans } = World::new().await;
    let worker = connected(&set, "worker").await;
    start(&store, Some("a"), "a", 0).await;
    let span = kept(&store, "a").await;
    let plan = plan_to(&span, 1_000);
    let span = done(store.plan(&span, plan, at(1), at(1_000)).await);
    let suspended = done(store.failed(&span, last_refusal("no mapping", 2)).await);
    let suspension = suspended.processing.suspended.unwrap();
    let due_at = suspension.since;
    let data = doc! {
        "failCommands": ["update", "find"], "appName": "store",
        "namespace": spans.namespace().to_string(), "blockConnection": true, "blockTimeMS": 4_000,
        "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" },
    };
    let order = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data };
    set.command(0, order).await.unwrap();
    let (id, target) = (suspended.id.clone(), suspended.target.clone());
    let acting = tokio::spawn(async move {
        let (act, resume) = (Uuid::from_u128(1), Change::Resume { suspension, due_at });
        store
            .change_by_operator(act, &suspended, &resume, at(3))
            .await
    });
    let is_resumed = async || {
        let span = worker.read(&id, &target).await.unwrap().unwrap();
        span.processing.suspended.is_none()
    };
    wait_until("the act is done", Duration::from_secs(20), is_resumed).await;
    let resumed = worker.read(&id, &target).await.unwrap().unwrap();
    let executed = done(
        worker
            .executed(&resumed, Next::Wait, at(4), at(9_000))
            .await,
    );
    assert!(!acting.is_finished(), "the store has looked before that");
    let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    set.command(0, off).await.unwrap();
    assert_eq!(acting.await.unwrap().unwrap(), Changed::Made);
    assert_eq!(worker.read(&id, &target).await.unwrap(), Some(executed));
}

/// A document that the server takes no stop on: somebody has made a rule for the collection.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_refused_harms_no_other() {
    let world = World::new().await;
    let store = &world.store;
    for number in 0..WRITES {
        start(store, None, &instance(number), 0).await;
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
    // TemporarilyUnavailable, OutOfDiskSpace, WriteConflict, ExceededMemoryLimit, LockTimeout,
    // ConflictingOperationInProgress, UnsatisfiableWriteConcern.
    for code in [365, 14_031, 112, 146, 24, 117, 100] {
        // As often as one write is tried.
        let failing = world.fail("update", Failure::Code(code), 5).await;
        let event = contract::start_event(Some("a"), "a", 0);
        let answer = world.store.start(contract::new_span(event)).await;
        assert!(
            matches!(answer, Err(StoreError::Unknown(_))),
            "{code}: {answer:?}"
        );
        world.all_failed(failing).await;

        let failing = world.fail("find", Failure::Code(code), 1).await;
        let answer = world
            .store
            .started_by(&contract::target("a"), &contract::id("a"))
            .await;
        assert!(
            matches!(answer, Err(StoreError::Unknown(_))),
            "{code}: {answer:?}"
        );
        world.all_failed(failing).await;
    }
    must_start(&world.store, Some("a"), "a", 0).await;
}
