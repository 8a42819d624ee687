//! The stand-in as an HTTP server.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming as IncomingBody;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use super::fault::{Applied, Endpoint, FaultKind};
use super::schema::Refusal;
use super::stand_in::Shared;
use super::state::{Incoming, Reply};

/// Where usages are posted.
const USAGE_PATH: &str = "/v1/metering/collected/usage";
/// Where mappings are posted.
const MAPPINGS_PATH: &str = "/v1/provisioning/mappings/";
/// Larger bodies are answered with 413.
const BODY_MAX: usize = 1_000_000;

/// What a 429 comes with.
const BUSY: &str = "<!DOCTYPE html>\n<html><body><pre>Too Many Requests</pre></body></html>\n";

/// Answers a request; the connection is to be closed where there is no answer.
pub(super) async fn answer(shared: Arc<Shared>, request: Request<IncomingBody>) -> Answer {
    let mut response = undated(&shared, request).await?;
    if let Some(date) = shared.date().and_then(date) {
        response.headers_mut().insert(DATE, date);
    }
    Ok(response)
}

fn date(millis: i64) -> Option<HeaderValue> {
    let date = UNIX_EPOCH + Duration::from_millis(u64::try_from(millis).ok()?);
    HeaderValue::from_str(&httpdate::fmt_http_date(date)).ok()
}

/// The connection is to be closed without an answer: hyper does so when the service fails.
#[derive(Debug)]
pub(super) struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is lost on purpose")
    }
}

impl std::error::Error for Lost {}

pub(super) type Answer = Result<Response<Full<Bytes>>, Lost>;

async fn undated(shared: &Shared, request: Request<IncomingBody>) -> Answer {
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_MAX).collect().await else {
        return Ok(empty(StatusCode::PAYLOAD_TOO_LARGE));
    };
    let Parts {
        method,
        uri,
        headers,
        ..
    } = parts;
    let path = uri.path();
    if path == USAGE_PATH && method == Method::POST {
        return usage(shared, &headers, body.to_bytes()).await;
    }
    if let (Some(number), &Method::GET) = (path.strip_prefix(USAGE_PATH), &method) {
        return document(shared, number, &headers).await;
    }
    if let (Some(path), &Method::POST) = (path.strip_prefix(MAPPINGS_PATH), &method) {
        if !shared.state().is_authorized(bearer(&headers)) {
            return Ok(empty(StatusCode::UNAUTHORIZED));
        }
        return Ok(empty(mapping(shared, path)));
    }
    Ok(empty(StatusCode::NOT_FOUND))
}

fn traceparent(headers: &HeaderMap) -> Option<String> {
    let value = headers.get("traceparent")?.to_str().ok()?;
    Some(value.to_owned())
}

async fn usage(shared: &Shared, headers: &HeaderMap, body: Bytes) -> Answer {
    let at = (shared.clock)();
    let authorization = bearer(headers);
    let faults = apply_faults(shared, Endpoint::Usage, || {
        serde_json::from_slice(&body).ok()
    });
    let incoming = Incoming {
        at,
        body: body.clone(),
        authorization: authorization.map(str::to_owned),
        traceparent: traceparent(headers),
    };
    let answer = judge(shared, incoming, faults.failure);
    if !faults.delay.is_zero() {
        tokio::time::sleep(faults.delay).await;
    }
    match answer {
        Some(answer) => answer,
        None => pending().await,
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
}

/// The answer to a usage; `None` for none, ever.
fn judge(shared: &Shared, incoming: Incoming, fault: Option<FaultKind>) -> Option<Answer> {
    let mut state = shared.state();
    let answer = match fault {
        None | Some(FaultKind::Delay(_)) => Ok(reply(shared, &state.take(incoming, None, true))),
        Some(FaultKind::PutAside(error)) => {
            Ok(reply(shared, &state.take(incoming, Some(error), true)))
        }
        Some(FaultKind::LoseAnswer) => {
            state.take(incoming, None, false);
            Err(Lost)
        }
        Some(FaultKind::CloseBefore) => {
            state.turn_away(incoming, None);
            Err(Lost)
        }
        Some(FaultKind::Hang) => {
            state.turn_away(incoming, None);
            return None;
        }
        Some(FaultKind::Status {
            status,
            retry_after,
        }) => {
            state.turn_away(incoming, Some(status));
            Ok(with_body(failure(status, retry_after.as_deref())))
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

fn reply(shared: &Shared, reply: &Reply) -> Response<Full<Bytes>> {
    match reply {
        Reply::Accepted { document } => {
            let location = format!("http://{}{USAGE_PATH}/{document}", shared.address);
            let mut response = empty(StatusCode::ACCEPTED);
            if let Ok(location) = HeaderValue::from_str(&location) {
                response.headers_mut().insert(LOCATION, location);
            }
            response
        }
        Reply::Refused(refusal) => {
            json_response(StatusCode::BAD_REQUEST, &json!({ "name": refusal.name() }))
        }
        Reply::Unauthorized => empty(StatusCode::UNAUTHORIZED),
    }
}

async fn document(shared: &Shared, number: &str, headers: &HeaderMap) -> Answer {
    let faults = apply_faults(shared, Endpoint::Document, || None);
    tokio::time::sleep(faults.delay).await;
    let authorization = bearer(headers);
    shared.state().note_question();
    match faults.failure {
        Some(FaultKind::Status {
            status,
            retry_after,
        }) => return Ok(with_body(failure(status, retry_after.as_deref()))),
        Some(FaultKind::CloseBefore | FaultKind::LoseAnswer) => return Err(Lost),
        Some(FaultKind::Hang) => pending().await,
        None | Some(FaultKind::Delay(_) | FaultKind::PutAside(_)) => {}
    }
    if !shared.state().is_authorized(authorization) {
        return Ok(empty(StatusCode::UNAUTHORIZED));
    }
    let number = number
        .strip_prefix('/')
        .and_then(|number| number.parse().ok());
    let now = (shared.clock)();
    let found = number.and_then(|number| shared.state().document(number, now));
    Ok(match found {
        Some(document) => json_response(StatusCode::OK, &document),
        None => empty(StatusCode::NOT_FOUND),
    })
}

/// A part of a mapping is made: `{kind}/resources/{resource_id}/plans/{plan_id}/{plan}`.
fn mapping(shared: &Shared, path: &str) -> StatusCode {
    match path.rsplit_once('/') {
        Some((part, _)) if shared.state().map(part) => StatusCode::OK,
        Some(_) => StatusCode::CONFLICT,
        None => StatusCode::NOT_FOUND,
    }
}

fn failure(status: u16, retry_after: Option<&str>) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = empty(status);
    let retry_after = retry_after.and_then(|text| HeaderValue::from_str(text).ok());
    if let Some(retry_after) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, retry_after);
    }
    response
}

/// The body that the collector has for such a status.
fn with_body(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    let (kind, body) = match response.status() {
        StatusCode::BAD_REQUEST => {
            let body = json!({ "name": Refusal::Instance.name() }).to_string();
            ("application/json", body)
        }
        StatusCode::TOO_MANY_REQUESTS => ("text/html; charset=utf-8", BUSY.to_owned()),
        _ => return response,
    };
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    *response.body_mut() = Full::new(Bytes::from(body));
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}

fn json_response(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
