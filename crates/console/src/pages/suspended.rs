//! The causes of suspended spans, and the spans of a cause.

use std::collections::HashMap;

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use percent_encoding::utf8_percent_encode;
use sampler_api::{Act, Cause, List, Span};
use sampler_domain::Timestamp;

use crate::api::{Query, Refusal, SEGMENT, address};
use crate::estimate::{left, roughly};
use crate::page::{Frame, refused, render};
use crate::visit::Visit;
use crate::{parameters, show};

pub(crate) const PAGE: &str = "/console/suspended";

/// The parameter with the one resource whose causes are shown.
const RESOURCE: &str = "resource_id";

/// Spans of a cause on one page, where nothing else is asked for.
const SPANS: &str = "50";

/// The number of earlier actions that are shown.
const HISTORY: usize = 10;

#[derive(Template)]
#[template(path = "suspended.html")]
struct SuspendedPage {
    frame: Frame,
    may_act: bool,
    causes: Vec<Cause>,
    /// The resource whose causes these are; of all, where it is left out.
    resource: Option<String>,
    /// The cause whose spans are shown, and what is known of it.
    chosen: Option<String>,
    chosen_cause: Option<Cause>,
    spans: Vec<Span>,
    next: Option<String>,
    history: Vec<Act>,
    now: Timestamp,
}

impl SuspendedPage {
    fn is_chosen(&self, cause: &Cause) -> bool {
        self.chosen.as_deref() == Some(&cause.cause)
    }

    /// The address of this list with the spans of one cause.
    fn page_of(&self, cause: &Cause) -> String {
        let mut query = of_resource(self.resource.as_deref());
        query.push(("cause".to_owned(), cause.cause.clone()));
        address(PAGE, &query)
    }

    fn page_of_resource(cause: &Cause) -> String {
        address(PAGE, &of_resource(Some(&cause.resource_id)))
    }

    fn behind(&self, span: &Span) -> String {
        roughly(left(span, self.now).abs())
    }
}

pub(crate) fn page_of_cause(cause: &str) -> String {
    address(PAGE, &[("cause".to_owned(), cause.to_owned())])
}

pub(crate) fn resume_page_of(cause: &str) -> String {
    format!("{PAGE}/{}/resume", utf8_percent_encode(cause, SEGMENT))
}

/// `GET /console/suspended`.
pub(crate) async fn show(visit: Visit) -> Response {
    match page(&visit).await {
        Ok(page) => render(StatusCode::OK, &page),
        Err(refusal) => refused(visit.frame("Suspended"), refusal),
    }
}

async fn page(visit: &Visit) -> Result<SuspendedPage, Refusal> {
    let [resource, chosen] = [RESOURCE, "cause"].map(|name| {
        let given = Some(visit.value(name)).filter(|it| !it.is_empty());
        given.map(str::to_owned)
    });
    let causes = by_resource(causes(visit, resource.as_deref()).await?);
    let chosen = chosen.or_else(|| causes.first().map(|cause| cause.cause.clone()));
    let chosen_cause = match &chosen {
        Some(chosen) => cause(visit, &causes, chosen).await,
        None => None,
    };
    let (mut spans, mut next) = (Vec::new(), None);
    if let Some(cause) = &chosen {
        let asked = of_cause(cause, &visit.query);
        let answer = visit.get::<List<Span>>("/v1/spans", &asked).await?;
        next = answer.cursor.map(|cursor| {
            let query = parameters::with(&visit.query, "cause", Some(cause));
            address(PAGE, &parameters::with(&query, "cursor", Some(&cursor)))
        });
        spans = answer.body.items;
    }
    Ok(SuspendedPage {
        frame: visit.frame("Suspended"),
        may_act: visit.session.is_admin(),
        chosen,
        chosen_cause,
        causes,
        resource,
        spans,
        next,
        history: history(visit).await,
        now: visit.console.parts.clock.now(),
    })
}

/// The causes, or those of one resource, the largest first.
pub(super) async fn causes(visit: &Visit, resource: Option<&str>) -> Result<Vec<Cause>, Refusal> {
    visit.first("/v1/suspended", &of_resource(resource)).await
}

fn of_resource(resource: Option<&str>) -> Query {
    let resource = resource.map(|id| (RESOURCE.to_owned(), id.to_owned()));
    resource.into_iter().collect()
}

/// The causes of one resource together, so that many of one do not hide another. The resource of the
/// largest cause comes first.
fn by_resource(mut causes: Vec<Cause>) -> Vec<Cause> {
    let mut ranks = HashMap::new();
    for cause in &causes {
        let rank = ranks.len();
        ranks.entry(cause.resource_id.clone()).or_insert(rank);
    }
    causes.sort_by_key(|cause| ranks.get(&cause.resource_id).copied());
    causes
}

/// What is known of a cause, which may not be in the list, or be gone.
async fn cause(visit: &Visit, shown: &[Cause], id: &str) -> Option<Cause> {
    if let Some(cause) = shown.iter().find(|cause| cause.cause == id) {
        return Some(cause.clone());
    }
    let path = format!("/v1/suspended/{}", utf8_percent_encode(id, SEGMENT));
    let answer = visit.get::<Cause>(&path, &[]).await;
    answer.ok().map(|answer| answer.body)
}

/// The query for the API: the page's, for the spans of this cause.
fn of_cause(cause: &str, query: &Query) -> Query {
    let mut asked = parameters::for_api(query);
    if parameters::value(&asked, "limit").is_empty() {
        asked = parameters::with(&asked, "limit", Some(SPANS));
    }
    asked = parameters::with(&asked, "cause", Some(cause));
    parameters::with(&asked, "state", Some("suspended"))
}

/// The last actions on what is suspended, for sessions that may see them.
async fn history(visit: &Visit) -> Vec<Act> {
    if !visit.session.is_admin() {
        return Vec::new();
    }
    let acts = visit.first::<Act>("/v1/audit", &[]).await;
    let names = ["cause.resume", "span.resume", "span.skip", "usage.resend"];
    let of_page = acts
        .unwrap_or_default()
        .into_iter()
        .filter(|act| names.contains(&act.act.as_str()));
    of_page.take(HISTORY).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn many_causes_of_one_resource_do_not_hide_another() {
        let cause = |resource: &str, spans: u64| -> Cause {
            let cause = json!({
                "cause": format!("{resource}-{spans}"), "status": 422, "error": "e", "plan_id": "p",
                "resource_id": resource, "spans": spans, "set_aside": 0, "since": 0, "probe_at": 0,
            });
            serde_json::from_value(cause).unwrap()
        };
        let causes = [("a", 9), ("b", 8), ("a", 7), ("c", 6), ("b", 5)];
        let shown = by_resource(causes.map(|(id, spans)| cause(id, spans)).to_vec());
        let shown: Vec<&str> = shown.iter().map(|cause| cause.cause.as_str()).collect();
        assert_eq!(shown, ["a-9", "a-7", "b-8", "b-5", "c-6"]);
    }
}
