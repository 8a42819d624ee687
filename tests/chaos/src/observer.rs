//! Reads the database, to know when all spans are complete.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ClientOptions, ReadConcern};
use mongodb::{Client, Collection};

/// How long it is looked for a server that answers.
const SELECTION_LIMIT: Duration = Duration::from_secs(3);
/// How long one look may take.
const QUERY_LIMIT: Duration = Duration::from_secs(10);

/// How many stopped spans are not complete, as it was seen last.
#[derive(Debug, Default)]
pub(crate) struct Backlog(AtomicU64);

impl Backlog {
    pub(crate) fn stopped(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, stopped: u64) {
        self.0.store(stopped, Ordering::Relaxed);
    }
}

/// Reads the spans, and the usages that are watched.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    spans: Collection<Document>,
    unconfirmed: Collection<Document>,
}

/// What is left to do after the faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    incomplete: u64,
    pub(crate) excluded: Vec<String>,
    pub(crate) missing: Vec<String>,
}

impl Left {
    pub(crate) fn is_nothing(&self) -> bool {
        self.incomplete == 0 && self.excluded.is_empty() && self.missing.is_empty()
    }
}

impl Observer {
    pub(crate) async fn new(uri: &str) -> Result<Self> {
        let options = ClientOptions::parse(uri).await;
        let mut options = options.context("the connection string")?;
        // Not a name that the proxies take for one of the programs.
        options.app_name = Some("observer".to_owned());
        options.server_selection_timeout = Some(SELECTION_LIMIT);
        options.read_concern = Some(ReadConcern::majority());
        let client = Client::with_options(options).context("a client")?;
        let database = client.default_database();
        let database = database.context("a database in the string")?;
        Ok(Self {
            spans: database.collection("spans"),
            unconfirmed: database.collection("spans_unconfirmed"),
        })
    }

    /// How many spans are stopped and not complete.
    pub(crate) async fn stopped(&self) -> Result<u64> {
        self.count(doc! { "processing.complete": false, "end": { "$ne": null } })
            .await
    }

    /// What is left to do: spans that are not complete, those of which something is excluded, and the usages
    /// that are missing at Abacus.
    pub(crate) async fn left(&self) -> Result<Left> {
        let incomplete = doc! { "processing.complete": false };
        Ok(Left {
            incomplete: self.count(incomplete).await?,
            excluded: ids(
                &self.spans,
                doc! { "processing.excluded": { "$exists": true } },
            )
            .await?,
            missing: ids(&self.unconfirmed, doc! { "missing": { "$exists": true } }).await?,
        })
    }

    async fn count(&self, filter: Document) -> Result<u64> {
        let spans = self.spans.clone();
        within_limit(async move { spans.count_documents(filter).await }).await
    }
}

/// The ids of documents, as the API writes them.
async fn ids(collection: &Collection<Document>, filter: Document) -> Result<Vec<String>> {
    let collection = collection.clone();
    let find = async move { collection.find(filter).await?.try_collect().await };
    let found: Vec<Document> = within_limit(find).await?;
    let id = |document: &Document| match document.get("_id") {
        Some(Bson::ObjectId(id)) => Some(id.to_hex()),
        Some(Bson::String(id)) => Some(id.clone()),
        _ => None,
    };
    Ok(found.iter().filter_map(id).collect())
}

/// The driver does not like its calls to be dropped, so it is only the waiting that ends.
async fn within_limit<T, F>(call: F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = mongodb::error::Result<T>> + Send + 'static,
{
    let answer = tokio::time::timeout(QUERY_LIMIT, tokio::spawn(call)).await;
    let answer = answer.context("the database does not answer")?;
    Ok(answer.context("a call that ended early")??)
}
