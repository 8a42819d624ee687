//! Why the API gives no answer, or another than it was asked for.

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::output::printable;

/// The API cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("cannot set up HTTP: {0}")]
    Client(String),
    #[error("{url} cannot be reached: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{path} is answered {status}{}", .problem.reason())]
    Status {
        path: String,
        status: StatusCode,
        problem: Box<Problem>,
    },
    #[error("{path} is answered 404: is this the address of a receiver that has a ledger?")]
    NotThere { path: String },
    #[error("the answer to {path} cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("a list of the API does not end: a page leads to no other")]
    Endless,
    #[error("{0}")]
    Token(String),
}

/// The members of a problem document, as far as they are there.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Problem {
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    title: Option<String>,
    detail: Option<String>,
    errors: Vec<Value>,
    /// The whole document.
    #[serde(skip)]
    document: Option<Value>,
}

impl Problem {
    pub(crate) fn read(body: &[u8]) -> Self {
        let document: Option<Value> = serde_json::from_slice(body).ok();
        let document = document.filter(Value::is_object);
        let read = document.clone().map(serde_json::from_value::<Self>);
        Self {
            document,
            ..read.and_then(Result::ok).unwrap_or_default()
        }
    }

    /// The last word of its type, such as `open-span`.
    pub(crate) fn name(&self) -> &str {
        let kind = self.kind.as_deref().unwrap_or_default();
        kind.rsplit([':', '/']).next().unwrap_or_default()
    }

    /// Its text for people, with the fields that it names.
    pub(crate) fn words(&self) -> String {
        let said = self.detail.as_deref().or(self.title.as_deref());
        let mut words = printable(said.unwrap_or_default());
        for error in &self.errors {
            let text = |name| error.get(name).and_then(Value::as_str);
            let place = text("pointer").or_else(|| text("parameter"));
            let detail = text("detail").unwrap_or_default();
            let place = place.unwrap_or_default();
            words.extend([" [", &printable(place), ": ", &printable(detail), "]"]);
        }
        words
    }

    fn reason(&self) -> String {
        let words = self.words();
        if words.is_empty() {
            return words;
        }
        format!(": {words}")
    }
}

impl ApiError {
    /// The status of the answer, if there was one.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Status { status, .. } => Some(status.as_u16()),
            Self::NotThere { .. } => Some(404),
            _ => None,
        }
    }

    /// The problem document of the answer, if it was one.
    pub(crate) fn problem(&self) -> Option<&Value> {
        match self {
            Self::Status { problem, .. } => problem.document.as_ref(),
            _ => None,
        }
    }

    /// Whether the server says that it has done nothing, for it is busy.
    pub(super) fn is_turned_away(&self) -> bool {
        let Self::Status {
            status, problem, ..
        } = self
        else {
            return false;
        };
        status.as_u16() == 429 || matches!(problem.name(), "overloaded" | "throttled")
    }
}
