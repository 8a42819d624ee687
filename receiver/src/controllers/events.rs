//! Start and stop events (sections 6.1 and 6.2 of the paper).

mod decision;
mod refusals;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;

pub(super) use decision::Accepted;

use super::{Admitted, answer, spans};
use crate::admission::RequestKind;
use crate::event::{self, Event};
use crate::json::Json;
use crate::{Receiver, body};

/// Says that an event was kept before, and nothing was done this time.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

impl IntoResponse for Accepted {
    fn into_response(self) -> Response {
        let mut response = StatusCode::CREATED.into_response();
        let headers = response.headers_mut();
        if self.is_replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        if let Some(span) = self.started {
            headers.insert(LOCATION, spans::location(&span));
        }
        response
    }
}

/// `POST /v1/events/start`.
pub async fn start(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let read = |body: Json<'_>| event::start(body).map(Event::Start);
    let outcome = receiver.receive(RequestKind::Start, &grant, request, read);
    answer(&receiver, "start", &grant, outcome.await)
}

/// `POST /v1/events/stop`.
pub async fn stop(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    request: Request<Body>,
) -> Response {
    let read = |body: Json<'_>| event::stop(body).map(Event::Stop);
    let outcome = receiver.receive(RequestKind::Stop, &grant, request, read);
    answer(&receiver, "stop", &grant, outcome.await)
}

impl Receiver {
    /// Receives a request that is one event.
    async fn receive(
        &self,
        kind: RequestKind,
        grant: &Grant,
        request: Request<Body>,
        read: impl FnOnce(Json<'_>) -> Result<Event, Problem>,
    ) -> Result<Accepted, Problem> {
        grant.require_write()?;
        let _counted = self.acquire_in_flight(kind)?;
        let body = body::read(request, self, self.sender(grant)).await?;
        self.take(grant, body, read).await
    }

    /// Takes one event that has arrived: reads it, waits for its client's turn, and keeps it. It
    /// makes no difference whether the event came alone.
    pub(super) async fn take(
        &self,
        grant: &Grant,
        body: impl AsRef<[u8]>,
        read: impl FnOnce(Json<'_>) -> Result<Event, Problem>,
    ) -> Result<Accepted, Problem> {
        let turn = |event: &Event| match event {
            Event::Start(event) => (RequestKind::Start, self.range(&event.target)),
            Event::Stop(event) => (RequestKind::Stop, self.range(&event.target)),
        };
        let Admitted { event, _permit } = self.admit(grant, body, read, turn).await?;
        self.keep(event, grant).await
    }
}
