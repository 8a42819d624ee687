//! An API whose answers a test decides, and a console over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use sampler_api::{Cause, Control, Excluded, Span, Usage};
use sampler_console::{Console, Keys, Parts};
use sampler_domain::Timestamp;
use sampler_service::environment::{Clock, SystemRandom};
use sampler_service::http::Site;
use sampler_service::security::Authenticator;
use serde::Serialize;
use serde::de::DeserializeOwned;
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

/// The tag of every span, and the reason that every action needs.
const SEEN: &str = "\"seen\"";
const REASON: &str = "Mapped now.";

type Parameters = BTreeMap<String, String>;

struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        at(NOW)
    }
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::new(millis).unwrap()
}

/// What the API knows.
#[derive(Clone, Default)]
pub(crate) struct Ledger {
    pub(crate) spans: BTreeMap<String, (Span, Vec<Usage>)>,
    pub(crate) causes: Vec<Cause>,
    pub(crate) is_paused: bool,
}

impl Ledger {
    /// The same with another span.
    pub(crate) fn with(mut self, span: Span, usages: Vec<Usage>) -> Self {
        self.spans.insert(span.id.clone(), (span, usages));
        self
    }

    /// The same with causes of so many spans each.
    pub(crate) fn suspended_by(mut self, spans: &[u64]) -> Self {
        let causes = spans.iter().enumerate();
        self.causes = causes
            .map(|(number, spans)| cause(&format!("c-{number}"), *spans))
            .collect();
        self
    }

    /// One span, which says what these usages come to.
    pub(crate) fn of(span: Span, usages: Vec<Usage>) -> Self {
        Self::default().with(settle(span, &usages), usages)
    }

    /// A console over this, where nobody needs to sign in.
    pub(crate) fn console(self) -> Browser {
        let is_paused = self.is_paused;
        let console = Console::new(Parts {
            api: Router::new().fallback(api).with_state(Arc::new(self)),
            authenticator: Authenticator::none(),
            sign_in: None,
            keys: Keys::parse(&"k".repeat(32).into(), &[]).unwrap(),
            is_paused: Box::new(move || is_paused),
            units: "memory = \"MB\"".parse().unwrap(),
            clock: Arc::new(Still),
            random: Arc::new(SystemRandom),
        });
        Browser(Site::new(console.routes()))
    }
}

async fn api(State(ledger): State<Arc<Ledger>>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let query = head.uri.query().unwrap_or_default();
    let query = form_urlencoded::parse(query.as_bytes()).into_owned();
    let query: Parameters = query.collect();
    let decoded = |text| percent_decode_str(text).decode_utf8().unwrap();
    let path: Vec<_> = head.uri.path().split('/').skip(2).map(decoded).collect();
    let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    match path[..] {
        ["backlog"] => document(json!({
            "due": 1_200, "oldest": MIDNIGHT, "at_least": false, "suspended": 812, "rate": 5_012.3,
            "closing": { "month": "2026-10", "left": 1_100, "closes_at": NOW },
        })),
        ["control"] => {
            let mut control = Control::from(&sampler_domain::Control::default());
            control.sampling.paused = ledger.is_paused;
            document(control)
        }
        ["usages"] => sums(&query),
        ["audit"] => audit(&query),
        ["suspended"] => items(&ledger.causes),
        ["suspended", id] => {
            let cause = ledger.causes.iter().find(|cause| cause.cause == id);
            cause.map_or_else(nothing, document)
        }
        ["suspended", _, "resume"] if body["reason"] == REASON => {
            document(json!({ "resumed": 812 }))
        }
        ["suspended", _, "resume"] => invalid("pointer", "#/reason", "It must not be blank."),
        ["spans"] => search(&ledger, &query),
        ["spans", id] => ledger.spans.get(id).map_or_else(nothing, |(span, _)| {
            ([("etag", SEEN)], Json(span)).into_response()
        }),
        ["spans", id, "usages"] => {
            let span = ledger.spans.get(id);
            span.map_or_else(nothing, |(_, usages)| page(usages, &query))
        }
        ["spans", _, "resume" | "skip" | "resend"] => act_on_span(&head.headers, &body),
        _ => nothing(),
    }
}

fn document(document: impl Serialize) -> Response {
    Json(document).into_response()
}

fn items<T: Serialize>(items: &[T]) -> Response {
    document(json!({ "items": items }))
}

fn nothing() -> Response {
    problem(StatusCode::NOT_FOUND, "There is no such thing", &json!([]))
}

fn search(ledger: &Ledger, query: &Parameters) -> Response {
    if query.contains_key("plan_id") && query.len() == 1 {
        return invalid("parameter", "plan_id", "It is <b>not enough</b>.");
    }
    if query.get("from").is_some_and(|from| from.contains('.')) {
        return invalid("parameter", "from", "It must be RFC 3339.");
    }
    let spans = ledger.spans.values().map(|(span, _)| span);
    items(&spans.collect::<Vec<_>>())
}

/// A page of usages, as the API pages them.
fn page(usages: &[Usage], query: &Parameters) -> Response {
    let number = |name: &str, none: i64| query.get(name).map_or(none, |it| it.parse().unwrap());
    let limit = usize::try_from(number("limit", 100)).unwrap();
    let first = usize::try_from(number("cursor", 0)).unwrap();
    let asked = number("from", 0)..number("to", i64::MAX);
    let is_asked = |usage: &&Usage| asked.contains(&usage.timestamp.as_millis());
    let mut all: Vec<&Usage> = usages.iter().filter(is_asked).collect();
    if query.get("order").is_some_and(|order| order == "newest") {
        all.reverse();
    }
    let mut response = items(&all.iter().skip(first).take(limit).collect::<Vec<_>>());
    if first + limit < all.len() {
        let link = format!("<?cursor={}>; rel=\"next\"", first + limit);
        response.headers_mut().insert("link", link.parse().unwrap());
    }
    response
}

fn sums(query: &Parameters) -> Response {
    if !query.contains_key("organization_id") {
        return invalid("parameter", "plan_id", "It is not enough.");
    }
    let day = |day: i64, duration: i64| {
        let mut window =
            json!({ "start": MIDNIGHT + day * DAY, "end": MIDNIGHT + (day + 1) * DAY });
        if !query.contains_key("window") {
            window = json!({ "start": Timestamp::MIN, "end": Timestamp::MAX });
        }
        json!({
            "window": window, "usages": 24, "duration": duration,
            "group": { "resource_id": "=HYPERLINK(\"x\")", "plan_id": "<small>" },
            "measures": [
                { "measure": "memory", "amount": duration * 512, "unit": "MB" },
                { "measure": "odd", "amount": null },
            ],
        })
    };
    items(&[day(-2, DAY), day(-1, DAY / 2), day(0, -3 * HOUR)])
}

fn audit(query: &Parameters) -> Response {
    if query.get("who").is_some_and(|who| who == "nobody") {
        return items::<Value>(&[]);
    }
    let act = |act: &str, who: &str, reason: &str, [before, after]: [Value; 2]| {
        json!({
            "id": "5c0f2a4e-0000-4000-8000-000000000000", "at": NOW - HOUR, "who": who, "act": act,
            "subject": "/v1/spans/<b>", "reason": reason, "before": before, "after": after,
            "outcome": "done",
        })
    };
    let state = ["suspended", "open"].map(|state| json!({ "state": state }));
    let paused = [false, true].map(|paused| json!({ "sampling": { "paused": paused } }));
    let skip = act(
        "span.skip",
        "alice\u{202e}",
        "The <i>plan</i> has gone.",
        state,
    );
    let pause = act("control.set", "bob", "Abacus is <b>down</b>.", paused);
    items(&[skip, pause])
}

/// Takes the state that was seen, and times up to now.
fn act_on_span(headers: &HeaderMap, body: &Value) -> Response {
    if headers.get("if-match").is_none_or(|tag| tag != SEEN) {
        let status = StatusCode::PRECONDITION_FAILED;
        return problem(status, "It has changed", &json!([]));
    }
    if body["reason"] != REASON {
        return invalid("pointer", "#/reason", "It must not be blank.");
    }
    for name in ["until", "from", "to"] {
        let given = body.get(name);
        if given.is_some_and(|time| time.as_i64().is_none_or(|time| time > NOW)) {
            return invalid("pointer", &format!("#/{name}"), "It is wrong.");
        }
    }
    document(body)
}

fn problem(status: StatusCode, title: &str, errors: &Value) -> Response {
    let problem = json!({ "title": title, "detail": "It is as it is.", "errors": errors });
    (status, Json(problem)).into_response()
}

/// A parameter or a pointer is wrong.
fn invalid(kind: &str, place: &str, detail: &str) -> Response {
    let errors = json!([{ kind: place, "detail": detail }]);
    problem(StatusCode::BAD_REQUEST, "It is not valid", &errors)
}

/// A console as a browser sees it.
pub(crate) struct Browser(Site);

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
        let (head, body) = self.0.answer(request.unwrap()).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Shown {
            status: head.status.as_u16(),
            headers: head.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
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

fn read<T: DeserializeOwned>(document: Value) -> T {
    serde_json::from_value(document).unwrap()
}

/// A span without usages.
pub(crate) fn span(id: &str, start: i64, end: Option<i64>) -> Span {
    read(json!({
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
            "used": 0, "billed": 0, "skipped": 0, "unanswered": 0,
            "unsampled": end.unwrap_or(NOW) - start, "usages": 0, "ledger": 0, "difference": 0,
        },
    }))
}

/// The same document with other values of some of its members.
pub(crate) fn with<T: Serialize + DeserializeOwned>(document: T, changes: Value) -> T {
    fn change(document: &mut Value, changes: Value) {
        match (document, changes) {
            (Value::Object(members), Value::Object(changes)) => {
                for (name, value) in changes {
                    change(members.entry(name).or_insert(Value::Null), value);
                }
            }
            (document, changes) => *document = changes,
        }
    }
    let mut value = serde_json::to_value(document).unwrap();
    change(&mut value, changes);
    read(value)
}

/// A span whose usage number 7 is refused: it is two days behind.
pub(crate) fn suspended(id: &str) -> Span {
    let from = NOW - 2 * DAY;
    let changes = json!({
        "state": "suspended", "sampled_to": from, "proof": { "unsampled": NOW - from },
        "planned": { "start": from, "end": from + HOUR, "usage_id": usage_id(7) },
    });
    with(span(id, NOW - 3 * DAY, None), changes)
}

pub(crate) fn cause(id: &str, spans: u64) -> Cause {
    read(json!({
        "cause": id, "status": 422, "error": "unprocessable <plan>", "resource_id": "postgres",
        "plan_id": "small", "spans": spans, "since": MIDNIGHT,
    }))
}

pub(crate) fn usage_id(number: usize) -> String {
    format!("ad1f2853-43e0-5cbf-b4f7-{number:012}")
}

/// A usage that was accepted.
fn usage(number: usize, start: i64, end: i64) -> Usage {
    read(json!({
        "id": usage_id(number), "span": "s", "interval": { "start": start, "end": end },
        "timestamp": i64::midpoint(start, end), "duration": end - start, "measured_usage": [],
        "accepted_at": end.max(start) + 64, "status": 202,
        "location": "https://abacus.example/v1/usage",
    }))
}

/// Time that does not count.
pub(crate) fn excluded(start: i64, end: i64) -> Excluded {
    read(json!({ "start": start, "end": end, "unanswered": false }))
}

/// Cuts the time from `start` to `end` as a worker does, forwards or backwards.
pub(crate) fn sampled(first: usize, start: i64, end: i64, window: i64) -> Vec<Usage> {
    let (mut usages, mut at) = (Vec::new(), start);
    while at != end {
        let next = if end > at {
            ((at.div_euclid(window) + 1) * window).min(end)
        } else {
            ((at - 1).div_euclid(window) * window).max(end)
        };
        usages.push(usage(first + usages.len(), at, next));
        at = next;
    }
    usages
}

/// Says of a span what its usages come to.
fn settle(mut span: Span, usages: &[Usage]) -> Span {
    let billed = usages.iter().map(|usage| usage.duration).sum();
    span.sampled_to = span.start.plus(billed);
    if span.end == Some(span.sampled_to) {
        (span.state, span.due_at) = ("complete".to_owned(), None);
    }
    (span.proof.used, span.proof.billed) = (billed, billed);
    span.proof.unsampled = span.end.unwrap_or(at(NOW)).since(span.sampled_to);
    (span.proof.usages, span.proof.ledger) = (Some(usages.len() as u64), Some(billed));
    span
}
