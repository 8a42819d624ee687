//! The stand-in as an HTTP server.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use hyper::{Request, Response};
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

/// A body that may break off in the middle.
pub(super) struct Reply {
    rest: Option<Bytes>,
    length: u64,
    is_cut: bool,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let frame = match self.rest.take() {
            Some(bytes) if self.is_cut => Some(Ok(Frame::data(bytes.slice(..bytes.len() / 2)))),
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None if self.is_cut => Some(Err(io::Error::other("cut"))),
            None => None,
        };
        Poll::Ready(frame)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}

/// What is answered.
struct Answer {
    status: u16,
    media_type: &'static str,
    body: String,
    retry_after: Option<u64>,
    is_cut: bool,
}

impl Answer {
    fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            media_type: "application/json; charset=utf-8",
            body: body.to_string(),
            retry_after: None,
            is_cut: false,
        }
    }

    fn error(status: u16, code: u32, title: &str, detail: &str) -> Self {
        let error = json!({ "code": code, "title": title, "detail": detail });
        Self::json(status, &json!({ "errors": [error] }))
    }

    fn not_found() -> Self {
        Self::error(404, 10_010, "CF-ResourceNotFound", "Usage event not found")
    }

    fn unprocessable(detail: &str) -> Self {
        Self::error(422, 10_008, "CF-UnprocessableEntity", detail)
    }
}

pub(super) fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Reply> {
    response(answer_of(shared, request))
}

fn response(answer: Answer) -> Response<Reply> {
    let mut builder = Response::builder()
        .status(answer.status)
        .header(CONTENT_TYPE, answer.media_type);
    if let Some(seconds) = answer.retry_after {
        builder = builder.header(RETRY_AFTER, seconds);
    }
    let body = Reply {
        length: answer.body.len() as u64,
        rest: Some(Bytes::from(answer.body)),
        is_cut: answer.is_cut,
    };
    builder.body(body).expect("its parts are well-formed")
}

fn answer_of(shared: &Shared, request: &Request<Incoming>) -> Answer {
    let path = request.uri().path();
    if path == "/" {
        let links = json!({ "uaa": { "href": shared.uaa }, "self": { "href": shared.base_url } });
        return Answer::json(200, &json!({ "links": links }));
    }
    if !path.starts_with("/v3/") {
        return Answer::error(404, 10_000, "CF-NotFound", "Unknown request");
    }
    let asked = request.uri().path_and_query().map(ToString::to_string);
    locked(&shared.asked).extend(asked);
    let fault = {
        let mut faults = locked(&shared.faults);
        (!faults.is_empty()).then(|| faults.remove(0))
    };
    match fault {
        Some(Fault::RateLimit(seconds)) => {
            let detail = "Rate limit exceeded";
            let answer = Answer::error(429, 10_013, "CF-RateLimitExceeded", detail);
            return Answer {
                media_type: "text/plain; charset=utf-8",
                retry_after: Some(seconds),
                ..answer
            };
        }
        Some(Fault::Gateway(status)) => {
            return Answer {
                status,
                media_type: "text/html",
                body: "<html><body>Bad gateway</body></html>".to_owned(),
                retry_after: None,
                is_cut: false,
            };
        }
        Some(Fault::Expired) => return expired(),
        Some(Fault::Forbidden) => {
            let detail = "You are not authorized to perform the requested action";
            return Answer::error(403, 10_003, "CF-NotAuthorized", detail);
        }
        Some(Fault::Cut | Fault::Twice) | None => {}
    }
    let Some(header) = request.headers().get(AUTHORIZATION) else {
        return Answer::error(401, 10_002, "CF-NotAuthenticated", "Authentication error");
    };
    let header = header.to_str().unwrap_or_default();
    let Some(sees_all) = sees_all(header) else {
        return expired();
    };
    let is_twice = fault == Some(Fault::Twice);
    let answer = resource(shared, path, request.uri().query(), sees_all, is_twice);
    Answer {
        is_cut: fault == Some(Fault::Cut),
        ..answer
    }
}

fn expired() -> Answer {
    Answer::error(401, 1_000, "CF-InvalidAuthToken", "Invalid Auth Token")
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

fn resource(
    shared: &Shared,
    path: &str,
    query: Option<&str>,
    sees_all: bool,
    is_twice: bool,
) -> Answer {
    let query = parameters(query.unwrap_or_default());
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
        return Answer::unprocessable(&format!("Unknown query parameter(s): '{name}'"));
    }
    let world = locked(&shared.world);
    let (rows, included) = match events {
        Some(events) => {
            let mut rows: Vec<&Row> = world.rows(events).iter().collect();
            rows.retain(|row| row.is_seen && sees_all);
            rows.sort_by_key(|row| row.id);
            if let Some(guid) = path.split('/').nth(3) {
                let found = rows.iter().find(|row| row.guid == guid);
                return found
                    .map_or_else(Answer::not_found, |row| Answer::json(200, &row.document));
            }
            if let Some(after) = query.get("after_guid") {
                let Some(after) = rows.iter().find(|row| row.guid == *after) else {
                    return Answer::unprocessable(
                        "After guid filter must be a valid usage event guid.",
                    );
                };
                let id = after.id;
                rows.retain(|row| row.id > id);
            }
            if query.contains_key("order_by") {
                rows.sort_by_key(|row| (row.at / 1_000, row.guid.clone()));
            }
            let rows = rows.into_iter().map(|row| row.document.clone());
            (rows.collect(), None)
        }
        None => match world.list(path, &query) {
            Some(rows) => (
                rows,
                (path == "/v3/service_instances").then(|| world.included()),
            ),
            None => return Answer::error(404, 10_000, "CF-NotFound", "Unknown request"),
        },
    };
    let most = world.rows_per_page.unwrap_or(PER_PAGE_MAX);
    drop(world);
    page(shared, path, &query, (rows, included), (most, is_twice))
}

fn page(
    shared: &Shared,
    path: &str,
    query: &BTreeMap<String, String>,
    (rows, included): (Vec<Value>, Option<Value>),
    (most, is_twice): (usize, bool),
) -> Answer {
    let number = |name: &str, default: usize| {
        let text = query.get(name);
        text.map_or(Some(default), |text| text.parse().ok())
    };
    let (page, per_page) = (number("page", 1), number("per_page", PER_PAGE));
    let (Some(page @ 1..), Some(per_page @ 1..=PER_PAGE_MAX)) = (page, per_page) else {
        return Answer::unprocessable("Per page must be between 1 and 5000");
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
    Answer::json(200, &document)
}

fn parameters(query: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode_str(&text).decode_utf8_lossy().into_owned()
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}
