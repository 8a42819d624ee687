//! Each query that the API allows is answered by an index: its cost follows from what is asked for, not
//! from what there is beside that.

mod cases;
mod collections;

use std::time::{Duration, Instant};

use bson::Document;
use mongodb::{Client, Database};
use sampler_store::{Events, Operating, Reading, StoreError};
use sampler_store_mongo::{MongoOptions, MongoStore};
use sampler_testkit::TestDatabase;

use crate::profile::{Command, commands, cost};
use crate::support::{database_of, options, store_and_spans};
use cases::{Case, large_sums, of_operators, of_spans, of_usages};
use collections::Size;

/// Causes are few, and read as they are.
const CAUSES: &str = ".spans_causes";

/// Such lists are read in the order of their index, and not sorted.
const IN_ORDER: [&str; 2] = ["/v1/spans?organization_id", "/v1/spans?resource_id"];

fn cases(size: Size) -> Vec<Case> {
    let (spans, usages) = (of_spans(), of_usages(size));
    spans
        .into_iter()
        .chain(usages)
        .chain(of_operators())
        .collect()
}

/// What a question costs, and how many items are on its page.
async fn cost_of(
    case: &Case,
    store: &(impl Events + Reading + Operating),
    database: &Database,
) -> (Vec<Command>, usize) {
    commands(database).await;
    let items = case.question.ask(store).await;
    let items = items.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    (commands(database).await, items)
}

/// Checks each case, and says what it cost.
async fn look_at_all(
    size: Size,
    store: &(impl Events + Reading + Operating),
    database: &Database,
) -> Vec<(Vec<Command>, usize)> {
    let (mut costs, mut problems) = (Vec::new(), Vec::new());
    for case in cases(size) {
        let (commands, items) = cost_of(&case, store, database).await;
        let is_in_order = IN_ORDER.iter().any(|name| case.name.starts_with(name));
        let is_bad = |command: &Command| {
            let is_scan = command.plan.contains("COLLSCAN") && !command.namespace.ends_with(CAUSES);
            is_scan || is_in_order && command.sorts
        };
        let (keys, documents) = cost(&commands);
        let is_dear = keys > case.keys || documents > case.documents;
        if commands.is_empty() || is_dear || commands.iter().any(is_bad) {
            problems.push(format!("{case:?}: {commands:?}"));
        }
        costs.push((commands, items));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    costs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_reads_what_it_asks_for_and_no_more_where_there_is_twice_as_much() {
    let (store, spans) = store_and_spans("scale").await;
    let database = database_of(&spans);
    let sizes = [0, 25_000, 50_000].map(|spans| Size {
        spans,
        usages_of_each: 2,
    });
    collections::grow(&database, sizes[0], sizes[1]).await;
    let before = look_at_all(sizes[1], &store, &database).await;
    collections::grow(&database, sizes[1], sizes[2]).await;
    let after = look_at_all(sizes[2], &store, &database).await;
    for ((case, before), after) in cases(sizes[1]).iter().zip(before).zip(after) {
        if !case.varies {
            assert_eq!(after.1, before.1, "{}", case.name);
            let ([before, after], name) = ([cost(&before.0), cost(&after.0)], &case.name);
            let is_no_dearer = after.0 <= before.0 && after.1 <= before.1;
            assert!(is_no_dearer, "{name}: {before:?}, then {after:?}");
        }
    }
}

/// A thousand causes are as quick to list as one: no cause has commands of its own.
#[tokio::test(flavor = "multi_thread")]
async fn causes_are_counted_together() {
    let (store, spans) = store_and_spans("causes_together").await;
    let database = database_of(&spans);
    let [none, some] = [0, 2_000].map(|spans| Size {
        spans,
        usages_of_each: 1,
    });
    collections::grow(&database, none, some).await;
    let all = cases(some);
    let case = all.iter().find(|case| case.name == "/v1/suspended");
    let (commands, items) = cost_of(case.unwrap(), &store, &database).await;
    let causes = usize::try_from(collections::CAUSES).unwrap();
    assert_eq!((items, commands.len()), (causes, 4), "{commands:?}");
}

const FULL: Size = Size {
    spans: 1_000_000,
    usages_of_each: 10,
};

/// The time limit of what reads for the API.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The database of the full size. On a server that is given it stays, and the next run finds it.
const FULL_NAME: &str = "sampler_scale";

async fn full() -> (MongoStore, Database) {
    let server = TestDatabase::new("scale_server").await;
    let client = Client::with_uri_str(server.uri()).await.unwrap();
    let database = client.database(FULL_NAME);
    let options = MongoOptions {
        database: FULL_NAME.to_owned(),
        ..options(&server)
    };
    let store = MongoStore::connect(options.clone()).await.unwrap();
    let usages = database.collection::<Document>("spans_usages");
    let count = usages.estimated_document_count().await.unwrap();
    if i64::try_from(count).unwrap() != FULL.usages() + collections::OF_FIRST {
        database.drop().await.unwrap();
        let empty = Size { spans: 0, ..FULL };
        collections::grow(&database, empty, FULL).await;
    }
    store.migrate().await.unwrap();
    let reader = store.reader(MongoOptions {
        operation_timeout: TIME_LIMIT,
        ..options
    });
    (reader.await.unwrap(), database)
}

/// A million spans and ten million usages; the figures are in `docs/performance.md`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it makes ten million documents, and measures"]
async fn measure_each_query_with_a_million_spans_and_ten_million_usages() {
    let began = Instant::now();
    let (reader, database) = full().await;
    println!("ready after {} s", began.elapsed().as_secs());
    println!("| Query | Items | Keys | Documents | ms |\n| --- | ---: | ---: | ---: | ---: |");
    // The first time they are read from the disk, it may be.
    look_at_all(FULL, &reader, &database).await;
    let costs = look_at_all(FULL, &reader, &database).await;
    for (case, (commands, items)) in cases(FULL).iter().zip(costs) {
        row(&case.name, items, &commands);
    }
    for (name, question) in large_sums() {
        commands(&database).await;
        let answer = question.ask(&reader).await;
        let commands = commands(&database).await;
        match answer {
            Ok(items) => row(&name, items, &commands),
            Err(StoreError::Overloaded) => row(&format!("{name}: 503 `overloaded`"), 0, &commands),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

fn row(name: &str, items: usize, commands: &[Command]) {
    let (keys, documents) = cost(commands);
    let millis: i64 = commands.iter().map(|command| command.millis).sum();
    println!("| {name} | {items} | {keys} | {documents} | {millis} |");
}
