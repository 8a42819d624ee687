//! Spans by their id, or by the name of their instance.

use sampler_api::Span;
use serde_json::Value;

use crate::api::{Answer, Api, Query};
use crate::failure::Failure;
use crate::output::printable;
use crate::show::{As, Column, table_of};

/// How many spans of an instance are looked at.
const SPANS_MAX: usize = 1_000;
/// How many are shown to choose from.
const SHOWN_MAX: usize = 20;

const COLUMNS: [Column; 6] = [
    ("span", "/id", As::Text),
    ("organization", "/target/organization_id", As::Text),
    ("target", "/target", As::Target),
    ("start", "/start", As::Time),
    ("end", "/end", As::Time),
    ("state", "/state", As::Text),
];

/// A span as the API has it now.
#[derive(Debug)]
pub(crate) struct ResolvedSpan {
    pub(crate) id: String,
    pub(crate) answer: Answer,
}

/// The span of this id, or else the only span of the instance of this name.
pub(crate) async fn span(api: &Api, given: &str) -> Result<ResolvedSpan, Failure> {
    find(api, given, |_| true).await
}

/// The same; of an instance, the only span that has no end yet.
pub(crate) async fn open_span(api: &Api, given: &str) -> Result<Span, Failure> {
    let found = find(api, given, |span| span["end"].is_null()).await?;
    Ok(found.answer.read(&["v1", "spans", &found.id])?)
}

async fn find(
    api: &Api,
    given: &str,
    is_meant: fn(&Value) -> bool,
) -> Result<ResolvedSpan, Failure> {
    let error = match api.single(&["v1", "spans", given]).await {
        Ok(answer) => {
            let id = given.to_owned();
            return Ok(ResolvedSpan { id, answer });
        }
        Err(error) if error.is_of_nothing() => error,
        Err(error) => return Err(error.into()),
    };
    let query: Query = vec![("resource_instance_id", given.to_owned())];
    let (mut spans, is_more) = api
        .items::<Value>(&["v1", "spans"], &query, SPANS_MAX)
        .await?;
    let shown = printable(given);
    let how = format!("sampler spans --resource-instance-id {shown}");
    if spans.is_empty() {
        let what = format!(
            "there is no span with the id {shown}, and none of an instance with this name, or the token does \
             not allow reading it"
        );
        return Err(Failure::NotFound(what, error));
    }
    spans.retain(is_meant);
    if let ([span], false) = (spans.as_slice(), is_more) {
        let id = span["id"].as_str().unwrap_or_default().to_owned();
        let answer = api.single(&["v1", "spans", &id]).await?;
        return Ok(ResolvedSpan { id, answer });
    }
    if spans.is_empty() {
        let what = format!("the instance {shown} has no open span: {how}");
        return Err(Failure::Input(what));
    }
    let (count, more) = (spans.len(), if is_more { "more than " } else { "" });
    spans.truncate(SHOWN_MAX);
    let table = table_of(&spans, &COLUMNS, "");
    let rest = match count - spans.len() {
        0 => String::new(),
        rest => format!("\n... and {rest} more: {how}"),
    };
    Err(Failure::Input(format!(
        "{shown} is the name of an instance with {more}{count} spans; give the id of one:\n{}{rest}",
        table.trim_end()
    )))
}
