//! What the documents of spans look like: learnt from the programs' own store, so that what is
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

use crate::event::{START_ID, STOP_ID, STOPPED, target};
use crate::template::{DUE_AT, NOW, OBJECT_ID, START, STOP, Template};

/// Documents with holes.
#[derive(Debug)]
pub(crate) struct Documents {
    /// A span that was started.
    pub(crate) open: Template,
    /// A span that was stopped, and sampled to its end.
    pub(crate) complete: Template,
}

impl Documents {
    /// Has the store write a span of signs, and reads what it wrote.
    pub(crate) async fn learn(spans: &Collection<Document>, store: &MongoStore) -> Result<Self> {
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
        let open = open.context("the span is not there")?;
        Ok(Self {
            complete: template(&complete(&open)?)?,
            open: template(&open)?,
        })
    }
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

/// The span of an open one after a stop, and after all its usages.
fn complete(open: &Document) -> Result<Document> {
    let mut span = open.clone();
    span.insert("end", STOP);
    span.insert("end_is_set", true);
    span.insert("end_dedup_id", STOP_ID);
    let target = span.get_document_mut("target").context("no target")?;
    target.insert("correlation_id", STOPPED);
    let processing = span.get_document_mut("processing");
    let processing = processing.context("no processing")?;
    processing.insert("complete", true);
    processing.insert(
        "last_interval",
        doc! { "start": START, "end": STOP, "usage_guid": STOPPED },
    );
    processing.insert("version", 3);
    Ok(span)
}

fn template(document: &Document) -> Result<Template> {
    let raw = RawDocumentBuf::try_from(document).context("a document")?;
    Ok(Template::new(raw.into_bytes()))
}
