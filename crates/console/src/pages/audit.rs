//! The audit trail.

use askama::Template;
use axum::response::Response;
use sampler_api::Act;

use crate::page::{Frame, refused, render};
use crate::show;
use crate::visit::{Listed, Visit};

/// The labels of the times in the query.
const MOMENTS: [(&str, &str); 2] = [("from", "From"), ("to", "To")];

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    visit: Visit,
    listed: Listed<Act>,
}

/// `GET /console/audit`.
pub(crate) async fn show(visit: Visit) -> Response {
    let frame = visit.frame("Audit");
    match visit.listed("/v1/audit", &MOMENTS).await {
        Ok(listed) => {
            let page = AuditPage {
                frame,
                visit,
                listed,
            };
            render(page.listed.status(), &page)
        }
        Err(refusal) => refused(frame, refusal),
    }
}
