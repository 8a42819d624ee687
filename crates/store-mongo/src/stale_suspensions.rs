//! Suspensions that the original Sampler or an earlier release has left behind.
//!
//! Neither knows suspensions. One that executes the interval of a suspended span grows the version,
//! and sets nothing of ours: the suspension is about another version then, and the span stays due in
//! the far future, where no search finds it.

use bson::{Document, RawDocumentBuf, doc};
use sampler_domain::Timestamp;
use sampler_store::StoreError;

use crate::MongoStore;
use crate::document::moment;
use crate::unreadable::{Statement, change_each};

pub(crate) async fn end_stale_suspensions(
    store: &MongoStore,
    now: Timestamp,
    limit: usize,
) -> Result<u64, StoreError> {
    let mut filter = doc! { "processing.suspended.cause": { "$exists": true } };
    filter.extend(is_stale());
    let found = store.find_suspended(filter, limit).await?;
    let statements: Vec<Statement> = found.iter().filter_map(|raw| ending(raw, now)).collect();
    if statements.is_empty() {
        return Ok(0);
    }
    let written = change_each(&store.link, &statements).await?;
    // A span that cannot be changed is found again each time. It must not count, or the worker
    // would search without a pause.
    Ok(statements.len().saturating_sub(written.failed.len()) as u64)
}

/// The condition that a suspension is about another version of its span.
fn is_stale() -> Document {
    let is_other = doc! { "$ne": ["$processing.suspended.version", "$processing.version"] };
    doc! { "processing.complete": false, "$expr": is_other }
}

/// The statement that makes a span due, unless it is suspended again by then. An earlier `due_at`,
/// set by a stop, stays.
fn ending(raw: &RawDocumentBuf, now: Timestamp) -> Option<Statement> {
    let update = doc! {
        "$unset": { "processing.suspended": "" },
        "$min": { "processing.due_at": moment(now) },
    };
    Statement::new(raw, &is_stale(), &update)
}
