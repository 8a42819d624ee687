//! The causes of suspended spans, and the spans of a cause.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use sampler_api::{Cause, List, Span};

use crate::api::{self, Refusal, segment};
use crate::frame::render;
use crate::query::Query;
use crate::show;
use crate::visit::Visit;

/// Spans of a cause on one page.
const SPANS: &str = "50";

#[derive(Template)]
#[template(path = "suspended.html")]
struct SuspendedPage {
    visit: Visit,
    causes: List<Cause>,
    /// Whether a cause is chosen, what is known of it, and its spans.
    is_chosen: bool,
    chosen: Option<Cause>,
    spans: Vec<Span>,
    next: Option<String>,
}

/// `GET /console/suspended`.
pub(crate) async fn show(visit: Visit) -> Result<Response, Refusal> {
    let asked = Query::default().with("resource_id", visit.query.get("resource_id"));
    let causes = visit.get::<List<Cause>>("/v1/suspended", &asked).await?;
    let causes = causes.body;
    let first = causes.items.first().map_or("", |cause| &cause.cause);
    let id = Some(visit.query.get("cause")).filter(|id| !id.is_empty());
    let id = id.unwrap_or(first).to_owned();
    let mut page = SuspendedPage {
        is_chosen: !id.is_empty(),
        chosen: None,
        spans: Vec::new(),
        next: None,
        causes,
        visit,
    };
    if page.is_chosen {
        page.choose(&id).await?;
    }
    Ok(render(StatusCode::OK, &page))
}

impl SuspendedPage {
    /// Shows the spans of a cause, which may not be in the list, or be gone.
    async fn choose(&mut self, id: &str) -> Result<(), Refusal> {
        let asked = self.visit.query.with("cause", id);
        let spans = asked.with("limit", SPANS).with("state", "suspended");
        let spans = self.visit.get::<List<Span>>("/v1/spans", &spans).await?;
        self.spans = spans.body.items;
        self.next = spans
            .cursor
            .map(|cursor| asked.with("cursor", &cursor).at(""));
        let path = format!("/v1/suspended/{}", segment(id));
        let cause = self.visit.get(&path, &Query::default()).await;
        self.chosen = cause.ok().map(|answer| answer.body);
        Ok(())
    }
}
