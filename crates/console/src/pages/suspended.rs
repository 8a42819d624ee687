//! The causes of suspended spans, and the spans of a cause.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use sampler_api::{Cause, List, Span};

use super::{acts, spans};
use crate::api::{Refusal, address, segment};
use crate::page::{Frame, render};
use crate::parameters;
use crate::show;
use crate::view::Table;
use crate::visit::Visit;

/// The parameter with the one resource whose causes are shown.
const RESOURCE: &str = "resource_id";

/// Spans of a cause on one page.
const SPANS: &str = "50";

const CAUSES: &str = "Spans|Resource|Plan|Status|Error|Since";

const COLUMNS: &str = "Instance|Organization|Start|Sampled to|Not billed yet|Attempts";

#[derive(Template)]
#[template(path = "suspended.html")]
struct SuspendedPage {
    frame: Frame,
    causes: Table,
    /// The resource whose causes these are; of all, where it is left out.
    resource: Option<show::Html>,
    /// The cause whose spans are shown.
    chosen: Option<show::Html>,
    spans: Table,
    next: Option<String>,
}

/// `GET /console/suspended`.
pub(crate) async fn show(visit: Visit) -> Result<Response, Refusal> {
    let resource = Some(visit.value(RESOURCE)).filter(|id| !id.is_empty());
    let asked: Vec<_> = resource.map(|id| (RESOURCE, id)).into_iter().collect();
    let causes = visit.first::<Cause>("/v1/suspended", &asked).await?;
    let first = causes.first().map(|cause| cause.cause.clone());
    let chosen = Some(visit.value("cause").to_owned()).filter(|id| !id.is_empty());
    let chosen = chosen.or(first);
    let (mut spans, mut next) = (Vec::new(), None);
    if let Some(cause) = &chosen {
        let mut asked = visit.query.clone();
        for (name, value) in [("limit", SPANS), ("cause", cause), ("state", "suspended")] {
            asked = parameters::with(&asked, name, Some(value));
        }
        let answer = visit.get::<List<Span>>("/v1/spans", &asked).await?;
        next = answer.cursor.map(|cursor| {
            let query = parameters::with(&visit.query, "cause", Some(cause));
            address("", &parameters::with(&query, "cursor", Some(&cursor)))
        });
        spans = answer.body.items;
    }
    let chosen = match chosen {
        Some(id) => Some(heading(&visit, &causes, &id).await),
        None => None,
    };
    let page = SuspendedPage {
        frame: visit.frame(),
        causes: table(&visit, &causes, visit.session.is_admin()),
        resource: resource.map(show::id),
        chosen,
        spans: spans_table(&visit, &spans),
        next,
    };
    Ok(render(StatusCode::OK, &page))
}

/// The page with the spans of a cause.
pub(crate) fn page_of(root: &str, cause: &str) -> String {
    let query = parameters::of_pairs(&[("cause", cause)]);
    address(&format!("{root}/suspended"), &query)
}

/// A table of causes, perhaps with what can be done.
pub(crate) fn table(visit: &Visit, causes: &[Cause], may_act: bool) -> Table {
    let root = visit.frame().root;
    let mut table = Table::new("Causes", "cause-row", CAUSES);
    if may_act {
        table.column("Action");
    }
    for cause in causes {
        let of_resource = parameters::of_pairs(&[(RESOURCE, &cause.resource_id)]);
        let of_resource = address(&format!("{root}/suspended"), &of_resource);
        let spans = show::words(&show::counted(cause.spans, "span"));
        let page = format!("{}#spans", page_of(&root, &cause.cause));
        let mut cells = vec![
            show::link(&page, &spans),
            show::link(&of_resource, &show::id(&cause.resource_id)),
            show::id(&cause.plan_id),
            status(cause),
            show::error(&cause.error),
            show::at(cause.since),
        ];
        if may_act {
            let page = format!("{root}/suspended/{}/resume", segment(&cause.cause));
            let button = show::button(&page, "Resume\u{2026}", "resume-cause");
            cells.push(button);
        }
        table.row(cells);
    }
    table
}

fn status(cause: &Cause) -> show::Html {
    let status = cause.status.map(|status| status.to_string());
    show::words(&status.unwrap_or_default())
}

/// What is known of the chosen cause, which may not be in the list, or be gone.
async fn heading(visit: &Visit, shown: &[Cause], id: &str) -> show::Html {
    let mut cause = shown.iter().find(|cause| cause.cause == id).cloned();
    if cause.is_none() {
        let path = format!("/v1/suspended/{}", segment(id));
        let read = visit.get::<Cause>(&path, &[]).await;
        cause = read.ok().map(|answer| answer.body);
    }
    let Some(cause) = cause else {
        return show::words("this cause");
    };
    let target = show::trail(&[&cause.resource_id, &cause.plan_id]);
    status(&cause).and(show::error(&cause.error)).and(target)
}

fn spans_table(visit: &Visit, spans: &[Span]) -> Table {
    let (root, may_act) = (visit.frame().root, visit.session.is_admin());
    let mut table = Table::new("Spans", "span-row", COLUMNS);
    if may_act {
        table.column("Action");
    }
    for span in spans {
        let mut cells = vec![
            spans::instance(&root, span),
            show::id(&span.target.organization_id),
            show::at(span.start),
            show::at(span.sampled_to),
            show::length(span.proof.unsampled),
            show::number(span.delivery.attempts),
        ];
        cells.extend(may_act.then(|| acts::buttons_of(&root, &span.id)));
        table.row(cells);
    }
    table
}
