//! Causes under which spans are suspended.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sampler_api as api;
use sampler_domain::{CauseId, Id};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{CauseQuery, SuspendedCause};

use super::answer;
use super::spans::IdPath;
use crate::openapi::problem_answers;
use crate::reading::{Paged, Parameters, readable_resources};
use crate::{Receiver, problems};

/// Causes of a list.
const LIMIT: usize = 1_000;

#[utoipa::path(
    get, path = "/v1/suspended", operation_id = "list_causes", tag = "Operating",
    summary = "The causes of suspended spans",
    description = "The cause with the most spans comes first.",
    params(("resource_id" = Option<String>, Query, description = "Only causes of this resource.", example = "postgres")),
    responses((status = 200, description = "At most 1,000 causes.", body = api::List<api::Cause>), problem_answers::OfReading),
)]
pub async fn list(State(receiver): State<Arc<Receiver>>, grant: Grant, uri: Uri) -> Response {
    let listed = async {
        let mut parameters = Parameters::of(&uri);
        let resource = parameters.id("resource_id");
        parameters.finish()?;
        let query = CauseQuery {
            resources: resources_of(&grant, resource),
            limit: LIMIT,
        };
        let causes = receiver.read_store(&grant, |store| async move { store.causes(&query).await });
        let items = causes.await?.iter().map(shown).collect();
        Ok(Paged::new(items, None))
    };
    answer("suspended", &grant, listed.await)
}

#[utoipa::path(
    get, path = "/v1/suspended/{cause}", operation_id = "get_cause", tag = "Operating",
    summary = "One cause of suspended spans",
    params(("cause" = String, Path, description = "The id of the cause.")),
    responses((status = 200, description = "The cause.", body = api::Cause), problem_answers::OfCause),
)]
pub async fn get(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    cause: IdPath,
    uri: Uri,
) -> Response {
    let shown = async {
        Parameters::of(&uri).finish()?;
        let cause = receiver.readable_cause(&grant, cause).await?;
        Ok(Json(shown(&cause)).into_response())
    };
    answer("cause", &grant, shown.await)
}

impl Receiver {
    /// The cause of an address. It counts as missing where the grant does not allow reading it.
    async fn readable_cause(
        &self,
        grant: &Grant,
        cause: IdPath,
    ) -> Result<SuspendedCause, Problem> {
        let found = self.cause(grant, cause).await?;
        let resource = &found.cause.resource_id;
        let is_readable =
            readable_resources(grant).is_none_or(|readable| readable.contains(resource));
        is_readable.then_some(found).ok_or_else(no_such_cause)
    }

    pub(super) async fn cause(
        &self,
        grant: &Grant,
        cause: IdPath,
    ) -> Result<SuspendedCause, Problem> {
        let id = cause
            .ok()
            .and_then(|Path(id)| id.parse::<CauseId>().ok())
            .ok_or_else(no_such_cause)?;
        let found = self.read_store(grant, |store| async move { store.cause(id).await });
        found.await?.ok_or_else(no_such_cause)
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

pub(super) fn no_such_cause() -> Problem {
    let detail = "No span is suspended for a cause of this id.";
    Problem::new(&problems::NO_SUCH_CAUSE, detail)
}

pub(super) fn shown(suspended: &SuspendedCause) -> api::Cause {
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
