//! A stand-in for the receiver's API: spans and usages as the contract shows them, in pages.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub(crate) const HOUR: i64 = 3_600_000;
pub(crate) const IDS: [&str; 6] = [
    "organization_id",
    "space_id",
    "consumer_id",
    "resource_id",
    "plan_id",
    "resource_instance_id",
];

/// What is answered instead of the next answers, front first.
pub(crate) type Trouble = (u16, Option<&'static str>);

/// What the API knows, and how it behaves.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) spans: Vec<Value>,
    pub(crate) usages: HashMap<String, Vec<Value>>,
    pub(crate) trouble: Vec<Trouble>,
    pub(crate) token: Option<String>,
    /// At most so many items are on a page, whatever is asked for.
    pub(crate) page: usize,
    pub(crate) links_are_absolute: bool,
    pub(crate) never_ends: bool,
    /// An empty page, with a link to the real one, comes before each first page.
    pub(crate) begins_empty: bool,
    /// Done once, before the first usages are answered.
    pub(crate) on_usages: Option<fn(&mut World)>,
    /// Paths and queries, as they came.
    pub(crate) requests: Vec<String>,
}

/// A running stand-in.
pub(crate) struct Api {
    pub(crate) world: Arc<Mutex<World>>,
    address: SocketAddr,
    _runtime: Runtime,
}

impl Api {
    pub(crate) fn start(world: World) -> Self {
        let runtime = Runtime::new().unwrap();
        let world = Arc::new(Mutex::new(world));
        let router = Router::new()
            .route("/v1/spans", get(list_spans))
            .route("/v1/spans/{id}", get(one_span))
            .route("/v1/spans/{id}/usages", get(list_usages))
            .with_state(world.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            world,
            address,
            _runtime: runtime,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.world.lock().unwrap().requests.clone()
    }
}

type Shared = State<Arc<Mutex<World>>>;

fn parameters(uri: &Uri) -> HashMap<String, String> {
    let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    pairs.into_owned().collect()
}

/// Notes a request, and says what is in its way.
fn enter(world: &mut World, request: String, headers: &HeaderMap) -> Option<Response> {
    world.requests.push(request);
    let authorization = headers
        .get(header::AUTHORIZATION)
        .map(|it| it.to_str().unwrap());
    let expected = world.token.as_ref().map(|token| format!("Bearer {token}"));
    if expected.as_deref() != authorization {
        let problem = json!({ "title": "No", "detail": "The token\u{1b} is not valid." });
        return Some((StatusCode::UNAUTHORIZED, problem.to_string()).into_response());
    }
    if world.trouble.is_empty() {
        return None;
    }
    let (status, after) = world.trouble.remove(0);
    let mut response = StatusCode::from_u16(status).unwrap().into_response();
    if let Some(after) = after {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, after.parse().unwrap());
    }
    Some(response)
}

/// A page, with a link to the next.
fn page(world: &World, items: Vec<Value>, path: &str, query: &HashMap<String, String>) -> Response {
    let asked: usize = query
        .get("limit")
        .map_or(100, |limit| limit.parse().unwrap());
    let limit = asked.min(world.page.max(1));
    if world.begins_empty && !query.contains_key("cursor") {
        let mut response = axum::Json(json!({ "items": [] })).into_response();
        let link = format!("<{path}?cursor=c%2B0>; rel=\"next\"");
        response
            .headers_mut()
            .insert(header::LINK, link.parse().unwrap());
        return response;
    }
    let from: usize = query
        .get("cursor")
        .map_or(0, |cursor| cursor.replace("c+", "").parse().unwrap());
    let total = items.len();
    let items: Vec<Value> = items.into_iter().skip(from).take(limit).collect();
    let next = from + items.len();
    let mut response = axum::Json(json!({ "items": items })).into_response();
    if next < total || world.never_ends {
        let host = if world.links_are_absolute {
            "https://inner.example:8443"
        } else {
            ""
        };
        let link = format!("<{host}{path}?limit={limit}&cursor=c%2B{next}>; rel=\"next\"");
        response
            .headers_mut()
            .insert(header::LINK, link.parse().unwrap());
    }
    response
}

async fn list_spans(State(world): Shared, uri: Uri, headers: HeaderMap) -> Response {
    let mut world = world.lock().unwrap();
    let query = parameters(&uri);
    let mut shown: Vec<String> = query
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    shown.sort();
    if let Some(response) = enter(
        &mut world,
        format!("/v1/spans?{}", shown.join("&")),
        &headers,
    ) {
        return response;
    }
    let is_narrow = [IDS[0], IDS[3], IDS[5], "state"]
        .iter()
        .any(|id| query.contains_key(*id));
    if !is_narrow {
        return too_wide();
    }
    let mut spans = world.spans.clone();
    spans.retain(|span| {
        IDS.iter().all(|id| {
            query
                .get(*id)
                .is_none_or(|value| span["target"][id] == **value)
        }) && query.get("from").is_none_or(|from| {
            span["end"]
                .as_i64()
                .is_none_or(|end| from.parse::<i64>().unwrap() < end)
        }) && query
            .get("to")
            .is_none_or(|to| span["start"].as_i64().unwrap() < to.parse::<i64>().unwrap())
    });
    spans.sort_by_key(|span| -span["start"].as_i64().unwrap());
    page(&world, spans, "/v1/spans", &query)
}

async fn one_span(State(world): Shared, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let mut world = world.lock().unwrap();
    if let Some(response) = enter(&mut world, format!("/v1/spans/{id}"), &headers) {
        return response;
    }
    match world.spans.iter().find(|span| span["id"] == *id) {
        Some(span) => axum::Json(span.clone()).into_response(),
        None => no_such_span(),
    }
}

/// The answers of a receiver to what it does not have, and to what it does not want to read.
fn no_such_span() -> Response {
    let detail = "There is no span with this id, or the token does not allow reading its resource.";
    problem(StatusCode::NOT_FOUND, "no-such-span", detail)
}

fn too_wide() -> Response {
    let detail = "The query reads too many spans. Add organization_id, resource_id or \
                  resource_instance_id, or state=suspended.";
    problem(StatusCode::UNPROCESSABLE_ENTITY, "query-too-wide", detail)
}

fn problem(status: StatusCode, name: &str, detail: &str) -> Response {
    let urn = format!("urn:sampler:problem:{name}");
    let problem = json!({ "type": format!("/problems/{name}"), "urn": urn, "title": name,
                          "status": status.as_u16(), "detail": detail });
    (status, axum::Json(problem)).into_response()
}

async fn list_usages(
    State(world): Shared,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let mut world = world.lock().unwrap();
    let path = format!("/v1/spans/{id}/usages");
    if let Some(response) = enter(&mut world, path.clone(), &headers) {
        return response;
    }
    if let Some(act) = world.on_usages.take() {
        act(&mut world);
    }
    if !world.spans.iter().any(|span| span["id"] == *id) {
        return no_such_span();
    }
    let usages = world.usages.get(&id).cloned().unwrap_or_default();
    page(&world, usages, &path, &parameters(&uri))
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            page: 1_000,
            ..Self::default()
        }
    }

    /// A span of `hours`, sampled by hours, newest entries last.
    pub(crate) fn add(&mut self, instance: &str, start: i64, hours: i64, is_open: bool) {
        let id = format!("span-{instance}");
        let mut target = json!({});
        for (name, value) in IDS
            .into_iter()
            .zip(["o", "s", "c", "postgres", "large", instance])
        {
            target[name] = value.into();
        }
        let end = start + hours * HOUR;
        let usages = (0..hours).map(|hour| usage(&id, instance, start + hour * HOUR, HOUR));
        self.usages.insert(id.clone(), usages.collect());
        let length = end - start;
        self.spans.push(json!({
            "id": id, "target": target,
            "measured_usage": [{ "measure": "memory", "quantity": 512 }],
            "start": start, "end": (!is_open).then_some(end),
            "state": if is_open { "open" } else { "complete" },
            "start_event_id": format!("{instance}-1"), "end_event_id": format!("{instance}-2"),
            "sampled_to": end, "due_at": end + HOUR, "planned": null,
            "delivery": { "attempts": 0, "unanswered": false, "last_error": null },
            "proof": { "used": length, "billed": length, "skipped": 0, "unanswered": 0,
                       "difference": 0, "unsampled": 0, "usages": hours, "since": start },
        }));
    }
}

pub(crate) fn usage(span: &str, instance: &str, start: i64, duration: i64) -> Value {
    let end = start + duration;
    json!({
        "id": format!("{instance}-{start}"), "span": span,
        "interval": { "start": start, "end": end },
        "timestamp": (start + end).div_euclid(2), "duration": duration,
        "measured_usage": [{ "measure": "memory", "quantity": 512 },
                           { "measure": "duration", "quantity": duration }],
        "state": "accepted", "attempts": 1, "planned_at": end, "accepted_at": end + 59,
        "status": 202, "location": "https://abacus.example/usage/1", "error": null,
        "unanswered": false, "withheld": false,
    })
}

/// The events behind [`World::add`].
pub(crate) fn events(instance: &str, start: i64, hours: i64, is_open: bool) -> String {
    let ids = IDS
        .into_iter()
        .zip(["o", "s", "c", "postgres", "large", instance]);
    let mut event = json!({ "type": "start", "id": format!("{instance}-1"), "timestamp": start });
    for (name, value) in ids {
        event[name] = value.into();
    }
    let mut stop = event.clone();
    event["measured_usage"] = json!([{ "measure": "memory", "quantity": 512.0 }]);
    (stop["type"], stop["id"]) = ("stop".into(), format!("{instance}-2").into());
    stop["timestamp"] = (start + hours * HOUR).into();
    if is_open {
        format!("{event}\n")
    } else {
        format!("{event}\n{stop}\n")
    }
}
