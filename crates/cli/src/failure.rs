//! Why a command could not do what it was asked for.

use std::fmt::Display;
use std::path::Path;

use serde_json::{Value, json};

use crate::api::ApiError;

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
