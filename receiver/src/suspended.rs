//! Causes under which spans are suspended, and the operator's action on one: all its spans are resumed.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use sampler_api as api;
use sampler_domain::{CauseId, Id, Timestamp};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{CauseQuery, Resumption, StoreError, SuspendedCause};
use serde_json::{json, to_value};
use tokio::time::Instant;

use crate::acts::NewAuditRecord;
use crate::parameters::Parameters;
use crate::reading::{Paged, readable_resources};
use crate::spans::IdPath;
use crate::{Receiver, problems};

/// Causes of a list.
const LIMIT: usize = 1_000;

/// Spans that one command resumes.
const BATCH: usize = 1_000;

/// How long a request resumes spans. The next one continues.
const TIME_MAX: Duration = Duration::from_secs(20);

/// The refusals that a resumed span has already: one more suspends the span, whatever `SAMPLER_SUSPEND_AFTER` is.
const REFUSALS: u32 = 1_000_000;

#[utoipa::path(
    get, path = "/v1/suspended", operation_id = "list_causes", tag = "Operating",
    summary = "The causes of suspended spans",
    description = "The cause with the most spans comes first.",
    params(("resource_id" = Option<String>, Query, description = "Only causes of this resource.", example = "postgres")),
    responses((status = 200, description = "At most 1,000 causes.", body = api::List<api::Cause>)),
)]
pub(crate) async fn list(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    mut parameters: Parameters,
) -> Result<Paged<api::Cause>, Problem> {
    let resource = parameters.id("resource_id");
    parameters.finish()?;
    let query = CauseQuery {
        resources: resources_of(&grant, resource),
        limit: LIMIT,
    };
    let causes = receiver.read_store(&grant, |store| async move { store.causes(&query).await });
    Ok(Paged::whole(causes.await?.iter().map(shown).collect()))
}

#[utoipa::path(
    get, path = "/v1/suspended/{cause}", operation_id = "get_cause", tag = "Operating",
    summary = "One cause of suspended spans",
    params(("cause" = String, Path, description = "The id of the cause.")),
    responses((status = 200, description = "The cause.", body = api::Cause)),
)]
pub(crate) async fn get(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    cause: IdPath,
    parameters: Parameters,
) -> Result<Json<api::Cause>, Problem> {
    parameters.finish()?;
    let found = receiver.cause(&grant, cause).await?;
    let resource = &found.cause.resource_id;
    let readable = readable_resources(&grant);
    if readable.is_some_and(|readable| !readable.contains(resource)) {
        return Err(no_such_cause());
    }
    Ok(Json(shown(&found)))
}

#[utoipa::path(
    post, path = "/v1/suspended/{cause}/resume", operation_id = "resume_cause", tag = "Operating",
    summary = "Resume all spans of a cause",
    description = "They are due at once. One more refusal suspends such a span again. Where there are too many for one request, the same request continues.",
    params(("cause" = String, Path, description = "The id of the cause.")),
    request_body(content = api::Reason, content_type = "application/json"),
    responses((status = 202, description = "Workers sample them.", body = api::Resumed)),
)]
pub(crate) async fn resume(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    cause: IdPath,
    request: Request<Body>,
) -> Result<(StatusCode, Json<api::Resumed>), Problem> {
    let read = |body: api::Reason, _: &mut _| (body.reason, ());
    let asked = receiver.admit_action(&grant, request, read).await?;
    let cause = receiver.cause(&grant, cause).await?;
    let record = NewAuditRecord {
        kind: "cause.resume",
        subject: format!("/v1/suspended/{}", cause.id),
        span: None,
        reason: asked.reason,
        before: to_value(shown(&cause)).unwrap_or_default(),
        after: json!({ "resuming": cause.spans }),
    };
    let mut resumed = 0;
    let resuming = async {
        let until = receiver.parts.clock.now();
        resumed = receiver.resume_until(cause.id, until).await?;
        Ok(resumed > 0)
    };
    let resuming = receiver.perform(&grant, record, resuming, no_such_cause);
    resuming.await?;
    Ok((StatusCode::ACCEPTED, Json(api::Resumed { resumed })))
}

impl Receiver {
    async fn cause(&self, grant: &Grant, cause: IdPath) -> Result<SuspendedCause, Problem> {
        let id = cause
            .ok()
            .and_then(|Path(id)| id.parse::<CauseId>().ok())
            .ok_or_else(no_such_cause)?;
        let found = self.read_store(grant, |store| async move { store.cause(id).await });
        found.await?.ok_or_else(no_such_cause)
    }

    /// Resumes the spans that were suspended for a cause by `until`, as many as the time allows.
    async fn resume_until(&self, cause: CauseId, until: Timestamp) -> Result<u64, StoreError> {
        let began = Instant::now();
        let resumption = Resumption {
            now: until,
            refusals: REFUSALS,
        };
        let mut resumed = 0;
        loop {
            let operating = &self.parts.operating;
            let batch = operating
                .resume_batch(cause, until, resumption, BATCH)
                .await?;
            resumed += batch;
            if batch == 0 || began.elapsed() >= TIME_MAX {
                return Ok(resumed);
            }
        }
    }
}

/// The resources whose causes are listed; none where these are all.
fn resources_of(grant: &Grant, resource: Option<Id>) -> Option<Vec<Id>> {
    let readable = readable_resources(grant);
    let Some(resource) = resource else {
        return readable;
    };
    let is_readable = readable.is_none_or(|readable| readable.contains(&resource));
    Some(is_readable.then_some(resource).into_iter().collect())
}

fn no_such_cause() -> Problem {
    let detail = "No span is suspended for a cause of this id.";
    Problem::new(&problems::NO_SUCH_CAUSE, detail)
}

fn shown(suspended: &SuspendedCause) -> api::Cause {
    let SuspendedCause { id, cause, .. } = suspended;
    api::Cause {
        cause: id.to_string(),
        status: cause.status,
        error: cause.error.clone(),
        resource_id: cause.resource_id.to_string(),
        plan_id: cause.plan_id.to_string(),
        spans: suspended.spans,
        since: suspended.since,
    }
}
