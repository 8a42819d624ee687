//! Spans by their id, or by the name of their instance.

use sampler_api::Span;

use crate::api::{Answer, Api, Query};
use crate::failure::Failure;
use crate::output::printable;
use crate::show::{target, text};
use crate::table::table;

/// How many spans of an instance are looked at.
const SPANS_MAX: usize = 1_000;
/// How many are shown to choose from.
const SHOWN_MAX: usize = 20;

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
pub(crate) async fn open_span(api: &Api, given: &str) -> Result<ResolvedSpan, Failure> {
    find(api, given, |span| span.end.is_none()).await
}

async fn find(
    api: &Api,
    given: &str,
    is_meant: fn(&Span) -> bool,
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
    let found = api.items(&["v1", "spans"], &query, SPANS_MAX).await;
    let (all, is_more): (Vec<Span>, bool) = found?;
    let count = all.len();
    let meant: Vec<Span> = all.into_iter().filter(is_meant).collect();
    let shown = printable(given);
    match &meant[..] {
        [span] if !is_more => {
            let answer = api.single(&["v1", "spans", &span.id]).await?;
            let id = span.id.clone();
            Ok(ResolvedSpan { id, answer })
        }
        [] if count > 0 => Err(Failure::Input(format!(
            "the instance {shown} has no open span: sampler spans --resource-instance-id {shown}"
        ))),
        [] => {
            let what = format!(
                "there is no span with the id {shown}, and none of an instance with this name, or the token \
                 does not allow reading it"
            );
            Err(Failure::NotFound(what, error))
        }
        _ => Err(Failure::Input(ambiguous(&shown, &meant, is_more))),
    }
}

fn ambiguous(name: &str, spans: &[Span], is_more: bool) -> String {
    let count = spans.len();
    let more = if is_more { "more than " } else { "" };
    let header = ["span", "organization", "target", "start", "end", "state"];
    let rows = spans.iter().take(SHOWN_MAX).map(|span| {
        [
            printable(&span.id),
            printable(&span.target.organization_id),
            target(&span.target),
            span.start.to_string(),
            text(span.end),
            printable(&span.state),
        ]
    });
    let table = table(header, rows, &[0, 1, 2, 3, 4, 5]);
    let rest = match count.saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        rest => format!("\n... and {rest} more: sampler spans --resource-instance-id {name}"),
    };
    format!(
        "{name} is the name of an instance with {more}{count} spans; give the id of one:\n{table}{rest}"
    )
}
