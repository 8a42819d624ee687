//! A request for a page: who asks, and for what.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use sampler_api::{List, Problem};
use sampler_domain::Timestamp;
use serde::de::DeserializeOwned;

use crate::Console;
use crate::api::{Answer, Query, Refusal, address};
use crate::page::Frame;
use crate::parameters::{self, CSV, FORMAT};
use crate::session::Session;

/// A request for a page. Fields that were left empty are not in its query.
pub(crate) struct Visit {
    pub(crate) console: Arc<Console>,
    pub(crate) session: Session,
    pub(crate) headers: HeaderMap,
    pub(crate) path: String,
    pub(crate) query: Query,
}

impl Visit {
    pub(crate) fn frame(&self) -> Frame {
        Frame::new(&self.console, Some(self.session.clone()), &self.path)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.console.parts.clock.now()
    }

    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(String, String)],
    ) -> Result<Answer<T>, Refusal> {
        let grant = self.session.grant();
        self.console.get(grant, path, query).await
    }

    /// The first page of a list.
    pub(crate) async fn first<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Vec<T>, Refusal> {
        let query = parameters::of_pairs(query);
        Ok(self.get::<List<T>>(path, &query).await?.body.items)
    }

    /// The page of a list that the query asks for.
    pub(crate) async fn listed<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Listed<T>, Refusal> {
        let asked = parameters::for_api(&self.query);
        match self.get::<List<T>>(path, &asked).await {
            Ok(answer) => Ok(Listed {
                items: Some(answer.body.items),
                next: answer
                    .cursor
                    .map(|cursor| self.address_with("cursor", &cursor)),
                problem: None,
            }),
            Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => Ok(Listed {
                items: None,
                next: None,
                problem: Some(parameters::in_words(*refusal.problem, &self.query)),
            }),
            Err(refusal) => Err(refusal),
        }
    }

    pub(crate) fn value(&self, name: &str) -> &str {
        parameters::value(&self.query, name)
    }

    /// The address of the same page with another value of a parameter.
    pub(crate) fn address_with(&self, name: &str, value: &str) -> String {
        address("", &parameters::with(&self.query, name, Some(value)))
    }

    /// The address of the page as a file.
    pub(crate) fn file(&self) -> String {
        let query = parameters::with(&self.query, "cursor", None);
        address("", &parameters::with(&query, FORMAT, Some(CSV)))
    }

    /// Whether the page is asked for as a file.
    pub(crate) fn asks_for_file(&self) -> bool {
        self.value(FORMAT) == CSV
    }

    /// Whether nothing but a time is asked for: a preset may come before anything else.
    pub(crate) fn asks_for_time_alone(&self) -> bool {
        let mut names = self.query.iter().map(|(name, _)| name.as_str());
        names.all(|name| matches!(name, "from" | "to"))
    }
}

impl FromRequestParts<Arc<Console>> for Visit {
    type Rejection = Refusal;

    async fn from_request_parts(head: &mut Parts, console: &Arc<Console>) -> Result<Self, Refusal> {
        // Every page lies behind the session.
        let session = head.extensions.get::<Session>().cloned();
        Ok(Self {
            console: Arc::clone(console),
            session: session.ok_or_else(Refusal::no_page)?,
            headers: head.headers.clone(),
            path: head.uri.path().to_owned(),
            query: parameters::read(&head.uri),
        })
    }
}

/// A page of a list, or the problem of its query, which is shown beside the search.
pub(crate) struct Listed<T> {
    /// None where nothing was asked for, or the query is wrong.
    pub(crate) items: Option<Vec<T>>,
    pub(crate) next: Option<String>,
    pub(crate) problem: Option<Problem>,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self {
            items: None,
            next: None,
            problem: None,
        }
    }
}
