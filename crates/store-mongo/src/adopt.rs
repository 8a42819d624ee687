//! Adopts what the original Sampler writes, before the first start of Sampler and while both run.
//!
//! Documents that cannot be adopted stay as they are, so each search continues after them.

use bson::raw::RawDocument;
use bson::{Bson, Document, doc};
use sampler_domain::{Key, Policy, Timestamp, next_step};
use sampler_store::{Adopted, StoreError};
use tracing::error;

use crate::MongoStore;
use crate::call::take_spans;
use crate::document::{has_failed, moment, placed_by, read_moment};
use crate::index;
use crate::unreadable::{Identity, Statement, change_each, decoded, name_of, span_in, target_in};

/// The name in the log of documents that cannot be adopted.
const STARTS: &str = "starts of the original Sampler";
const STOPS: &str = "stops of the original Sampler";

pub(crate) async fn adopt(
    store: &MongoStore,
    policy: &Policy,
    now: Timestamp,
    limit: usize,
) -> Result<Adopted, StoreError> {
    Ok(Adopted {
        starts: store.adopt_starts(policy, now, limit).await?,
        stops: store.notice_stops(now, limit).await?,
    })
}

impl MongoStore {
    /// Gives spans that the original receiver started their key, partition and `due_at`, by which workers
    /// find them.
    async fn adopt_starts(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let found = (unadopted(false), index::DUE);
        let open = self.change_found(STARTS, found, limit, |raw| adoption(raw, policy, now));
        let adopted = open.await?;
        // Spans that the original has completed need only their key: the ids of their events count
        // within the target, which is found by its key.
        let missing = limit - usize::try_from(adopted).unwrap_or(limit).min(limit);
        if missing == 0 {
            return Ok(adopted);
        }
        let found = (unadopted(true), index::COMPLETE);
        let complete = self.change_found(STARTS, found, missing, complete_adoption);
        Ok(adopted + complete.await?)
    }

    /// Makes spans due that the original receiver stopped: it sets the end, but does not know that
    /// the time at which the span is due changes with it. Spans that wait after a failure are
    /// left to their wait.
    async fn notice_stops(&self, now: Timestamp, limit: usize) -> Result<u64, StoreError> {
        // Without its index no original Sampler writes.
        let names = self.link.index_names().await?;
        if !names.contains(index::ORIGINAL_STOPPED) {
            return Ok(0);
        }
        let due_by = doc! { "$max": ["$end", moment(now)] };
        let filter = doc! {
            "processing.complete": false,
            "end_is_set": true,
            // Only numbers, within limits: a document that cannot be read stays as it is.
            "end": { "$gte": 0 },
            "$expr": { "$and": [
                { "$gt": ["$processing.due_at", due_by] },
                { "$not": [has_failed()] },
            ] },
        };
        self.change_found(STOPS, (filter, index::ORIGINAL_STOPPED), limit, notice)
            .await
    }

    /// Changes up to `limit` of the documents that a search finds, each by a statement of its own;
    /// says how many.
    async fn change_found(
        &self,
        of: &'static str,
        (filter, index): (Document, &str),
        limit: usize,
        change: impl Fn(&RawDocument) -> Option<Statement>,
    ) -> Result<u64, StoreError> {
        let mut options = self.link.find_options(limit, doc! {}, index);
        options.limit = None;
        let mut cursor = Some(self.link.cursor(filter, options).await?);
        let mut changed: u64 = 0;
        while let Some(open) = cursor.take() {
            let missing = limit - usize::try_from(changed).unwrap_or(limit).min(limit);
            let (documents, rest) = self.link.run(take_spans(open, missing)).await?;
            let mut statements = Vec::new();
            for raw in documents {
                let name = name_of(&raw);
                if self.link.logged.knows(of, &name) {
                    continue;
                }
                match change(&raw) {
                    Some(statement) => statements.push(statement),
                    None => self.leave(of, &name, &"it cannot be read"),
                }
            }
            changed += self.change_all(of, &statements).await?;
            cursor = rest.filter(|_| changed < limit as u64);
        }
        Ok(changed)
    }

    /// Makes the changes that can be made. Returns how many.
    async fn change_all(
        &self,
        of: &'static str,
        statements: &[Statement],
    ) -> Result<u64, StoreError> {
        if statements.is_empty() {
            return Ok(0);
        }
        let written = change_each(&self.link, statements).await?;
        for (index, error) in &written.failed {
            self.leave(of, &statements[*index].name, error);
        }
        Ok(written.modified)
    }

    /// Logs, once in a while, a document that is left as it is.
    fn leave(&self, of: &'static str, name: &str, problem: &dyn std::fmt::Display) {
        if self.link.logged.is_news(of, name) {
            error!(code = "adopt.left", span.id = %name, error = %problem, of, "a document of the original Sampler is left as it is");
        }
    }
}

/// No partition, whatever is due: a stop of ours may have set that already.
fn unadopted(complete: bool) -> Document {
    doc! { "processing.complete": complete, "processing.partition": Bson::Null }
}

/// The statement that adopts one document, unless another worker did.
fn adoption(found: &RawDocument, policy: &Policy, now: Timestamp) -> Option<Statement> {
    let due_at = match span_in(found) {
        Ok(span) => next_step(&span, now, policy).due_at(now),
        // It cannot be read: the search for due spans reports it.
        Err(_) => now,
    };
    let update = doc! {
        "$set": placed_by(key_in(found)?),
        // Not later than a stop of ours has set it to meanwhile.
        "$min": { "processing.due_at": moment(due_at) },
    };
    taking_in(found, &update)
}

/// The same for a span that is complete.
fn complete_adoption(found: &RawDocument) -> Option<Statement> {
    taking_in(found, &doc! { "$set": placed_by(key_in(found)?) })
}

fn taking_in(found: &RawDocument, update: &Document) -> Option<Statement> {
    Statement::new(found, &doc! { "processing.partition": Bson::Null }, update)
}

/// The key of a document by its target; where the target cannot be read, one of its own.
fn key_in(raw: &RawDocument) -> Option<Key> {
    match target_in(raw) {
        Some(target) => Some(Key::of(&target)),
        None => Some(Key::of_unreadable(Identity::of(raw)?.filter().as_bytes())),
    }
}

/// The statement that makes one span due by its end, unless it is due otherwise by now.
fn notice(found: &RawDocument) -> Option<Statement> {
    let document = decoded(found).ok()?;
    let due_at = document.get_document("processing").ok()?.get("due_at")?;
    let end = moment(read_moment(&document, "end").ok()?);
    let unchanged = doc! { "end": &end, "processing.due_at": due_at };
    Statement::new(
        found,
        &unchanged,
        &doc! { "$set": { "processing.due_at": end } },
    )
}
