//! Ids by how they begin, for people who search.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use sampler_api as api;
use sampler_domain::Id;
use sampler_service::security::Grant;
use sampler_store::{SpanQuery, StoreError};

use super::answer;
use crate::Receiver;
use crate::openapi::problem_answers;
use crate::reading::{Paged, Parameters, readable_resources};

/// Ids of each field that are found.
const EACH: usize = 10;

#[utoipa::path(
    get, path = "/v1/ids", operation_id = "find_ids", tag = "Reading",
    summary = "Ids that begin with a text",
    description = "Up to 10 ids of each: organizations and resources that have spans, and instances that have usages (none of these while the index for them is being made, after the first search). With the scope of single resources, those alone.",
    params(("prefix" = String, Query, description = "How the ids begin.", example = "orders")),
    responses((status = 200, description = "The ids.", body = api::List<api::FoundId>), problem_answers::OfReading),
)]
pub async fn find(State(receiver): State<Arc<Receiver>>, grant: Grant, uri: Uri) -> Response {
    let found = async {
        let mut parameters = Parameters::of(&uri);
        let prefix = parameters.required_id("prefix");
        parameters.finish()?;
        let prefix = prefix.expect("what is missing was named");
        let mut items = Vec::new();
        if let Some(readable) = readable_resources(&grant) {
            let found = readable
                .iter()
                .filter(|id| id.as_str().starts_with(prefix.as_str()));
            items.extend(found.take(EACH).map(|id| shown("resource_id", id)));
        } else {
            let _permit = receiver.admit_reading(&grant).await?;
            for field in SpanQuery::NARROWING {
                match receiver
                    .parts
                    .reading
                    .ids(field, prefix.as_str(), EACH)
                    .await
                {
                    Ok(ids) => items.extend(ids.iter().map(|id| shown(field, id))),
                    Err(StoreError::Preparing) => {}
                    Err(failure) => return Err(receiver.not_read(&failure)),
                }
            }
        }
        Ok(Paged::new(items, None))
    };
    answer("ids", &grant, found.await)
}

fn shown(field: &str, id: &Id) -> api::FoundId {
    api::FoundId {
        field: field.to_owned(),
        id: id.as_str().to_owned(),
    }
}
