//! What the server looks at: each query goes by an index and examines about what it returns, however
//! much there is beside that.

use std::ops::Range;
use std::sync::Mutex;

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use mongodb::Database;
use sampler_domain::partition::partition_of;
use sampler_domain::{
    Cause, ClientId, Measures, SUSPENDED_DUE_AT, SpanId, SpanState, Target, Timestamp, WindowLength,
};
use sampler_store::{
    AuditQuery, BacklogQuery, CauseQuery, DueQuery, DueWatches, EntryOrder, EntryPosition, Events,
    Ledger, Operating, Reading, Resumption, SpanQuery, SpansBy, StoreError, SumQuery, WatchQuery,
    Work,
};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::{
    at, due_ids, everything, id, new_span, new_stop, span_query, start_event, sum_query, target,
};

use crate::support::{commands, cost, database_of, placement, store_and_spans};

const HOUR: i64 = 3_600_000;
const YEAR: i64 = 365 * 24 * HOUR;

/// Spans that nobody asks for: half of them are open and due next year, half of them are complete and of an
/// instance that others have, too.
const OTHERS: Range<i64> = 100_000..110_000;
/// Complete spans of an organization and a resource, ten of each instance.
const ASKED: Range<i64> = 0..1_000;
/// Spans that are suspended for one cause.
const SUSPENDED: Range<i64> = 1_000..1_300;
/// Spans that are due.
const DUE: Range<i64> = 1_300..1_350;
/// Entries of one span.
const OF_ONE: i64 = 2_000;
/// Watches that are due now.
const TO_CONFIRM: i64 = 70;
/// Usages that are missing.
const MISSING: i64 = 30;
/// Acts of one operator about one span.
const ACTS: i64 = 50;
const PAGE: usize = 100;

fn object_id(number: i64) -> ObjectId {
    ObjectId::parse_str(format!("{number:024}")).unwrap()
}

fn target_of(name: &str, instance: &str) -> Target {
    Target::from_store([name, "space", "consumer", name, "plan", instance])
}

fn asked() -> Target {
    target_of("asked", "asked-7")
}

fn target_document(target: &Target) -> Document {
    let fields = target.fields().into_iter();
    fields
        .map(|(name, id)| (name.to_owned(), Bson::from(id.as_str())))
        .collect()
}

fn cause() -> Cause {
    Cause {
        status: Some(400),
        error: "no plan".to_owned(),
        resource_id: id("suspended"),
        plan_id: id("plan"),
    }
}

fn span(number: i64, of: &Target, is_complete: bool, more: Document) -> Document {
    let start = at(-HOUR - number).as_millis();
    let end = at(-number).as_millis();
    let mut target = target_document(of);
    let open = "00000000-0000-0000-0000-000000000000".to_owned();
    let own = is_complete.then(|| number.to_string());
    target.insert("correlation_id", own.unwrap_or(open));
    let mut processing = doc! {
        "complete": is_complete, "version": 2_i64, "planned_interval": Bson::Null,
        "last_interval": { "start": start, "end": end }, "due_at": at(YEAR).as_millis(),
        "last_change_at": start,
    };
    processing.extend(placement(of));
    processing.extend(more);
    doc! {
        "_id": object_id(number), "target": target, "measured_usage": [],
        "start": start, "end": is_complete.then_some(end),
        "start_dedup_id": format!("start-{number}"), "processing": processing,
    }
}

fn suspended(number: i64) -> Document {
    let of = target_of("suspended", &number.to_string());
    let (start, end) = (at(-number).as_millis(), at(0).as_millis());
    let planned = doc! {
        "start": start, "end": end, "usage_guid": format!("planned {number}"), "planned_at": end,
    };
    let id = uuid::Uuid::from(cause().id()).into_bytes().to_vec();
    let id = Binary {
        subtype: BinarySubtype::Generic,
        bytes: id,
    };
    let failure = doc! {
        "attempts": 2_i64, "refusals": 2_i64, "at": end, "status": 400, "error": "no plan",
        "cause": id, "suspended_at": end + number,
    };
    let more = doc! {
        "planned_interval": planned, "failure": failure, "due_at": SUSPENDED_DUE_AT.as_millis(),
    };
    span(number, &of, false, more)
}

fn all_spans() -> Vec<Document> {
    let other = |number: i64| {
        let is_complete = number % 2 == 0;
        let own = number.to_string();
        let instance = if is_complete { "busy" } else { &own };
        span(number, &target_of("other", instance), is_complete, doc! {})
    };
    let of_asked = |number: i64| {
        let of = target_of("asked", &format!("asked-{}", number % 100));
        span(number, &of, true, doc! {})
    };
    let is_due = |number: i64| {
        let of = target_of("due", &number.to_string());
        span(number, &of, false, doc! { "due_at": at(0).as_millis() })
    };
    let spans = OTHERS.map(other).chain(ASKED.map(of_asked));
    spans
        .chain(SUSPENDED.map(suspended))
        .chain(DUE.map(is_due))
        .collect()
}

/// A usage that is accepted, of one of a hundred hours.
fn usage(number: i64, of: &Target, span: i64) -> Document {
    let end = at(-HOUR * (number % 100)).as_millis();
    doc! {
        "_id": format!("usage {number:06}"), "span": object_id(span), "target": target_document(of),
        "measured_usage": [{ "measure": "memory", "quantity": 512_i64 }],
        "interval": { "start": end - HOUR, "end": end }, "timestamp": end - HOUR / 2,
        "duration": HOUR, "dimension": "hour", "accepted_at": at(number).as_millis(), "status": 202,
        "expires_at": bson::DateTime::MAX,
    }
}

fn all_usages() -> Vec<Document> {
    let other = |number: i64| usage(number, &target_of("other", &number.to_string()), number);
    let of_one = |number| usage(number, &asked(), 7);
    OTHERS.map(other).chain((0..OF_ONE).map(of_one)).collect()
}

fn watch(number: i64, more: Document) -> Document {
    let of = target_of("confirmed", &number.to_string());
    let mut watch = doc! {
        "_id": format!("usage {number:06}"), "span": object_id(9), "target": target_document(&of),
        "partition": Bson::Int32(i32::try_from(partition_of(&of)).unwrap()),
        "interval": { "start": at(0).as_millis(), "end": at(HOUR).as_millis() },
        "accepted_at": at(number).as_millis(), "due_at": at(YEAR).as_millis(), "asked": true,
        "expires_at": bson::DateTime::MAX,
    };
    watch.extend(more);
    watch
}

fn all_watches() -> Vec<Document> {
    let waits = |number| watch(number, doc! {});
    let due = |number| watch(number, doc! { "due_at": at(0).as_millis() });
    let missing = |number| {
        let missing = doc! { "since": at(0).as_millis(), "error": "set aside" };
        let mut watch = watch(number, doc! { "missing": missing });
        watch.remove("asked");
        watch
    };
    let all = (0..OTHERS.end - OTHERS.start).map(waits);
    let all = all.chain((20_000..20_000 + TO_CONFIRM).map(due));
    all.chain((30_000..30_000 + MISSING).map(missing)).collect()
}

fn act(number: i64) -> Document {
    let is_asked = number < ACTS;
    doc! {
        "_id": format!("00000000-0000-4000-8000-{number:012}"), "at": at(-number).as_millis(),
        "act": "span.resume", "subject": "span", "reason": "It has its plan.",
        "span": if is_asked { "asked" } else { "other" },
        "who": if is_asked { "asked" } else { "other" },
        "before": "null", "after": "null", "outcome": "done",
    }
}

async fn filled(label: &str) -> (MongoStore, Look) {
    let (store, spans) = store_and_spans(label).await;
    let database = database_of(&spans);
    // The first sum makes its index, for which a request waits only a second.
    for field in ["organization_id", "resource_id", "resource_instance_id"] {
        let nothing = sum(field, "nobody", WindowLength::All);
        store.sums(&nothing).await.unwrap().unwrap();
    }
    for (name, documents) in [
        ("spans", all_spans()),
        ("spans_usages", all_usages()),
        ("spans_audit", (0..2_000).map(act).collect()),
        ("spans_unconfirmed", all_watches()),
    ] {
        let collection = database.collection(name);
        collection.insert_many(documents).await.unwrap();
    }
    let problems = Mutex::default();
    (store, Look { database, problems })
}

/// Looks at what questions cost.
struct Look {
    database: Database,
    problems: Mutex<Vec<String>>,
}

impl Look {
    /// Asks; sees to it that the server went by an index, and examined so many keys and documents at the
    /// most.
    async fn at<T>(
        &self,
        name: &str,
        (keys, documents): (i64, i64),
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> T {
        commands(&self.database).await;
        let answer = question.await;
        let commands = commands(&self.database).await;
        let is_scan = commands.iter().any(|it| it.plan.contains("COLLSCAN"));
        let examined = cost(&commands);
        let is_dear = examined.0 > keys || examined.1 > documents;
        if commands.is_empty() || is_scan || is_dear {
            let most = (keys, documents);
            let problem = format!("{name}: {examined:?} of {most:?}: {commands:?}");
            self.problems.lock().unwrap().push(problem);
        }
        answer.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// None of the questions went without an index, or was too dear.
    fn end(self) {
        let problems = self.problems.into_inner().unwrap();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

fn sum(field: &str, value: &str, length: WindowLength) -> SumQuery {
    sum_query(&[(field, value)], length, (-101 * HOUR, HOUR))
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_and_sums_examine_what_they_show() {
    let (store, look) = filled("explain_reading").await;
    let page = i64::try_from(PAGE).unwrap();
    let whole = (page + 2, page + 1);
    let (organization, resource) = ("organization_id", "resource_id");
    let instance = "resource_instance_id";
    let (is_open, is_suspended) = (Some(SpanState::Open), Some(SpanState::Suspended));
    for (field, value, state, most) in [
        (organization, "asked", None, whole),
        (resource, "asked", None, whole),
        (resource, "other", None, whole),
        (instance, "asked-7", None, (12, 10)),
        (instance, "asked-7", is_open, (12, 10)),
        // All that the organization has is compared.
        (organization, "asked", is_open, (2_002, 2_000)),
        (resource, "suspended", is_suspended, (2 * 302, 2 * 301)),
    ] {
        let query = SpanQuery {
            state,
            ..span_query(&[(field, value)])
        };
        let name = format!("{field}={value}, {state:?}");
        look.at(&name, most, store.spans(&query)).await;
    }
    // What others have in the organization is not read.
    let scoped = SpanQuery {
        resources: Some(vec![id("asked-by-nobody")]),
        ..span_query(&[(organization, "other")])
    };
    look.at("scoped", (4, 0), store.spans(&scoped)).await;
    look.at("newest", (page + 1, page + 1), store.newest_spans(PAGE))
        .await;
    look.at("span", (3, 1), store.span(&object_id(7).to_hex(), None))
        .await;

    let span = SpanId::ObjectId(object_id(7).bytes());
    let target = asked();
    let middle = EntryPosition {
        accepted_at: at(OF_ONE / 2),
        usage_guid: format!("usage {:06}", OF_ONE / 2),
    };
    for order in [EntryOrder::Oldest, EntryOrder::Newest] {
        for after in [None, Some(&middle)] {
            let entries = store.usages(&span, &target, order, after, PAGE);
            look.at("entries", (page + 3, page + 3), entries).await;
        }
    }
    let most = (OF_ONE + 4, OF_ONE + 2);
    look.at("ledger", most, store.ledger_of(&span, &target))
        .await;
    look.at("watch", (1, 1), store.watch("usage 020001")).await;
    let missing = WatchQuery {
        missing: true,
        limit: PAGE,
        ..WatchQuery::default()
    };
    let listed = store.unconfirmed(&missing);
    let listed = look.at("missing", (MISSING + 1, MISSING + 1), listed).await;
    assert_eq!(listed.watches.len(), usize::try_from(MISSING).unwrap());
    // A limited number is compared.
    let all = WatchQuery {
        limit: PAGE,
        ..WatchQuery::default()
    };
    look.at("unconfirmed", (2_001, 2_001), store.unconfirmed(&all))
        .await;
    for (field, value, length) in [
        (organization, "asked", WindowLength::All),
        (resource, "asked", WindowLength::Day),
        (instance, "asked-7", WindowLength::Hour),
    ] {
        let query = sum(field, value, length);
        // One more key for each dimension of each command, where its range ends.
        let most = (OF_ONE + 600, OF_ONE);
        let page = look.at(field, most, store.sums(&query)).await.unwrap();
        let summed: u64 = page.rows.iter().map(|row| row.usages).sum();
        assert_eq!(summed, OF_ONE.unsigned_abs(), "{field}");
    }
    // A client of other resources has nothing of these read.
    let mut scoped = sum(organization, "other", WindowLength::All);
    scoped.resources = Some(vec![id("asked-by-nobody")]);
    look.at("scoped sum", (16, 0), store.sums(&scoped))
        .await
        .unwrap();
    look.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_operators_ask_for_examines_what_it_shows() {
    let (store, look) = filled("explain_operating").await;
    let all = || AuditQuery {
        limit: PAGE,
        ..AuditQuery::default()
    };
    let (who, span) = (ClientId::new("asked"), Some("asked".to_owned()));
    let of = |who: &Option<ClientId>, span: &Option<String>| AuditQuery {
        who: who.clone(),
        span: span.clone(),
        ..all()
    };
    let between = AuditQuery {
        from: Some(at(-900)),
        to: Some(at(-500)),
        ..all()
    };
    let (by, about, both) = (of(&who, &None), of(&None, &span), of(&who, &span));
    for query in [all(), between, by, about, both] {
        let name = format!("{query:?}");
        look.at(&name, (102, 101), store.audit(&query)).await;
    }
    // The index alone counts what is suspended.
    let counted = SUSPENDED.end - SUSPENDED.start;
    let causes = CauseQuery {
        resources: None,
        limit: PAGE,
    };
    let most = (counted + 8, 2);
    let listed = look.at("causes", most, store.causes(&causes)).await;
    let shown = store.cause(cause().id());
    let shown = look.at("cause", most, shown).await.unwrap();
    assert_eq!((shown.spans, &shown.cause), (300, &cause()));
    assert_eq!(listed, [shown]);
    // Idle spans cost nothing. When they fall due, all at once, the index alone is read.
    let open = (OTHERS.end - OTHERS.start) / 2;
    // Of what has failed, the documents say since when.
    for (now, most) in [(at(0), (1_000, 70)), (at(YEAR), (open + 1_000, 70))] {
        let query = BacklogQuery { now, closing: None };
        look.at("backlog", most, store.count_backlog(&query)).await;
    }
    look.at("control", (1, 1), store.control()).await;
    look.at("controller", (1, 1), store.controller()).await;
    look.at("published", (1, 1), store.published_backlog())
        .await;
    look.at("taken since", (1, 1), store.events_taken_since())
        .await;
    look.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_examine_what_they_work_on() {
    let (store, look) = filled("explain_work").await;
    let due = DUE.end - DUE.start;
    let query = DueQuery {
        partitions: everything(),
        now: at(2),
        page: PAGE,
    };
    // One more key for each of the 64 partitions, where its range ends, and a last search.
    let found = async { Ok(due_ids(&store, query).await) };
    let found = look.at("due", (due + 3 * 64, due + 64), found).await;
    assert_eq!(i64::try_from(found.len()).unwrap(), due);
    look.at("format", (1, 1), store.has_format()).await;
    let over = store.completed_before(at(-YEAR), PAGE);
    look.at("completed", (65, 4), over).await;
    let query = DueWatches {
        partitions: everything(),
        now: at(1),
        limit: PAGE,
    };
    let most = (TO_CONFIRM + 3 * 64, TO_CONFIRM + 64);
    let due = look.at("due watches", most, store.due_watches(&query));
    let due = due.await;
    assert_eq!(i64::try_from(due.len()).unwrap(), TO_CONFIRM);
    look.at("claim", (2, 2), store.claim_watch(&due[0], at(5)))
        .await;
    look.at("entry", (1, 1), store.entry("usage 000007")).await;
    look.at("suspended", (6, 2), store.suspended_causes(PAGE))
        .await;
    let resumption = Resumption {
        now: at(HOUR),
        refusals: 2,
    };
    let cause = cause().id();
    // Whatever the number of suspended spans is, a probe reads one of them.
    look.at("probe", (4, 4), store.probe(cause, resumption))
        .await;
    // Each of a batch is found by the one index, and changed by the other.
    let batch = store.resume_batch(cause, at(HOUR), resumption, 100);
    assert_eq!(look.at("batch", (210, 210), batch).await, 100);
    look.end();
}

/// Fault 10 of the original, among others: every stop scanned the collection twice. Others that name the
/// same instance cost nothing, either.
#[tokio::test(flavor = "multi_thread")]
async fn fault_10_events_examine_the_spans_of_their_target() {
    let (store, look) = filled("explain_events").await;
    let start = |name: &str, millis| {
        let store = store.clone();
        let new = new_span(start_event(Some(name), "busy", millis));
        async move { store.start(new).await }
    };
    let stop = |name: &str, millis| {
        let store = store.clone();
        let new = new_stop(Some(name), "busy", millis);
        async move { store.stop(new).await }
    };
    look.at("start", (16, 8), start("a", 0)).await;
    look.at("repeated start", (16, 8), start("a", 0)).await;
    look.at("second start", (16, 8), start("b", 1)).await;
    look.at("stop", (16, 8), stop("c", 5)).await;
    look.at("repeated stop", (16, 8), stop("c", 5)).await;
    // What it needs to know of an earlier span is in the index.
    look.at("overlap", (16, 8), start("d", 3)).await;
    let together = async {
        let (one, two, three) = tokio::join!(start("e", 5), start("e", 5), start("f", 9));
        one.and(two).and(three)
    };
    look.at("together", (40, 20), together).await;
    let target = target("busy");
    for by in [
        SpansBy::StartedBy(id("a"), Measures::default()),
        SpansBy::StoppedBy(id("c")),
        SpansBy::NotEndedBy(Timestamp::MIN),
    ] {
        look.at("find", (8, 6), store.find_spans(&target, &by))
            .await;
    }
    look.end();
}
