//! The kinds of problems, and the page that says when each occurs and what to do about it.

use axum::Router;
use axum::extract::Path;
use axum::routing::get;
use http::StatusCode;

use super::Problem;

/// The page of all kinds of both programs, with a section for each, which is named by its slug.
pub const CATALOGUE: &str = include_str!("../../../../docs/errors.md");

/// A kind of problem. Clients distinguish problems by the slug, which never changes, not by the title.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProblemType {
    /// The last part of its URI, and the heading of its section.
    pub slug: &'static str,
    pub status: StatusCode,
    pub title: &'static str,
}

impl ProblemType {
    /// The type of the problem document: the address of its section, relative to the API.
    pub fn uri(&self) -> String {
        format!("/problems/{}", self.slug)
    }
}

/// Declares kinds of problems, and the list `ALL` of them.
#[macro_export]
macro_rules! problem_types {
    ($($name:ident = $slug:literal, $status:ident, $title:literal;)+) => {
        $(
            #[doc = $title]
            pub const $name: $crate::problem::ProblemType = $crate::problem::ProblemType {
                slug: $slug,
                status: $crate::problem::StatusCode::$status,
                title: $title,
            };
        )+

        /// All of them, in the order of their declaration.
        pub const ALL: &[$crate::problem::ProblemType] = &[$($name),+];
    };
}

// The problems that every program can answer.
problem_types! {
    UNAUTHORIZED = "unauthorized", UNAUTHORIZED, "A valid token is needed";
    FORBIDDEN = "forbidden", FORBIDDEN, "The token does not allow this";
    NOT_FOUND = "not-found", NOT_FOUND, "There is nothing at this address";
    METHOD_NOT_ALLOWED = "method-not-allowed", METHOD_NOT_ALLOWED, "The method is not allowed here";
    INTERNAL = "internal", INTERNAL_SERVER_ERROR, "Internal error";
    TOKEN_SERVER_UNAVAILABLE = "token-server-unavailable", SERVICE_UNAVAILABLE, "The token cannot be checked now";
    UNHEALTHY = "unhealthy", SERVICE_UNAVAILABLE, "The program is unhealthy";
    OVERLOADED = "overloaded", SERVICE_UNAVAILABLE, "The server is overloaded";
    SHUTTING_DOWN = "shutting-down", SERVICE_UNAVAILABLE, "The program is shutting down";
}

/// Serves each section of the catalogue as plain text. They are public.
pub fn routes() -> Router {
    let serve = async |Path(name): Path<String>| {
        let detail = "There is no problem type with this name.";
        section(&name).ok_or_else(|| Problem::new(&NOT_FOUND, detail))
    };
    Router::new().route("/problems/{name}", get(serve))
}

fn section(name: &str) -> Option<&'static str> {
    let begin = CATALOGUE.find(&format!("\n## {name}\n"))? + 1;
    let rest = &CATALOGUE[begin..];
    let end = rest.find("\n\n## ").map_or(rest.len(), |end| end + 1);
    Some(&rest[..end])
}
