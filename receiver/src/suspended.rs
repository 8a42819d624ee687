//! Causes under which spans are suspended, and the operator's action on one: all its spans are resumed.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{Request, StatusCode};
use sampler_api as api;
use sampler_domain::CauseId;
use sampler_service::problem::Problem;
use sampler_store::{CauseQuery, Resumption, StoreError, SuspendedCause};
use serde_json::{json, to_value};
use tokio::time::Instant;

use crate::Caller;
use crate::acts::reason;
use crate::problems;
use crate::reading::Paged;
use crate::spans::IdPath;

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
pub(crate) async fn list(caller: Caller) -> Result<Paged<api::Cause>, Problem> {
    let mut parameters = caller.parameters();
    let resource = parameters.id("resource_id");
    parameters.finish()?;
    let causes = caller.read_list(resource.clone(), |store, resources| async move {
        let resources = resources.or(resource.map(|resource| vec![resource]));
        let query = CauseQuery {
            resources,
            limit: LIMIT,
        };
        store.causes(&query).await
    });
    Ok(parameters.page(causes.await?.iter().map(shown), None::<()>))
}

#[utoipa::path(
    get, path = "/v1/suspended/{cause}", operation_id = "get_cause", tag = "Operating",
    summary = "One cause of suspended spans",
    params(("cause" = String, Path, description = "The id of the cause.")),
    responses((status = 200, description = "The cause.", body = api::Cause)),
)]
pub(crate) async fn get(caller: Caller, cause: IdPath) -> Result<Json<api::Cause>, Problem> {
    caller.parameters().finish()?;
    let found = caller.cause(cause).await?;
    let readable = caller.readable(Some(&found.cause.resource_id));
    if readable.is_some_and(|readable| readable.is_empty()) {
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
    caller: Caller,
    cause: IdPath,
    request: Request<Body>,
) -> Result<(StatusCode, Json<api::Resumed>), Problem> {
    let asked = caller.admit_action(request, reason).await?;
    let cause = caller.cause(cause).await?;
    let subject = format!("/v1/suspended/{}", cause.id);
    let before = to_value(shown(&cause)).unwrap_or_default();
    let states = [before, json!({ "resuming": cause.spans })];
    let record = caller.record("cause.resume", subject, asked.reason, states);
    let mut resumed = 0;
    let resuming = async {
        resumed = caller.resume_all(cause.id).await?;
        Ok(resumed > 0)
    };
    caller.perform(record, resuming, no_such_cause).await?;
    Ok((StatusCode::ACCEPTED, Json(api::Resumed { resumed })))
}

impl Caller {
    async fn cause(&self, cause: IdPath) -> Result<SuspendedCause, Problem> {
        let id = cause.ok().and_then(|Path(id)| id.parse::<CauseId>().ok());
        let id = id.ok_or_else(no_such_cause)?;
        let found = self.read(|store| async move { store.cause(id).await });
        found.await?.ok_or_else(no_such_cause)
    }

    /// Resumes the spans that are suspended for a cause by now, as many as the time allows.
    async fn resume_all(&self, cause: CauseId) -> Result<u64, StoreError> {
        let (began, parts) = (Instant::now(), &self.receiver.parts);
        let now = parts.clock.now();
        let refusals = REFUSALS;
        let mut resumed = 0;
        loop {
            let resumption = Resumption { now, refusals };
            let batch = parts
                .operating
                .resume_batch(cause, now, resumption, BATCH)
                .await?;
            resumed += batch;
            if batch == 0 || began.elapsed() >= TIME_MAX {
                return Ok(resumed);
            }
        }
    }
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
