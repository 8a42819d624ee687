//! Missing causes: they were removed, or lost, while spans are suspended under them. They are
//! written again.

use std::collections::HashSet;

use bson::raw::RawDocument;
use bson::{Document, doc};

use sampler_domain::{Cause, Id, Timestamp};
use sampler_store::StoreError;

use crate::MongoStore;
use crate::call::CallError;
use crate::document::read_integer;
use crate::entry_document::status_in;
use crate::unreadable::value_in;

/// The most causes that are checked at once.
const MISSING_MAX: usize = 10_000;

/// How many spans of a cause are read to learn its error.
const ASKED_MAX: usize = 100;

/// The error of a cause if none of the spans that were read has one.
const UNKNOWN: &str = "unknown";

pub(crate) async fn register_missing(
    store: &MongoStore,
    now: Timestamp,
    probe_at: Timestamp,
) -> Result<u64, StoreError> {
    let known = store.known_causes().await?;
    let (mut after, mut count) = (String::new(), 0);
    for _ in 0..MISSING_MAX {
        let filter = doc! { "processing.suspended.cause": { "$gt": &after } };
        let first = store.suspended(filter, 1).await?.into_iter().next();
        let Some(name) = first.and_then(|raw| Some(suspended_under(&raw)?.to_owned())) else {
            break;
        };
        after.clone_from(&name);
        if known.contains(&name) {
            continue;
        }
        // A name that is not one of our ids was not written by us.
        let Ok(id) = name.parse() else { continue };
        if let Some(cause) = store.cause_by_spans(&name).await? {
            store.register_as(id, &cause, now, probe_at).await?;
            count += 1;
        }
    }
    Ok(count)
}

impl MongoStore {
    async fn known_causes(&self) -> Result<HashSet<String>, CallError> {
        let order = doc! { "_id": 1 };
        let found = self.find_causes(doc! {}, order, MISSING_MAX).await?;
        let names = found.iter().filter_map(|cause| cause.get_str("_id").ok());
        Ok(names.map(str::to_owned).collect())
    }

    /// The cause by its spans. A span that cannot be read, or that has forgotten its error, is
    /// not a reason to leave the others suspended for ever.
    async fn cause_by_spans(&self, name: &str) -> Result<Option<Cause>, CallError> {
        let filter = doc! { "processing.suspended.cause": name };
        let found = self.suspended(filter, ASKED_MAX).await?;
        let told = found.iter().filter_map(|raw| cause_in(raw));
        // A refusal has a status; a span that could not be read for a while says that instead.
        Ok(told.max_by_key(|cause| (cause.status.is_some(), cause.error != UNKNOWN)))
    }
}

/// The cause that a document says its span is suspended under.
fn suspended_under(raw: &RawDocument) -> Option<&str> {
    let processing = raw.get_document("processing").ok()?;
    let suspended = processing.get_document("suspended").ok()?;
    suspended.get_str("cause").ok()
}

/// Why a span is suspended, as far as it is known. Each member is read by itself: one that cannot be
/// decoded is not a reason to lose the others.
fn cause_in(raw: &RawDocument) -> Option<Cause> {
    let target = raw.get_document("target").ok()?;
    let processing = raw.get_document("processing").ok()?;
    // A failure of another version is not why it is suspended.
    let is_of_version =
        integer_in(processing, "failed_version") == integer_in(processing, "version");
    let error = processing.get_document("last_error").ok();
    let error = error.filter(|_| is_of_version);
    let message = error.and_then(|error| error.get_str("message").ok());
    let status = error.and_then(|error| Document::try_from(error).ok());
    Some(Cause {
        status: status.and_then(|error| status_in(&error)),
        error: message.unwrap_or(UNKNOWN).to_owned(),
        resource_id: Id::from_store(target.get_str("resource_id").ok()?),
        plan_id: Id::from_store(target.get_str("plan_id").ok()?),
    })
}

fn integer_in(raw: &RawDocument, name: &str) -> Option<i64> {
    let value = value_in(raw, name)?;
    read_integer(&doc! { name: value }, name).ok()
}
