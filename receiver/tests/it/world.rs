//! A receiver and its store, a worker that does what it is told, and a clock and chance that a test decides.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use sampler_domain::{
    Acceptance, Action, Contract, Driver, Entry, Failure, Granularities, Granularity, Policy,
    Remembered, Span, Target, Terms, Timestamp,
};
use sampler_receiver::{Options, Parts, Receiver};
use sampler_service::environment::{Clock, Random};
use sampler_service::http::Site;
use sampler_service::security::Authenticator;
use sampler_service::telemetry::{self, LogFormat, LogOptions};
use sampler_settings::{Settings, SlackSettings};
use sampler_store::Ledger;
use sampler_store_testing::memory::{MemoryStore, StoredSpan};
use sampler_store_testing::support::{Changing, run};
use sampler_upstream::{ClientOptions, Provisioning};
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::Subscriber;

use crate::answer::Answer;
use crate::openapi::Description;
use crate::store::Store;

pub(crate) const START: &str = "/v1/events/start";
pub(crate) const STOP: &str = "/v1/events/stop";
pub(crate) const UPDATE: &str = "/v1/events/update";
pub(crate) const EVENTS: &str = "/v1/events";
pub(crate) const MAPPINGS: &str = "/v1/mappings";
/// The spans of an organization, what its usages come to, and a cause that is not there.
pub(crate) const SPANS: &str = "/v1/spans?organization_id=an%20organization";
pub(crate) const SUMS: &str = "/v1/usages?organization_id=o";
pub(crate) const CAUSE: &str = "/v1/suspended/0b7c7f6e-3a06-5a7e-9d15-6d2f3b8a6a52";

pub(crate) const ALL: [&str; 3] = [START, STOP, MAPPINGS];

pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;

/// When a world begins: 2018-08-03T00:00:00 UTC.
pub(crate) const NOW: i64 = 1_533_254_400_000;

/// How far back events may be dated.
pub(crate) const PAST: i64 = 61 * DAY;

/// How far ahead events may be dated.
pub(crate) const FUTURE: i64 = 2 * DAY;

/// A clock that stands until it is set.
pub(crate) struct StillClock(AtomicI64);

impl StillClock {
    pub(crate) fn set(&self, millis: i64) {
        self.0.store(millis, Ordering::Relaxed);
    }
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::new(self.0.load(Ordering::Relaxed)).unwrap()
    }
}

/// Counts, so that spans stand in the store in the order in which they came.
struct Counting(AtomicU64);

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let number = self.0.fetch_add(1, Ordering::Relaxed);
            chunk.copy_from_slice(&number.to_le_bytes()[..chunk.len()]);
        }
    }
}

/// A receiver with what it works with.
pub(crate) struct World {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<StillClock>,
    pub(crate) receiver: Arc<Receiver>,
    site: Site,
}

fn options() -> Options {
    let mut settings = Settings::receiver();
    settings.sampling.dimension = Some(Granularity::Day);
    settings.slack = SlackSettings {
        past: Duration::from_millis(PAST.unsigned_abs()),
        future: Duration::from_millis(FUTURE.unsigned_abs()),
    };
    Options {
        settings,
        unknown_for: Duration::from_millis(15_500),
    }
}

impl World {
    /// A receiver with the usual options, ready.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A receiver with other options, ready.
    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        Self::build(None, Authenticator::none(), change).ready()
    }

    /// A receiver that needs tokens, ready.
    pub(crate) fn secured(authenticator: Authenticator) -> Self {
        Self::build(None, authenticator, |_| {}).ready()
    }

    /// A receiver whose store is not prepared yet.
    pub(crate) fn unprepared(provisioning: Option<&ClientOptions>) -> Self {
        Self::build(provisioning, Authenticator::none(), |_| {})
    }

    pub(crate) fn ready(self) -> Self {
        self.receiver.set_prepared();
        self
    }

    fn build(
        provisioning: Option<&ClientOptions>,
        authenticator: Authenticator,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let clock = Arc::new(StillClock(AtomicI64::new(NOW)));
        let of_store = Arc::clone(&clock);
        let memory = MemoryStore::new(move || of_store.now());
        let store = Arc::new(Store::new(memory));
        let mut options = options();
        change(&mut options);
        let parts = Parts {
            events: store.port.clone(),
            reading: store.port.clone(),
            operating: store.port.clone(),
            provisioning: provisioning.map(|options| Provisioning::new(options).unwrap()),
            clock: clock.clone(),
            random: Arc::new(Counting(AtomicU64::new(0))),
        };
        let receiver = Receiver::new(parts, options);
        let site = Site::new(Arc::clone(&receiver).routes(authenticator));
        Self {
            store,
            clock,
            receiver,
            site,
        }
    }

    /// Sends any request. A test that would wait for ever fails instead.
    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let answer = self.answer(request).await;
        let description = Description::of(self).await;
        description.check(&method, &path, &answer);
        answer
    }

    /// Begins to send a request.
    pub(crate) fn begin(self: &Arc<Self>, request: Request<Body>) -> JoinHandle<Answer> {
        let world = Arc::clone(self);
        tokio::spawn(async move { world.send(request).await })
    }

    /// The same, without a look at what the API says of itself.
    pub(crate) async fn answer(&self, request: Request<Body>) -> Answer {
        let answer = self.site.answer(request);
        let answer = timeout(Duration::from_mins(2), answer).await;
        Answer::read(answer.expect("an answer")).await
    }

    /// The paths of all routes, as the router tells them.
    pub(crate) fn routes(&self) -> BTreeSet<String> {
        let told = format!("{:?}", self.site);
        let paths = told.split("RouteId(").skip(1).filter_map(|rest| {
            let (_, path) = rest.split_once("): \"/")?;
            let (path, _) = path.split_once('"')?;
            // What has no route is answered by one of the router's own.
            let is_fallback = path.is_empty() || path.contains("__private__");
            (!is_fallback).then(|| format!("/{path}"))
        });
        paths.collect()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap())
            .await
    }

    /// The same with a header.
    pub(crate) async fn get_with(&self, path: &str, name: &str, value: &str) -> Answer {
        let request = Request::get(path).header(name, value);
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// What is answered 200.
    pub(crate) async fn read(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer.json()
    }

    /// The items of a list and its pages behind, and how many pages these are.
    pub(crate) async fn pages(&self, path: &str) -> (Vec<Value>, usize) {
        let (mut items, mut pages, mut next) = (Vec::new(), 0, Some(path.to_owned()));
        while let Some(path) = next {
            let answer = self.get(&path).await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            items.extend(answer.json()["items"].as_array().unwrap().iter().cloned());
            pages += 1;
            let links = answer.header("link").unwrap_or_default();
            assert!(links.matches("rel=").count() <= 1, "{links}");
            next = answer.linked("next");
        }
        (items, pages)
    }

    /// The items of a list.
    pub(crate) async fn items(&self, path: &str) -> Vec<Value> {
        self.pages(path).await.0
    }

    /// Sends JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(request(path, body.to_string())).await
    }

    /// Sends a start event.
    pub(crate) async fn start(&self, event: &Value) -> Answer {
        self.post(START, event).await
    }

    pub(crate) async fn update(&self, event: &Value) -> Answer {
        self.post(UPDATE, event).await
    }

    /// Sends a stop event.
    pub(crate) async fn stop(&self, event: &Value) -> Answer {
        self.post(STOP, event).await
    }

    /// The spans in the order of their starts, each as the events that it was made of.
    pub(crate) fn kept(&self) -> Vec<(Value, Option<Value>)> {
        self.spans().iter().map(events_of).collect()
    }

    /// How many spans have ended.
    pub(crate) fn ended(&self) -> usize {
        let spans = self.spans().into_iter();
        spans.filter(|span| span.end.is_some()).count()
    }

    /// The spans in the order of their starts.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.documents().into_iter().map(|kept| kept.span).collect()
    }

    /// The spans with what only the store knows of them.
    pub(crate) fn documents(&self) -> Vec<StoredSpan> {
        self.store.memory.all()
    }

    /// Asserts that the kept spans are exactly those of these starts and stops.
    #[track_caller]
    pub(crate) fn assert_kept(&self, spans: &[(&Value, Option<&Value>)]) {
        let expected: Vec<_> = spans
            .iter()
            .map(|(start, stop)| ((*start).clone(), stop.cloned()))
            .collect();
        assert_eq!(self.kept(), expected);
    }
}

/// A request with this body, which says that it is JSON.
pub(crate) fn request(path: &str, body: impl Into<Body>) -> Request<Body> {
    request_as("application/json", path, body)
}

pub(crate) fn request_as(media_type: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path)
        .header("content-type", media_type)
        .body(body.into())
        .unwrap()
}

fn events_of(span: &Span) -> (Value, Option<Value>) {
    let mut start = event_of(span.start_id.as_ref().map(ToString::to_string), span.start);
    start.extend(fields_of(&span.target));
    start.insert("measured_usage".to_owned(), json!(span.measures));
    let stop = span.end.map(|end| {
        let mut stop = event_of(span.end_id.as_ref().map(ToString::to_string), end);
        stop.extend(fields_of(&span.target));
        Value::Object(stop)
    });
    (Value::Object(start), stop)
}

fn event_of(id: Option<String>, timestamp: Timestamp) -> Map<String, Value> {
    let mut event = Map::new();
    event.extend(id.map(|id| ("id".to_owned(), Value::String(id))));
    event.insert("timestamp".to_owned(), json!(timestamp.as_millis()));
    event
}

fn fields_of(target: &Target) -> impl Iterator<Item = (String, Value)> {
    let fields = target.fields().into_iter();
    fields.map(|(name, id)| (name.to_owned(), json!(id.as_str())))
}

pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::clamped(millis)
}

/// Time is cut by the day, and one refusal suspends.
fn terms() -> Terms {
    Terms {
        run: run(1),
        policy: Policy {
            granularities: Granularities::all(Granularity::Day),
            stop_grace: 0,
        },
        contract: Contract::Forever,
        suspend_after: 1,
    }
}

impl World {
    pub(crate) fn span_at(&self, location: &str) -> Span {
        let mut spans = self.spans().into_iter();
        let of = |span: &Span| location.ends_with(&span.id.to_string());
        spans.find(of).unwrap()
    }

    /// Changes the span at an address, as no worker would.
    pub(crate) fn alter(&self, location: &str, change: impl FnOnce(&mut Span)) -> Span {
        let mut span = self.span_at(location);
        change(&mut span);
        self.store.memory.put(span.clone());
        span
    }

    fn driver(&self, location: &str) -> Driver {
        Driver::new(self.span_at(location), Remembered::default(), at(0))
    }

    async fn makes(&self, driver: &Driver, now: i64) -> Span {
        match driver.action(at(now), &terms()) {
            Action::Change(change) => self.store.memory.must_make(driver.span(), *change).await,
            other => panic!("{other:?}"),
        }
    }

    /// Plans what is due, or completes.
    pub(crate) async fn goes_on(&self, location: &str, now: i64) -> Span {
        self.makes(&self.driver(location), now).await
    }

    /// The upstream accepts what is planned.
    pub(crate) async fn accepts(&self, location: &str, now: i64) -> Entry {
        let mut driver = self.driver(location);
        driver.on_accepted(Acceptance {
            at: at(now),
            status: Some(202),
            location: Some("https://abacus/1".to_owned()),
        });
        let Action::WriteEntry(entry) = driver.action(at(now), &terms()) else {
            panic!("nothing is planned");
        };
        let memory = &self.store.memory;
        let expires_at = at(now + 100 * DAY);
        memory.write_entry(&entry, expires_at, None).await.unwrap();
        driver.on_entry_written();
        self.makes(&driver, now).await;
        *entry
    }

    /// The upstream refuses what is planned.
    pub(crate) async fn refuses(&self, location: &str, now: i64) -> Span {
        let mut driver = self.driver(location);
        driver.on_failed(Failure {
            at: at(now),
            retry_at: at(now),
            error: "no mapping".to_owned(),
            status: Some(400),
            blames_usage: true,
            is_post: true,
            unanswered: false,
        });
        self.makes(&driver, now).await
    }
}

/// A log that can be read.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Writes to it at every level.
    pub(crate) fn subscriber(&self) -> impl Subscriber + Send + Sync + use<> {
        let options = LogOptions {
            format: LogFormat::Json,
            level: "trace".to_owned(),
        };
        let writer = self.clone();
        telemetry::subscriber(&options, None, move || writer.clone()).unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    pub(crate) fn lines(&self, message: &str) -> Vec<Value> {
        let lines = self.text();
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line["message"] == message)
            .collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
