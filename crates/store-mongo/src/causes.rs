//! Causes of refusals: keeping them, probing them, and resuming the spans that are suspended under
//! them.
//!
//! A cause is a document; its spans are found by an index that holds nothing else. Each call can be
//! repeated at any time, and be made by two workers at once.

use async_trait::async_trait;
use bson::raw::RawDocument;
use bson::{Bson, Document, RawDocumentBuf, doc};
use futures_util::TryStreamExt;
use mongodb::options::FindOptions;
use sampler_domain::{Cause, CauseId, Id, Timestamp};
use sampler_store::{Causes, KeptCause, Probe, Resumption, StoreError};
use tracing::error;

use crate::call::{BY_ID, CallError, hint};
use crate::document::{
    Unreadable, key_to_bson, moment, read_integer, read_moment, read_optional_moment, read_text,
    unreadable,
};
use crate::entry_document::{ERROR_LEN_MAX, status_in};
use crate::suspension_document::{read_probe, refusals, under};
use crate::unreadable::{Identity, Statement, change_each, decoded, key_of};
use crate::{MongoStore, index, missing_causes};

/// The fields of suspended spans that are read, beside their ids. A span can have half a megabyte.
const PROJECTED: [&str; 7] = [
    "processing.key",
    "processing.version",
    "processing.failed_version",
    "processing.last_error",
    "processing.suspended",
    "target.resource_id",
    "target.plan_id",
];

#[async_trait]
impl Causes for MongoStore {
    async fn register(
        &self,
        cause: &Cause,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.register_as(cause.id(), cause, now, probe_at).await
    }

    async fn register_missing(
        &self,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<u64, StoreError> {
        missing_causes::register_missing(self, now, probe_at).await
    }

    async fn due_causes(&self, now: Timestamp, limit: usize) -> Result<Vec<KeptCause>, StoreError> {
        let filter = doc! { "$or": [
            { "probe_at": { "$lte": moment(now) } },
            { "resuming": { "$exists": true } },
        ] };
        Ok(self.causes_where(filter, "probe_at", limit).await?)
    }

    async fn claim_probe(&self, cause: &KeptCause, next: Timestamp) -> Result<bool, StoreError> {
        let mut filter = named(cause.id);
        filter.insert("probe_at", moment(cause.probe_at));
        let update = doc! { "$set": { "probe_at": moment(next) } };
        self.update_cause(filter, update).await
    }

    async fn probe(
        &self,
        cause: CauseId,
        resumption: Resumption,
        lasts: i64,
    ) -> Result<Probe, StoreError> {
        if self.is_probing(cause, resumption.now, lasts).await? {
            return Ok(Probe::Running);
        }
        let filter = doc! { "processing.suspended.cause": cause.to_string() };
        let Some(raw) = self.first_suspended(filter).await? else {
            return Ok(Probe::NoSpan);
        };
        // Recorded first: if the worker died in between, there could be a second probe beside this
        // one.
        let update = doc! { "$set": { "probed": probed(&raw, resumption.now) } };
        self.update_cause(named(cause), update).await?;
        // A span that cannot be read is not a probe. The search reports it once it is due.
        let statement = resume_statement(&raw, cause, resumption, true)
            .or_else(|| resume_statement(&raw, cause, resumption, false));
        let Some(statement) = statement else {
            return Ok(Probe::NoSpan);
        };
        change_each(&self.link, &[statement]).await?;
        Ok(Probe::Begun)
    }

    async fn begin_resuming(&self, cause: CauseId, now: Timestamp) -> Result<bool, StoreError> {
        let update = doc! { "$max": { "resuming": moment(now) } };
        self.update_cause(named(cause), update).await
    }

    async fn resume_batch(
        &self,
        cause: CauseId,
        until: Timestamp,
        resumption: Resumption,
        limit: usize,
    ) -> Result<u64, StoreError> {
        let filter = doc! {
            "processing.suspended.cause": cause.to_string(),
            "processing.suspended.since": { "$lte": moment(until) },
        };
        let found = self.find_suspended(filter, limit).await?;
        let statements = found
            .iter()
            .filter_map(|raw| resume_statement(raw, cause, resumption, false));
        let statements: Vec<Statement> = statements.collect();
        if statements.is_empty() {
            return Ok(0);
        }
        let written = change_each(&self.link, &statements).await?;
        // A span that cannot be changed is found again each time. It must not count, or the worker
        // would search without a pause.
        let failed = written.failed.len();
        Ok((statements.len() - failed.min(statements.len())) as u64)
    }

    async fn set_resuming(&self, cause: &KeptCause, until: Timestamp) -> Result<(), StoreError> {
        let Some(filter) = resuming_as(cause) else {
            return Ok(());
        };
        let update = doc! { "$set": { "resuming": moment(until) } };
        self.update_cause(filter, update).await.map(drop)
    }

    async fn end_resuming(&self, cause: &KeptCause) -> Result<(), StoreError> {
        let Some(filter) = resuming_as(cause) else {
            return Ok(());
        };
        let update = doc! { "$unset": { "resuming": "" } };
        self.update_cause(filter, update).await.map(drop)
    }

    async fn remove_cause(&self, cause: &KeptCause) -> Result<bool, StoreError> {
        let filter = doc! { "processing.suspended.cause": cause.id.to_string() };
        if self.first_suspended(filter).await?.is_some()
            || self.count_set_aside(cause.id, 1).await? > 0
        {
            return Ok(false);
        }
        let mut filter = named(cause.id);
        filter.insert("touched_at", moment(cause.touched_at));
        filter.insert("resuming", doc! { "$exists": false });
        Ok(self.link.delete_one(&self.causes, filter).await?)
    }
}

pub(crate) async fn resume_by_operator(
    store: &MongoStore,
    cause: CauseId,
) -> Result<bool, StoreError> {
    let until = moment(Timestamp::MAX);
    let update = doc! { "$max": { "resuming": until }, "$inc": { "resumes": 1_i64 } };
    store.update_cause(named(cause), update).await
}

impl MongoStore {
    /// Keeps a cause under this id.
    pub(crate) async fn register_as(
        &self,
        id: CauseId,
        cause: &Cause,
        now: Timestamp,
        probe_at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut first = doc! {
            "error": shortened(&cause.error),
            "resource_id": cause.resource_id.as_str(),
            "plan_id": cause.plan_id.as_str(),
            "since": moment(now),
            "probe_at": moment(probe_at),
        };
        if let Some(status) = cause.status {
            first.insert("status", i32::from(status));
        }
        let update = doc! { "$setOnInsert": first, "$max": { "touched_at": moment(now) } };
        self.link
            .update_one(&self.causes, named(id), update, true)
            .await?;
        Ok(())
    }

    pub(crate) async fn find_causes(
        &self,
        filter: Document,
        sort: Document,
        limit: usize,
    ) -> Result<Vec<Document>, CallError> {
        let options = FindOptions::builder()
            .limit(i64::try_from(limit).unwrap_or(i64::MAX))
            .sort(sort)
            .hint(hint(BY_ID))
            .max_time(self.link.time_limit)
            .build();
        let causes = self.causes.clone();
        let find = async move {
            let found = causes.find(filter).with_options(options).await?;
            found.try_collect::<Vec<_>>().await
        };
        self.link.run(find).await
    }

    /// The cause in a document. A document that cannot be read is logged, and left as it is.
    pub(crate) fn cause_in(&self, document: &Document) -> Option<KeptCause> {
        match read_cause(document) {
            Ok(cause) => Some(cause),
            Err(problem) => {
                let name = document.get("_id").map(Bson::to_string).unwrap_or_default();
                if self.link.logged.is_news("causes", &name) {
                    error!(code = "cause.unreadable", cause = name, error = %problem,
                        "a cause of suspensions cannot be read");
                }
                None
            }
        }
    }

    /// Returns whether the filter found the cause.
    async fn update_cause(&self, filter: Document, update: Document) -> Result<bool, StoreError> {
        let update = self.link.update_one(&self.causes, filter, update, false);
        Ok(update.await?.matched_count > 0)
    }

    /// Whether the span that was tried last for the cause has no answer yet, and may still have one:
    /// it was begun less than `lasts` ms ago. Its own usage may fail for as long as the upstream is away.
    async fn is_probing(
        &self,
        cause: CauseId,
        now: Timestamp,
        lasts: i64,
    ) -> Result<bool, StoreError> {
        let (causes, filter) = (self.causes.clone(), named(cause));
        let found = async move { causes.find_one(filter).await };
        let found = self.link.run(found).await?;
        let recent = found.filter(|found| is_probe_recent(found, now, lasts));
        let Some(probed) = recent.and_then(|found| where_probed(&found)) else {
            return Ok(false);
        };
        let options = self.link.find_options(1, doc! {}, "_id_");
        let found = self.link.fetch(probed, options).await?;
        let is_probe = found.first().and_then(|raw| is_probe(raw, cause));
        Ok(is_probe.unwrap_or(false))
    }

    /// The matching span that has been suspended longest.
    async fn first_suspended(&self, filter: Document) -> Result<Option<RawDocumentBuf>, CallError> {
        Ok(self.suspended(filter, 1).await?.into_iter().next())
    }

    /// The keys and suspensions of up to `limit` suspended spans that match, by cause and then by
    /// the time of suspension. Suspensions of an earlier version are left out.
    pub(crate) async fn suspended(
        &self,
        mut filter: Document,
        limit: usize,
    ) -> Result<Vec<RawDocumentBuf>, CallError> {
        let is_current = doc! { "$eq": ["$processing.suspended.version", "$processing.version"] };
        filter.extend(doc! { "processing.complete": false, "$expr": is_current });
        self.find_suspended(filter, limit).await
    }

    /// The spans in the index of suspended spans that match.
    pub(crate) async fn find_suspended(
        &self,
        filter: Document,
        limit: usize,
    ) -> Result<Vec<RawDocumentBuf>, CallError> {
        let sort = doc! { "processing.suspended.cause": 1, "processing.suspended.since": 1 };
        let mut options = self.link.find_options(limit, sort, index::SUSPENDED);
        let mut projection = doc! { "_id": 1 };
        for name in PROJECTED {
            projection.insert(name, 1);
        }
        options.projection = Some(projection);
        self.link.fetch(filter, options).await
    }
}

/// The statement that resumes a span. The last error and the attempts stay.
fn resume_statement(
    raw: &RawDocument,
    cause: CauseId,
    resumption: Resumption,
    is_probe: bool,
) -> Option<Statement> {
    let mut condition = doc! { "processing.suspended.cause": cause.to_string() };
    let mut set = doc! {
        "processing.due_at": moment(resumption.now),
        "processing.refusals": refusals(resumption.refusals),
    };
    if is_probe {
        let version = version_of(raw)?;
        condition.insert("processing.version", version);
        set.insert("processing.probe", under(cause, version));
    }
    let update = doc! { "$set": set, "$unset": { "processing.suspended": "" } };
    Statement::new(raw, &condition, &update)
}

fn version_of(raw: &RawDocument) -> Option<i64> {
    let document = decoded(raw).ok()?;
    read_integer(document.get_document("processing").ok()?, "version").ok()
}

/// The probe as it is recorded with the cause: the span, its key, and when it began.
fn probed(raw: &RawDocument, now: Timestamp) -> Document {
    let filter = Identity::of(raw).and_then(|id| Document::try_from(id.filter()).ok());
    doc! {
        "span": filter.and_then(|filter| filter.get("_id").cloned()),
        "at": moment(now),
        "key": key_of(raw).map(key_to_bson),
    }
}

/// Whether a span is tried for a cause; none if it cannot be read.
fn is_probe(raw: &RawDocument, cause: CauseId) -> Option<bool> {
    let document = decoded(raw).ok()?;
    let processing = document.get_document("processing").ok()?;
    let version = read_integer(processing, "version").ok()?;
    let is_complete = processing.get_bool("complete").unwrap_or(false);
    Some(!is_complete && read_probe(processing, version) == Some(cause))
}

/// Whether the last probe of a cause was begun less than `lasts` ms ago.
fn is_probe_recent(cause: &Document, now: Timestamp, lasts: i64) -> bool {
    let probed = cause.get_document("probed");
    let at = probed
        .ok()
        .and_then(|probed| read_moment(probed, "at").ok());
    at.is_some_and(|at| now.since(at).abs() < lasts)
}

/// The condition that finds the span which was tried last.
fn where_probed(cause: &Document) -> Option<Document> {
    let probed = cause.get_document("probed").ok()?;
    Some(doc! {
        "_id": probed.get("span")?,
        "processing.key": probed.get("key")?,
    })
}

fn named(id: CauseId) -> Document {
    doc! { "_id": id.to_string() }
}

/// The condition that the cause is still being resumed as it was when it was read.
fn resuming_as(cause: &KeptCause) -> Option<Document> {
    let mut filter = named(cause.id);
    filter.insert("resuming", moment(cause.resuming?));
    // Where it was removed meanwhile, and came again, they are counted from zero.
    filter.insert("since", moment(cause.since));
    let never = doc! { "$in": [Bson::Null, 0] };
    match cause.resumes {
        0 => filter.insert("resumes", never),
        resumes => filter.insert("resumes", resumes),
    };
    Some(filter)
}

fn shortened(error: &str) -> String {
    error.chars().take(ERROR_LEN_MAX).collect()
}

fn read_cause(document: &Document) -> Result<KeptCause, Unreadable> {
    let id = read_text(document, "_id")?.parse();
    Ok(KeptCause {
        id: id.map_err(|_| unreadable("_id", "is not the id of a cause"))?,
        cause: Cause {
            status: status_in(document),
            error: read_text(document, "error")?.to_owned(),
            resource_id: Id::from_store(read_text(document, "resource_id")?),
            plan_id: Id::from_store(read_text(document, "plan_id")?),
        },
        since: read_moment(document, "since")?,
        probe_at: read_moment(document, "probe_at")?,
        touched_at: read_moment(document, "touched_at")?,
        resuming: read_optional_moment(document, "resuming")?,
        // Nobody has, as a rule.
        resumes: read_integer(document, "resumes").unwrap_or(0),
    })
}
