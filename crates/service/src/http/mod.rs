//! Serving HTTP/1.1 on one port, with a limit on everything.

pub(crate) mod request;
mod site;

use std::convert::Infallible;
use std::io;
use std::io::ErrorKind::{ConnectionAborted, ConnectionReset};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use sampler_store::Limiter;

use crate::lifecycle::Shutdown;
use crate::problem::{Problem, kinds};

pub use request::log_refusal;
pub(crate) use site::method_not_allowed;
pub use site::{Site, not_found};

/// How long to wait before trying again where the system has no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// How often the log says so, at the most.
const NO_ROOM_REPORTS: Duration = Duration::from_mins(1);

/// How long a connection may send further requests once the program was asked to stop. The client, such as a
/// router that keeps connections, does not know of the stop yet: a request that is sent while the connection
/// is closed would be lost. Each answer makes the client close its connection.
const LAST_REQUESTS: Duration = Duration::from_secs(2);

/// How long a connection may still send its first request then.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// How long a reserved connection may take for a head.
const RESERVED_HEAD: Duration = Duration::from_secs(5);

/// `Retry-After`, in seconds, for a client that got no connection.
const RETRY_AFTER: u64 = 1;

/// Headers of one request.
const HEADERS: usize = 100;

/// Bytes of one head; and of what is read ahead, or waits to be written.
const HEAD_BYTES: usize = 16 * 1024;

/// What a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that are open at a time.
    pub connections: usize,
    /// Connections beyond that, for health checks and metrics alone.
    pub reserved: usize,
    /// From connecting, or from the end of an answer, to the last byte of the next head. Longer than the 90
    /// seconds for which the router of Cloud Foundry keeps its idle connections: the router must close first, or
    /// it loses a request.
    pub head: Duration,
    /// How long a client may take none of an answer.
    pub write: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 3_200,
            reserved: 64,
            head: Duration::from_mins(2),
            write: Duration::from_secs(30),
        }
    }
}

/// Listens on a port of an interface.
pub async fn bind(host: &str, port: u16) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((host, port)).await;
    listener.with_context(|| format!("listening on {host}:{port}"))
}

/// Serves `router`, as a [`Site`], until asked to stop. Then each answer closes its connection; [`LAST_REQUESTS`]
/// later no further connections and requests are taken, and the requests in flight are finished.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: &Shutdown,
    limits: Limits,
) -> io::Result<()> {
    tracing::info!(address = %listener.local_addr()?, "listening");
    let server = Server {
        site: Site::new(router),
        shutdown: shutdown.clone(),
        limits,
        places: Arc::new(Semaphore::new(limits.connections + limits.reserved)),
        closing: CancellationToken::new(),
        reports: Arc::new(Limiter::new(1, NO_ROOM_REPORTS)),
    };
    let connections = TaskTracker::new();
    connections.close();
    let mut drained = pin!(async {
        shutdown.soft().cancelled().await;
        let _ = timeout(LAST_REQUESTS, connections.wait()).await;
    });
    loop {
        tokio::select! {
            accepted = server.accept(&listener) => {
                connections.spawn(server.clone().serve(accepted));
            }
            () = &mut drained => break,
        }
    }
    // What the system has accepted already: its clients may have sent their requests.
    while let Some(accepted) = server.accept(&listener).now_or_never() {
        connections.spawn(server.clone().serve(accepted));
    }
    drop(listener);
    server.closing.cancel();
    let ended = connections.wait();
    shutdown.hard().run_until_cancelled(ended).await;
    Ok(())
}

/// What serves connections. Clones are the same.
#[derive(Clone)]
struct Server {
    site: Site,
    shutdown: Shutdown,
    limits: Limits,
    places: Arc<Semaphore>,
    /// Cancelled when connections take no further request.
    closing: CancellationToken,
    /// The lines of the log about connections that could not be taken.
    reports: Arc<Limiter<()>>,
}

/// A connection, its place for as long as it is open, and whether only reserved places were left.
type Accepted = (TcpStream, OwnedSemaphorePermit, bool);

impl Server {
    async fn accept(&self, listener: &TcpListener) -> Accepted {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let place = Arc::clone(&self.places).acquire_owned().await;
                    let place = place.expect("the semaphore is never closed");
                    let is_reserved = self.places.available_permits() < self.limits.reserved;
                    return (stream, place, is_reserved);
                }
                // The client went away before its connection was accepted.
                Err(error) if matches!(error.kind(), ConnectionAborted | ConnectionReset) => {}
                Err(error) => {
                    if self.reports.admit(()).is_some() {
                        tracing::warn!(code = "http.accept", error = %error, "could not take a connection");
                    }
                    sleep(NO_ROOM_PAUSE).await;
                }
            }
        }
    }

    /// Serves one connection to its end. Its errors are the client's: it went away, was too slow, or does not
    /// speak HTTP.
    async fn serve(self, (stream, _place, is_reserved): Accepted) {
        // Answers are small and complete; waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.limits.write));
        let is_fresh = AtomicBool::new(true);
        let service = service_fn(|request| {
            is_fresh.store(false, Ordering::Relaxed);
            self.answer(request, is_reserved)
        });
        let head = self.limits.head;
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(if is_reserved { RESERVED_HEAD } else { head })
            .max_headers(HEADERS)
            .max_buf_size(HEAD_BYTES)
            // Answers are small: to copy one behind its head is cheaper than to send both as pieces.
            .writev(false)
            .serve_connection(TokioIo::new(Box::pin(stream)), service);
        let mut connection = pin!(connection);
        tokio::select! {
            biased;
            _ = &mut connection => return,
            () = self.closing.cancelled() => {}
        }
        // The first request of a new connection may be on its way. Its answer closes the connection.
        if is_fresh.load(Ordering::Relaxed) && timeout(FIRST_REQUEST, &mut connection).await.is_ok()
        {
            return;
        }
        connection.as_mut().graceful_shutdown();
        let _ = self.shutdown.hard().run_until_cancelled(connection).await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        is_reserved: bool,
    ) -> Result<Response, Infallible> {
        let mut answer = if is_reserved && !is_about_the_program(request.uri()) {
            let detail = "All connections are in use. Nothing was kept.";
            let problem = Problem::new(&kinds::OVERLOADED, detail);
            site::protect(problem.retry_after(RETRY_AFTER).into_response(), false)
        } else {
            self.site.answer(request.map(Body::new)).await
        };
        if is_reserved || self.shutdown.is_stopping() {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        Ok(answer)
    }
}

/// Health checks and metrics.
fn is_about_the_program(uri: &Uri) -> bool {
    uri.path().starts_with("/health") || uri.path() == "/metrics"
}
