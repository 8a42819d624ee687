//! Reads the database, for the display and to know when all spans are complete.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ClientOptions, ReadConcern};
use mongodb::{Client, Collection};

use crate::stats::Spans;

/// How long it is looked for a server that answers.
const SELECTION_LIMIT: Duration = Duration::from_secs(3);
/// How long one look may take.
const QUERY_LIMIT: Duration = Duration::from_secs(10);

/// Reads the spans.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    spans: Collection<Document>,
    usages: Collection<Document>,
}

impl Observer {
    pub(crate) async fn new(uri: &str) -> Result<Self> {
        let mut options = ClientOptions::parse(uri)
            .await
            .context("the connection string")?;
        // Not a name that the proxies take for one of the programs.
        options.app_name = Some("observer".to_owned());
        options.server_selection_timeout = Some(SELECTION_LIMIT);
        options.read_concern = Some(ReadConcern::majority());
        let client = Client::with_options(options).context("a client")?;
        let database = client
            .default_database()
            .context("a database in the string")?;
        Ok(Self {
            spans: database.collection("spans"),
            usages: database.collection("spans_usages"),
        })
    }

    /// How many spans there are.
    pub(crate) async fn count(&self) -> Result<Spans> {
        let spans = self.spans.clone();
        within_limit(async move {
            let incomplete = doc! { "processing.complete": false };
            let open = doc! { "processing.complete": false, "end": Bson::Null };
            let incomplete = spans.count_documents(incomplete).await?;
            let open = spans.count_documents(open).await?;
            // Not the estimate: servers that were killed have a wrong one.
            let complete = spans
                .count_documents(doc! { "processing.complete": true })
                .await?;
            Ok(Spans {
                open,
                stopped: incomplete.saturating_sub(open),
                complete,
            })
        })
        .await
    }

    /// How many usages workers have still to ask Abacus for, or to send again.
    pub(crate) async fn pending(&self) -> Result<u64> {
        let usages = self.usages.clone();
        let exists = doc! { "$exists": true };
        let pending = doc! { "$or": [{ "ask_again.at": &exists }, { "resend": &exists }] };
        within_limit(async move { usages.count_documents(pending).await }).await
    }

    /// The instances whose spans were not stopped.
    pub(crate) async fn open(&self) -> Result<BTreeSet<String>> {
        let spans = self.spans.clone();
        let filter = doc! { "processing.complete": false, "end": Bson::Null };
        let find = async move { spans.find(filter).await?.try_collect().await };
        let open: Vec<Document> = within_limit(find).await?;
        let instance = |span: &Document| {
            let target = span.get_document("target").ok()?;
            target
                .get_str("resource_instance_id")
                .ok()
                .map(str::to_owned)
        };
        Ok(open.iter().filter_map(instance).collect())
    }

    /// All entries of the ledger, in the order in which the usages of each span were planned.
    pub(crate) async fn entries(&self) -> Result<Vec<Document>> {
        let usages = self.usages.clone();
        let find = async move {
            let found = usages.find(doc! {}).sort(doc! { "version": 1 }).await?;
            found.try_collect().await
        };
        within_limit(find).await
    }
}

/// The driver does not like its calls to be dropped, so it is only the waiting that ends.
async fn within_limit<T, F>(call: F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = mongodb::error::Result<T>> + Send + 'static,
{
    let answer = tokio::time::timeout(QUERY_LIMIT, tokio::spawn(call)).await;
    Ok(answer
        .context("the database does not answer")?
        .context("a call that ended early")??)
}
