//! Taking over the collection of the original Sampler, while none of its programs runs.
//!
//! The original's documents are those of the paper, without what workers and events find spans by: key,
//! partition and `due_at`. At its start a worker removes the original's indexes, converts the documents
//! (`original.rs`), and then says in the control which format they have. Receivers wait for that.
//!
//! A worker may die at any instruction, and several may convert at once. Each document is converted by one
//! statement, which requires that the document has no partition. The format is written last. So whatever
//! is left is found by the next worker that starts: each looks again, whatever the control says.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use futures_util::TryStreamExt;
use futures_util::stream::{self, Stream};
use mongodb::options::ReadConcern;
use sampler_domain::{Key, Policy, Timestamp};
use sampler_store::StoreError;
use sampler_store::group::CommandFailure;
use tokio::time::Instant;
use tracing::{error, info};

use crate::MongoStore;
use crate::call::{BY_ID, CallError, Written, take_spans};
use crate::document::{SpanDocument, id_to_bson};
use crate::index;
use crate::original::Original;
use crate::raw::{Unreadable, name_of, written};

/// The document of the control that says which format the spans have.
const FORMAT_ID: &str = "format";

/// The format of this release.
const FORMAT: i64 = 1;

/// The indexes that the original makes.
const ORIGINAL_INDEXES: [&str; 5] = [
    "unique_target",
    "unique_start_dedup_id",
    "unique_end_dedup_id",
    "search_processing",
    "search_end_is_set",
];

/// Documents that one command converts.
const PAGE: usize = 1_000;

/// Commands in flight.
const COMMANDS: usize = 4;

/// The fields of the ids of events.
const START_ID: &str = "start_dedup_id";
const STOP_ID: &str = "end_dedup_id";

impl MongoStore {
    /// Whether the documents have the format of this release. A collection that nobody has used gets it.
    /// For receivers; the indexes must exist.
    pub async fn has_format(&self) -> Result<bool, StoreError> {
        if self.read_format().await? {
            return Ok(true);
        }
        let is_unused = self.original_indexes().await?.is_empty() && self.is_empty().await?;
        if is_unused {
            self.write_format().await?;
        }
        Ok(is_unused)
    }

    /// Converts what the original Sampler has written, and says that the documents have the format. For
    /// workers, before they sample; the indexes must exist. `now` is the time by which spans become due.
    /// Returns that it is done.
    pub async fn take_over(&self, policy: &Policy, now: Timestamp) -> Result<bool, StoreError> {
        self.read_format().await?;
        // They go first: they refuse the text of an id where another target has the same text.
        let indexes = self.original_indexes().await?;
        for name in &indexes {
            self.drop_index(name).await?;
        }
        let mut converted = 0;
        for (is_complete, index) in [(false, index::DUE), (true, index::COMPLETE)] {
            let pages = self.unconverted(is_complete, index).await?;
            let pages = pages.map_ok(|page| self.convert(page, policy, now));
            let counts = pages.try_buffer_unordered(COMMANDS);
            converted += counts
                .try_fold(0, |all, count| async move { Ok(all + count) })
                .await?;
        }
        self.write_format().await?;
        if converted > 0 || !indexes.is_empty() {
            info!(
                spans = converted,
                "the collection of the original Sampler is taken over"
            );
        }
        Ok(true)
    }

    /// Whether the control names the format of this release.
    async fn read_format(&self) -> Result<bool, StoreError> {
        let Some(found) = self.control.find_by_id(FORMAT_ID).await? else {
            return Ok(false);
        };
        match found.get_i64("version") {
            Ok(FORMAT) => Ok(true),
            _ => Err(StoreError::refused(format!(
                "the documents have a format that this release does not know: {found}"
            ))),
        }
    }

    async fn write_format(&self) -> Result<(), StoreError> {
        let filter = doc! { "_id": FORMAT_ID };
        let update = doc! { "$setOnInsert": { "version": FORMAT } };
        self.control.update_one(filter, update, true).await?;
        Ok(())
    }

    async fn is_empty(&self) -> Result<bool, CallError> {
        let mut options = self.link.find_options(1, doc! {}, BY_ID);
        options.projection = Some(doc! { "_id": 1 });
        options.read_concern = Some(ReadConcern::local());
        Ok(self.link.fetch(doc! {}, options).await?.is_empty())
    }

    /// The documents without a partition, page by page. What the primary has is read, not what a majority
    /// has: the original waits for no majority, and may have written just now.
    async fn unconverted(
        &self,
        is_complete: bool,
        index: &str,
    ) -> Result<impl Stream<Item = Result<Vec<RawDocumentBuf>, StoreError>>, StoreError> {
        let filter = doc! {
            "processing.complete": is_complete, "processing.partition": Bson::Null,
        };
        let mut options = self.link.find_options(PAGE, doc! {}, index);
        options.limit = None;
        options.max_time = None;
        options.read_concern = Some(ReadConcern::local());
        let begun = (
            self.link.clone(),
            Some(self.link.cursor(filter, options).await?),
        );
        Ok(stream::try_unfold(begun, |(link, cursor)| async move {
            let Some(cursor) = cursor else {
                return Ok(None);
            };
            let (page, rest) = link.run(take_spans(cursor, PAGE)).await?;
            Ok(Some((page, (link, rest))))
        }))
    }

    /// Converts the documents of a page. Those that cannot be are logged, and stay as they are. Returns how
    /// many are converted.
    async fn convert(
        &self,
        page: Vec<RawDocumentBuf>,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let mut conversions = Vec::new();
        for raw in page {
            match Conversion::of(&raw, policy, now) {
                Ok(conversion) => conversions.push((raw, conversion)),
                Err(problem) => leave(&raw, &problem),
            }
        }
        let statements = conversions
            .iter()
            .map(|(_, it)| it.statement(&[]))
            .collect();
        let written = self.update_all(statements).await?;
        let mut converted = written.modified;
        for (index, error) in written.failed {
            let (raw, conversion) = &conversions[index];
            if error.is_duplicate_key() && self.convert_without_id(conversion).await? {
                converted += 1;
            } else {
                leave(raw, &error);
            }
        }
        Ok(converted)
    }

    /// Converts a document one of whose ids another span of the target has, too: the original has kept an
    /// event twice, once under a text and once under the UUID binary of the text. A repeat of the event is
    /// recognised by the other span, so this one loses the id.
    async fn convert_without_id(&self, conversion: &Conversion) -> Result<bool, StoreError> {
        for lost in [&[START_ID][..], &[STOP_ID], &[START_ID, STOP_ID]] {
            let statement = conversion.statement(lost);
            if self.update_all(vec![statement]).await?.failed.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn update_all(&self, statements: Vec<RawDocumentBuf>) -> Result<Written, CallError> {
        if statements.is_empty() {
            return Ok(Written::default());
        }
        let link = self.link.clone();
        let send_by = Instant::now() + link.call_limit();
        let call = async move { link.update(&statements, send_by).await };
        self.link.run(call).await
    }

    /// The names of the original's indexes that are there.
    async fn original_indexes(&self) -> Result<Vec<&'static str>, CallError> {
        let collection = self.link.collection.clone();
        let list = async move { collection.list_index_names().await };
        let names = self.link.run(list).await?;
        let is_there = |name: &&str| names.iter().any(|there| there == name);
        Ok(ORIGINAL_INDEXES.into_iter().filter(is_there).collect())
    }

    async fn drop_index(&self, name: &'static str) -> Result<(), CallError> {
        let spans = self.link.collection.clone();
        let drop = async move { spans.drop_index(name).await };
        match self.link.run(drop).await {
            // Another worker was faster.
            Err(error) if error.is_no_index() => Ok(()),
            dropped => dropped,
        }
    }
}

/// A document that stays as it is. An operator corrects it and restarts a worker.
fn leave(raw: &RawDocument, problem: &dyn std::fmt::Display) {
    error!(code = "takeover.left", span.id = %name_of(raw), error = %problem,
        "a document of the original Sampler cannot be converted and is not sampled");
}

/// A document, and what becomes of it.
struct Conversion {
    id: Bson,
    members: Document,
}

impl Conversion {
    fn of(raw: &RawDocument, policy: &Policy, now: Timestamp) -> Result<Self, Unreadable> {
        let original = Original::read(&Document::try_from(raw)?, policy, now)?;
        let (span, correlation_id) = (&original.span, &original.correlation_id);
        let document = SpanDocument::new(
            span,
            Key::of(&span.target),
            correlation_id,
            original.changed_at,
        );
        let mut members = bson::serialize_to_document(&document)?;
        members.remove("_id");
        let id = id_to_bson(&span.id);
        Ok(Self { id, members })
    }

    /// The statement that converts the document, unless another worker did. It loses these ids, and those that
    /// are none.
    fn statement(&self, lost: &[&str]) -> RawDocumentBuf {
        let (mut set, mut unset) = (self.members.clone(), Document::new());
        for field in [START_ID, STOP_ID] {
            if lost.contains(&field) {
                set.remove(field);
            }
            if !set.contains_key(field) {
                unset.insert(field, "");
            }
        }
        let filter = doc! { "_id": &self.id, "processing.partition": Bson::Null };
        let update = doc! { "$set": set, "$unset": unset };
        written(&doc! { "q": filter, "u": update, "hint": BY_ID })
    }
}
