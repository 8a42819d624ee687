//! The original Sampler, as far as others can see it: what its receiver writes into the collection,
//! and what one poll of its worker does there and towards Abacus. Written from descriptions of its
//! behaviour, faults and all, and without our state machine, which it is to be compared with.

use bson::{Bson, Document, doc, oid::ObjectId};
use futures_util::TryStreamExt;
use mongodb::options::IndexOptions;
use mongodb::{Collection, IndexModel};
use reqwest::Client;
use sampler_testkit::build::start_event;
use sampler_testkit::now_millis;
use serde_json::{Value, json};

use crate::landscape::{HOUR, Landscape};

const OPEN: &str = "00000000-0000-0000-0000-000000000000";

const TARGET: [&str; 6] = [
    "organization_id",
    "space_id",
    "consumer_id",
    "resource_id",
    "plan_id",
    "resource_instance_id",
];

/// Its receiver and its worker; the worker samples by the hour.
pub(crate) struct Original {
    spans: Collection<Document>,
    http: Client,
    collector: String,
}

/// Moments are doubles in its documents.
#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn double(moment: i64) -> Bson {
    Bson::Double(moment as f64)
}

/// A number as its language reads it, whatever its type in the database is.
fn number(bson: Option<&Bson>) -> Option<i64> {
    match bson? {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        #[expect(clippy::cast_possible_truncation, reason = "whole and small")]
        Bson::Double(number) => Some(*number as i64),
        _ => None,
    }
}

/// The document that its receiver inserts.
fn open_span(target: u64, start: i64) -> Document {
    let event = start_event(target, start);
    let text = |name: &str| Bson::from(event[name].as_str().unwrap());
    let mut fields: Document = TARGET
        .map(|name| (name.to_owned(), text(name)))
        .into_iter()
        .collect();
    fields.insert("correlation_id", OPEN);
    doc! {
        "_id": ObjectId::new(),
        "target": fields,
        "measured_usage": [{ "measure": "memory", "quantity": 512 }],
        "start": double(start),
        "end": Bson::Null,
        "processing": {
            "complete": false,
            "last_interval": { "start": double(start), "end": double(start) },
            "planned_interval": Bson::Null,
            "last_change_at": double(start),
            "version": 1,
        },
    }
}

impl Original {
    /// The original with the indexes that it makes at its start.
    pub(crate) async fn install(world: &Landscape) -> Self {
        let spans = world.spans().await;
        let named = |name: &str| IndexOptions::builder().name(name.to_owned()).build();
        let index =
            |keys: Document, options| IndexModel::builder().keys(keys).options(options).build();
        let mut target: Document = TARGET
            .map(|field| (format!("target.{field}"), Bson::Int32(1)))
            .into_iter()
            .collect();
        target.insert("target.correlation_id", 1);
        let mut unique = named("unique_target");
        unique.unique = Some(true);
        let mut ended = named("search_end_is_set");
        ended.partial_filter_expression = Some(doc! { "end_is_set": true });
        let processing = doc! { "processing.complete": 1, "processing.last_interval.end": 1 };
        let indexes = [
            index(target, unique),
            index(processing, named("search_processing")),
            index(doc! { "processing.complete": 1 }, ended),
        ];
        spans.create_indexes(indexes).await.unwrap();
        Self {
            spans,
            http: world.http.clone(),
            collector: world.abacus.base_url(),
        }
    }

    /// What its receiver does with a start.
    pub(crate) async fn start(&self, target: u64, start: i64) {
        let document = open_span(target, start);
        self.spans.insert_one(document).await.unwrap();
    }

    /// The same with a start for each of these targets, which nobody stops.
    pub(crate) async fn start_all(&self, targets: std::ops::Range<u64>, start: i64) {
        let documents = targets.map(|target| open_span(target, start));
        self.spans.insert_many(documents).await.unwrap();
    }

    /// What it does with a stop: it matches the whole target and leaves `processing` alone.
    pub(crate) async fn stop(&self, target: u64, end: i64) {
        let open = doc! {
            "target.resource_instance_id": format!("instance-{target}"),
            "target.correlation_id": OPEN,
            "end": Bson::Null,
        };
        let set = doc! { "$set": {
            "end": double(end),
            "end_is_set": true,
            "target.correlation_id": format!("correlation of {}", ObjectId::new()),
        } };
        let stopped = self.spans.update_one(open, set).await.unwrap();
        assert_eq!(stopped.modified_count, 1, "{target} is not open");
    }

    /// One poll of its worker: one step of each of the first spans that it finds.
    pub(crate) async fn poll(&self) {
        let long_ago = double(now_millis() - HOUR);
        let wanted = doc! {
            "processing.complete": false,
            "$or": [{ "processing.last_interval.end": { "$lt": long_ago } }, { "end_is_set": true }],
        };
        let found = self.spans.find(wanted).limit(100).await.unwrap();
        let found: Vec<Document> = found.try_collect().await.unwrap();
        for span in &found {
            match span
                .get_document("processing")
                .unwrap()
                .get_document("planned_interval")
            {
                Ok(planned) => self.execute(span, planned).await,
                Err(_) => self.plan(span).await,
            }
        }
    }

    /// Its worker posts what it has planned, and dies before it notes that.
    pub(crate) async fn poll_without_note(&self) {
        let planned = doc! { "processing.planned_interval": { "$ne": Bson::Null } };
        let found = self.spans.find(planned).await.unwrap();
        let found: Vec<Document> = found.try_collect().await.unwrap();
        assert!(!found.is_empty(), "nothing is planned");
        for span in &found {
            let processing = span.get_document("processing").unwrap();
            let planned = processing.get_document("planned_interval").unwrap();
            self.post(span, planned).await;
        }
    }

    async fn plan(&self, span: &Document) {
        let last = span.get_document("processing").unwrap();
        let last = last.get_document("last_interval").unwrap();
        let from = number(last.get("end")).unwrap();
        let (below, above) = (
            (from - 1).div_euclid(HOUR) * HOUR,
            (from.div_euclid(HOUR) + 1) * HOUR,
        );
        let to = match number(span.get("end")) {
            None => above,
            Some(end) if end < from => below.max(end),
            Some(end) => above.min(end),
        };
        let guid = format!("of the original, {}", ObjectId::new());
        let planned = doc! { "start": double(from), "end": double(to), "usage_guid": guid };
        self.change(span, doc! { "processing.planned_interval": planned })
            .await;
    }

    async fn execute(&self, span: &Document, planned: &Document) {
        self.post(span, planned).await;
        let to = planned.get("end");
        let complete = number(to) == number(span.get("end"));
        let set = doc! {
            "processing.last_interval": planned.clone(),
            "processing.planned_interval": Bson::Null,
            "processing.complete": complete,
        };
        self.change(span, set).await;
    }

    async fn post(&self, span: &Document, planned: &Document) {
        let usage = usage(span, planned);
        let url = format!("{}/v1/metering/collected/usage", self.collector);
        let answer = self.http.post(url).json(&usage).send().await.unwrap();
        assert_eq!(answer.status(), 202, "{usage}");
    }

    /// A change that comes too late is not made, without an error.
    async fn change(&self, span: &Document, mut set: Document) {
        set.insert("processing.last_change_at", double(now_millis()));
        let processing = span.get_document("processing").unwrap();
        let version = processing.get("version").unwrap();
        let as_read = doc! { "_id": span.get("_id").unwrap(), "processing.version": version };
        let update = doc! { "$set": set, "$inc": { "processing.version": 1 } };
        self.spans.update_one(as_read, update).await.unwrap();
    }
}

fn usage(span: &Document, planned: &Document) -> Value {
    let (from, to) = (
        number(planned.get("start")).unwrap(),
        number(planned.get("end")).unwrap(),
    );
    let midpoint = (from + to).div_euclid(2);
    let target = span.get_document("target").unwrap();
    let mut usage = json!({
        "dedup_id": planned.get_str("usage_guid").unwrap(),
        "start": midpoint,
        "end": midpoint,
        "measured_usage": [
            { "measure": "memory", "quantity": 512 },
            { "measure": "duration", "quantity": to - from },
        ],
    });
    for field in TARGET {
        usage[field] = target.get_str(field).unwrap().into();
    }
    usage
}
