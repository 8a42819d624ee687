//! Documents that are not spans: they are logged, and hold up no other span.
//!
//! The driver would end a search at the first document that it cannot decode. So documents are taken
//! as the server sends them, and decoded one by one.

use std::fmt;
use std::time::Duration;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, Document, rawdoc};
use sampler_domain::{Key, Span};
use sampler_store::Limiter;
use sampler_store::group::{CommandFailure, WriteOutcome};
use tokio::time::Instant;

use crate::call::{CallError, Link, Written};
use crate::document::{Unreadable, read, unreadable};

/// How long a document is not logged again.
const LOGGED_FOR: Duration = Duration::from_hours(1);

/// The most documents that are remembered. Of all others, one is logged in a period.
const LOGGED_MAX: usize = 10_000;

/// Bytes of a document beside its members: its length, and the zero at its end.
const FRAME_BYTES: usize = 5;

/// Decodes a document, member by member, to say which of them cannot be.
pub(crate) fn decoded(raw: &RawDocument) -> Result<Document, Unreadable> {
    let mut document = Document::new();
    for (number, element) in (1..).zip(raw.iter_elements()) {
        let element = element.map_err(|error| {
            unreadable(&format!("number {number}"), format!("is broken: {error}"))
        })?;
        let name = element.key().as_str();
        let value = Bson::try_from(element.clone())
            .map_err(|error| unreadable(name, format!("cannot be decoded: {error}")))?;
        document.insert(name, value);
    }
    Ok(document)
}

/// Decodes one member of a document.
pub(crate) fn value_in(raw: &RawDocument, name: &str) -> Option<Bson> {
    Bson::try_from(raw.get(name).ok()??).ok()
}

pub(crate) fn span_in(raw: &RawDocument) -> Result<Span, Unreadable> {
    read(&decoded(raw)?)
}

/// The `_id` of a document, as `{ "_id": … }`. It is taken over byte by byte, so that a document can
/// be named by whatever its `_id` is.
#[derive(Clone, Debug)]
pub(crate) struct Identity(RawDocumentBuf);

impl Identity {
    /// The server keeps `_id` in front of all others.
    pub(crate) fn of(raw: &RawDocument) -> Option<Self> {
        let first = raw.iter_elements().next()?.ok()?;
        let name = first.key().as_str();
        if name != "_id" {
            return None;
        }
        // The type, the name, a zero, the value.
        let size = 1 + name.len() + 1 + first.size();
        let element = raw.as_bytes().get(4..4 + size)?;
        let mut bytes = i32::try_from(size + FRAME_BYTES)
            .ok()?
            .to_le_bytes()
            .to_vec();
        bytes.extend_from_slice(element);
        bytes.push(0);
        RawDocumentBuf::from_bytes(bytes).ok().map(Self)
    }

    /// A condition that only this document meets.
    pub(crate) fn filter(&self) -> RawDocumentBuf {
        self.0.clone()
    }
}

/// A condition that only this document meets, with its key if the key can be read.
fn condition_of(raw: &RawDocument) -> Option<RawDocumentBuf> {
    let mut filter = Identity::of(raw)?.filter();
    match raw_key(raw) {
        Some(RawBsonRef::Binary(key)) => filter.append(cstr!("processing.key"), key),
        // One that nobody has given a key yet.
        None => filter.append(cstr!("processing.key"), RawBson::Null),
        Some(_) => {}
    }
    Some(filter)
}

/// The key that a document is kept under, if it can be read.
pub(crate) fn key_of(raw: &RawDocument) -> Option<Key> {
    match raw_key(raw)? {
        RawBsonRef::Binary(key) => Some(Key::from_bytes(key.bytes.try_into().ok()?)),
        _ => None,
    }
}

fn raw_key(raw: &RawDocument) -> Option<RawBsonRef<'_>> {
    let processing = raw.get_document("processing").ok()?;
    processing.get("key").ok()?
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = self.0.iter_elements().next();
        let value = element.and_then(|element| element.ok()?.value_utf8_lossy().ok());
        match value.map(Bson::try_from) {
            Some(Ok(value)) => write!(f, "{value}"),
            _ => write!(f, "{:?}", self.0),
        }
    }
}

/// The `_id` of a document, in words.
pub(crate) fn name_of(raw: &RawDocument) -> String {
    Identity::of(raw).map_or_else(|| "none".to_owned(), |id| id.to_string())
}

/// Unreadable documents that were recently logged, by the search that met them and their `_id`. Each
/// search meets them again, and they are logged only once in a while.
#[derive(Debug)]
pub(crate) struct LoggedDocuments(Limiter<(&'static str, String)>);

impl Default for LoggedDocuments {
    fn default() -> Self {
        Self(Limiter::new(1, LOGGED_FOR).for_keys(LOGGED_MAX))
    }
}

impl LoggedDocuments {
    /// Whether the document must be logged now. If so, it counts as logged.
    pub(crate) fn is_news(&self, of: &'static str, name: &str) -> bool {
        self.0.admit((of, name.to_owned())).is_some()
    }
}

/// The statement that changes one document.
#[derive(Debug)]
pub(crate) struct Statement(pub(crate) RawDocumentBuf);

impl Statement {
    /// Changes a document that was found, where it still meets these conditions.
    pub(crate) fn new(
        found: &RawDocument,
        conditions: &Document,
        update: &Document,
    ) -> Option<Self> {
        let mut filter = condition_of(found)?;
        for element in RawDocumentBuf::try_from(conditions).ok()?.iter_elements() {
            let element = element.ok()?;
            filter.append(element.key(), element.value().ok()?);
        }
        let update = RawDocumentBuf::try_from(update).ok()?;
        Some(Self(rawdoc! { "q": filter, "u": update, "hint": "_id_" }))
    }
}

/// Makes changes with one command. If the command as a whole is refused, makes each alone, so that
/// one cannot prevent the others. One can: the server's error about a refused change can quote the
/// document, and then is not UTF-8 either.
pub(crate) async fn change_each(link: &Link, changes: &[Statement]) -> Result<Written, CallError> {
    let statements = changes.iter().map(|change| change.0.clone());
    let refused = match update(link, statements.collect()).await {
        Err(error) if error.outcome() == WriteOutcome::Refused => error,
        written => return written,
    };
    if changes.len() == 1 {
        return Ok(Written {
            failed: vec![(0, refused)],
            ..Written::default()
        });
    }
    let mut all = Written::default();
    for (index, change) in changes.iter().enumerate() {
        match update(link, vec![change.0.clone()]).await {
            Ok(written) => {
                all.matched += written.matched;
                // The first command may have made it, though nobody can say so.
                all.modified += u64::from(written.failed.is_empty());
                let failed = written.failed.into_iter();
                all.failed.extend(failed.map(|(_, error)| (index, error)));
            }
            Err(error) if error.outcome() == WriteOutcome::Refused => {
                all.failed.push((index, error));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

async fn update(link: &Link, statements: Vec<RawDocumentBuf>) -> Result<Written, CallError> {
    let calling = link.clone();
    let send_by = Instant::now() + link.call_limit();
    let call = async move { calling.update(&statements, send_by).await };
    link.run(call).await
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_document_is_told_of_once_an_hour() {
        let logged = LoggedDocuments::default();
        assert!(logged.is_news("a", "x"));
        assert!(!logged.is_news("a", "x"));
        assert!(logged.is_news("b", "x"));
        assert!(logged.is_news("a", "y"));
        tokio::time::advance(LOGGED_FOR).await;
        assert!(logged.is_news("a", "x"));
    }

    #[test]
    fn what_cannot_be_decoded_is_named() {
        let mut bytes = doc! { "_id": 1, "a": ["BROKEN"], "b": 2 }.to_vec().unwrap();
        let index = bytes.windows(6).position(|six| six == b"BROKEN").unwrap();
        bytes[index] = 0xff;
        let raw = RawDocumentBuf::from_bytes(bytes).unwrap();
        let problem = decoded(&raw).unwrap_err().to_string();
        assert!(
            problem.starts_with("the member a cannot be decoded"),
            "{problem}"
        );
        assert_eq!(name_of(&raw), "1");
    }
}
