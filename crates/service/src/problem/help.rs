//! `GET /problems/{name}`: the meaning of a type of problem, and its remedies, as in the catalogue.

use axum::Router;
use axum::extract::Path;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::CONTENT_TYPE;

use super::catalogue::section;
use super::{Problem, ProblemType, kinds};

/// Serves these types as plain text. They are public.
pub fn routes(all: Vec<&'static ProblemType>) -> Router {
    let serve = async move |Path(name): Path<String>| {
        let Some(kind) = all.iter().find(|kind| kind.slug == name) else {
            let detail = "There is no problem type with this name.";
            return Problem::new(&kinds::NOT_FOUND, detail).into_response();
        };
        ([(CONTENT_TYPE, "text/plain; charset=utf-8")], section(kind)).into_response()
    };
    Router::new().route("/problems/{name}", get(serve))
}
