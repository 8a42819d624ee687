//! A request to the API.

use reqwest::{Method, StatusCode};
use serde::Serialize;

pub(crate) type Query = Vec<(&'static str, String)>;

/// When a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Whenever there is no final answer: the request is idempotent.
    Always,
    /// Only where no connection was made, or the server was too busy to begin (`ApiError::is_turned_away`).
    WhenTurnedAway,
}

impl Repeat {
    /// Whether an answer of this status may mean that the request is sent again.
    pub(super) fn may_be_later(self, status: StatusCode) -> bool {
        match self {
            Self::Always => matches!(status.as_u16(), 429 | 502..=504),
            Self::WhenTurnedAway => matches!(status.as_u16(), 429 | 503),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request<'a> {
    pub(super) method: Method,
    pub(super) path: &'a [&'a str],
    pub(super) query: Query,
    /// The media type, and the bytes.
    pub(super) body: Option<(&'static str, Vec<u8>)>,
    pub(super) if_match: Option<String>,
    pub(super) repeat: Repeat,
}

impl<'a> Request<'a> {
    pub(crate) fn get(path: &'a [&'a str]) -> Self {
        Self::new(Method::GET, path, Repeat::Always)
    }

    /// Does something that must not be done twice.
    pub(crate) fn act(method: Method, path: &'a [&'a str], body: &impl Serialize) -> Self {
        Self::new(method, path, Repeat::WhenTurnedAway).json(body)
    }

    /// Posts something whose repeats change nothing.
    pub(crate) fn post(path: &'a [&'a str]) -> Self {
        Self::new(Method::POST, path, Repeat::Always)
    }

    fn new(method: Method, path: &'a [&'a str], repeat: Repeat) -> Self {
        Self {
            method,
            path,
            query: Query::new(),
            body: None,
            if_match: None,
            repeat,
        }
    }

    pub(crate) fn query(self, query: Query) -> Self {
        Self { query, ..self }
    }

    pub(crate) fn json(self, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("texts, numbers and lists of these");
        self.body("application/json", body)
    }

    pub(crate) fn body(self, media_type: &'static str, body: Vec<u8>) -> Self {
        let body = Some((media_type, body));
        Self { body, ..self }
    }

    /// Only while the thing is as it was read.
    pub(crate) fn if_match(self, etag: Option<String>) -> Self {
        Self {
            if_match: etag,
            ..self
        }
    }
}
