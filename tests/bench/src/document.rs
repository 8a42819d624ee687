//! What the document of a span looks like: learnt from the programs' own store, so that what is
//! loaded here is never something else than what they write.

use anyhow::{Context, Result, ensure};
use bson::{Document, RawDocumentBuf, doc};
use mongodb::Collection;
use sampler_domain::{
    Id, Measure, Measures, Quantity, Span, SpanId, StartEvent, Target, Timestamp,
};
use sampler_store::{Arrival, Events, NewSpan, StartOutcome};
use sampler_store_mongo::MongoStore;
use serde::Deserialize;
use serde::de::value::{Error as ValueError, MapDeserializer};
use serde_json::Value;

use crate::event::{START_ID, target};
use crate::template::{DUE_AT, NOW, OBJECT_ID, START, Template};

/// The document of a span that was started, with holes: has the store write a span of signs, and reads
/// what it wrote.
pub(crate) async fn learn(spans: &Collection<Document>, store: &MongoStore) -> Result<Template> {
    store.migrate().await.context("making the indexes")?;
    let new = NewSpan {
        span: Span::open(SpanId::ObjectId(OBJECT_ID), event()?),
        due_at: Timestamp::new(DUE_AT)?,
        now: Timestamp::new(NOW)?,
        may_overlap: true,
        arrival: Arrival::Alone,
    };
    let started = store.start(new).await.context("starting a span")?;
    ensure!(
        started == StartOutcome::Opened,
        "the store said {started:?}"
    );
    let open = spans.find_one(doc! {}).await.context("reading a span")?;
    let raw = RawDocumentBuf::try_from(&open.context("the span is not there")?);
    Ok(Template::new(raw.context("a document")?.into_bytes()))
}

fn event() -> Result<StartEvent> {
    let target = Target::deserialize(MapDeserializer::<_, ValueError>::new(target()))?;
    let memory = Measure::new("memory", Quantity::new(Value::from(512))?)?;
    Ok(StartEvent {
        id: Some(Id::new(START_ID)?),
        timestamp: Timestamp::new(START)?,
        target,
        measures: Measures::from_store(vec![memory]),
    })
}
