//! The pages: a module for each, with its template.

pub(crate) mod actions;
pub(crate) mod audit;
pub(crate) mod control;
pub(crate) mod overview;
pub(crate) mod resend;
pub(crate) mod span;
pub(crate) mod spans;
pub(crate) mod suspended;
pub(crate) mod usage;

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use crate::Console;
use crate::page::{Frame, message};
use crate::session::Session;

/// Any other address below `/console/`.
pub(crate) async fn nothing(
    State(console): State<Arc<Console>>,
    Extension(session): Extension<Session>,
) -> Response {
    let frame = Frame::new(&console, &session, "");
    let detail = "There is no page at this address.";
    message(frame, StatusCode::NOT_FOUND, "Not found", detail, None)
}
