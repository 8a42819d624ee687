//! A request for a page: who asks, and for what.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use http::request::Parts;
use sampler_api::{List, Problem};
use serde::de::DeserializeOwned;

use crate::api::{Answer, Query, Refusal, address};
use crate::csv::{CSV, FORMAT};
use crate::page::Frame;
use crate::session::Session;
use crate::{Console, PATH, parameters};

/// A request for a page. As an argument of a handler it has no empty fields: forms send those as well,
/// and the browser is led to the address without them.
pub(crate) struct Visit {
    pub(crate) console: Arc<Console>,
    pub(crate) session: Session,
    pub(crate) path: String,
    pub(crate) query: Query,
}

impl Visit {
    /// None where there is no session.
    pub(crate) fn of(console: &Arc<Console>, head: &Parts) -> Option<Self> {
        Some(Self {
            console: Arc::clone(console),
            session: head.extensions.get::<Session>()?.clone(),
            path: head.uri.path().to_owned(),
            query: parameters::read(&head.uri),
        })
    }

    pub(crate) fn frame(&self, place: &'static str) -> Frame {
        Frame::new(&self.console, &self.session, place)
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
        query: &[(String, String)],
    ) -> Result<Vec<T>, Refusal> {
        Ok(self.get::<List<T>>(path, query).await?.body.items)
    }

    /// The page of a list that the query asks for. `labels` are those of the fields of the form.
    pub(crate) async fn listed<T: DeserializeOwned>(
        &self,
        path: &str,
        labels: &[(&str, &str)],
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
            Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
                let problem = parameters::in_words(*refusal.problem, &self.query, labels);
                Ok(Listed {
                    items: None,
                    next: None,
                    problem: Some(problem),
                })
            }
            Err(refusal) => Err(refusal),
        }
    }

    pub(crate) fn value(&self, name: &str) -> &str {
        parameters::value(&self.query, name)
    }

    pub(crate) fn local(&self, name: &str) -> String {
        parameters::local(&self.query, name)
    }

    pub(crate) fn address_with(&self, name: &str, value: &str) -> String {
        let query = parameters::with(&self.query, name, Some(value));
        address(&self.path, &query)
    }

    /// The address of the page as a file.
    pub(crate) fn file(&self) -> String {
        self.address_with(FORMAT, CSV)
    }

    pub(crate) fn presets(&self) -> Vec<(&'static str, String)> {
        parameters::presets(&self.path, &self.query, self.console.parts.clock.now())
    }

    /// Whether nothing but a time is asked for: a preset may come before anything else.
    pub(crate) fn asks_for_time_alone(&self) -> bool {
        let mut names = self.query.iter().map(|(name, _)| name.as_str());
        names.all(|name| matches!(name, "from" | "to"))
    }
}

impl FromRequestParts<Arc<Console>> for Visit {
    type Rejection = Response;

    async fn from_request_parts(
        head: &mut Parts,
        console: &Arc<Console>,
    ) -> Result<Self, Response> {
        let Some(visit) = Self::of(console, head) else {
            return Err(Redirect::to(PATH).into_response());
        };
        match parameters::without_empty(&head.uri, &visit.query) {
            Some(address) => Err(Redirect::to(&address).into_response()),
            None => Ok(visit),
        }
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

impl<T> Listed<T> {
    pub(crate) fn status(&self) -> StatusCode {
        match self.problem {
            Some(_) => StatusCode::BAD_REQUEST,
            None => StatusCode::OK,
        }
    }
}
