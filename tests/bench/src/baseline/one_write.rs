//! One write per event, through the same driver, without HTTP: `insertOne` for a start,
//! `findAndModify` for a stop.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bson::{Document, RawDocumentBuf, doc};
use mongodb::Collection;
use mongodb::options::Hint;
use sampler_testkit::build::Kind;

use crate::event::{Event, Times, stop_write};
use crate::load::Sender;
use crate::mongo::{POOL_SIZE, Spans, client, durable, raw};
use crate::template::{Template, Values};

/// Writes one event at a time.
#[derive(Clone, Debug)]
pub(crate) struct OneWrite {
    starts: Collection<RawDocumentBuf>,
    stops: Collection<Document>,
    times: Times,
    templates: Arc<Templates>,
}

#[derive(Debug)]
struct Templates {
    open: Template,
    filter: Template,
    update: Template,
}

impl OneWrite {
    /// This many writers with as many connections as a program has.
    pub(crate) async fn senders(spans: &Spans, count: usize, times: Times) -> Result<Vec<Self>> {
        let client = client(&spans.uri, POOL_SIZE).await?;
        let database = client.default_database().context("no database")?;
        let (filter, update) = stop_write();
        let templates = Templates {
            open: spans.open_document(),
            filter: template(&filter)?,
            update: template(&update)?,
        };
        let starts = durable(&database);
        let sender = Self {
            stops: starts.clone_with_type(),
            starts,
            times,
            templates: Arc::new(templates),
        };
        Ok(vec![sender; count])
    }
}

impl Sender for OneWrite {
    async fn send(&mut self, events: &[Event]) -> Result<()> {
        for event in events {
            let values = self.times.values(event.number);
            match event.kind {
                Kind::Start => {
                    let span = raw(self.templates.open.filled(&values))?;
                    self.starts.insert_one(span).await.context("insertOne")?;
                }
                Kind::Stop => {
                    let filter = document(&self.templates.filter, &values)?;
                    let update = document(&self.templates.update, &values)?;
                    stop(&self.stops, filter, update).await?;
                }
            }
        }
        Ok(())
    }
}

/// Ends an open span. Nothing but the `_id` is sent back, and the index is the one that the
/// receiver names, too.
pub(crate) async fn stop(
    spans: &Collection<Document>,
    filter: Document,
    update: Document,
) -> Result<()> {
    let found = spans
        .find_one_and_update(filter, update)
        .projection(doc! { "_id": 1 })
        .hint(Hint::Name("unique_span".to_owned()))
        .await
        .context("findAndModify")?;
    ensure!(found.is_some(), "no open span");
    Ok(())
}

fn template(document: &Document) -> Result<Template> {
    let raw = RawDocumentBuf::try_from(document).context("a document")?;
    Ok(Template::new(raw.into_bytes()))
}

fn document(template: &Template, values: &Values) -> Result<Document> {
    Document::try_from(raw(template.filled(values))?).context("a document")
}
