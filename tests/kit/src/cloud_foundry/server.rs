//! The stand-in as an HTTP server.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::stream;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::state::{Events, Row};
use super::{Fault, Shared, locked};
use crate::now_millis;

/// The most rows of a page, and how many it has unless more are asked for.
const PER_PAGE_MAX: usize = 5_000;
const PER_PAGE: usize = 50;
/// Who sees all usage events.
const SCOPES: [&str; 3] = [
    "cloud_controller.admin",
    "cloud_controller.admin_read_only",
    "cloud_controller.global_auditor",
];

/// What is asked for.
type Asked = BTreeMap<String, String>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new().fallback(answer).with_state(shared)
}

fn error(status: u16, code: u32, title: &str, detail: &str) -> Response {
    let error = json!({ "code": code, "title": title, "detail": detail });
    let status = StatusCode::from_u16(status).unwrap_or_default();
    (status, Json(json!({ "errors": [error] }))).into_response()
}

fn unknown() -> Response {
    error(404, 10_000, "CF-NotFound", "Unknown request")
}

fn unprocessable(detail: &str) -> Response {
    error(422, 10_008, "CF-UnprocessableEntity", detail)
}

fn expired() -> Response {
    error(401, 1_000, "CF-InvalidAuthToken", "Invalid Auth Token")
}

/// A document whose second half never comes.
fn cut(document: &Value) -> Response {
    let mut half = document.to_string();
    let length = half.len();
    half.truncate(length / 2);
    let parts = [Ok(half), Err(io::Error::other("cut"))];
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CONTENT_LENGTH, length.into()),
    ];
    (headers, Body::from_stream(stream::iter(parts))).into_response()
}

async fn answer(State(shared): State<Arc<Shared>>, uri: Uri, headers: HeaderMap) -> Response {
    if uri.path() == "/" {
        let links = json!({ "uaa": { "href": shared.uaa }, "self": { "href": shared.base_url } });
        return Json(json!({ "links": links })).into_response();
    }
    if !uri.path().starts_with("/v3/") {
        return unknown();
    }
    locked(&shared.asked).push(uri.to_string());
    let fault = {
        let mut faults = locked(&shared.faults);
        (!faults.is_empty()).then(|| faults.remove(0))
    };
    match fault {
        Some(Fault::RateLimit(seconds)) => {
            let detail = "Rate limit exceeded";
            let mut answer = error(429, 10_013, "CF-RateLimitExceeded", detail);
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            answer.headers_mut().insert(CONTENT_TYPE, text);
            answer.headers_mut().insert(RETRY_AFTER, seconds.into());
            return answer;
        }
        Some(Fault::Gateway(status)) => {
            let status = StatusCode::from_u16(status).unwrap_or_default();
            let page = "<html><body>Bad gateway</body></html>";
            return (status, [(CONTENT_TYPE, "text/html")], page).into_response();
        }
        Some(Fault::Expired) => return expired(),
        Some(Fault::Forbidden) => {
            let detail = "You are not authorized to perform the requested action";
            return error(403, 10_003, "CF-NotAuthorized", detail);
        }
        Some(Fault::Cut | Fault::Twice) | None => {}
    }
    let Some(header) = headers.get(AUTHORIZATION) else {
        return error(401, 10_002, "CF-NotAuthenticated", "Authentication error");
    };
    let Some(sees_all) = sees_all(header.to_str().unwrap_or_default()) else {
        return expired();
    };
    let is_twice = fault == Some(Fault::Twice);
    let query = parameters(uri.query().unwrap_or_default());
    match resource(&shared, uri.path(), &query, sees_all, is_twice) {
        Ok(document) if fault == Some(Fault::Cut) => cut(&document),
        Ok(document) => Json(document).into_response(),
        Err(refused) => refused,
    }
}

/// Whether a token sees all usage events; `None` if it is not valid any more.
fn sees_all(header: &str) -> Option<bool> {
    let payload = header.strip_prefix("Bearer ")?.split('.').nth(1)?;
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Value = serde_json::from_slice(&payload).ok()?;
    if claims["exp"].as_i64()? <= now_millis() / 1_000 {
        return None;
    }
    let scopes = claims["scope"].as_array()?.iter();
    let scopes = scopes.filter_map(Value::as_str);
    Some(scopes.into_iter().any(|scope| SCOPES.contains(&scope)))
}

#[expect(clippy::result_large_err, reason = "an answer is an answer")]
fn resource(
    shared: &Shared,
    path: &str,
    query: &Asked,
    sees_all: bool,
    is_twice: bool,
) -> Result<Value, Response> {
    let events = match path {
        _ if path.starts_with("/v3/app_usage_events") => Some(Events::Apps),
        _ if path.starts_with("/v3/service_usage_events") => Some(Events::Services),
        _ => None,
    };
    let known: &[&str] = match (events, path) {
        (Some(_), _) => &["page", "per_page", "order_by", "after_guid"],
        (None, "/v3/service_instances") => &[
            "page",
            "per_page",
            "type",
            "fields[service_plan]",
            "fields[service_plan.service_offering]",
            "fields[space]",
        ],
        (None, "/v3/tasks") => &["page", "per_page", "states", "guids"],
        (None, _) => &["page", "per_page"],
    };
    if let Some(name) = query.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(unprocessable(&format!(
            "Unknown query parameter(s): '{name}'"
        )));
    }
    let world = locked(&shared.world);
    if let (Some(events), Some(guid)) = (events, path.split('/').nth(3)) {
        let found = world.rows(events).iter().find(|row| row.guid == guid);
        let none = || error(404, 10_010, "CF-ResourceNotFound", "Usage event not found");
        return found.map(|row| row.document.clone()).ok_or_else(none);
    }
    let rows = match events {
        Some(_) if !sees_all => Vec::new(),
        Some(events) => usage_events(world.rows(events), query)?,
        None => world.list(path, query).ok_or_else(unknown)?,
    };
    let included = (path == "/v3/service_instances").then(|| world.included());
    let most = world.rows_per_page.unwrap_or(PER_PAGE_MAX);
    drop(world);
    page(shared, path, query, (rows, included), (most, is_twice))
}

/// Usage events, all or those behind another one.
#[expect(clippy::result_large_err, reason = "an answer is an answer")]
fn usage_events(rows: &[Row], query: &Asked) -> Result<Vec<Value>, Response> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_by_key(|row| row.id);
    if let Some(after) = query.get("after_guid") {
        let Some(after) = rows.iter().find(|row| row.guid == *after) else {
            let detail = "After guid filter must be a valid usage event guid.";
            return Err(unprocessable(detail));
        };
        let id = after.id;
        rows.retain(|row| row.id > id);
    }
    if query.contains_key("order_by") {
        rows.sort_by_key(|row| (row.at / 1_000, row.guid.clone()));
    }
    Ok(rows.into_iter().map(|row| row.document.clone()).collect())
}

#[expect(clippy::result_large_err, reason = "an answer is an answer")]
fn page(
    shared: &Shared,
    path: &str,
    query: &Asked,
    (rows, included): (Vec<Value>, Option<Value>),
    (most, is_twice): (usize, bool),
) -> Result<Value, Response> {
    let number = |name: &str, default: usize| {
        let text = query.get(name);
        text.map_or(Some(default), |text| text.parse().ok())
    };
    let (page, per_page) = (number("page", 1), number("per_page", PER_PAGE));
    let (Some(page @ 1..), Some(per_page @ 1..=PER_PAGE_MAX)) = (page, per_page) else {
        return Err(unprocessable("Per page must be between 1 and 5000"));
    };
    let per_page = per_page.min(most);
    let pages = rows.len().div_ceil(per_page).max(1);
    let href = |page: usize| json!({ "href": format!("{}{path}?page={page}", shared.base_url) });
    let next = if page < pages {
        href(page + 1)
    } else {
        Value::Null
    };
    let pagination = json!({
        "total_results": rows.len(), "total_pages": pages,
        "first": href(1), "last": href(pages), "next": next, "previous": null,
    });
    let mut resources: Vec<Value> = rows
        .into_iter()
        .skip((page - 1) * per_page)
        .take(per_page)
        .collect();
    if is_twice {
        resources.extend(resources.last().cloned());
    }
    let mut document = json!({ "pagination": pagination, "resources": resources });
    if let Some(included) = included {
        document["included"] = included;
    }
    Ok(document)
}

fn parameters(query: &str) -> Asked {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let pairs = query.split_terminator('&');
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}
