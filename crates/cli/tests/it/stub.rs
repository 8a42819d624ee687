//! A server that answers as a test says, and remembers what it was asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::runtime::Runtime;

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The method, and the path with its query.
    pub(crate) what: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// What is answered: status, body, `ETag`.
pub(crate) struct Reply(
    pub(crate) u16,
    pub(crate) Value,
    pub(crate) Option<&'static str>,
);

impl From<Value> for Reply {
    fn from(body: Value) -> Self {
        Self(200, body, None)
    }
}

type Answers = dyn Fn(&Seen, usize) -> Reply + Send + Sync;

/// A running stand-in.
pub(crate) struct Stub {
    seen: Arc<Mutex<Vec<Seen>>>,
    address: SocketAddr,
    _runtime: Runtime,
}

impl Stub {
    /// Answers each request, which comes with its number from 0.
    pub(crate) fn start(answers: impl Fn(&Seen, usize) -> Reply + Send + Sync + 'static) -> Self {
        let runtime = Runtime::new().unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (all, answers): (_, Arc<Answers>) = (seen.clone(), Arc::new(answers));
        let router = Router::new().fallback(
            async move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
                let what = format!("{method} {uri}");
                let body = String::from_utf8(body.to_vec()).unwrap();
                let request = Seen {
                    what,
                    headers,
                    body,
                };
                let number = {
                    let mut all = all.lock().unwrap();
                    all.push(request.clone());
                    all.len() - 1
                };
                answers(&request, number).into_response()
            },
        );
        let listener = runtime.block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            seen,
            address,
            _runtime: runtime,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn whats(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.what).collect()
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let Self(status, body, etag) = self;
        let status = StatusCode::from_u16(status).unwrap();
        let mut response = (status, axum::Json(body)).into_response();
        if let Some(etag) = etag {
            response.headers_mut().insert("etag", etag.parse().unwrap());
        }
        response
    }
}
