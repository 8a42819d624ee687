//! A sharded collection, as far as it can be had without one: both programs through a stand-in for a
//! router, which keeps every command, after the commands of `docs/scaling.md`.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc, oid::ObjectId};
use sampler_domain::partition::{PARTITIONS, partition_of, range_of};
use sampler_domain::{Key, Target};
use sampler_testkit::abacus::Fault;
use sampler_testkit::build::{start_event, stop_event, with};
use sampler_testkit::program::Launch;
use sampler_testkit::router::Router;
use sampler_testkit::{Program, now_millis, wait_until, workspace_dir};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::landscape::{DAY, HOUR, Landscape, PATIENCE, until_ready};

/// Statements that need not say where a span is kept, and why.
const EXCEPTIONS: [(&str, &str); 10] = [
    (
        "searches of workers",
        "A worker has partitions on every shard: what is due, and what is complete.",
    ),
    (
        "spans of an instance",
        "They are of any target; every shard answers by its index on the instance.",
    ),
    (
        "suspended spans",
        "A cause has spans in all partitions; one worker asks for them, a few times in a probe interval, and counts them. A receiver counts them when an operator asks.",
    ),
    (
        "pages of all spans",
        "The shadow reads the whole collection; every shard has to answer.",
    ),
    (
        "lists of an organization or a resource",
        "Its spans are in all partitions; every shard has to answer. A page is small.",
    ),
    (
        "sums of usages",
        "Usages of an organization, a resource or an instance are in all partitions; every shard adds up its own.",
    ),
    (
        "usages to be sent again",
        "They are in all partitions; one worker asks for them every 5 s. The index holds nothing else.",
    ),
    (
        "a usage that is refused",
        "The id of a usage names no partition. A receiver asks for it when an operator sends again what is not in the ledger. The index holds nothing else.",
    ),
    (
        "usages that were set aside",
        "A cause has usages in all partitions. A worker looks for one before it removes a cause, and receivers count them when an operator asks.",
    ),
    (
        "one span by its id",
        "The address of a span names no partition. Every shard answers by its index on _id.",
    ),
];

/// What is wrong with a command on spans; nothing where a router knows where to send each part of
/// it, or it is one of the exceptions.
fn complaint(command: &Document) -> Option<String> {
    if is_on(command, "spans_usages") {
        return complaint_of_ledger(command);
    }
    let list = |name: &str| {
        let items = command.get_array(name).expect("the list of a write").iter();
        items.filter_map(Bson::as_document)
    };
    let name = command.keys().next()?.as_str();
    let are_placed = match name {
        "insert" => list("documents").all(is_placed_document),
        "update" => list("updates").all(|one| one.get_document("q").is_ok_and(is_statement_placed)),
        "delete" => list("deletes").all(|one| one.get_document("q").is_ok_and(is_statement_placed)),
        "find" => {
            let filter = command.get_document("filter").ok()?;
            is_placed(filter) || is_exception(command, filter)
        }
        "aggregate" => {
            let filter = first_match(command);
            filter.is_some_and(|filter| is_placed(filter) || is_exception(command, filter))
        }
        // A cursor continues where it was opened; the others are about the collection.
        "getMore" | "killCursors" | "listIndexes" | "createIndexes" => true,
        _ => false,
    };
    (!are_placed).then(|| command.to_string())
}

/// What the first stage of a pipeline looks for.
fn first_match(command: &Document) -> Option<&Document> {
    let first = command.get_array("pipeline").ok()?.first()?;
    first.as_document()?.get_document("$match").ok()
}

/// What is wrong with a command on the ledger. Exceptions: sums and counts, what is to be sent again, and
/// where a usage's entry is not kept for its span, it is searched by its id. A search for what is to be
/// confirmed names its partitions.
fn complaint_of_ledger(command: &Document) -> Option<String> {
    let all = |name: &str, is_placed: &dyn Fn(&Document) -> bool| {
        let items = command.get_array(name).expect("the list of a write").iter();
        items.filter_map(Bson::as_document).all(is_placed)
    };
    let has_key = |filter: &Document| has_values(filter, ["partition", "span"]);
    let are_placed = match command.keys().next()?.as_str() {
        "insert" => all("documents", &has_key),
        "update" => all("updates", &|one| one.get_document("q").is_ok_and(has_key)),
        "find" => command.get_document("filter").is_ok_and(|filter| {
            let partition = filter.get_document("partition");
            let names_partitions = partition.is_ok_and(|partition| partition.contains_key("$in"));
            names_partitions
                || has_key(filter)
                || filter.keys().eq(["_id"])
                || is_exception(command, filter)
        }),
        "aggregate" => is_exception(command, &Document::new()),
        "getMore" | "killCursors" | "listIndexes" | "createIndexes" => true,
        _ => false,
    };
    (!are_placed).then(|| command.to_string())
}

/// Whether a condition has the key, a list or a range of keys, or each of its branches does.
fn is_placed(filter: &Document) -> bool {
    if let Ok(branches) = filter.get_array("$or") {
        let is_placed = |branch: &Bson| branch.as_document().is_some_and(is_placed);
        return branches.iter().all(is_placed);
    }
    match filter.get("processing.key") {
        Some(Bson::Document(key)) => key.contains_key("$in") || key.contains_key("$gte"),
        key => matches!(key, Some(Bson::Binary(_))),
    }
}

/// Whether a statement that changes or removes a span has its key.
fn is_statement_placed(filter: &Document) -> bool {
    // A span of the original may have none yet, which is a key, too.
    matches!(
        filter.get("processing.key"),
        Some(Bson::Binary(_) | Bson::Null)
    )
}

/// Whether a condition has equality on both, or each of its branches does.
fn has_values(filter: &Document, names: [&str; 2]) -> bool {
    if let Ok(branches) = filter.get_array("$or") {
        let has_values = |branch: &Document| has_values(branch, names);
        return branches
            .iter()
            .all(|branch| branch.as_document().is_some_and(has_values));
    }
    let is_value = |name: &str| {
        let value = filter.get(name);
        value.is_some_and(|value| !matches!(value, Bson::Document(_)))
    };
    names.into_iter().all(is_value)
}

fn is_placed_document(document: &Document) -> bool {
    let processing = document.get_document("processing");
    processing.is_ok_and(|processing| processing.contains_key("key"))
}

/// Whether a condition is the id of a span, perhaps with the resources that the client may read.
fn of_one_span(filter: &Document) -> bool {
    filter
        .keys()
        .all(|name| name == "_id" || name == "target.resource_id")
}

/// Whether a search is one of the [`EXCEPTIONS`].
fn is_exception(command: &Document, filter: &Document) -> bool {
    let id = filter.get_document("_id").ok();
    let is_by_id = |operator: &str| id.is_some_and(|id| id.contains_key(operator));
    let name = match command.get_str("hint").unwrap_or_default() {
        "_id_" if is_by_id("$type") => "pages of all spans",
        "_id_" if is_by_id("$in") && of_one_span(filter) => "one span by its id",
        "list_organization" | "list_resource" | "list_suspended" => {
            "lists of an organization or a resource"
        }
        "list_instance" => "spans of an instance",
        "search_due" | "search_failed" | "search_complete" => "searches of workers",
        "search_suspended" => "suspended spans",
        "search_refused" => "a usage that is refused",
        "resend" => "usages to be sent again",
        "sum_organization" | "sum_resource" | "sum_instance" => "sums of usages",
        "set_aside" => "usages that were set aside",
        _ => return false,
    };
    EXCEPTIONS.iter().any(|(exception, _)| *exception == name)
}

#[test]
fn a_statement_that_names_no_key_is_complained_of() {
    let update = |q: Document| doc! { "update": "spans", "updates": [{ "q": q, "u": {} }] };
    let placed = doc! { "processing.key": key("i") };
    assert_eq!(complaint(&update(placed.clone())), None);
    for q in [
        doc! { "_id": 1 },
        doc! { "_id": 1, "processing.partition": 1 },
        doc! { "processing.key": { "$in": [key("i")] } },
    ] {
        assert!(complaint(&update(q.clone())).is_some(), "{q}");
    }
    let find = |filter: Document| doc! { "find": "spans", "filter": filter };
    let branches = |other: Document| doc! { "$or": [placed.clone(), other] };
    assert_eq!(complaint(&find(branches(placed.clone()))), None);
    assert!(complaint(&find(branches(doc! { "start_dedup_id": "a" }))).is_some());
    assert!(complaint(&find(doc! { "start_dedup_id": "a" })).is_some());
}

/// What of mongosh the commands of `docs/scaling.md` need. Each notes how it was called.
const SHELL: &str = r#"
const calls = []
const note = name => (...given) => { calls.push([name, ...given]) }
const sh = new Proxy({}, { get: (_, name) => note(name) })
const [MinKey, MaxKey, HexData] = [() => "min", () => "max", (_, hex) => hex]
const cluster = {
  spans: { createIndex: note("createIndex") },
  tags: { find: () => [{ ns: "sampler.spans", min: 1, max: 2 }] },
  shards: { find: () => ({ sort: () => ({ toArray: () => ["a", "b", "c"].map(_id => ({ _id })) }) }) },
}
const db = { getSiblingDB: () => cluster }
"#;

/// The calls of mongosh that `docs/scaling.md` shows, for a cluster of three shards: each with its name and
/// what it is given.
async fn documented_calls() -> Vec<Value> {
    let page = std::fs::read_to_string(workspace_dir().join("docs/scaling.md")).unwrap();
    let blocks = page.split("```js").skip(1);
    let mut script = SHELL.to_owned();
    for block in blocks {
        script.push_str(block.split("```").next().unwrap());
    }
    script.push_str("\nconsole.log(JSON.stringify(calls))");
    let ran = Command::new("node").args(["-e", &script]).output().await;
    let ran = ran.unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

#[tokio::test]
async fn the_documented_commands_give_each_shard_its_range_of_partitions() {
    let first_of = |range: usize| (0..PARTITIONS).find(|each| range_of(*each, 3) == range);
    let key = |range| match first_of(range) {
        Some(0) => json!("min"),
        Some(partition) => json!(hex(Key::first_of(partition).bytes())),
        None => json!("max"),
    };
    let mut expected = vec![
        json!(["createIndex", { "processing.key": 1 }]),
        json!(["shardCollection", "sampler.spans", { "processing.key": 1 }]),
        json!(["shardCollection", "sampler.spans_usages", { "partition": 1, "span": 1 }]),
        json!(["removeRangeFromZone", "sampler.spans", 1, 2]),
    ];
    for (range, zone) in ["a", "b", "c"].into_iter().enumerate() {
        let spans = |range| json!({ "processing.key": key(range) });
        let usages = |range| {
            let partition = first_of(range).unwrap_or(PARTITIONS);
            json!({ "partition": partition, "span": "min" })
        };
        let to = range + 1;
        expected.extend([
            json!(["addShardToZone", zone, zone]),
            json!([
                "updateZoneKeyRange",
                "sampler.spans",
                spans(range),
                spans(to),
                zone
            ]),
            json!([
                "updateZoneKeyRange",
                "sampler.spans_usages",
                usages(range),
                usages(to),
                zone
            ]),
        ]);
    }
    assert_eq!(documented_calls().await, expected);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Shards the collections of the database behind the router, as `docs/scaling.md` says.
async fn shard(world: &Landscape, uri: &str) {
    let admin = mongodb::Client::with_uri_str(uri)
        .await
        .unwrap()
        .database("admin");
    for call in documented_calls().await {
        if call[0] == "shardCollection" {
            let namespace = call[1].as_str().unwrap();
            let namespace = namespace.replacen("sampler", world.database.name(), 1);
            let key = bson::serialize_to_document(&call[2]).unwrap();
            let command = doc! { "shardCollection": namespace, "key": key };
            admin.run_command(command).await.unwrap();
        }
    }
}

/// The port of the server that all tests share.
fn port(uri: &str) -> u16 {
    let hosts = uri.trim_start_matches("mongodb://");
    let host = hosts.split(['/', ',']).next().unwrap_or_default();
    let port = host.rsplit(':').next().and_then(|port| port.parse().ok());
    port.expect("a port in the address of the server")
}

/// Whether a command is on the spans or the ledger.
fn on_spans(command: &Document) -> bool {
    is_on(command, "spans") || is_on(command, "spans_usages")
}

fn is_on(command: &Document, collection_name: &str) -> bool {
    let name = command.keys().next().map_or("", String::as_str);
    let collection = match name {
        "getMore" => command.get_str("collection"),
        _ => command.get_str(name),
    };
    collection.is_ok_and(|collection| collection == collection_name)
}

fn target(instance: &str) -> Target {
    Target::from_store(["o", "s", "c", "r", "p", instance])
}

/// The key of a target, as it is kept.
fn key(instance: &str) -> Binary {
    Binary {
        subtype: BinarySubtype::Generic,
        bytes: Key::of(&target(instance)).bytes().to_vec(),
    }
}

/// A complete span that ended long ago, one that cannot be read, and one of the original.
async fn odd_spans(world: &Landscape) {
    let now = now_millis();
    let span = |name: &str, processing: Document| {
        doc! {
            "_id": ObjectId::new(),
            "target": {
                "organization_id": "o", "space_id": "s", "consumer_id": "c", "resource_id": "r",
                "plan_id": "p", "resource_instance_id": name, "correlation_id": name,
            },
            "measured_usage": [], "start": now - 200 * DAY, "end": now - 190 * DAY,
            "processing": processing,
        }
    };
    let last = doc! { "start": now - 191 * DAY, "end": now - 190 * DAY };
    let old = doc! {
        "complete": true, "partition": 3, "key": key("old"), "version": 5, "last_interval": &last,
    };
    let unreadable = doc! {
        "complete": false, "partition": 4, "key": key("unreadable"), "due_at": 0_i64,
    };
    let theirs = doc! { "complete": false, "version": 1, "last_interval": &last };
    // One that an earlier release went on with while it was suspended.
    let suspended =
        doc! { "cause": "7d0e4b52-93c1-5f0a-8a6b-1f2c60d59e37", "version": 4, "since": now };
    let stale = doc! {
        "complete": false, "partition": i64::from(partition_of(&target("stale"))),
        "key": key("stale"), "version": 5,
        "due_at": 253_402_300_800_000_i64, "last_interval": &last, "suspended": suspended,
    };
    let spans = world.spans().await;
    let all = [
        span("old", old),
        span("unreadable", unreadable),
        span("theirs", theirs),
        span("stale", stale),
    ];
    spans.insert_many(all).await.unwrap();
}

/// Lists of each kind, and each span that is on them; and sums.
async fn read_all(world: &Landscape, receiver: &Program) {
    for path in ["/v1/suspended", "/v1/audit"] {
        world.read(receiver, path).await;
    }
    for narrowing in [
        "organization_id=o",
        "resource_id=r",
        "resource_instance_id=instance-1",
    ] {
        let path = format!("/v1/usages?{narrowing}&group_by=resource_instance_id");
        world.read(receiver, &path).await;
    }
    for path in [
        "/v1/spans?organization_id=o&state=open",
        "/v1/spans?resource_id=r&limit=1",
        "/v1/spans?resource_instance_id=instance-1",
    ] {
        let list = world.json(receiver, path).await;
        for span in list["items"].as_array().unwrap() {
            let id = span["id"].as_str().unwrap();
            for path in [format!("/v1/spans/{id}"), format!("/v1/spans/{id}/usages")] {
                world.read(receiver, &path).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_statement_says_where_its_span_is_kept() {
    let world = Landscape::new("sharded").await;
    let router = Router::start(port(world.database.uri())).await;
    let uri = router.uri_of(world.database.name());
    let through_router = |launch: Launch| {
        launch
            .env("DB_URI", uri.clone())
            .env("SAMPLER_SHARDED", "true")
            .env("SAMPLER_SHARDS", "2")
            .env("SAMPLER_DIMENSION", "hour")
    };
    let too_early = through_router(world.receiver());
    is_refused(too_early, "spans is not sharded by").await;
    shard(&world, &uri).await;
    let receiver = through_router(world.receiver()).start().await.unwrap();
    until_ready(&world.http, &receiver).await;
    odd_spans(&world).await;
    let aside = Fault::put_aside("plan not found");
    world
        .abacus
        .fault(aside.only_where("resource_instance_id", "instance-19"));
    let worker = through_router(world.worker())
        .env("SAMPLER_CONFIRM", "true")
        .env("SAMPLER_CONFIRM_INTERVAL", "100ms")
        .start()
        .await
        .unwrap();
    let start = now_millis() - 3 * HOUR;
    let id = |event: Value, id: String| with(event, "id", id);
    for target in 0..20 {
        let event = id(start_event(target, start), format!("start-{target}"));
        let path = "/v1/events/start";
        world.take(&receiver, path, &event).await;
        world.take(&receiver, path, &event).await;
    }
    // All at once, so that they share commands; then repeats, and what is refused.
    let stops = (0..10).map(async |target| {
        let event = id(
            stop_event(target, start + HOUR + 1),
            format!("stop-{target}"),
        );
        let path = "/v1/events/stop";
        world.take(&receiver, path, &event).await;
        world.take(&receiver, path, &event).await;
        let again = id(start_event(target + 10, start), format!("again-{target}"));
        let refused = world.post(&receiver, "/v1/events/start", &again).await;
        assert_eq!(refused.status().as_u16(), 409);
    });
    futures_util::future::join_all(stops).await;
    for target in 30..33 {
        let first = id(start_event(target, start + 1), format!("start-{target}"));
        world.take(&receiver, "/v1/events/start", &first).await;
        let update = id(start_event(target, start + 2), format!("update-{target}"));
        let path = "/v1/events/update";
        let dry_run = format!("{path}?dry_run=true");
        let dry = world.post(&receiver, &dry_run, &update);
        assert_eq!(dry.await.status().as_u16(), 200);
        world.take(&receiver, path, &update).await;
        world.take(&receiver, path, &update).await;
    }
    // The others are removed at some time: they ended long ago.
    let spans = world.spans().await;
    wait_until("the ten are complete", PATIENCE, async || {
        let complete = doc! { "processing.complete": true, "start": start };
        spans.count_documents(complete).await.unwrap() == 10
    })
    .await;
    for target in 0..10 {
        let billed = world.billed(&format!("instance-{target}"));
        assert_eq!(billed, i128::from(HOUR + 1), "{target}");
    }
    let usages = world.usages().await;
    wait_until("one was set aside", PATIENCE, async || {
        let aside = doc! { "state": "set_aside" };
        usages.count_documents(aside).await.unwrap() > 0
    })
    .await;
    let message = "the upstream has set usages aside that it had accepted";
    worker.until_logged(message, 1).await;
    read_all(&world, &receiver).await;
    // It ended long ago: once it is complete it is removed.
    wait_until("the stale span is through", PATIENCE, async || {
        let stale = doc! { "target.resource_instance_id": "stale" };
        spans.count_documents(stale).await.unwrap() == 0
    })
    .await;
    let shadow = through_router(world.worker()).env("SAMPLER_SHADOW", "true");
    let shadow = shadow.start().await.unwrap();
    wait_until("the shadow has read all spans", PATIENCE, async || {
        !shadow
            .logs_of("compared with what the original Sampler decided")
            .is_empty()
    })
    .await;
    wait_until("the old span is removed", PATIENCE, async || {
        !worker.logs_of("removed complete spans").is_empty()
    })
    .await;

    let commands = router.take_commands();
    let on_spans: Vec<&Document> = commands
        .iter()
        .filter(|command| on_spans(command))
        .collect();
    let on_ledger = |name: &str| {
        let mut commands = commands.iter();
        commands.any(|command| is_on(command, "spans_usages") && command.contains_key(name))
    };
    assert!(on_ledger("insert") && on_ledger("update"), "no ledger");
    assert!(on_ledger("aggregate"), "no sums");
    for hint in ["unconfirmed", "set_aside"] {
        let mut commands = commands.iter();
        let is_there = commands.any(|command| command.get_str("hint").is_ok_and(|it| it == hint));
        assert!(is_there, "no command by {hint}");
    }
    for name in ["insert", "update", "delete", "find", "getMore"] {
        let seen = on_spans.iter().any(|command| command.contains_key(name));
        assert!(seen || name == "insert" || name == "getMore", "no {name}");
    }
    let complaints: Vec<String> = on_spans
        .iter()
        .filter_map(|command| complaint(command))
        .collect();
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_router_is_refused_as_a_wrong_setting() {
    let world = Landscape::new("no_router").await;
    for launch in [world.receiver(), world.worker()] {
        let sharded = launch.env("SAMPLER_SHARDED", "true");
        is_refused(sharded, "does not lead to a router").await;
    }
}

/// The program ends because of a setting that does not fit the database.
async fn is_refused(launch: Launch, why: &str) {
    let program = launch.start().await.unwrap();
    assert_eq!(program.wait_exit(PATIENCE).await.unwrap(), 64);
    let failed = program.logs_of("the program failed");
    let error = failed[0]["error"].as_str().unwrap_or_default();
    assert!(error.contains(why), "{error}");
}
