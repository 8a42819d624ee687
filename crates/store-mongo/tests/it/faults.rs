//! Commands that fail, or whose answers are lost, while many share them.

use std::time::Duration;

use bson::{Bson, Document, doc};
use futures_util::future::join_all;
use sampler_domain::Changed;
use sampler_store::{Events, StartOutcome, StopOutcome, StoreError, Work};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{
    LookingUp, at, id, kept, must_start, new_span, new_stop, next, start_event, started, target,
};

use crate::support::{OwnServer, database_of};

/// How a command fails, so that its caller cannot know what became of it.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// The connection is closed before the command is done.
    Cut,
    /// The server says that it is no longer the primary.
    NotPrimary,
    /// The command is done, but the answer is that a majority is not known to have it.
    Unconfirmed,
}

const FAILURES: [Failure; 3] = [Failure::Cut, Failure::NotPrimary, Failure::Unconfirmed];

impl Failure {
    fn how(self) -> Document {
        match self {
            Self::Cut => doc! { "closeConnection": true },
            Self::NotPrimary => doc! { "errorCode": 10_107 },
            Self::Unconfirmed => doc! { "writeConcernError": {
                "code": 64, "errmsg": "waiting for replication timed out",
            } },
        }
    }
}

async fn world() -> (OwnServer, MongoStore) {
    let server = OwnServer::start().await;
    let store = server.store("store", Duration::from_secs(20)).await;
    (server, store)
}

/// The next command of this name fails so. What says later that it did.
async fn fail(server: &OwnServer, command: &str, how: Document) -> i32 {
    server.fail("store", &[command], 1, how).await
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
    let (server, store) = world().await;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let name = |number| format!("{round}-{}", instance(number));
        let failing = fail(&server, "insert", failure.how()).await;
        let begin = async |number| {
            let event = start_event(Some(&name(number)), &name(number), 0);
            store.start(new_span(event)).await
        };
        for answer in join_all((0..WRITES).map(begin)).await {
            let unknown = matches!(answer, Err(StoreError::Unknown(_)));
            // Those that did not share the command.
            assert!(unknown || answer.is_ok(), "{failure:?}: {answer:?}");
        }
        server.has_failed(failing).await;
        for answer in join_all((0..WRITES).map(begin)).await {
            let answer = answer.unwrap();
            let is_kept = matches!(answer, StartOutcome::Repeated { .. } | StartOutcome::Opened);
            assert!(is_kept, "{failure:?}: {answer:?}");
        }
        let kept = server.spans.count_documents(doc! {}).await.unwrap();
        assert_eq!(kept, u64::try_from((round + 1) * WRITES).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_stop_without_an_answer_is_unknown_and_its_repeat_decides() {
    let (server, store) = world().await;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let name = instance(round);
        must_start(&store, Some(&name), &name, 0).await;
        let failing = fail(&server, "findAndModify", failure.how()).await;
        let end = async || {
            let event = new_stop(Some(&name), &name, 1_000);
            store.stop(event).await
        };
        let answer = end().await;
        assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
        server.has_failed(failing).await;
        let is_done = matches!(failure, Failure::Unconfirmed);
        let expected = if is_done {
            StopOutcome::Repeated
        } else {
            StopOutcome::Ended
        };
        assert_eq!(end().await.unwrap(), expected, "{failure:?}");
        let span = kept(&store, &name).await;
        assert_eq!((span.end, span.processing.version), (Some(at(1_000)), 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_without_an_answer_end_their_span_alone() {
    let (server, store) = world().await;
    let store = &store;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let name = |number| format!("{round}-{}", instance(number));
        let start = async |number| must_start(store, Some(&name(number)), &name(number), 0).await;
        join_all((0..WRITES).map(start)).await;
        let failing = fail(&server, "update", failure.how()).await;
        join_all((0..WRITES).map(async |number| {
            // The same event is sent until there is an answer.
            let end = async || {
                let event = new_stop(Some("end"), &name(number), 1_000);
                store.stop(event).await
            };
            while end().await.is_err() {}
            // The next span begins where this one ends, and is left alone by whatever comes late.
            let next = format!("{}-next", name(number));
            let begin = async || {
                let event = start_event(Some(&next), &name(number), 1_000);
                store.start(new_span(event)).await
            };
            while begin().await.is_err() {}
        }))
        .await;
        server.has_failed(failing).await;
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
    let (server, store) = world().await;
    let store = &store;
    for (round, failure) in FAILURES.into_iter().enumerate() {
        let spans = join_all((0..WRITES).map(async |number| {
            let name = format!("{round}-{}", instance(number));
            started(store, &name, &name, 0).await
        }));
        let spans = spans.await;
        let failing = fail(&server, "update", failure.how()).await;
        let mut unknown = 0;
        let changes = spans.iter().map(async |span| {
            let plan = next(span, 3_600_000);
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
        server.has_failed(failing).await;
        assert!(unknown > 0, "{failure:?}");
    }
}

/// A document that the server takes no stop on: somebody has made a rule for the collection.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_refused_harms_no_other() {
    let (server, store) = world().await;
    let store = &store;
    for number in 0..WRITES {
        must_start(store, None, &instance(number), 0).await;
    }
    let others = doc! { "target.resource_instance_id": { "$ne": instance(7) } };
    let rule = doc! { "$or": [others, { "end": Bson::Null }] };
    let database = database_of(&server.spans);
    let command = doc! { "collMod": "spans", "validator": rule };
    database.run_command(command).await.unwrap();
    let answers = join_all((0..WRITES).map(async |number| {
        let event = new_stop(None, &instance(number), 1_000);
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
    let (server, store) = world().await;
    // TemporarilyUnavailable, OutOfDiskSpace, WriteConflict, LockTimeout, UnsatisfiableWriteConcern.
    for code in [365, 14_031, 112, 24, 100] {
        for (command, name) in [("update", "a"), ("find", "b")] {
            let failing = fail(&server, command, doc! { "errorCode": code }).await;
            let answer = if command == "update" {
                let event = start_event(Some(name), name, 0);
                store.start(new_span(event)).await.err()
            } else {
                let (target, id) = (target(name), id(name));
                store.started_by(&target, &id).await.err()
            };
            let is_unknown = matches!(answer, Some(StoreError::Unknown(_)));
            assert!(is_unknown, "{code}: {answer:?}");
            server.has_failed(failing).await;
        }
    }
    must_start(&store, Some("a"), "a", 0).await;
}
