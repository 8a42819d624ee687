//! A stand-in for a metering system that takes CloudEvents over HTTP, as OpenMeter does: it recognises a
//! repeat for a while, forgets, and answers finds.
//!
//! `POST /api/v1/events?…` takes an event, `GET /api/v2/events?filter={"id":{"$eq":…}}` finds events.
//! Any other `GET` is 404 with a page, as behind a gateway.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::serving::{Serving, listen};

/// What the stand-in promises.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeterOptions {
    /// How long after it has stored an event it recognises a repeat.
    pub horizon: Duration,
    /// How long after it has stored an event it may not find it.
    pub settles: Duration,
}

/// How posts go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeterFault {
    #[default]
    None,
    /// The event is stored, and the answer never comes.
    LosesAnswer,
    /// Nothing is done but this answer, with a body of text.
    Status(u16),
}

/// A post as it came.
#[derive(Clone, Debug)]
pub struct Posted {
    pub at: Instant,
    pub id: String,
    pub path: String,
    pub content_type: String,
    pub authorization: Option<String>,
    pub body: String,
    /// Whether it counts: it is stored, and not a repeat.
    pub counts: bool,
}

/// A find as it came.
#[derive(Clone, Debug)]
pub struct Sought {
    pub at: Instant,
    pub query: String,
    /// How many events were found.
    pub found: usize,
}

#[derive(Default)]
struct Books {
    posts: Vec<Posted>,
    finds: Vec<Sought>,
    /// `GET`s of anything else.
    others: Vec<String>,
    post_fault: MeterFault,
    finds_in_flight: usize,
    finds_at_once: usize,
}

struct Shared {
    options: MeterOptions,
    books: Mutex<Books>,
}

/// A running stand-in. It goes when this value goes.
pub struct StandInMeter {
    shared: Arc<Shared>,
    base_url: String,
    _serving: Serving,
}

impl StandInMeter {
    /// Starts on a free port of this machine.
    pub async fn start(options: MeterOptions) -> Result<Self> {
        let (listener, base_url) = listen().await?;
        let shared = Arc::new(Shared {
            options,
            books: Mutex::default(),
        });
        let router = Router::new()
            .route("/api/v1/events", post(take))
            .route("/api/v2/events", get(find))
            .fallback(other)
            .with_state(Arc::clone(&shared));
        Ok(Self {
            shared,
            base_url,
            _serving: Serving::start(listener, router)?,
        })
    }

    /// Where it is.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Where usages are posted.
    pub fn post_url(&self) -> String {
        format!("{}/api/v1/events?tenant=a%20b", self.base_url)
    }

    /// Where a usage is found.
    pub fn find_url(&self) -> String {
        let filter = "%7B%22id%22%3A%7B%22%24eq%22%3A%22{id}%22%7D%7D";
        format!("{}/api/v2/events?filter={filter}", self.base_url)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.shared.books()
    }

    /// From now on posts go wrong so.
    pub fn post_fault(&self, fault: MeterFault) {
        self.books().post_fault = fault;
    }

    /// All posts so far.
    pub fn posts(&self) -> Vec<Posted> {
        self.books().posts.clone()
    }

    /// How many finds were in flight at once, at the most.
    pub fn finds_at_once(&self) -> usize {
        self.books().finds_at_once
    }

    /// All finds so far.
    pub fn finds(&self) -> Vec<Sought> {
        self.books().finds.clone()
    }

    /// All other requests so far.
    pub fn others(&self) -> Vec<String> {
        self.books().others.clone()
    }

    /// The events that count, one for each time that they do.
    pub fn counted(&self) -> Vec<Value> {
        let posts = self.posts().into_iter().filter(|post| post.counts);
        posts
            .filter_map(|post| serde_json::from_str(&post.body).ok())
            .collect()
    }

    /// What counts for an instance, ms.
    pub fn sum(&self, instance: &str) -> i64 {
        let counted = self.counted().into_iter();
        let of_it = counted.filter(|it| it["data"]["resource_instance_id"] == *instance);
        let durations = of_it.filter_map(|it| it["data"]["duration"].as_str()?.parse::<i64>().ok());
        durations.sum()
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("nobody panics with it")
    }
}

async fn take(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: String,
) -> Response {
    let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
    let content_type = text("content-type").unwrap_or_default();
    let event: Value = serde_json::from_str(&body).unwrap_or_default();
    let is_fit = content_type == "application/cloudevents+json"
        && ["id", "source", "type", "specversion"]
            .iter()
            .all(|name| event[name].as_str().is_some_and(|it| !it.is_empty()));
    let id = event["id"].as_str().unwrap_or_default().to_owned();
    let fault = {
        let now = Instant::now();
        let mut books = shared.books();
        let fault = books.post_fault;
        let is_stored = is_fit && matches!(fault, MeterFault::None | MeterFault::LosesAnswer);
        let horizon = shared.options.horizon;
        let is_repeat = books
            .posts
            .iter()
            .any(|post| post.counts && post.id == id && now < post.at + horizon);
        books.posts.push(Posted {
            at: now,
            id,
            path: uri.to_string(),
            content_type,
            authorization: text("authorization"),
            body,
            counts: is_stored && !is_repeat,
        });
        fault
    };
    match fault {
        MeterFault::None if is_fit => StatusCode::NO_CONTENT.into_response(),
        MeterFault::None => StatusCode::BAD_REQUEST.into_response(),
        MeterFault::Status(status) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            (status, "a gateway says so").into_response()
        }
        MeterFault::LosesAnswer => std::future::pending().await,
    }
}

/// A find in flight; it ends when the caller has the answer, or has gone.
struct InFlight(Arc<Shared>);

impl InFlight {
    fn begin(shared: Arc<Shared>) -> Self {
        let mut books = shared.books();
        books.finds_in_flight += 1;
        books.finds_at_once = books.finds_at_once.max(books.finds_in_flight);
        drop(books);
        Self(shared)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.books().finds_in_flight -= 1;
    }
}

async fn find(State(shared): State<Arc<Shared>>, uri: Uri) -> axum::Json<Value> {
    let _in_flight = InFlight::begin(Arc::clone(&shared));
    let filter = uri.query().unwrap_or_default();
    let filter = filter.strip_prefix("filter=").unwrap_or_default();
    let filter = percent_decode_str(filter).decode_utf8_lossy();
    let filter: Value = serde_json::from_str(&filter).unwrap_or_default();
    let id = filter["id"]["$eq"].as_str().unwrap_or_default().to_owned();
    let now = Instant::now();
    let mut books = shared.books();
    let settles = shared.options.settles;
    let stored = books
        .posts
        .iter()
        .filter(|post| post.counts && post.id == id && post.at + settles <= now);
    let items: Vec<Value> = stored
        .filter_map(|post| serde_json::from_str::<Value>(&post.body).ok())
        .map(|event| json!({ "event": event, "ingestedAt": "2026-01-01T00:00:00Z" }))
        .collect();
    books.finds.push(Sought {
        at: now,
        query: uri.to_string(),
        found: items.len(),
    });
    axum::Json(json!({ "items": items }))
}

async fn other(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    shared.books().others.push(uri.to_string());
    (StatusCode::NOT_FOUND, "404 page not found").into_response()
}
