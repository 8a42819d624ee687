//! The catalogue of problems: as a document, and `GET /problems/{name}` with the section of one.

use std::fmt::Write as _;

use axum::Router;
use axum::extract::Path;
use axum::response::IntoResponse;
use axum::routing::get;
use http::header::CONTENT_TYPE;

use super::{Problem, ProblemType, kinds};

/// These problems in Markdown, one heading for each, named by its slug.
pub fn catalogue<'a>(kinds: impl IntoIterator<Item = &'a ProblemType>) -> String {
    let mut text = "# Errors\n\n\
        Every error is answered with a problem document (RFC 9457, `application/problem+json`). \
        Its `type` is one of the addresses below, where the program serves the same text; `detail` \
        describes this occurrence.\n"
        .to_owned();
    for kind in kinds {
        let _ = write!(text, "\n{}", section(kind));
    }
    text
}

fn section(kind: &ProblemType) -> String {
    format!(
        "## {slug}\n\n**{title}** ({status}, `{uri}`)\n\n\
         - When: {when}\n- Resource provider: {provider}\n- Operator: {operator}\n",
        slug = kind.slug,
        title = kind.title,
        status = kind.status.as_u16(),
        uri = kind.uri(),
        when = kind.when,
        provider = kind.provider,
        operator = kind.operator,
    )
}

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
