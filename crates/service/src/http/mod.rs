//! Serving HTTP/1.1 on one port, with a limit on everything.

pub(crate) mod request;
mod site;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::Request;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sampler_store::Limiter;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::lifecycle::Shutdown;
use crate::problem::{Problem, kinds};

pub use request::log_refusal;
pub(crate) use site::method_not_allowed;
pub use site::{Site, not_found};

/// How long to wait before trying again where the system has no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Connections that cannot be taken are worth a line in this time.
const FAILURE_PERIOD: Duration = Duration::from_mins(1);

/// How long a connection may send further requests once the program was asked to stop. The client, such as a
/// router that keeps connections, does not know of the stop yet: a request that is sent while the connection
/// is closed would be lost. Each answer makes the client close its connection.
const LAST_REQUESTS: Duration = Duration::from_secs(2);

/// How long a connection may still send its first request then.
const FIRST_REQUEST: Duration = Duration::from_millis(500);

/// `Retry-After`, in seconds, for a client that got no connection.
const RETRY_AFTER: u64 = 1;

/// How much of everything a server takes.
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
    /// The same for reserved connections.
    pub reserved_head: Duration,
    /// How long a client may take none of an answer.
    pub write: Duration,
    /// Headers of one request.
    pub headers: usize,
    /// Bytes of one head; and of what is read ahead, or waits to be written.
    pub head_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 3_200,
            reserved: 64,
            head: Duration::from_mins(2),
            reserved_head: Duration::from_secs(5),
            write: Duration::from_secs(30),
            headers: 100,
            head_bytes: 16 * 1024,
        }
    }
}

/// Listens on a port of an interface.
pub async fn bind(host: &str, port: u16) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((host, port)).await;
    listener.with_context(|| format!("listening on {host}:{port}"))
}

/// Serves `router` until asked to stop. Then each answer closes its connection; [`LAST_REQUESTS`] later no further
/// connections and requests are taken, and the requests in flight are finished.
///
/// The router becomes a [`Site`].
pub async fn serve(listener: TcpListener, router: Router, shutdown: &Shutdown) -> io::Result<()> {
    serve_with(listener, router, shutdown, Limits::default()).await
}

/// [`serve`] with other limits.
pub async fn serve_with(
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
        places: Arc::new(Semaphore::new(limits.connections)),
        reserved: Arc::new(Semaphore::new(limits.reserved)),
        failures: Arc::new(Limiter::new(1, FAILURE_PERIOD)),
        closing: CancellationToken::new(),
    };
    let connections = TaskTracker::new();
    connections.close();
    let drained = async {
        shutdown.soft().cancelled().await;
        let _ = timeout(LAST_REQUESTS, connections.wait()).await;
    };
    let mut drained = pin!(drained);
    loop {
        tokio::select! {
            (stream, place) = server.accept(&listener) => {
                connections.spawn(server.clone().serve_connection(stream, place));
            }
            () = &mut drained => break,
        }
    }
    // What the system has accepted already: its clients may have sent their requests.
    while let Some((stream, place)) = server.accept(&listener).now_or_never() {
        connections.spawn(server.clone().serve_connection(stream, place));
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
    reserved: Arc<Semaphore>,
    failures: Arc<Limiter<()>>,
    /// Cancelled when connections take no further request.
    closing: CancellationToken,
}

/// The place of a connection, for as long as the connection is open.
struct Place {
    _permit: OwnedSemaphorePermit,
    is_reserved: bool,
}

impl Server {
    async fn accept(&self, listener: &TcpListener) -> (TcpStream, Place) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return (stream, self.place().await),
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    if let Some(suppressed) = self.failures.admit(()) {
                        tracing::warn!(code = "http.accept", error = %error, suppressed, "could not take a connection");
                    }
                    sleep(NO_ROOM_PAUSE).await;
                }
            }
        }
    }

    async fn place(&self) -> Place {
        if let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() {
            return Place {
                _permit: permit,
                is_reserved: false,
            };
        }
        let permit = Arc::clone(&self.reserved).acquire_owned().await;
        Place {
            _permit: permit.expect("the semaphore is never closed"),
            is_reserved: true,
        }
    }

    /// Serves one connection to its end. Its errors are the client's: it went away, was too slow, or does not
    /// speak HTTP.
    async fn serve_connection(self, stream: TcpStream, place: Place) {
        // Answers are small and complete; waiting to fill a packet would only delay them.
        let _ = stream.set_nodelay(true);
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(self.limits.write));
        let is_fresh = AtomicBool::new(true);
        let service = service_fn(|request| {
            is_fresh.store(false, Ordering::Relaxed);
            self.answer(request, place.is_reserved)
        });
        let head = if place.is_reserved {
            self.limits.reserved_head
        } else {
            self.limits.head
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .max_headers(self.limits.headers)
            .max_buf_size(self.limits.head_bytes)
            // Answers are small: to copy one behind its head is cheaper than to send both as pieces.
            .writev(false)
            .serve_connection(TokioIo::new(Box::pin(stream)), service);
        let mut connection = pin!(connection);
        tokio::select! {
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
        if is_reserved && !is_about_the_program(request.uri()) {
            let detail = "All connections are in use. Nothing was kept.";
            let problem = Problem::new(&kinds::OVERLOADED, detail).retry_after(RETRY_AFTER);
            return Ok(last(problem.into_response()));
        }
        let answer = self.site.answer(request).await;
        Ok(if is_reserved || self.shutdown.is_stopping() {
            last(answer)
        } else {
            answer
        })
    }
}

/// The error comes from a client that went away before its connection was accepted.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted
    )
}

/// Health checks and metrics.
fn is_about_the_program(uri: &Uri) -> bool {
    uri.path().starts_with("/health") || uri.path() == "/metrics"
}

/// Ends the connection with this answer.
fn last(mut answer: Response) -> Response {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    answer
}
