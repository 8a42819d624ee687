//! How things stand.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use crate::Console;
use crate::page::{Frame, render};
use crate::session::Session;

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    frame: Frame,
}

/// `GET /console`.
pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Extension(session): Extension<Session>,
) -> Response {
    let frame = Frame::new(&console, &session, "Overview");
    render(StatusCode::OK, &Page { frame })
}
