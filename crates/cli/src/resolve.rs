//! Spans by their id, or by the name of their instance.

use serde_json::Value;

use crate::api::{Answer, Api, ApiError, Query};
use crate::event::SpanSeen;
use crate::failure::Failure;
use crate::output::printable;

/// How many ids are shown to choose from.
const SHOWN_MAX: usize = 20;

/// The span of this id, or else the only span of the instance of this name.
pub(crate) async fn span(api: &Api, given: &str) -> Result<Answer, Failure> {
    find(api, given, |_| true).await
}

/// The same; of an instance, the only span that has no end yet.
pub(crate) async fn open_span(api: &Api, given: &str) -> Result<SpanSeen, Failure> {
    let found = find(api, given, |span| span["end"].is_null()).await?;
    Ok(found.read()?)
}

async fn find(api: &Api, given: &str, is_meant: fn(&Value) -> bool) -> Result<Answer, Failure> {
    let error = match api.get(&["v1", "spans", given], &Query::new()).await {
        Err(error) if error.is_of_nothing() => error,
        answered => return Ok(answered?),
    };
    let query = vec![("resource_instance_id", given.to_owned())];
    let path = ["v1", "spans"];
    let (mut spans, _) = api.items::<Value>(&path, &query, usize::MAX).await?;
    let shown = printable(given);
    if spans.is_empty() {
        let message = format!(
            "there is no span with the id {shown}, and none of an instance with this name, or the token does \
             not allow reading it"
        );
        return Err(ApiError { message, ..error }.into());
    }
    spans.retain(is_meant);
    let ids: Vec<&str> = spans.iter().filter_map(|it| it["id"].as_str()).collect();
    let list = format!("sampler spans --resource-instance-id {shown}");
    match ids[..] {
        [id] => Ok(api.get(&["v1", "spans", id], &Query::new()).await?),
        [] => Err(Failure::Input(format!(
            "the instance {shown} has no open span: {list}"
        ))),
        _ => {
            let (count, first) = (ids.len(), ids.len().min(SHOWN_MAX));
            Err(Failure::Input(format!(
                "{shown} is the name of an instance with {count} spans; give the id of one, of `{list}`: {}",
                printable(&ids[..first].join(", "))
            )))
        }
    }
}
