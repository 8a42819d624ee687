//! An API whose answers a test decides, and a console over it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http_body_util::BodyExt;
use sampler_api::{
    Act, Amount, Backlog, Cause, Closing, Control, Delivery, Excluded, FieldError, Interval, List,
    Measure, Plan, Problem, Proof, Reason, Resumed, Span, Sum, Target, Usage,
};
use sampler_console::{Console, Keys, Parts};
use sampler_domain::Timestamp;
use sampler_service::environment::{Clock, SystemRandom};
use sampler_service::http::{answer, complete};
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

    /// One span, which says what these usages come to.
    pub(crate) fn of(span: Span, usages: Vec<Usage>) -> Self {
        Self::default().with(settle(span, &usages), usages)
    }

    fn api(self) -> Router {
        let spans = Arc::new(self.spans);
        let (one, ledger) = (Arc::clone(&spans), Arc::clone(&spans));
        let causes = Arc::new(self.causes);
        let cause = Arc::clone(&causes);
        let is_paused = self.is_paused;
        let list = async move |RawQuery(query): RawQuery| {
            let query = parameters(query);
            if query.contains_key("plan_id") && query.len() == 1 {
                return invalid(FieldError::of_parameter(
                    "plan_id",
                    "It is <b>not enough</b>.",
                ));
            }
            if query.get("from").is_some_and(|from| from.contains('.')) {
                return invalid(FieldError::of_parameter("from", "It must be RFC 3339."));
            }
            items(spans.values().map(|(span, _)| span.clone()).collect())
        };
        let one = async move |Path(id): Path<String>| match one.get(&id) {
            Some((span, _)) => ([("etag", SEEN)], Json(span.clone())).into_response(),
            None => not_there(),
        };
        let ledger =
            async move |Path(id): Path<String>, RawQuery(query): RawQuery| match ledger.get(&id) {
                Some((_, usages)) => page(usages, &parameters(query)),
                None => not_there(),
            };
        let cause = async move |Path(id): Path<String>| match cause.iter().find(|it| it.cause == id)
        {
            Some(cause) => Json(cause.clone()).into_response(),
            None => not_there(),
        };
        Router::new()
            .route("/v1/usages", get(sums))
            .route("/v1/backlog", get(async || Json(backlog())))
            .route("/v1/suspended", get(async move || items(causes.to_vec())))
            .route("/v1/suspended/{cause}", get(cause))
            .route("/v1/suspended/{cause}/resume", post(resume_cause))
            .route("/v1/control", get(async move || Json(control(is_paused))))
            .route("/v1/audit", get(audit))
            .route("/v1/spans", get(list))
            .route("/v1/spans/{id}", get(one))
            .route("/v1/spans/{id}/usages", get(ledger))
            .route("/v1/spans/{id}/resume", post(act_on_span))
            .route("/v1/spans/{id}/skip", post(act_on_span))
            .route("/v1/spans/{id}/resend", post(act_on_span))
    }

    /// A console over this, where nobody needs to sign in.
    pub(crate) fn console(self) -> Browser {
        let is_paused = self.is_paused;
        let console = Console::new(Parts {
            api: self.api(),
            authenticator: Authenticator::none(),
            sign_in: None,
            keys: Keys::parse(&"k".repeat(32).into(), &[]).unwrap(),
            is_paused: Box::new(move || is_paused),
            units: "memory = \"MB\"".parse().unwrap(),
            clock: Arc::new(Still),
            random: Arc::new(SystemRandom),
        });
        Browser(complete(console.routes()))
    }
}

fn parameters(query: Option<String>) -> Parameters {
    let query = query.unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

fn items<T: serde::Serialize>(items: Vec<T>) -> Response {
    Json(List { items }).into_response()
}

/// A page of usages, as the API pages them.
fn page(usages: &[Usage], query: &Parameters) -> Response {
    let number = |name: &str| query.get(name).map(|text| text.parse::<i64>().unwrap());
    let limit = usize::try_from(number("limit").unwrap_or(100)).unwrap();
    let first = usize::try_from(number("cursor").unwrap_or(0)).unwrap();
    let (from, to) = (
        number("from").unwrap_or(0),
        number("to").unwrap_or(i64::MAX),
    );
    let asked = |usage: &&Usage| (from..to).contains(&usage.timestamp.as_millis());
    let mut all: Vec<&Usage> = usages.iter().filter(asked).collect();
    if query.get("order").is_some_and(|order| order == "newest") {
        all.reverse();
    }
    let mut response = items(all.iter().skip(first).take(limit).collect());
    if first + limit < all.len() {
        let link = format!("<?cursor={}>; rel=\"next\"", first + limit);
        response.headers_mut().insert("link", link.parse().unwrap());
    }
    response
}

async fn sums(RawQuery(query): RawQuery) -> Response {
    let query = parameters(query);
    if !query.contains_key("organization_id") {
        return invalid(FieldError::of_parameter("plan_id", "It is not enough."));
    }
    let day = |day: i64, duration: i64| {
        let (mut start, mut end) = (at(MIDNIGHT + day * DAY), at(MIDNIGHT + (day + 1) * DAY));
        if !query.contains_key("window") {
            (start, end) = (Timestamp::MIN, Timestamp::MAX);
        }
        let group = json!({ "resource_id": "=HYPERLINK(\"x\")", "plan_id": "<small>" });
        let amount = |measure: &str, amount: Option<i64>, unit: Option<&str>| Amount {
            measure: measure.to_owned(),
            amount: amount.map(Into::into),
            unit: unit.map(str::to_owned),
        };
        Sum {
            window: Interval { start, end },
            group: group.as_object().unwrap().clone(),
            usages: 24,
            duration: Some(duration.into()),
            measures: vec![
                amount("memory", Some(duration * 512), Some("MB")),
                amount("odd", None, None),
            ],
        }
    };
    items(vec![day(-2, DAY), day(-1, DAY / 2), day(0, -3 * HOUR)])
}

fn backlog() -> Backlog {
    Backlog {
        due: 1_200,
        oldest: Some(at(MIDNIGHT)),
        at_least: false,
        suspended: 812,
        rate: 5_012.3,
        closing: Some(Closing {
            month: "2026-10".to_owned(),
            left: 1_100,
            closes_at: at(NOW),
        }),
    }
}

fn control(is_paused: bool) -> Control {
    let mut control = Control::from(&sampler_domain::Control::default());
    control.sampling.paused = is_paused;
    control.starts.resources.insert("redis".to_owned(), 50.0);
    control
}

async fn audit(RawQuery(query): RawQuery) -> Response {
    if parameters(query)
        .get("who")
        .is_some_and(|who| who == "nobody")
    {
        return items(Vec::<Act>::new());
    }
    let act = |act: &str, who: &str, reason: &str, [before, after]: [Value; 2]| Act {
        id: "5c0f2a4e-0000-4000-8000-000000000000".to_owned(),
        at: at(NOW - HOUR),
        who: Some(who.to_owned()),
        act: act.to_owned(),
        subject: "/v1/spans/<b>".to_owned(),
        reason: reason.to_owned(),
        before,
        after,
        outcome: "done".to_owned(),
    };
    let state = ["suspended", "open"].map(|state| json!({ "state": state }));
    let paused = [false, true].map(|paused| json!({ "sampling": { "paused": paused } }));
    items(vec![
        act(
            "span.skip",
            "alice\u{202e}",
            "The <i>plan</i> has gone.",
            state,
        ),
        act("control.set", "bob", "Abacus is <b>down</b>.", paused),
    ])
}

async fn resume_cause(Path(_): Path<String>, Json(body): Json<Reason>) -> Response {
    if body.reason != REASON {
        return invalid_reason();
    }
    (StatusCode::ACCEPTED, Json(Resumed { resumed: 812 })).into_response()
}

/// Takes the state that was seen, and times up to now.
async fn act_on_span(headers: HeaderMap, Json(body): Json<Value>) -> Response {
    if headers.get("if-match").is_none_or(|tag| tag != SEEN) {
        return problem(
            StatusCode::PRECONDITION_FAILED,
            "It has changed",
            Vec::new(),
        );
    }
    if body["reason"] != REASON {
        return invalid_reason();
    }
    for name in ["until", "from", "to"] {
        if body
            .get(name)
            .is_some_and(|time| time.as_i64().is_none_or(|time| time > NOW))
        {
            return invalid(FieldError::new(format!("#/{name}"), "It is wrong."));
        }
    }
    Json(body).into_response()
}

fn problem(status: StatusCode, title: &str, errors: Vec<FieldError>) -> Response {
    let problem = Problem {
        title: title.to_owned(),
        detail: "It is as it is.".to_owned(),
        errors,
        ..Problem::default()
    };
    (status, Json(problem)).into_response()
}

fn invalid(error: FieldError) -> Response {
    problem(StatusCode::BAD_REQUEST, "It is not valid", vec![error])
}

fn invalid_reason() -> Response {
    invalid(FieldError::new("#/reason", "It must not be blank."))
}

fn not_there() -> Response {
    problem(StatusCode::NOT_FOUND, "There is no such thing", Vec::new())
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
pub(crate) fn span(id: &str, start: i64, end: Option<i64>) -> Span {
    let state = if end.is_some() { "stopped" } else { "open" };
    let target = [
        "organization_id=acme",
        "space_id=prod",
        "consumer_id=app:shop",
        "resource_id=postgres",
        "plan_id=small",
        "resource_instance_id=orders-db",
    ];
    let target: BTreeMap<_, _> = target.iter().filter_map(|it| it.split_once('=')).collect();
    Span {
        id: id.to_owned(),
        target: serde_json::from_value::<Target>(json!(target)).unwrap(),
        measured_usage: vec![Measure {
            measure: "memory".to_owned(),
            quantity: json!(512),
        }],
        start: at(start),
        end: end.map(at),
        state: state.to_owned(),
        start_event_id: Some("2d509abe".to_owned()),
        end_event_id: end.map(|_| "7f11".to_owned()),
        sampled_to: at(start),
        due_at: Some(at(NOW)),
        planned: None,
        delivery: Delivery {
            attempts: 0,
            unanswered: false,
            last_error: None,
        },
        excluded: Vec::new(),
        again: Vec::new(),
        proof: Proof {
            used: 0,
            billed: 0,
            skipped: 0,
            unanswered: 0,
            unsampled: end.unwrap_or(NOW) - start,
            usages: Some(0),
            ledger: Some(0),
            difference: Some(0),
        },
    }
}

/// A span whose usage number 7 is refused: it is two days behind.
pub(crate) fn suspended(id: &str) -> Span {
    let (from, span) = (NOW - 2 * DAY, span(id, NOW - 3 * DAY, None));
    Span {
        state: "suspended".to_owned(),
        sampled_to: at(from),
        proof: Proof {
            unsampled: NOW - from,
            ..span.proof
        },
        planned: Some(Plan {
            start: at(from),
            end: at(from + HOUR),
            usage_id: usage_id(7),
        }),
        ..span
    }
}

pub(crate) fn cause(id: &str, spans: u64) -> Cause {
    Cause {
        cause: id.to_owned(),
        status: Some(422),
        error: "unprocessable <plan>".to_owned(),
        resource_id: "postgres".to_owned(),
        plan_id: "small".to_owned(),
        spans,
        since: at(MIDNIGHT),
    }
}

pub(crate) fn usage_id(number: usize) -> String {
    format!("ad1f2853-43e0-5cbf-b4f7-{number:012}")
}

/// A usage that was accepted.
fn usage(number: usize, start: i64, end: i64) -> Usage {
    Usage {
        id: usage_id(number),
        span: "s".to_owned(),
        interval: Interval {
            start: at(start),
            end: at(end),
        },
        timestamp: at(i64::midpoint(start, end)),
        duration: end - start,
        measured_usage: Vec::new(),
        accepted_at: at(end.max(start) + 64),
        status: Some(202),
        location: Some("https://abacus.example/v1/usage".to_owned()),
    }
}

/// Time that does not count.
pub(crate) fn excluded(start: i64, end: i64) -> Excluded {
    Excluded {
        start: at(start),
        end: at(end),
        back_to: None,
        unanswered: false,
        error: None,
    }
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
fn settle(span: Span, usages: &[Usage]) -> Span {
    let billed = usages.iter().map(|usage| usage.duration).sum();
    let sampled_to = span.start.as_millis() + billed;
    let is_complete = span.end == Some(at(sampled_to));
    Span {
        sampled_to: at(sampled_to),
        state: if is_complete {
            "complete".to_owned()
        } else {
            span.state
        },
        due_at: span.due_at.filter(|_| !is_complete),
        proof: Proof {
            used: billed,
            billed,
            unsampled: span.end.map_or(NOW, Timestamp::as_millis) - sampled_to,
            usages: Some(usages.len() as u64),
            ledger: Some(billed),
            ..span.proof
        },
        ..span
    }
}
