//! What the release whose ids counted across all targets asked of the server: its eight indexes and
//! its commands. Only measured, beside what is asked now.

use bson::{Bson, Document, doc, oid::ObjectId};
use mongodb::Database;
use sampler_domain::partition::partition_of;
use sampler_domain::{Planned, Span, Target};
use sampler_store::{NewSpan, NewStop};

const OPEN: &str = "00000000-0000-0000-0000-000000000000";
const INSTANCE: &str = "target.resource_instance_id";

/// Its collection.
pub(crate) struct Before {
    pub(crate) database: Database,
}

impl Before {
    pub(crate) async fn new(database: Database) -> Self {
        let target = |correlation_id| {
            let mut keys = fields(correlation_id, |_| Bson::Int32(1));
            keys.insert("target.correlation_id", 1);
            keys
        };
        let by_partition = || doc! { "processing.partition": 1, "processing.due_at": 1 };
        let mut failed = by_partition();
        failed.insert("processing.last_interval.end", 1);
        let sampled = doc! { "processing.complete": 1, "processing.last_interval.end": 1 };
        let ends = doc! { INSTANCE: 1, "end": 1 };
        let unique = doc! { "unique": true };
        let sparse = doc! { "unique": true, "sparse": true };
        let partial = |filter: Document| doc! { "partialFilterExpression": filter };
        let indexes = [
            ("unique_target", target(&NAMES), unique),
            (
                "unique_start_dedup_id",
                doc! { "start_dedup_id": 1 },
                sparse.clone(),
            ),
            ("unique_end_dedup_id", doc! { "end_dedup_id": 1 }, sparse),
            ("search_processing", sampled, doc! {}),
            (
                "search_end_is_set",
                doc! { "processing.complete": 1 },
                partial(doc! { "end_is_set": true }),
            ),
            (
                "search_due",
                by_partition(),
                partial(doc! { "processing.complete": false }),
            ),
            (
                "search_failed",
                failed,
                partial(doc! { "processing.attempts": { "$gt": 0 } }),
            ),
            ("previous_end", ends, partial(doc! { "end": { "$gt": 0 } })),
        ];
        let index = |(name, key, options): (&str, Document, Document)| {
            let mut index = doc! { "name": name, "key": key };
            index.extend(options);
            index
        };
        let indexes: Vec<Document> = indexes.into_iter().map(index).collect();
        let command = doc! { "createIndexes": "spans", "indexes": indexes };
        database.run_command(command).await.unwrap();
        Self { database }
    }

    async fn write(&self, name: &str, list: &str, items: Vec<Document>) {
        let count = items.len();
        let command = doc! {
            name: "spans", list: items, "ordered": false, "maxTimeMS": 20_000,
            "writeConcern": { "w": "majority", "j": true, "wtimeout": 20_000 },
        };
        let answer = self.database.run_command(command).await.unwrap();
        let written = answer.get_i32("n").unwrap();
        assert_eq!(usize::try_from(written), Ok(count), "{answer}");
    }

    /// One search of the ends of their instances.
    pub(crate) async fn search(&self, batch: &[NewSpan]) {
        let spans = || batch.iter().map(|new| &new.span);
        let instances: Vec<&str> = spans()
            .map(|span| span.target.resource_instance_id.as_str())
            .collect();
        let earliest = spans().map(|span| span.start.as_millis()).min();
        let find = doc! {
            "find": "spans",
            "filter": { INSTANCE: { "$in": instances }, "end": { "$gt": earliest } },
            "limit": 256, "batchSize": 256, "hint": "previous_end", "maxTimeMS": 20_000,
            "projection": { "_id": 0, INSTANCE: 1, "end": 1 },
            "readConcern": { "level": "majority" },
        };
        let found = self.database.run_command(find).await.unwrap();
        let found = found.get_document("cursor").unwrap();
        assert!(found.get_array("firstBatch").unwrap().is_empty());
    }

    pub(crate) async fn insert(&self, batch: &[NewSpan]) {
        let documents = batch.iter().map(document).collect();
        self.write("insert", "documents", documents).await;
    }

    pub(crate) async fn plan(&self, batch: &[(Span, Planned)]) {
        let statement = |(span, planned): &(Span, Planned)| {
            let set = doc! {
                "processing.due_at": planned.interval.end.as_millis(),
                "processing.planned_interval": interval(planned),
            };
            change(span, 1, set, doc! {})
        };
        let statements = batch.iter().map(statement).collect();
        self.write("update", "updates", statements).await;
    }

    pub(crate) async fn executed(&self, batch: &[(Span, Planned)]) {
        let statement = |(span, planned): &(Span, Planned)| {
            let set = doc! {
                "processing.due_at": planned.interval.end.as_millis(),
                "processing.last_interval": interval(planned),
                "processing.planned_interval": Bson::Null,
            };
            let unset = doc! { "$unset": {
                "processing.attempts": "", "processing.failed_version": "",
                "processing.last_error": "",
            } };
            change(span, 2, set, unset)
        };
        let statements = batch.iter().map(statement).collect();
        self.write("update", "updates", statements).await;
    }

    pub(crate) async fn stop(&self, batch: &[NewStop]) {
        let statement = |new: &NewStop| {
            let end = new.event.timestamp.as_millis();
            let mut set = doc! {
                "end": end, "end_is_set": true,
                "target.correlation_id": new.correlation_id.to_string(),
            };
            let id = new.event.id.as_ref().map(|id| id.as_str().to_owned());
            set.insert("end_dedup_id", id);
            let mut q = of_target(&new.event.target);
            q.extend(doc! {
                "target.correlation_id": OPEN, "end": Bson::Null, "start": { "$lte": end },
            });
            let u = doc! { "$set": set, "$min": { "processing.due_at": end } };
            doc! { "q": q, "u": u, "hint": "unique_target" }
        };
        let statements = batch.iter().map(statement).collect();
        self.write("update", "updates", statements).await;
    }
}

const NAMES: [&str; 6] = [
    "organization_id",
    "space_id",
    "consumer_id",
    "resource_id",
    "plan_id",
    "resource_instance_id",
];

fn fields(names: &[&str], value: impl Fn(usize) -> Bson) -> Document {
    let field = |(index, name): (usize, &&str)| (format!("target.{name}"), value(index));
    names.iter().enumerate().map(field).collect()
}

fn of_target(target: &Target) -> Document {
    let values = target.fields();
    fields(&NAMES, |index| {
        let value = values.iter().find(|(name, _)| *name == NAMES[index]);
        value.expect("a field of targets").1.as_str().into()
    })
}

/// As a receiver writes it; nothing of it has changed since.
fn document(new: &NewSpan) -> Document {
    let span = &new.span;
    let mut target = Document::new();
    for (name, value) in span.target.fields() {
        target.insert(name, value.as_str());
    }
    target.insert("correlation_id", OPEN);
    let start = span.start.as_millis();
    let id = span.start_id.as_ref().map(|id| id.as_str().to_owned());
    doc! {
        "_id": ObjectId::parse_str(span.id.to_string()).unwrap(),
        "target": target,
        "measured_usage": [{ "measure": "memory", "quantity": 512_i64 }],
        "start": start,
        "end": Bson::Null,
        "processing": {
            "complete": false,
            "last_interval": { "start": start, "end": start },
            "planned_interval": Bson::Null,
            "last_change_at": new.now.as_millis(),
            "version": 1,
            "due_at": new.due_at.as_millis(),
            "partition": i64::from(partition_of(&span.target)),
        },
        "start_dedup_id": id,
    }
}

fn change(span: &Span, version: i32, mut set: Document, more: Document) -> Document {
    let id = ObjectId::new();
    set.insert("processing.last_change_at", 0_i64);
    set.insert("processing.last_change_id", id);
    let q = doc! {
        "_id": ObjectId::parse_str(span.id.to_string()).unwrap(),
        "processing.version": version, "processing.complete": false, "end": Bson::Null,
        "processing.last_change_id": { "$ne": id },
    };
    let mut u = doc! { "$set": set, "$inc": { "processing.version": 1 } };
    u.extend(more);
    doc! { "q": q, "u": u }
}

fn interval(planned: &Planned) -> Document {
    doc! {
        "start": planned.interval.start.as_millis(),
        "end": planned.interval.end.as_millis(),
        "usage_guid": &planned.usage_guid,
    }
}
