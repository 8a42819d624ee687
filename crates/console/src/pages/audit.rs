//! The audit trail.

use sampler_api::{Act, List, Problem};
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};

use crate::api::{Query, address};
use crate::page::{Frame, refused, render};
use crate::session::Session;
use crate::{Console, parameters, show};

/// The labels of the times in the query.
const MOMENTS: [(&str, &str); 2] = [("from", "From"), ("to", "To")];

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    query: Query,
    acts: Vec<Act>,
    problem: Option<Problem>,
    next: Option<String>,
}

impl AuditPage {
    fn value(&self, name: &str) -> &str {
        parameters::value(&self.query, name)
    }

    fn local(&self, name: &str) -> String {
        parameters::local(&self.query, name)
    }
}

/// `GET /console/audit`.
pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Extension(session): Extension<Session>,
    uri: Uri,
) -> Response {
    let query = parameters::read(&uri);
    if let Some(address) = parameters::without_empty(&uri, &query) {
        return Redirect::to(&address).into_response();
    }
    let mut page = AuditPage {
        frame: Frame::new(&console, &session, "Audit"),
        query,
        acts: Vec::new(),
        problem: None,
        next: None,
    };
    let asked = parameters::for_api(&page.query);
    let read = console
        .api
        .get::<List<Act>>(session.grant(), "/v1/audit", &asked);
    match read.await {
        Ok(answer) => {
            page.acts = answer.body.items;
            page.next = answer.cursor.map(|cursor| {
                address(
                    uri.path(),
                    &parameters::with(&page.query, "cursor", Some(&cursor)),
                )
            });
            render(StatusCode::OK, &page)
        }
        Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
            page.problem = Some(parameters::in_words(
                *refusal.problem,
                &page.query,
                &MOMENTS,
            ));
            render(StatusCode::BAD_REQUEST, &page)
        }
        Err(refusal) => refused(page.frame, refusal),
    }
}
