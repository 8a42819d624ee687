//! Calls of the MongoDB driver.
//!
//! The driver warns that a call whose future is dropped can leave a connection in a bad state.
//! A client that goes away drops its request's future, and so does a time limit; so calls run in a
//! task of their own, to their end ([`Link::run`]; [`sampler_store::group`] for calls that share a command),
//! and what is dropped is only the waiting for it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bson::raw::{CStr, RawArrayBuf, RawDocumentBuf, cstr};
use bson::{Bson, Document, doc};
use mongodb::error::Error;
use mongodb::options::{AggregateOptions, FindOptions, Hint, UpdateModifications};
use mongodb::results::UpdateResult;
use mongodb::{Collection, Cursor, Database};
use sampler_store::group::{CommandFailure, WriteOutcome, WriteResult, write_results};
use tokio::time::Instant;

use crate::raw::{self, LoggedDocuments};

mod error;

/// Documents that the server sends at once: all that one call of `resolve` asks for.
const BATCH_SIZE: u32 = 1_024;

/// Bytes of documents on a page, but for the last of them. A span can have half a megabyte, and a
/// multiple of that once it is parsed. A page of spans of the usual size is much smaller.
const PAGE_BYTES: usize = 1 << 20;

/// The server's time limit for all pages of a scan. Each page also has the limit of any operation.
const SCAN_TIME: Duration = Duration::from_mins(1);

/// How much longer than its own limits an operation may take: for the way there and back, and for
/// the interval in which the server checks the time.
pub(crate) const MARGIN: Duration = Duration::from_secs(1);

/// A collection, with what each call needs.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) database: Database,
    /// Writes wait for a majority and its journals; reads see what a majority has.
    pub(crate) collection: Collection<Document>,
    /// Reads that, after they read, make sure that we still are on the primary.
    pub(crate) linearizable: Collection<Document>,
    /// The longest time that the server may take for one operation.
    pub(crate) time_limit: Duration,
    /// The unreadable documents that were recently logged.
    pub(crate) logged: Arc<LoggedDocuments>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error(transparent)]
    Driver(#[from] Error),
    /// The server refused one of the writes of a command.
    #[error("{message} (code {code})")]
    Write { code: i32, message: String },
    /// A majority does not have the write yet.
    #[error("a majority has not confirmed the write: {0}")]
    Unconfirmed(String),
    /// No answer within the time limit. The call continues.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// Nothing was sent, because a caller no longer waits for it.
    #[error("it was too late to send the command")]
    TooLate,
    /// An answer would be larger than it may be.
    #[error("the answer is too large")]
    TooLarge,
    /// The task that made the call ended before the call did.
    #[error("the call ended early")]
    Ended(#[source] tokio::task::JoinError),
}

/// The server's answer to an `insert`, `update` or `delete` command.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Inserted or deleted documents, or statements that matched or upserted one.
    pub(crate) matched: usize,
    /// Statements that upserted a document.
    pub(crate) upserted: usize,
    pub(crate) modified: u64,
    /// The documents or statements that failed, by their index in the command, with their errors.
    pub(crate) failed: Vec<(usize, CallError)>,
}

/// The index that each collection has. A small collection is read through it: a server may forbid scans
/// (`notablescan`).
pub(crate) const BY_ID: &str = "_id_";

/// Names the index that an operation must use, so that a change of the planner never causes a scan of
/// the collection.
pub(crate) fn hint(index: &str) -> Hint {
    Hint::Name(index.to_owned())
}

impl Link {
    /// How long a caller waits for a call. The server's own limits are shorter; this one is for lost
    /// answers.
    pub(crate) fn call_limit(&self) -> Duration {
        self.time_limit + MARGIN
    }

    fn time_limit_millis(&self) -> i64 {
        i64::try_from(self.time_limit.as_millis()).unwrap_or(i64::MAX)
    }

    fn write_concern(&self) -> Document {
        doc! { "w": "majority", "j": true, "wtimeout": self.time_limit_millis() }
    }

    /// Makes a call in a task of its own, and waits for it as long as an operation may take.
    pub(crate) async fn run<T, E, F>(&self, call: F) -> Result<T, CallError>
    where
        T: Send + 'static,
        E: Into<CallError> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let call_limit = self.call_limit();
        match tokio::time::timeout(call_limit, tokio::spawn(call)).await {
            Ok(Ok(answer)) => answer.map_err(Into::into),
            Ok(Err(ended)) => Err(CallError::Ended(ended)),
            Err(_) => Err(CallError::TimedOut(call_limit)),
        }
    }

    pub(crate) fn find_options(&self, limit: usize, sort: Document, index: &str) -> FindOptions {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        FindOptions::builder()
            .limit(limit)
            .batch_size(u32::try_from(limit).unwrap_or(u32::MAX))
            .sort(sort)
            .hint(hint(index))
            .max_time(self.time_limit)
            .build()
    }

    /// The documents that match, as a majority has them.
    pub(crate) async fn find(
        &self,
        filter: Document,
        options: FindOptions,
    ) -> Result<Vec<RawDocumentBuf>, CallError> {
        let found = self.collection.find(filter).with_options(options).await;
        Ok(all(found?).await?)
    }

    /// The same in a call of its own.
    pub(crate) async fn fetch(
        &self,
        filter: Document,
        options: FindOptions,
    ) -> Result<Vec<RawDocumentBuf>, CallError> {
        let link = self.clone();
        let fetch = async move { link.find(filter, options).await };
        self.run(fetch).await
    }

    /// A cursor over the documents that match.
    pub(crate) async fn cursor(
        &self,
        filter: Document,
        options: FindOptions,
    ) -> Result<Cursor<Document>, CallError> {
        let collection = self.collection.clone();
        let find = async move { collection.find(filter).with_options(options).await };
        self.run(find).await
    }

    /// A cursor over a range of an index in the order of a field. The server sends a page at a time.
    pub(crate) async fn scan(
        &self,
        filter: Document,
        (index, order): (&str, &str),
        page: usize,
    ) -> Result<Cursor<Document>, CallError> {
        let mut options = self.find_options(page, doc! { order: 1 }, index);
        options.limit = None;
        options.max_time = Some(SCAN_TIME);
        self.cursor(filter, options).await
    }

    /// How many documents match, counted up to a bound. Only the index is read.
    pub(crate) async fn count(
        &self,
        filter: Document,
        index: &str,
        bound: usize,
    ) -> Result<u64, CallError> {
        let limit = u64::try_from(bound.max(1)).unwrap_or(u64::MAX);
        let (collection, index, time_limit) =
            (self.collection.clone(), hint(index), self.time_limit);
        let count = async move {
            let count = collection.count_documents(filter).limit(limit);
            count.hint(index).max_time(time_limit).await
        };
        self.run(count).await
    }

    /// The few documents that a pipeline gives.
    pub(crate) async fn aggregate(
        &self,
        pipeline: Vec<Document>,
        index: &str,
        time_limit: Duration,
    ) -> Result<Vec<RawDocumentBuf>, CallError> {
        let options = AggregateOptions::builder()
            .hint(hint(index))
            .max_time(time_limit)
            .build();
        let collection = self.collection.clone();
        let call = async move {
            let found = collection.aggregate(pipeline).with_options(options).await?;
            all(found).await
        };
        self.run(call).await
    }

    /// Changes one document.
    pub(crate) async fn update_one(
        &self,
        filter: Document,
        update: impl Into<UpdateModifications>,
        upsert: bool,
    ) -> Result<UpdateResult, CallError> {
        let (collection, update) = (self.collection.clone(), update.into());
        let call = async move { collection.update_one(filter, update).upsert(upsert).await };
        self.run(call).await
    }

    /// Changes the first document of an order that a filter finds. Returns whether there was one. The driver does
    /// not repeat the command: a first one that came late would be carried out after the answer to a second.
    pub(crate) async fn find_and_update(
        &self,
        filter: Document,
        update: Document,
        (index, sort): (&str, Document),
    ) -> Result<bool, CallError> {
        let command = doc! {
            "findAndModify": self.collection.name(),
            "query": filter, "update": update, "sort": sort, "hint": index,
            "fields": { "_id": 1 },
            "maxTimeMS": self.time_limit_millis(),
            "writeConcern": self.write_concern(),
        };
        let answer = self.database.run_command(command).await?;
        require_confirmed(&answer)?;
        Ok(answer.get_document("value").is_ok())
    }

    /// The document with this id, if there is one.
    pub(crate) async fn find_by_id(&self, id: &str) -> Result<Option<Document>, CallError> {
        let (collection, filter) = (self.collection.clone(), doc! { "_id": id });
        let time_limit = self.time_limit;
        let find = async move { collection.find_one(filter).max_time(time_limit).await };
        self.run(find).await
    }

    /// Finds documents with a linearizable read. The result cannot be rolled back, and no newer primary
    /// has other data.
    pub(crate) async fn find_linearizable(
        &self,
        filter: Document,
        index: &str,
        projection: Document,
    ) -> Result<Vec<RawDocumentBuf>, CallError> {
        let found = self.linearizable.find(filter).hint(hint(index));
        let found = found.batch_size(BATCH_SIZE).max_time(self.time_limit);
        let found = found.projection(projection);
        Ok(all(found.await?).await?)
    }

    /// Inserts documents with one command, each independent of the others.
    pub(crate) async fn insert(
        &self,
        documents: impl IntoIterator<Item = &RawDocumentBuf>,
        send_by: Instant,
    ) -> Result<Written, CallError> {
        self.write(cstr!("insert"), cstr!("documents"), documents, send_by)
            .await
    }

    /// Runs update statements with one command, each independent of the others.
    pub(crate) async fn update(
        &self,
        statements: impl IntoIterator<Item = &RawDocumentBuf>,
        send_by: Instant,
    ) -> Result<Written, CallError> {
        self.write(cstr!("update"), cstr!("updates"), statements, send_by)
            .await
    }

    /// Runs delete statements with one command, each independent of the others.
    pub(crate) async fn delete(
        &self,
        statements: impl IntoIterator<Item = &RawDocumentBuf>,
        send_by: Instant,
    ) -> Result<Written, CallError> {
        self.write(cstr!("delete"), cstr!("deletes"), statements, send_by)
            .await
    }

    /// Writes what is listed with one command. The driver does not repeat it, and the server keeps
    /// no record by which it could be repeated, which would be a write of its own: so each of what
    /// is listed must be something that may be written again.
    ///
    /// Nothing is handed to the driver after `send_by`, and the driver looks for a server for a limited time
    /// before it sends. The server continues a write whose client has gone, but not for longer than the
    /// time limit. So there is a time after which a write without an answer is either done, or never will
    /// be ([`unknown_for`](crate::MongoOptions::unknown_for)).
    async fn write(
        &self,
        name: &CStr,
        list_name: &CStr,
        items: impl IntoIterator<Item = &RawDocumentBuf>,
        send_by: Instant,
    ) -> Result<Written, CallError> {
        if Instant::now() >= send_by {
            return Err(CallError::TooLate);
        }
        let list: RawArrayBuf = items.into_iter().collect();
        let mut command = RawDocumentBuf::new();
        command.append(name, self.collection.name());
        command.append(list_name, list);
        command.append(cstr!("ordered"), false);
        command.append(cstr!("maxTimeMS"), self.time_limit_millis());
        command.append(cstr!("writeConcern"), raw::written(&self.write_concern()));
        let answer = self.database.run_raw_command(command).await;
        written(&answer?)
    }

    /// Whether a primary answers.
    pub(crate) async fn ping(&self) -> Result<(), CallError> {
        let answer = self.database.run_command(doc! { "ping": 1 }).await;
        Ok(answer.map(drop)?)
    }
}

/// All documents of a cursor as the server sent them: one that cannot be decoded is not a reason to
/// lose the others.
async fn all(cursor: Cursor<Document>) -> Result<Vec<RawDocumentBuf>, Error> {
    Ok(take(cursor, usize::MAX).await?.0)
}

/// Takes a number of documents from a cursor, and says where to continue, unless that is the end.
pub(crate) async fn take(
    cursor: Cursor<Document>,
    count: usize,
) -> Result<(Vec<RawDocumentBuf>, Option<Cursor<Document>>), Error> {
    take_up_to(cursor, count, usize::MAX).await
}

/// Takes a page of spans off a cursor: fewer where they are large.
pub(crate) async fn take_spans(
    cursor: Cursor<Document>,
    count: usize,
) -> Result<(Vec<RawDocumentBuf>, Option<Cursor<Document>>), Error> {
    take_up_to(cursor, count, PAGE_BYTES).await
}

async fn take_up_to(
    mut cursor: Cursor<Document>,
    count: usize,
    bytes_max: usize,
) -> Result<(Vec<RawDocumentBuf>, Option<Cursor<Document>>), Error> {
    let (mut documents, mut bytes) = (Vec::new(), 0);
    while documents.len() < count && bytes < bytes_max {
        if !cursor.advance().await? {
            return Ok((documents, None));
        }
        let document = cursor.current().to_owned();
        bytes += document.as_bytes().len();
        documents.push(document);
    }
    Ok((documents, Some(cursor)))
}

/// Reads the answer to an `insert`, `update` or `delete` command.
fn written(answer: &Document) -> Result<Written, CallError> {
    let failures = answer.get_array("writeErrors");
    let mut failed: Vec<(usize, CallError)> = failures.map_or_else(
        |_| Vec::new(),
        |all| all.iter().filter_map(write_failure).collect(),
    );
    require_confirmed(answer)?;
    // A statement that may succeed when it is sent again has no other place for its reason.
    let mut errors = failed.iter().map(|(_, error)| error);
    if let Some(passing) = errors.position(|it| it.outcome() == WriteOutcome::Unknown) {
        return Err(failed.swap_remove(passing).1);
    }
    Ok(Written {
        matched: usize::try_from(answer.get_i32("n").unwrap_or(0)).unwrap_or(0),
        upserted: answer.get_array("upserted").map_or(0, Vec::len),
        modified: u64::try_from(answer.get_i32("nModified").unwrap_or(0)).unwrap_or(0),
        failed,
    })
}

/// Fails where a majority does not have what was written.
fn require_confirmed(answer: &Document) -> Result<(), CallError> {
    match answer.get("writeConcernError") {
        Some(unconfirmed) => Err(CallError::Unconfirmed(unconfirmed.to_string())),
        None => Ok(()),
    }
}

/// The index of a document or statement, and why it failed.
fn write_failure(failure: &Bson) -> Option<(usize, CallError)> {
    let failure = failure.as_document()?;
    let error = CallError::Write {
        code: failure.get_i32("code").ok()?,
        message: failure.get_str("errmsg").unwrap_or_default().to_owned(),
    };
    let index = usize::try_from(failure.get_i32("index").ok()?).ok()?;
    Some((index, error))
}

impl Written {
    /// The results of a number of documents or statements.
    pub(crate) fn write_results<A>(
        self,
        items: usize,
        answer: impl Fn(usize) -> A,
    ) -> Vec<WriteResult<A, CallError>> {
        write_results(self.matched, self.failed, items, answer)
    }
}
