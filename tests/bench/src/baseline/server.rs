//! One write per event behind HTTP: the simplest handler that there can be. It checks nothing but
//! what serde and the unique indexes do.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use mongodb::Collection;
use mongodb::options::Hint;
use sampler_domain::{Id, Key, Target};
use sampler_testkit::now_millis;
use serde::Deserialize;
use tokio::net::TcpListener;

use crate::event::{DAY, OPEN};
use crate::mongo::{POOL_SIZE, client, durable};

#[derive(Debug, Deserialize)]
struct Event {
    id: String,
    timestamp: i64,
    organization_id: String,
    space_id: String,
    consumer_id: String,
    resource_id: String,
    plan_id: String,
    resource_instance_id: String,
    #[serde(default)]
    measured_usage: Vec<Measure>,
}

#[derive(Debug, Deserialize)]
struct Measure {
    measure: String,
    quantity: i64,
}

/// Writes each event until it is killed; the database is named in `DB_URI`.
pub(crate) async fn one_write() -> Result<()> {
    let uri = std::env::var("DB_URI").context("DB_URI")?;
    let client = client(&uri, POOL_SIZE).await?;
    let database = client.default_database().context("no database in DB_URI")?;
    let spans = durable(&database);
    let routes = Router::new()
        .route("/v1/events/start", post(start))
        .route("/v1/events/stop", post(end))
        .route("/healthz/ready", get(async || StatusCode::OK))
        .with_state(Arc::new(spans));
    let listener = TcpListener::bind("127.0.0.1:0").await.context("a port")?;
    let address = listener.local_addr().context("the address")?;
    println!(r#"{{"message":"listening","address":"{address}"}}"#);
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, routes).await.context("serving")
}

impl Event {
    /// The key of its target, as the receiver works it out, too.
    fn key(&self) -> Key {
        let id = |text: &String| Id::from_store(text.clone());
        Key::of(&Target {
            organization_id: id(&self.organization_id),
            space_id: id(&self.space_id),
            consumer_id: id(&self.consumer_id),
            resource_id: id(&self.resource_id),
            plan_id: id(&self.plan_id),
            resource_instance_id: id(&self.resource_instance_id),
        })
    }
}

async fn start(
    State(spans): State<Arc<Collection<Document>>>,
    Json(event): Json<Event>,
) -> StatusCode {
    match spans.insert_one(span(event)).await {
        Ok(_) => StatusCode::CREATED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

async fn end(
    State(spans): State<Arc<Collection<Document>>>,
    Json(event): Json<Event>,
) -> StatusCode {
    let filter = doc! {
        "processing.key": binary(event.key()),
        "target.correlation_id": OPEN,
        "end": Bson::Null,
    };
    let update = doc! {
        "$set": {
            "end": event.timestamp, "end_is_set": true,
            "target.correlation_id": ObjectId::new().to_hex(),
            "end_dedup_id": event.id,
        },
        "$min": { "processing.due_at": event.timestamp },
    };
    match stop(&spans, filter, update).await {
        Ok(()) => StatusCode::CREATED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Ends an open span. Nothing but the `_id` is sent back, and the index is the one that the
/// receiver names, too.
async fn stop(spans: &Collection<Document>, filter: Document, update: Document) -> Result<()> {
    let found = spans
        .find_one_and_update(filter, update)
        .projection(doc! { "_id": 1 })
        .hint(Hint::Name("unique_span".to_owned()))
        .await
        .context("findAndModify")?;
    ensure!(found.is_some(), "no open span");
    Ok(())
}

fn binary(key: Key) -> Binary {
    Binary {
        subtype: BinarySubtype::Generic,
        bytes: key.bytes().to_vec(),
    }
}

fn span(event: Event) -> Document {
    let (at, key) = (event.timestamp, event.key());
    let measures: Vec<Document> = event
        .measured_usage
        .into_iter()
        .map(|measure| doc! { "measure": measure.measure, "quantity": measure.quantity })
        .collect();
    doc! {
        "_id": ObjectId::new(),
        "target": {
            "organization_id": event.organization_id,
            "space_id": event.space_id,
            "consumer_id": event.consumer_id,
            "resource_id": event.resource_id,
            "plan_id": event.plan_id,
            "resource_instance_id": event.resource_instance_id,
            "correlation_id": OPEN,
        },
        "measured_usage": measures,
        "start": at,
        "end": Bson::Null,
        "processing": {
            "complete": false,
            "last_interval": { "start": at, "end": at },
            "planned_interval": Bson::Null,
            "last_change_at": now_millis(),
            "version": 1,
            "due_at": (at.div_euclid(DAY) + 1) * DAY,
            "partition": key.partition(),
            "key": binary(key),
        },
        "start_dedup_id": event.id,
    }
}
