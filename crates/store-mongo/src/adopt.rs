//! Taking in what an original Sampler writes, before and after we came.

use bson::{Bson, Document, RawDocumentBuf, doc};
use sampler_domain::{Policy, Timestamp, next_step};
use sampler_store::StoreError;
use tokio::time::Instant;
use tracing::error;

use crate::MongoStore;
use crate::call::hint;
use crate::document::{moment, partition, read};

impl MongoStore {
    /// Gives spans that an original receiver started what we need to find them.
    pub(crate) async fn adopt_starts(
        &self,
        policy: &Policy,
        now: Timestamp,
        limit: usize,
    ) -> Result<u64, StoreError> {
        // No partition, whatever is due: a stop of ours may have set that already.
        let filter = doc! { "processing.complete": false, "processing.partition": Bson::Null };
        let options = self.link.find_options(limit, doc! {}, "search_due");
        let strangers = self.found(filter, options).await?;
        if strangers.is_empty() {
            return Ok(0);
        }
        let statements: Result<Vec<RawDocumentBuf>, _> = strangers
            .iter()
            .map(|found| RawDocumentBuf::try_from(&adoption(found, policy, now)))
            .collect();
        let statements = statements.map_err(|error| StoreError::Refused(Box::new(error)))?;
        let link = self.link.clone();
        let send_by = Instant::now() + link.patience();
        let update = async move { link.update(&statements, send_by).await };
        Ok(self.link.run(update).await?.modified)
    }

    /// Makes spans due that an original receiver stopped: it sets the end, but does not know that
    /// the moment at which the span is due changes with it. Spans that wait after a failure are
    /// left to their wait.
    pub(crate) async fn notice_stops(&self, now: Timestamp) -> Result<u64, StoreError> {
        let due_by = doc! { "$max": ["$end", moment(now)] };
        let filter = doc! {
            "processing.complete": false,
            "end_is_set": true,
            "processing.attempts": { "$in": [Bson::Null, Bson::Int32(0)] },
            "$expr": { "$gt": ["$processing.due_at", due_by] },
        };
        let update = vec![doc! { "$set": { "processing.due_at": "$end" } }];
        let spans = self.link.spans.clone();
        let call = async move {
            spans
                .update_many(filter, update)
                .hint(hint("search_end_is_set"))
                .await
        };
        Ok(self.link.run(call).await?.modified_count)
    }
}

/// The statement that takes in one document, unless somebody else did.
fn adoption(found: &Document, policy: &Policy, now: Timestamp) -> Document {
    let id = found.get("_id").cloned().unwrap_or(Bson::Null);
    let (partition, due_at) = match read(found) {
        Ok(span) => (
            partition(&span.target),
            next_step(&span, now, policy).due_at(now),
        ),
        // Any partition: whoever looks after it says what is wrong, each time that it is due.
        Err(problem) => {
            error!(span.id = %id, error = %problem, "a span of an original cannot be read");
            (Bson::Int32(0), now)
        }
    };
    doc! {
        "q": { "_id": id, "processing.partition": Bson::Null },
        "u": {
            "$set": { "processing.partition": partition },
            // Not later than a stop of ours has set it to meanwhile.
            "$min": { "processing.due_at": moment(due_at) },
        },
    }
}
