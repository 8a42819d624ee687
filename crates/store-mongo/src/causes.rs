//! Causes of suspensions: fields of the spans that are suspended for them, found by an index that holds nothing
//! else. Their numbers are counted there, up to a bound.

use std::cmp::Reverse;

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use futures_util::{StreamExt, TryStreamExt, stream};
use sampler_domain::{Cause, CauseId, Id, Timestamp};
use sampler_store::{CauseQuery, Resumption, StoreError, SuspendedCause};
use tokio::time::Instant;
use uuid::Uuid;

use crate::call::{BY_ID, CallError};
use crate::document::{cause_to_bson, moment};
use crate::raw::{span_in, written};
use crate::resolve::without_measures;
use crate::{MongoStore, index};

/// Causes of a list, and those that are looked at for it.
const CAUSES_MAX: usize = 1_000;
const LOOKED_AT_MAX: usize = 20_000;

/// Commands at once, where there is one for each cause.
const AT_ONCE: usize = 4;

const CAUSE: &str = "processing.failure.cause";
const SINCE: &str = "processing.failure.suspended_at";

pub(crate) async fn probe(
    store: &MongoStore,
    cause: CauseId,
    resumption: Resumption,
) -> Result<bool, StoreError> {
    let mut update = resumed(resumption);
    let set = update.get_document_mut("$set").expect("it sets something");
    set.insert("processing.probe", cause_to_bson(cause));
    let (link, filter) = (store.link.clone(), doc! { CAUSE: cause_to_bson(cause) });
    let sort = doc! { CAUSE: 1, SINCE: 1 };
    let call = async move {
        let first = (index::SUSPENDED, sort);
        link.find_and_update(filter, update, first).await
    };
    Ok(store.link.run(call).await?)
}

pub(crate) async fn resume_batch(
    store: &MongoStore,
    cause: CauseId,
    until: Timestamp,
    resumption: Resumption,
    limit: usize,
) -> Result<u64, StoreError> {
    let suspended = doc! { CAUSE: cause_to_bson(cause), SINCE: { "$lte": moment(until) } };
    let mut options = store.link.find_options(limit, doc! {}, index::SUSPENDED);
    options.projection = Some(doc! { "_id": 1 });
    let found = store.link.fetch(suspended.clone(), options).await?;
    let ids = found.iter().filter_map(|raw| raw.get("_id").ok().flatten());
    let ids: Vec<Bson> = ids.filter_map(|id| Bson::try_from(id).ok()).collect();
    if ids.is_empty() {
        return Ok(0);
    }
    let mut filter = suspended;
    filter.insert("_id", doc! { "$in": ids });
    let statement = written(&doc! {
        "q": filter, "u": resumed(resumption), "multi": true, "hint": BY_ID,
    });
    let (link, send_by) = (store.link.clone(), Instant::now() + store.link.call_limit());
    let call = async move { link.update([&statement], send_by).await };
    let updated = store.link.run(call).await?;
    match updated.failed.into_iter().next() {
        Some((_, failure)) => Err(failure.into()),
        None => Ok(updated.modified),
    }
}

/// The update that resumes a span ([`sampler_domain::Span::resumed`]).
fn resumed(resumption: Resumption) -> Document {
    doc! {
        "$set": {
            "processing.due_at": moment(resumption.now),
            "processing.last_change_at": moment(resumption.now),
            "processing.failure.refusals": i64::from(resumption.refusals),
        },
        "$unset": { CAUSE: "", SINCE: "" },
        "$inc": { "processing.version": 1_i64 },
    }
}

pub(crate) async fn causes(
    store: &MongoStore,
    query: &CauseQuery,
) -> Result<Vec<SuspendedCause>, StoreError> {
    let resources = query.resources.as_deref();
    let causes = store.first_spans(CAUSES_MAX, resources).await?;
    let bound = SuspendedCause::COUNT_MAX / causes.len().max(1);
    let counted = stream::iter(causes).map(|cause| store.counted(cause, bound));
    let counted = counted.buffered(AT_ONCE);
    let mut causes: Vec<SuspendedCause> = counted.try_collect().await?;
    causes.sort_by_key(|it| (Reverse(it.spans), it.since, it.id));
    causes.truncate(query.limit);
    Ok(causes)
}

pub(crate) async fn cause(
    store: &MongoStore,
    id: CauseId,
) -> Result<Option<SuspendedCause>, StoreError> {
    let found = store.first_suspended(cause_to_bson(id)).await?;
    let Some(cause) = found.and_then(|raw| store.cause_in(&raw)) else {
        return Ok(None);
    };
    let counted = store.counted(cause, SuspendedCause::COUNT_MAX).await?;
    Ok(Some(counted))
}

impl MongoStore {
    /// The causes of these resources, or of all, each by the span that has been suspended for it for longest: a step
    /// in the index for each cause.
    pub(crate) async fn first_spans(
        &self,
        limit: usize,
        resources: Option<&[Id]>,
    ) -> Result<Vec<SuspendedCause>, CallError> {
        let is_of = |cause: &SuspendedCause| {
            resources.is_none_or(|resources| resources.contains(&cause.cause.resource_id))
        };
        let (mut causes, mut last) = (Vec::new(), CauseId::from(Uuid::nil()));
        for _ in 0..LOOKED_AT_MAX {
            if causes.len() >= limit {
                break;
            }
            let behind = doc! { "$gt": cause_to_bson(last) };
            let Some(raw) = self.first_suspended(behind.into()).await? else {
                break;
            };
            let Some(id) = cause_of(&raw) else {
                break;
            };
            last = id;
            causes.extend(self.cause_in(&raw).filter(is_of));
        }
        Ok(causes)
    }

    /// The span that has been suspended for longest, for the first cause that matches.
    async fn first_suspended(&self, cause: Bson) -> Result<Option<RawDocumentBuf>, CallError> {
        let sort = doc! { CAUSE: 1, SINCE: 1 };
        let mut options = self.link.find_options(1, sort, index::SUSPENDED);
        options.projection = Some(without_measures());
        let found = self.link.fetch(doc! { CAUSE: cause }, options).await?;
        Ok(found.into_iter().next())
    }

    /// The cause that a span is suspended for, without a number. A span that cannot be read is logged.
    fn cause_in(&self, raw: &RawDocumentBuf) -> Option<SuspendedCause> {
        let span = span_in(raw);
        if let Err(problem) = &span {
            self.link.logged.tell("cause.unreadable", raw, problem);
        }
        let span = span.ok()?;
        let suspension = span.suspension()?;
        let failure = span.processing.failure?;
        Some(SuspendedCause {
            id: suspension.cause,
            cause: Cause::of(&span.target, failure.status, &failure.error),
            since: suspension.since,
            spans: 0,
        })
    }

    async fn counted(
        &self,
        cause: SuspendedCause,
        bound: usize,
    ) -> Result<SuspendedCause, CallError> {
        let of_cause = doc! { CAUSE: cause_to_bson(cause.id) };
        let spans = self.link.count(of_cause, index::SUSPENDED, bound).await?;
        Ok(SuspendedCause { spans, ..cause })
    }
}

/// The cause in the document of a suspended span, whatever else that holds.
fn cause_of(raw: &RawDocument) -> Option<CauseId> {
    let processing = raw.get_document("processing").ok()?;
    let failure = processing.get_document("failure").ok()?;
    let cause = failure.get_binary("cause").ok()?;
    Some(Uuid::from_slice(cause.bytes).ok()?.into())
}
