//! What the server can take at the most: batches, without HTTP and without questions.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bson::{Document, RawArrayBuf, RawDocumentBuf, doc, rawdoc};
use mongodb::{Collection, Database};
use sampler_testkit::build::Kind;

use crate::event::{Event, Mix, Times, stop_write};
use crate::load::Sender;
use crate::mongo::{POOL_SIZE, Spans, client, durable, raw};
use crate::template::Template;

/// How many events one command holds.
const BATCH: usize = 64;
/// How many commands are in flight.
pub(crate) const IN_FLIGHT: usize = 4;

/// Writes many events with one command of each kind.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    spans: Collection<RawDocumentBuf>,
    database: Database,
    times: Times,
    open: Arc<Template>,
    statement: Arc<Template>,
    batch: usize,
}

impl Batches {
    /// As many writers as there are to be commands in flight.
    pub(crate) async fn senders(spans: &Spans, mix: Mix, times: Times) -> Result<Vec<Self>> {
        let client = client(&spans.uri, POOL_SIZE).await?;
        let database = client.default_database().context("no database")?;
        let (filter, update) = stop_write();
        let statement = doc! { "q": filter, "u": update, "hint": "unique_span" };
        let statement = RawDocumentBuf::try_from(&statement).context("a statement")?;
        let sender = Self {
            spans: durable(&database),
            database,
            times,
            open: Arc::new(spans.open_document()),
            statement: Arc::new(Template::new(statement.into_bytes())),
            batch: if mix == Mix::Both { 2 * BATCH } else { BATCH },
        };
        Ok(vec![sender; IN_FLIGHT])
    }

    async fn start(&self, events: &[Event]) -> Result<()> {
        let document = |event: &Event| raw(self.open.filled(&self.times.values(event.number)));
        let documents: Result<Vec<RawDocumentBuf>> = events.iter().map(document).collect();
        let inserted = self.spans.insert_many(documents?).ordered(false).await;
        inserted.map(drop).context("insertMany")
    }

    async fn stop(&self, events: &[Event]) -> Result<()> {
        let mut updates = RawArrayBuf::new();
        for event in events {
            let values = self.times.values(event.number);
            updates.push(raw(self.statement.filled(&values))?);
        }
        let command = rawdoc! {
            "update": self.spans.name(),
            "updates": updates,
            "ordered": false,
            "writeConcern": { "w": "majority", "j": true },
        };
        let answer = self.database.run_raw_command(command).await;
        check(&answer.context("update")?, events.len())
    }
}

/// Each statement has changed its span.
fn check(answer: &Document, statements: usize) -> Result<()> {
    let changed = answer.get_i32("nModified").unwrap_or(0);
    ensure!(
        usize::try_from(changed) == Ok(statements) && !answer.contains_key("writeConcernError"),
        "not all of {statements} spans were stopped: {answer}"
    );
    Ok(())
}

impl Sender for Batches {
    fn batch(&self) -> usize {
        self.batch
    }

    async fn send(&mut self, events: &[Event]) -> Result<()> {
        let (starts, stops): (Vec<Event>, Vec<Event>) =
            events.iter().partition(|event| event.kind == Kind::Start);
        if !starts.is_empty() {
            self.start(&starts).await?;
        }
        if !stops.is_empty() {
            self.stop(&stops).await?;
        }
        Ok(())
    }
}
