//! Why a command could not do what it was asked for, and why the API gives no answer, or another than the expected one.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use sampler_api::Problem;
use serde_json::{Value, json};
use url::Url;

use crate::output::printable;

/// How often a request is sent that is answered "later", and one that gets no answer.
const ATTEMPTS: u32 = 10;
const ATTEMPTS_UNANSWERED: u32 = 5;

/// The exit codes of failures; 0 and 1 are answers.
const EXIT_REFUSED: u8 = 1;
const EXIT_INPUT: u8 = 2;
const EXIT_API: u8 = 3;
const EXIT_INTERRUPTED: u8 = 4;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The user's input is wrong. Nothing was changed.
    #[error("{0}")]
    Input(String),
    /// The API refuses, or gives no answer.
    #[error("{0}")]
    Api(#[from] ApiError),
    /// An API that the feed needs gives no usable answer; in words that say which.
    #[error("{0}")]
    Unanswered(String),
    /// The API refuses what the command is there for.
    #[error("{0}")]
    Refused(ApiError),
    /// The API refuses the rest of what the command does, or gives it no final answer.
    #[error("{0}")]
    RefusedMidway(ApiError),
    /// This machine fails: a file or the output. Part of the command may be done, or all of it.
    #[error("{0}")]
    Interrupted(String),
}

impl Failure {
    pub(crate) fn of_file(path: &Path, error: &dyn Display) -> Self {
        Self::Input(format!("{}: {error}", path.display()))
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => EXIT_REFUSED,
            Self::Input(_) => EXIT_INPUT,
            Self::Api(error) if error.is_of_input() => EXIT_INPUT,
            Self::Api(_) | Self::Unanswered(_) | Self::RefusedMidway(_) => EXIT_API,
            Self::Interrupted(_) => EXIT_INTERRUPTED,
        }
    }

    /// The failure for machines, with what the API answered.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({ "message": self.to_string(), "exit_code": self.exit_code() });
        if let Self::Api(error) | Self::Refused(error) | Self::RefusedMidway(error) = self {
            if let Some(status) = error.status() {
                document["status"] = json!(status);
            }
            if let Some(problem) = error.problem() {
                document["problem"] = json!(problem);
            }
        }
        document
    }
}

#[derive(Debug, Default, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) message: String,
    pub(crate) status: Option<u16>,
    /// Absent where the answer is not a problem document.
    pub(crate) problem: Option<Box<Problem>>,
    pub(crate) repeat: Repeat,
    pub(crate) retry_after: Option<Duration>,
}

/// Which requests may be sent again after an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Repeat {
    #[default]
    None,
    /// Those that change nothing the second time.
    Idempotent,
    /// All: nothing was done.
    All,
}

impl ApiError {
    /// An error that sending again does not help.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            ..Self::default()
        }
    }

    /// No answer, or none to its end.
    pub(crate) fn unreachable(base: &Url, error: &reqwest::Error) -> Self {
        let mut cause: &dyn std::error::Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let repeat = if error.is_connect() {
            Repeat::All
        } else {
            Repeat::Idempotent
        };
        Self {
            repeat,
            ..Self::new(format!("{base} cannot be reached: {cause}"))
        }
    }

    /// An answer that is not a success.
    pub(crate) fn of_answer(
        path: &str,
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Self {
        let problem: Option<Box<Problem>> = serde_json::from_slice(body).ok();
        let name = problem.as_ref().map_or("", |problem| problem.name());
        let words = problem.as_deref().map(words_of).unwrap_or_default();
        let message = match name {
            _ if words.is_empty() => format!("{path} is answered {status}"),
            // These words say what is meant, and the path would say it again.
            "invalid-query" | "query-too-wide" | "cut-usage" => words,
            name if name.starts_with("no-such-") => words,
            _ => format!("{path} is answered {status}: {words}"),
        };
        let repeat = match (status.as_u16(), name) {
            (429, _) | (503, "overloaded" | "throttled") => Repeat::All,
            (502..=504, _) => Repeat::Idempotent,
            _ => Repeat::None,
        };
        // A date is not read: clocks differ.
        let seconds = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok());
        let seconds = seconds.and_then(|seconds| seconds.trim().parse().ok());
        Self {
            message,
            status: Some(status.as_u16()),
            problem,
            repeat,
            retry_after: seconds.map(Duration::from_secs),
        }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.status
    }

    /// The problem document of the answer, if it was one.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.problem.as_deref()
    }

    /// How often a request is sent that ends like this.
    pub(crate) fn attempts(&self) -> u32 {
        self.status.map_or(ATTEMPTS_UNANSWERED, |_| ATTEMPTS)
    }

    /// Whether the request was wrong, or asked for what is not there.
    pub(crate) fn is_of_input(&self) -> bool {
        matches!(self.status, Some(400 | 422)) || self.is_of_nothing()
    }

    /// Whether nothing has the id that was asked for. A 404 without a problem document is that of another server.
    pub(crate) fn is_of_nothing(&self) -> bool {
        self.status == Some(404) && self.problem.is_some()
    }
}

/// A problem in the words for people, with the fields that it names.
pub(crate) fn words_of(problem: &Problem) -> String {
    let said = match problem.detail.as_str() {
        "" => &problem.title,
        detail => detail,
    };
    let fields = problem.errors.iter().map(|it| match it.place() {
        "" => format!(" [{}]", it.detail),
        place => format!(" [{place}: {}]", it.detail),
    });
    let words = said.to_owned() + &fields.collect::<String>();
    printable(words.trim_start())
}

/// A problem with its name, on one line.
pub(crate) fn in_one_line(problem: &Problem) -> String {
    format!("{}: {}", printable(problem.name()), words_of(problem))
}
