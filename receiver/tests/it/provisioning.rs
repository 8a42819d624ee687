//! A provisioning service that answers as it is told.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::Response;
use axum::routing::post;
use http_body_util::BodyExt;
use sampler_service::oauth::{CaBundle, HttpOptions};
use sampler_upstream::ClientOptions;
use tokio::net::TcpListener;

/// What the service is asked: to map part `[0]` of resource `[1]`, plan `[2]`, to plan `[3]`.
pub(crate) type Asked = [String; 4];

/// What the service does with one request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    /// It answers with this status.
    Status(u16),
    /// It answers with this status and header.
    With(u16, &'static str, &'static str),
    /// It never answers.
    Never,
}

/// The service, on a port of its own.
#[derive(Clone, Default)]
pub(crate) struct StandIn {
    asked: Arc<Mutex<Vec<Asked>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
}

impl StandIn {
    /// Starts a service that gives these replies, one after the other, then makes all mappings.
    pub(crate) async fn start(replies: &[Reply]) -> (Self, ClientOptions) {
        let stand_in = Self::default();
        stand_in.replies.lock().unwrap().extend(replies);
        let route = "/base/v1/provisioning/mappings/{part}/resources/{resource}/plans/{plan}/{to}";
        let router = Router::new()
            .route(route, post(map))
            .with_state(stand_in.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = options(listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (stand_in, options)
    }

    /// What it was asked since it was last looked at.
    pub(crate) fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

/// How to reach a service.
pub(crate) fn options(address: SocketAddr) -> ClientOptions {
    ClientOptions {
        url: format!("http://{address}/base/").parse().unwrap(),
        http: HttpOptions {
            timeout: Duration::from_secs(20),
            skip_ssl_validation: false,
            authorities: CaBundle::default(),
        },
        tokens: None,
    }
}

async fn map(
    State(stand_in): State<StandIn>,
    Path(asked): Path<Asked>,
    request: Request,
) -> Response<Body> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert!(body.is_empty(), "a mapping has no body");
    stand_in.asked.lock().unwrap().push(asked);
    let reply = stand_in.replies.lock().unwrap().pop_front();
    let answer = Response::builder();
    let answer = match reply.unwrap_or(Reply::Status(200)) {
        Reply::Status(status) => answer.status(status),
        Reply::With(status, name, value) => answer.status(status).header(name, value),
        Reply::Never => std::future::pending().await,
    };
    let body = "what the service says: secret";
    answer.body(body.into()).unwrap()
}
