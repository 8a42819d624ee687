//! A server that answers as a test says, and remembers what it was asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{Ended, json_of, run};

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
        json_of(&self.body)
    }
}

/// What is answered: status, body, and a header. A body of null is none.
pub(crate) struct Reply(u16, Value, Option<(HeaderName, String)>);

impl From<Value> for Reply {
    fn from(body: Value) -> Self {
        Self::of(200, body)
    }
}

impl Reply {
    pub(crate) fn of(status: u16, body: Value) -> Self {
        Self(status, body, None)
    }

    /// A problem document.
    pub(crate) fn problem(status: u16, name: &str, detail: &str) -> Self {
        let problem = json!({ "type": format!("/problems/{name}"), "title": name, "status": status,
                              "detail": detail });
        Self::of(status, problem)
    }

    /// The same with a header.
    pub(crate) fn with(mut self, name: HeaderName, value: &str) -> Self {
        self.2 = Some((name, value.to_owned()));
        self
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

    /// Answers all requests alike.
    pub(crate) fn always(body: Value) -> Self {
        Self::start(move |_, _| body.clone().into())
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Runs the program against it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        run(&[arguments, &["--url", &self.url()]].concat())
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
        let Self(status, body, header) = self;
        let status = StatusCode::from_u16(status).unwrap();
        let mut response = if body.is_null() {
            status.into_response()
        } else {
            (status, axum::Json(body)).into_response()
        };
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value.parse().unwrap());
        }
        response
    }
}
