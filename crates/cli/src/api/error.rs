//! Why the API gives no answer, or another than it was asked for.

use reqwest::StatusCode;
use sampler_api::Problem;

use crate::output::printable;

/// The API cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("cannot set up HTTP: {0}")]
    Client(String),
    #[error("{url} cannot be reached: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{}", words_of_status(.path, *.status, .problem.as_deref()))]
    Status {
        path: String,
        status: StatusCode,
        /// None where the answer is not a problem document.
        problem: Option<Box<Problem>>,
    },
    #[error("the answer to {path} cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("a list of the API does not end: a page leads to no other")]
    Endless,
    #[error("{0}")]
    Token(String),
}

/// A problem in the words for people, with the fields that it names.
pub(crate) fn words_of(problem: &Problem) -> String {
    let said = if problem.detail.is_empty() {
        &problem.title
    } else {
        &problem.detail
    };
    let mut words = printable(said);
    for error in &problem.errors {
        let (place, detail) = (printable(error.place()), printable(&error.detail));
        words.extend([" [", &place, ": ", &detail, "]"]);
    }
    words
}

/// An answer that is not a success.
fn words_of_status(path: &str, status: StatusCode, problem: Option<&Problem>) -> String {
    let words = problem.map(words_of).unwrap_or_default();
    let name = problem.map(Problem::name);
    match name {
        _ if words.is_empty() => format!("{path} is answered {status}"),
        // These words say what is meant, and the path would say it again.
        Some("invalid-query" | "query-too-wide" | "cut-usage") => words,
        Some(name) if name.starts_with("no-such-") => words,
        _ => format!("{path} is answered {status}: {words}"),
    }
}

impl ApiError {
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(status.as_u16()),
            _ => None,
        }
    }

    /// The problem document of the answer, if it was one.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Status { problem, .. } => problem.as_deref(),
            _ => None,
        }
    }

    /// Whether the request was wrong, or asked for what is not there. A 404 without a problem document is
    /// that of another server.
    pub(crate) fn is_of_input(&self) -> bool {
        match self {
            Self::Status {
                status, problem, ..
            } => match status.as_u16() {
                400 | 422 => true,
                status => status == 404 && problem.is_some(),
            },
            _ => false,
        }
    }

    /// Whether there is nothing of the id that was asked for.
    pub(crate) fn is_of_nothing(&self) -> bool {
        self.status() == Some(404) && self.problem().is_some()
    }

    /// Whether the server says that it has done nothing, for it is busy.
    pub(super) fn is_turned_away(&self) -> bool {
        let name = self.problem().map(Problem::name);
        self.status() == Some(429) || matches!(name, Some("overloaded" | "throttled"))
    }
}
