//! The stand-in as an HTTP server.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::middleware::map_response_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Shared;
use super::fault::{Applied, Endpoint, FaultKind};
use super::state::{Incoming, Reply};
use super::usage::Refusal;
use crate::serving::lost;

/// Where usages are posted.
const USAGE_PATH: &str = "/v1/metering/collected/usage";

/// Larger bodies are answered with 413.
const BODY_MAX: usize = 1_000_000;

/// What a 429 comes with.
const BUSY: &str = "<!DOCTYPE html>\n<html><body><pre>Too Many Requests</pre></body></html>\n";

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route(USAGE_PATH, post(usage))
        .route(&format!("{USAGE_PATH}/{{number}}"), get(document))
        .route("/v1/provisioning/mappings/{*part}", post(mapping))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(map_response_with_state(Arc::clone(&shared), dated))
        .with_state(shared)
}

async fn dated(State(shared): State<Arc<Shared>>, mut response: Response) -> Response {
    let millis = u64::try_from(shared.date()).expect("after 1970");
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(millis));
    let date = HeaderValue::try_from(date).expect("a date is plain ASCII");
    response.headers_mut().insert(DATE, date);
    response
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

async fn usage(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let faults = apply_faults(&shared, Endpoint::Usage, || {
        serde_json::from_slice(&body).ok()
    });
    let incoming = Incoming {
        at: (shared.clock)(),
        body: body.clone(),
        authorization: text(&headers, AUTHORIZATION.as_str()),
        traceparent: text(&headers, "traceparent"),
    };
    let answer = judge(&shared, incoming, faults.failure);
    if !faults.delay.is_zero() {
        tokio::time::sleep(faults.delay).await;
    }
    match answer {
        Some(answer) => answer,
        None => pending().await,
    }
}

/// The answer to a usage; `None` for none, ever.
fn judge(shared: &Shared, incoming: Incoming, fault: Option<FaultKind>) -> Option<Response> {
    let mut state = shared.state();
    let answer = match fault {
        None | Some(FaultKind::Delay(_)) => reply(shared, &state.take(incoming, None)),
        Some(FaultKind::PutAside(error)) => reply(shared, &state.take(incoming, Some(error))),
        Some(FaultKind::LoseAnswer) => {
            state.take(incoming, None);
            lost()
        }
        Some(FaultKind::CloseBefore) => {
            state.turn_away(incoming);
            lost()
        }
        Some(FaultKind::Hang) => {
            state.turn_away(incoming);
            return None;
        }
        Some(FaultKind::Status {
            status,
            retry_after,
        }) => {
            state.turn_away(incoming);
            failure(status, retry_after.as_deref())
        }
    };
    Some(answer)
}

/// What faults there are for a request. The body is only parsed when there are any.
fn apply_faults(
    shared: &Shared,
    endpoint: Endpoint,
    body: impl FnOnce() -> Option<Value>,
) -> Applied {
    let mut state = shared.state();
    if state.faults.is_empty() {
        return Applied::default();
    }
    state.faults.apply(endpoint, &body().unwrap_or_default())
}

fn reply(shared: &Shared, reply: &Reply) -> Response {
    match reply {
        Reply::Accepted { document } => {
            let location = format!("http://{}{USAGE_PATH}/{document}", shared.address);
            (StatusCode::ACCEPTED, [(LOCATION, location)]).into_response()
        }
        Reply::Refused(refusal) => refused(*refusal),
        Reply::Unauthorized => StatusCode::UNAUTHORIZED.into_response(),
    }
}

fn refused(refusal: Refusal) -> Response {
    let body = json!({ "name": refusal.name() });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

async fn document(
    State(shared): State<Arc<Shared>>,
    Path(number): Path<usize>,
    headers: HeaderMap,
) -> Response {
    let faults = apply_faults(&shared, Endpoint::Document, || None);
    tokio::time::sleep(faults.delay).await;
    shared.state().questions += 1;
    match faults.failure {
        Some(FaultKind::Status {
            status,
            retry_after,
        }) => return failure(status, retry_after.as_deref()),
        Some(FaultKind::CloseBefore | FaultKind::LoseAnswer) => return lost(),
        Some(FaultKind::Hang) => pending().await,
        None | Some(FaultKind::Delay(_) | FaultKind::PutAside(_)) => {}
    }
    let authorization = text(&headers, AUTHORIZATION.as_str());
    if !shared.state().is_authorized(authorization.as_deref()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let found = shared.state().document(number, (shared.clock)());
    match found {
        Some(document) => Json(document).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// A part of a mapping is made: `{kind}/resources/{resource_id}/plans/{plan_id}/{plan}`.
async fn mapping(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap) -> StatusCode {
    let mut state = shared.state();
    let authorization = text(&headers, AUTHORIZATION.as_str());
    if !state.is_authorized(authorization.as_deref()) {
        return StatusCode::UNAUTHORIZED;
    }
    match uri.path().rsplit_once('/') {
        Some((part, _)) if state.map(part) => StatusCode::OK,
        _ => StatusCode::CONFLICT,
    }
}

/// An answer of a status, with the body that the collector has for it.
fn failure(status: u16, retry_after: Option<&str>) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = match status {
        StatusCode::BAD_REQUEST => refused(Refusal::Instance),
        StatusCode::TOO_MANY_REQUESTS => {
            (status, [(CONTENT_TYPE, "text/html; charset=utf-8")], BUSY).into_response()
        }
        _ => status.into_response(),
    };
    let retry_after = retry_after.and_then(|text| HeaderValue::from_str(text).ok());
    if let Some(retry_after) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, retry_after);
    }
    response
}
