//! An API whose answers a test decides, and a console over it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http_body_util::BodyExt;
use sampler_console::{Console, Keys, Parts};
use sampler_domain::Timestamp;
use sampler_service::environment::{Clock, SystemRandom};
use sampler_service::http::{answer, with_fallbacks};
use sampler_service::security::Authenticator;
use serde_json::{Value, json};
use url::form_urlencoded;

pub(crate) const SECOND: i64 = 1_000;
pub(crate) const MINUTE: i64 = 60 * SECOND;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// 2026-11-20T00:00:00 UTC, a Friday.
pub(crate) const MIDNIGHT: i64 = 1_795_132_800_000;

/// When everything happens: 15:10 of that day.
pub(crate) const NOW: i64 = MIDNIGHT + 15 * HOUR + 10 * MINUTE;

pub(crate) const CAUSE: &str = "c-0";

/// A cause that is not on the first page, of more spans than are counted.
pub(crate) const LARGE_CAUSE: &str = "c-large";

/// A cause without spans.
pub(crate) const ENDED_CAUSE: &str = "c-ended";

/// The tag of every span.
const SEEN: &str = "\"seen\"";

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::new(NOW).unwrap()
    }
}

/// Spans with their usages, by the ids of the spans.
#[derive(Clone)]
pub(crate) struct Ledger {
    spans: BTreeMap<String, (Value, Vec<Value>)>,
    /// Whether a thousand resources have rates of their own.
    pub(crate) is_crowded: bool,
    /// Whether sampling is paused.
    pub(crate) is_paused: bool,
    /// How many causes are listed, and how many are not.
    pub(crate) causes: (usize, u64),
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            spans: BTreeMap::new(),
            is_crowded: false,
            is_paused: false,
            causes: (1, 0),
        }
    }
}

impl Ledger {
    fn add(&mut self, span: Value, usages: Vec<Value>) {
        let id = span["id"].as_str().unwrap().to_owned();
        self.spans.insert(id, (span, usages));
    }

    /// The same with another span.
    pub(crate) fn with(mut self, span: Value, usages: Vec<Value>) -> Self {
        self.add(span, usages);
        self
    }

    /// One span, which says what these usages come to.
    pub(crate) fn of(span: Value, usages: Vec<Value>) -> Self {
        Self::default().with(settle(span, &usages), usages)
    }

    fn api(self) -> Router {
        let (is_crowded, causes) = (self.is_crowded, self.causes);
        let ledger = Arc::new(self.spans);
        let (of_list, of_span, of_usages) = (
            Arc::clone(&ledger),
            Arc::clone(&ledger),
            Arc::clone(&ledger),
        );
        let list = async move |RawQuery(query): RawQuery| {
            let query = parameters(query);
            if query.contains_key("plan_id") && query.len() == 1 {
                return too_wide();
            }
            if query.get("from").is_some_and(|from| from == "20.11.2026") {
                return no_moment();
            }
            let spans: Vec<Value> = of_list.values().map(|(span, _)| span.clone()).collect();
            Json(json!({ "items": spans })).into_response()
        };
        let span = async move |Path(id): Path<String>| match of_span.get(&id) {
            Some((span, _)) => ([("etag", SEEN)], Json(span.clone())).into_response(),
            None => not_there(),
        };
        let usages = async move |Path(id): Path<String>, RawQuery(query): RawQuery| {
            let query = parameters(query);
            match of_usages.get(&id) {
                Some((_, usages)) => page(&id, usages, &query),
                None => not_there(),
            }
        };
        let audit = async |RawQuery(query): RawQuery| {
            if parameters(query)
                .get("who")
                .is_some_and(|who| who == "nobody")
            {
                return Json(json!({ "items": [] }));
            }
            let act = json!({
                "id": "5c0f2a4e-0000-4000-8000-000000000000", "at": NOW, "who": "alice\u{202e}",
                "act": "span.skip", "subject": "/v1/spans/<b>", "reason": "The <i>plan</i> has gone.",
                "before": { "state": "suspended" }, "after": { "state": "open" }, "outcome": "done",
            });
            let control = |paused: bool| json!({ "starts": { "rate": 100 }, "sampling": { "paused": paused } });
            let pause = json!({
                "id": "5c0f2a4e-0000-4000-8000-000000000001", "at": NOW - HOUR, "who": "bob",
                "act": "control.set", "subject": "/v1/control", "reason": "Abacus is <b>down</b>.",
                "before": control(false), "after": control(true), "outcome": "done",
            });
            Json(json!({ "items": [act, pause] }))
        };
        let sums = async |RawQuery(query): RawQuery| {
            let query = parameters(query);
            if !query.contains_key("organization_id") {
                return too_wide();
            }
            let day = |day: i64, duration: i64| {
                let (mut start, mut end) = (MIDNIGHT + day * DAY, MIDNIGHT + (day + 1) * DAY);
                if !query.contains_key("window") {
                    (start, end) = (0, i64::from(Timestamp::MAX));
                }
                json!({
                    "window": { "start": start, "end": end },
                    "group": { "resource_id": "=HYPERLINK(\"x\")", "plan_id": "<small>" },
                    "usages": 24, "duration": duration,
                    "measures": [{ "measure": "memory", "amount": duration * 512, "unit": "MB" }, { "measure": "odd", "amount": null }],
                })
            };
            let items = [day(-2, DAY), day(-1, DAY / 2), day(0, -3 * HOUR)];
            Json(json!({ "items": items })).into_response()
        };
        Router::new()
            .route("/v1/usages", get(sums))
            .route("/v1/backlog", get(async || Json(backlog())))
            .route("/v1/instances", get(async || Json(instances())))
            .route("/v1/usages/{id}/resend", post(resend))
            .route(
                "/v1/suspended",
                get(async move || Json(list_of_causes(causes))),
            )
            .route("/v1/suspended/{cause}", get(one_cause))
            .route("/v1/suspended/{cause}/resume", post(resume_cause))
            .route("/v1/spans/{id}/resume", post(act_on_span))
            .route("/v1/spans/{id}/skip", post(act_on_span))
            .route(
                "/v1/control",
                get(async move || ([("etag", "\"7\"")], Json(control(is_crowded))))
                    .put(set_control),
            )
            .route("/v1/audit", get(audit))
            .route("/v1/ids", get(ids))
            .route("/v1/spans", get(list))
            .route("/v1/spans/{id}", get(span))
            .route("/v1/spans/{id}/usages", get(usages))
    }

    /// A console over these spans, where nobody needs to sign in.
    pub(crate) fn console(self) -> Browser {
        let is_paused = self.is_paused;
        let console = Console::new(Parts {
            is_paused: Box::new(move || is_paused),
            api: self.api(),
            authenticator: Authenticator::none(),
            sign_in: None,
            keys: Keys::parse(&"k".repeat(32).into(), &[]).unwrap(),
            past: Box::new(|| {
                vec![
                    (Duration::from_mins(2), 4_800),
                    (Duration::from_mins(1), 2_400),
                ]
            }),
            units: "memory = \"MB\"".parse().unwrap(),
            clock: Arc::new(Still),
            random: Arc::new(SystemRandom),
        });
        Browser(with_fallbacks(console.routes()))
    }
}

fn parameters(query: Option<String>) -> BTreeMap<String, String> {
    let query = query.unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

/// A page of usages, as the API pages them.
fn page(id: &str, usages: &[Value], query: &BTreeMap<String, String>) -> Response {
    let number = |name: &str| query.get(name).map(|text| text.parse::<i64>().unwrap());
    let limit = usize::try_from(number("limit").unwrap_or(100)).unwrap();
    let (from, to) = (
        number("from").unwrap_or(0),
        number("to").unwrap_or(i64::MAX),
    );
    let first = usize::try_from(number("cursor").unwrap_or(0)).unwrap();
    let is_asked_for = |usage: &&Value| (from..to).contains(&usage["timestamp"].as_i64().unwrap());
    let mut all: Vec<&Value> = usages.iter().filter(is_asked_for).collect();
    if query.get("order").is_some_and(|order| order == "newest") {
        all.reverse();
    }
    let items: Vec<&Value> = all.iter().skip(first).take(limit).copied().collect();
    let mut response = Json(json!({ "items": items })).into_response();
    let link =
        |at: usize, name: &str| format!("</v1/spans/{id}/usages?cursor={at}>; rel=\"{name}\"");
    let next = (first + limit < all.len()).then(|| link(first + limit, "next"));
    let previous = first > 0 && query.contains_key("order");
    let previous = previous.then(|| link(first.saturating_sub(limit), "prev"));
    let link = next
        .into_iter()
        .chain(previous)
        .collect::<Vec<_>>()
        .join(", ");
    if !link.is_empty() {
        response.headers_mut().insert("link", link.parse().unwrap());
    }
    response
}

/// Finds a hostile instance by how it begins.
async fn ids(RawQuery(query): RawQuery) -> Response {
    let found = json!({ "field": "resource_instance_id", "id": "ord<b>ers" });
    let is_found = parameters(query)["prefix"] == "ord";
    Json(json!({ "items": is_found.then_some(found).as_slice() })).into_response()
}

fn backlog() -> Value {
    json!({
        "due": 1_200, "oldest": MIDNIGHT, "span_seconds": 86_400.5, "suspended": 812, "rate": 5_012.3,
        "closing": { "month": "2026-10", "left": 1_100, "closes_at": NOW, "done_at": NOW + 1 },
    })
}

/// A receiver, a worker that is not well, and more that are.
fn instances() -> Value {
    let instance = |number: i64| {
        json!({
            "program": if number == 0 { "receiver" } else { "worker" },
            "instance": format!("7d44<b>-{number}"), "index": "0", "version": "1.2.3",
            "started_at": MIDNIGHT + number, "seen_at": NOW, "state": "up", "failing": [],
            "warnings": [], "partitions": (number > 0).then_some(8), "paused_by": [],
            "upstream": (number > 0).then_some("cloudevents at meter.example.com"),
            "usages_today": (number > 0).then_some(100),
            "slack": (number == 0).then_some(5_270_400_000_i64),
            "intake": (number == 0).then(|| json!({ "kept": 240, "refused": 3, "last_at": NOW - SECOND })),
        })
    };
    let mut all: Vec<Value> = (0..60).map(instance).collect();
    all[50]["state"] = json!("unhealthy");
    all[50]["failing"] = json!(["processing", "database"]);
    all[50]["paused_by"] = json!(["replication-lag"]);
    all[51]["state"] = json!("stale");
    all[51]["version"] = json!(null);
    json!({ "items": all })
}

/// Takes usage number 4, once.
async fn resend(Path(id): Path<String>, headers: HeaderMap, body: String) -> Response {
    assert!(!headers.contains_key("if-match"));
    let body: Value = serde_json::from_str(&body).unwrap();
    match body["reason"].as_str() {
        Some("Mapped now.") if id == usage_id(4) => {
            (StatusCode::ACCEPTED, Json(json!({ "id": id }))).into_response()
        }
        Some("Mapped now.") => {
            let detail = "Only a usage that is skipped or set_aside can be sent again.";
            let title = "The usage cannot be sent again";
            problem(StatusCode::CONFLICT, title, detail, None)
        }
        _ => invalid_reason(),
    }
}

fn cause() -> Value {
    json!({
        "cause": CAUSE, "status": 422, "error": "unprocessable <plan>", "resource_id": "postgres",
        "plan_id": "small", "spans": 812, "set_aside": 31, "since": MIDNIGHT, "probe_at": NOW,
    })
}

/// As many causes of one resource, of which `more` are not listed.
fn list_of_causes((count, more): (usize, u64)) -> Value {
    let of_number = |number| {
        let mut cause = cause();
        cause["cause"] = json!(format!("c-{number}"));
        if number + 1 == count && more > 0 {
            cause["more"] = json!(more);
        }
        cause
    };
    json!({ "items": (0..count).map(of_number).collect::<Vec<_>>() })
}

/// One of the causes, also of those that are not in the list, or have no spans.
async fn one_cause(Path(id): Path<String>) -> Response {
    let mut cause = cause();
    match id.as_str() {
        CAUSE => {}
        LARGE_CAUSE => cause["spans"] = json!(100_000),
        ENDED_CAUSE => cause["spans"] = json!(0),
        _ => return not_there(),
    }
    cause["cause"] = json!(id);
    Json(cause).into_response()
}

/// What is set; a thousand resources may have rates of their own.
fn control(is_crowded: bool) -> Value {
    let rate = |number: i64| (format!("{number}{}", "<".repeat(200)), json!(number % 100));
    let resources = if is_crowded {
        (0..1_000).map(rate).collect()
    } else {
        json!({ "redis": 50 })
    };
    json!({
        "starts": { "rate": 100, "resources": resources }, "sampling": { "paused": false },
        "controller": { "enabled": false, "target_seconds": 600, "kp": 8, "ki": 0, "kd": 0 },
    })
}

/// Takes what was seen, and says what it was asked to set. What is wrong with the body comes first.
async fn set_control(headers: HeaderMap, body: String) -> Response {
    let body: Value = serde_json::from_str(&body).unwrap();
    if !body["starts"]["rate"].is_number() {
        return invalid_body("#/starts/rate", "It must be a number from 0 to 100.");
    }
    let tag = headers.get("if-match").and_then(|tag| tag.to_str().ok());
    if tag != Some("\"7\"") {
        return has_changed();
    }
    let expected = json!({
        "starts": { "rate": 12.5, "resources": { "redis": 50, "a = b": 0 } },
        "sampling": { "paused": true },
        "controller": { "enabled": false, "target_seconds": 600, "kp": 8, "ki": 0, "kd": 0 },
        "reason": "Abacus is slow.",
    });
    assert_eq!(body, expected);
    Json(body).into_response()
}

/// Lets the spans of the cause go on, for the one reason that there is.
async fn resume_cause(Path(cause): Path<String>, body: String) -> Response {
    let body: Value = serde_json::from_str(&body).unwrap();
    match (cause.as_str(), body["reason"].as_str()) {
        (CAUSE, Some("Mapped now.")) => {
            (StatusCode::ACCEPTED, Json(json!({ "resumed": 812 }))).into_response()
        }
        (CAUSE, _) => invalid_reason(),
        _ => not_there(),
    }
}

/// Takes what was seen, and says of a skip which usage it was for.
async fn act_on_span(Path(id): Path<String>, headers: HeaderMap, body: String) -> Response {
    if headers.get("if-match").is_none_or(|tag| tag != SEEN) {
        return has_changed();
    }
    let body: Value = serde_json::from_str(&body).unwrap();
    if body["reason"] != "Mapped now." {
        return invalid_reason();
    }
    let usage = body.get("usage_id").and_then(Value::as_str);
    assert!(usage.is_none_or(|usage| usage == usage_id(7)), "{body}");
    Json(json!({ "id": id })).into_response()
}

/// A problem, perhaps about some fields.
fn problem(status: StatusCode, title: &str, detail: &str, errors: Option<Value>) -> Response {
    let mut problem = json!({ "title": title, "detail": detail, "status": status.as_u16() });
    if let Some(errors) = errors {
        problem["errors"] = errors;
    }
    (status, Json(problem)).into_response()
}

fn invalid_body(pointer: &str, detail: &str) -> Response {
    let errors = json!([{ "pointer": pointer, "detail": detail }]);
    let title = "The body is not valid";
    problem(
        StatusCode::BAD_REQUEST,
        title,
        "The body is JSON.",
        Some(errors),
    )
}

fn invalid_reason() -> Response {
    invalid_body("#/reason", "It must not be blank.")
}

fn has_changed() -> Response {
    let status = StatusCode::PRECONDITION_FAILED;
    problem(status, "It has changed", "Look again.", None)
}

fn not_there() -> Response {
    let title = "There is no such span";
    problem(StatusCode::NOT_FOUND, title, "It is gone.", None)
}

fn too_wide() -> Response {
    let errors = json!([{ "parameter": "plan_id", "detail": "It is not enough." }]);
    let detail = "Add <b>organization_id</b>.";
    problem(
        StatusCode::BAD_REQUEST,
        "The query is too wide",
        detail,
        Some(errors),
    )
}

fn no_moment() -> Response {
    let errors = json!([{ "parameter": "from", "detail": "It must be ms, or RFC 3339." }]);
    problem(
        StatusCode::BAD_REQUEST,
        "The query is not valid",
        "Ask again.",
        Some(errors),
    )
}

/// A console as a browser sees it.
pub(crate) struct Browser(Router);

/// What a browser gets.
pub(crate) struct Shown {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Shown {
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).map(|value| value.to_str().unwrap());
        value.unwrap_or_default()
    }

    /// How often a text is in the page.
    pub(crate) fn count(&self, text: &str) -> usize {
        self.text.matches(text).count()
    }

    /// The page has this status, and each of these texts so often.
    #[track_caller]
    pub(crate) fn counts(&self, status: u16, texts: &[(&str, usize)]) {
        assert_eq!(self.status, status, "{}", self.text);
        for (text, count) in texts {
            assert_eq!(self.count(text), *count, "{text}: {}", self.text);
        }
    }

    /// All of these texts are in the page.
    #[track_caller]
    pub(crate) fn shows(&self, texts: &[&str]) {
        for text in texts {
            assert!(self.text.contains(text), "{text}: {}", self.text);
        }
    }

    /// The lines of a file.
    #[track_caller]
    pub(crate) fn lines_of_csv(&self) -> Vec<&str> {
        let kind = self.header("content-type");
        assert_eq!(kind, "text/csv; charset=utf-8", "{}", self.text);
        self.text.lines().collect()
    }

    /// It leads elsewhere.
    #[track_caller]
    pub(crate) fn leads_to(&self, location: &str) {
        let leads = (self.status, self.header("location"));
        assert_eq!(leads, (303, location), "{}", self.text);
    }

    /// The cookie that it sets.
    pub(crate) fn cookie(&self) -> String {
        let set = self.header("set-cookie");
        set.split(';').next().unwrap().to_owned()
    }

    /// What stands between these two texts.
    pub(crate) fn between(&self, before: &str, behind: &str) -> &str {
        let rest = self.text.split(before).nth(1).unwrap();
        rest.split(behind).next().unwrap()
    }
}

impl Browser {
    pub(crate) async fn get(&self, path: &str) -> Shown {
        self.ask("GET", path, &[], "").await
    }

    /// Asks with these headers.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        form: &str,
    ) -> Shown {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in [("host", "127.0.0.1:7070")].iter().chain(headers) {
            let headers = request.headers_mut().unwrap();
            headers.insert(*name, value.parse().unwrap());
        }
        let request = request.body(Body::from(form.to_owned()));
        let (head, body) = answer(self.0.clone(), request.unwrap()).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Shown {
            status: head.status.as_u16(),
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// A page that is there, which is also written where people can look at it.
    pub(crate) async fn page(&self, path: &str, name: &str) -> Shown {
        let shown = self.get(path).await;
        assert_eq!(shown.status, 200, "{path}: {}", shown.text);
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/console");
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(format!("{folder}/{name}.html"), &shown.text).unwrap();
        shown
    }
}

/// A page with the cookie and the secret of its session.
pub(crate) struct Visit {
    pub(crate) console: Browser,
    cookie: String,
    pub(crate) csrf: String,
}

impl Visit {
    pub(crate) async fn new(ledger: Ledger, page: &str) -> Self {
        let console = ledger.console();
        let shown = console.get(page).await;
        assert_eq!(shown.status, 200, "{page}: {}", shown.text);
        Self {
            csrf: shown.between("name=\"csrf\" value=\"", "\"").to_owned(),
            cookie: shown.cookie(),
            console,
        }
    }

    pub(crate) async fn send(&self, page: &str, form: &str) -> Shown {
        let form = format!("csrf={}&{form}", self.csrf);
        let cookie = [("cookie", self.cookie.as_str())];
        self.console.ask("POST", page, &cookie, &form).await
    }
}

/// A span without usages.
pub(crate) fn span(id: &str, start: i64, end: Option<i64>) -> Value {
    json!({
        "id": id,
        "target": {
            "organization_id": "acme", "space_id": "prod", "consumer_id": "app:shop",
            "resource_id": "postgres", "plan_id": "small", "resource_instance_id": "orders-db",
        },
        "measured_usage": [{ "measure": "memory", "quantity": 512 }],
        "start": start, "end": end, "state": if end.is_some() { "stopped" } else { "open" },
        "start_event_id": "2d509abe", "end_event_id": end.map(|_| "7f11"),
        "sampled_to": start, "due_at": NOW, "planned": null,
        "delivery": { "attempts": 0, "unanswered": false, "last_error": null },
        "proof": {
            "used": 0, "billed": 0, "skipped": 0, "unanswered": 0, "difference": 0,
            "unsampled": end.unwrap_or(NOW) - start, "usages": 0, "since": start,
        },
    })
}

/// A span whose usage number 7 is refused: it is two days behind.
pub(crate) fn suspended(id: &str) -> Value {
    let mut span = span(id, NOW - 3 * DAY, None);
    let from = NOW - 2 * DAY;
    span["state"] = json!("suspended");
    span["sampled_to"] = json!(from);
    span["proof"]["unsampled"] = json!(NOW - from);
    span["planned"] = json!({ "start": from, "end": from + HOUR, "usage_id": usage_id(7) });
    span
}

pub(crate) fn usage_id(number: usize) -> String {
    format!("ad1f2853-43e0-5cbf-b4f7-{number:012}")
}

pub(crate) fn usage(number: usize, start: i64, end: i64, state: &str) -> Value {
    let is_answered = state != "planned";
    json!({
        "id": usage_id(number), "span": "s", "interval": { "start": start, "end": end },
        "timestamp": i64::midpoint(start, end), "duration": end - start, "measured_usage": [],
        "state": state, "unanswered": false, "withheld": false,
        "attempts": i32::from(is_answered), "planned_at": end.max(start) + 5,
        "accepted_at": is_answered.then_some(end.max(start) + 64), "status": is_answered.then_some(202),
        "location": is_answered.then_some("https://abacus.example/v1/usage"), "error": null,
    })
}

/// Cuts the time from `start` to `end` as a worker does, forwards or backwards.
pub(crate) fn sampled(first: usize, start: i64, end: i64, window: i64) -> Vec<Value> {
    let (mut usages, mut at) = (Vec::new(), start);
    while at != end {
        let next = if end > at {
            ((at.div_euclid(window) + 1) * window).min(end)
        } else {
            ((at - 1).div_euclid(window) * window).max(end)
        };
        usages.push(usage(first + usages.len(), at, next, "accepted"));
        at = next;
    }
    usages
}

/// Says of a span what its usages come to.
pub(crate) fn settle(mut span: Value, usages: &[Value]) -> Value {
    let sum = |skipped: bool| -> i64 {
        let of = usages
            .iter()
            .filter(|usage| match usage["state"].as_str().unwrap() {
                "skipped" => skipped,
                "planned" | "refused" => false,
                _ => !skipped,
            });
        of.map(|usage| usage["duration"].as_i64().unwrap()).sum()
    };
    let (billed, skipped) = (sum(false), sum(true));
    let start = span["start"].as_i64().unwrap();
    span["sampled_to"] = json!(start + billed + skipped);
    span["proof"] = json!({
        "used": billed + skipped, "billed": billed, "skipped": skipped, "unanswered": 0, "difference": 0,
        "unsampled": span["end"].as_i64().unwrap_or(NOW) - start - billed - skipped, "usages": usages.len(), "since": start,
    });
    if span["end"] == span["sampled_to"] {
        span["state"] = json!("complete");
        span["due_at"] = Value::Null;
    }
    span
}
