//! A stand-in for the router of Cloud Foundry. It goes round the instances that are ready. Where one
//! refuses the connection, nothing has been sent, and it tries another; after that it never sends a
//! request twice. It keeps its connections, and marks each request with ids.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router as Routes;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use reqwest::Client;
use sampler_testkit::wait_until;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::landscape::{PATIENCE, client};

/// The largest body that is passed on.
const BODY_MAX: usize = 1 << 20;

/// The header that tells client and instance what the router calls a request.
pub(super) const REQUEST_ID: &str = "x-vcap-request-id";

/// An instance as the router knows it.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    pub(super) url: String,
    /// Whether it was ready when it was last asked.
    pub(super) ready: Arc<AtomicBool>,
    /// How many requests it has answered.
    pub(super) answered: Arc<AtomicU64>,
}

/// What the router goes by.
#[derive(Debug)]
struct Table {
    backends: Mutex<Vec<Backend>>,
    requests: AtomicU64,
    http: Client,
}

/// A running router. It goes when this value goes.
#[derive(Debug)]
pub(super) struct Router {
    table: Arc<Table>,
    url: String,
    serving: JoinHandle<()>,
}

impl Router {
    pub(super) async fn start() -> Self {
        let table = Arc::new(Table {
            backends: Mutex::default(),
            requests: AtomicU64::new(0),
            http: client(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = Routes::new()
            .fallback(pass_on)
            .with_state(Arc::clone(&table));
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            table,
            url,
            serving,
        }
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn add(&self, backend: Backend) {
        self.table.backends().push(backend);
    }

    /// Waits until each instance has answered some more requests.
    pub(super) async fn until_all_answer(&self) {
        let count = |backend: &Backend| backend.answered.load(Ordering::Relaxed);
        let before: Vec<_> = self.table.backends().iter().map(count).collect();
        wait_until("each instance answers", PATIENCE, async || {
            let now = self.table.backends().clone();
            now.iter()
                .zip(&before)
                .all(|(now, before)| count(now) > before + 20)
        })
        .await;
    }

    /// Forgets an instance that is gone.
    pub(super) fn remove(&self, url: &str) {
        self.table.backends().retain(|backend| backend.url != url);
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Table {
    fn backends(&self) -> std::sync::MutexGuard<'_, Vec<Backend>> {
        self.backends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are ready, each time from another one on.
    fn round(&self, turn: u64) -> Vec<Backend> {
        let mut ready = self.backends().clone();
        ready.retain(|backend| backend.ready.load(Ordering::Acquire));
        if !ready.is_empty() {
            let turn = usize::try_from(turn).unwrap() % ready.len();
            ready.rotate_left(turn);
        }
        ready
    }
}

async fn pass_on(State(table): State<Arc<Table>>, request: Request) -> Response {
    let turn = table.requests.fetch_add(1, Ordering::Relaxed);
    let id = format!("00000000-0000-4000-8000-{turn:012x}");
    let mut response = forward(&table, turn, &id, request).await;
    response
        .headers_mut()
        .insert(REQUEST_ID, id.parse().unwrap());
    response
}

async fn forward(table: &Table, turn: u64, id: &str, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_MAX).await else {
        return (StatusCode::BAD_REQUEST, "no body").into_response();
    };
    for backend in table.round(turn) {
        let url = format!("{}{}", backend.url, parts.uri);
        let sent = table
            .http
            .request(parts.method.clone(), url)
            .headers(parts.headers.clone())
            .header(REQUEST_ID, id)
            .header("x-b3-traceid", trace_id(turn))
            .header("x-b3-spanid", format!("{:016x}", turn + 1))
            .body(body.clone())
            .send();
        match sent.await {
            Ok(answer) => {
                backend.answered.fetch_add(1, Ordering::Relaxed);
                return answered(answer).await;
            }
            Err(error) if error.is_connect() => {}
            Err(error) => return (StatusCode::BAD_GATEWAY, format!("{error:?}")).into_response(),
        }
    }
    (StatusCode::SERVICE_UNAVAILABLE, "no instance is ready").into_response()
}

/// The trace that the router makes a request a part of.
pub(super) fn trace_id(turn: u64) -> String {
    format!("{:032x}", turn + 1)
}

async fn answered(answer: reqwest::Response) -> Response {
    let (status, headers) = (answer.status(), answer.headers().clone());
    match answer.bytes().await {
        Ok(body) => (status, headers, Body::from(body)).into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:?}")).into_response(),
    }
}
