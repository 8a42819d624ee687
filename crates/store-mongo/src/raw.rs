//! Documents as the server sends them.
//!
//! The driver would end a search at the first document that it cannot decode. So documents are taken
//! raw, and decoded one by one: one that is no span is logged, and holds up no other.

use std::fmt::Display;
use std::time::Duration;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document};
use sampler_domain::{Key, Span, SpanId};
use sampler_store::Limiter;
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::document::{SpanDocument, id_from_bson};

/// Why a document cannot be read.
pub(crate) type Unreadable = bson::error::Error;

/// How long a document is not logged again.
const LOGGED_FOR: Duration = Duration::from_hours(1);

/// The most documents that are remembered. Of all others, one is logged in a period.
const LOGGED_MAX: usize = 10_000;

/// A reason of ours why a document cannot be read.
pub(crate) fn unreadable(problem: impl Display) -> Unreadable {
    serde::de::Error::custom(problem)
}

pub(crate) fn read<'a, T: Deserialize<'a>>(raw: &'a RawDocument) -> Result<T, Unreadable> {
    bson::deserialize_from_slice(raw.as_bytes())
}

pub(crate) fn span_in(raw: &RawDocument) -> Result<Span, Unreadable> {
    read::<SpanDocument>(raw)?.into_span()
}

/// A document of ours whose names BSON allows.
pub(crate) fn written(document: &impl Serialize) -> RawDocumentBuf {
    bson::serialize_to_raw_document_buf(document).expect("its names are ours")
}

/// What we have written, for calls that take documents of the driver.
pub(crate) fn decoded(raw: &RawDocument) -> Document {
    Document::try_from(raw).expect("we have written it")
}

/// The key of a span, whatever else its document holds.
pub(crate) fn key_of(raw: &RawDocument) -> Option<Key> {
    let processing = raw.get_document("processing").ok()?;
    let key = processing.get_binary("key").ok()?.bytes;
    Some(Key::from_bytes(key.try_into().ok()?))
}

/// The id of a span, whatever else its document holds.
pub(crate) fn span_id(raw: &RawDocument) -> Result<SpanId, Unreadable> {
    let id = raw.get("_id").ok().flatten();
    let id = id
        .and_then(|id| Bson::try_from(id).ok())
        .unwrap_or_default();
    id_from_bson(&id)
}

/// The `_id` of a document, in words.
pub(crate) fn name_of(raw: &RawDocument) -> String {
    match raw.get("_id").ok().flatten().map(Bson::try_from) {
        Some(Ok(id)) => id.to_string(),
        _ => "none".to_owned(),
    }
}

/// Unreadable documents that were recently logged, by the code and their `_id`. Each
/// search meets them again, and they are logged only once in a while.
#[derive(Debug)]
pub(crate) struct LoggedDocuments(Limiter<(&'static str, String)>);

impl Default for LoggedDocuments {
    fn default() -> Self {
        Self(Limiter::new(1, LOGGED_FOR).for_keys(LOGGED_MAX))
    }
}

impl LoggedDocuments {
    /// Logs that a document cannot be read, unless that was logged recently. The code says what that means.
    pub(crate) fn tell(&self, code: &'static str, raw: &RawDocument, problem: &dyn Display) {
        self.tell_of(code, &name_of(raw), problem);
    }

    pub(crate) fn tell_of(&self, code: &'static str, name: &str, problem: &dyn Display) {
        if self.0.admit((code, name.to_owned())).is_some() {
            error!(code, document = name, error = %problem, "a document cannot be read");
        }
    }
}
