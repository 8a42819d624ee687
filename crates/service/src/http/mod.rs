//! Serving HTTP/1.1, with a limit on everything.

mod browser;
mod chunks;
mod connections;
mod header_timer;
mod heads;
mod host;
mod linger;
mod measure;
mod router;
mod trace;
mod wire;

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::HttpBody;
use axum::extract::Request;
use axum::http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sampler_metrics::Limiter;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::lifecycle::Shutdown;
use crate::problem::{Problem, kinds};
use connections::{Connection, Connections};
use header_timer::HeaderTimer;
use linger::linger;
use wire::Wire;

pub use measure::{HttpMetrics, METRICS};
pub(crate) use router::method_not_allowed;
pub use router::{answer, not_found, with_fallbacks};
pub(crate) use trace::REQUEST_SPAN;

/// How long to wait before trying again where the system has no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Connections that cannot be taken are worth a line in this time.
const FAILURE_PERIOD: Duration = Duration::from_mins(1);

/// How long a connection may take to send its last request once the program was asked to stop. The
/// client, such as a router that keeps connections, does not know of the stop yet: a request that is
/// sent while the connection is closed would be lost. The answer makes the client close the
/// connection.
const LAST_REQUEST: Duration = Duration::from_secs(2);

/// The addresses of the health checks. They are served even if all other connections are taken.
const HEALTH: &str = "/health";

/// `Retry-After`, in seconds, for a client that got no connection.
const RETRY_AFTER: u64 = 1;

/// How much of everything a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that are open at a time. For one more, another ends (`connections.rs`).
    pub connections: usize,
    /// Connections beyond that for health checks alone, where all others are being served.
    pub health_connections: usize,
    /// From the first byte of a request to the last one of its headers, and from connecting to the first
    /// byte.
    pub header_read: Duration,
    /// From one request to the next. Longer than the 90 seconds for which the router of Cloud
    /// Foundry keeps its idle connections: the router must close first, or it loses a request.
    pub idle: Duration,
    /// For one answer, or each piece of one that is made in pieces, from the time when the client
    /// does not take all that is sent.
    pub write: Duration,
    /// For all pieces of one answer, from the first such time.
    pub answer: Duration,
    /// Headers of one request.
    pub headers: usize,
    /// Bytes of the headers of one request; and of what is read ahead, or waits to be written.
    pub header_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            health_connections: 64,
            header_read: Duration::from_secs(10),
            idle: Duration::from_mins(2),
            write: Duration::from_secs(30),
            answer: Duration::from_mins(10),
            headers: 100,
            header_bytes: 16 * 1024,
        }
    }
}

/// Where clients connect, and how they are spoken with.
pub struct Port {
    pub listener: TcpListener,
    pub metrics: HttpMetrics,
    /// Whether anybody who reaches it is served. On a loopback, only requests for this machine are.
    pub is_open: bool,
}

impl From<TcpListener> for Port {
    fn from(listener: TcpListener) -> Self {
        Self {
            listener,
            metrics: HttpMetrics::default(),
            is_open: false,
        }
    }
}

/// Listens on a port of an interface.
pub async fn bind(host: &str, port: u16) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((host, port)).await;
    listener.with_context(|| format!("listening on {host}:{port}"))
}

/// Serves `router` on `port`, until asked to stop. Then it accepts no further connections, finishes
/// the requests in flight, and serves one more request on each idle connection, if it comes soon.
/// Each connection is a task of `shutdown`, so a program need not wait for more than this to return.
///
/// The router gets the answers of [`with_fallbacks`] for what it does not serve itself.
pub async fn serve(port: impl Into<Port>, router: Router, shutdown: &Shutdown) -> io::Result<()> {
    serve_with(port, router, shutdown, Limits::default()).await
}

/// [`serve`] with other limits.
pub async fn serve_with(
    port: impl Into<Port>,
    router: Router,
    shutdown: &Shutdown,
    limits: Limits,
) -> io::Result<()> {
    let Port {
        listener,
        metrics,
        is_open,
    } = port.into();
    let address = listener.local_addr()?;
    tracing::info!(address = %address, "listening");
    let server = Server {
        app: App {
            router: with_fallbacks(router).layer(metrics.clone()),
            metrics,
            is_for_this_machine: is_open && address.ip().is_loopback(),
        },
        shutdown: shutdown.clone(),
        limits,
        connections: Connections::new(limits.connections, limits.health_connections),
    };
    shutdown
        .soft()
        .run_until_cancelled(server.accept(&listener))
        .await;
    server.accept_waiting(&listener);
    Ok(())
}

/// The part that answers requests.
#[derive(Clone)]
struct App {
    router: Router,
    metrics: HttpMetrics,
    /// Whether only requests for this machine are served.
    is_for_this_machine: bool,
}

/// The parts that serve connections.
struct Server {
    app: App,
    shutdown: Shutdown,
    limits: Limits,
    connections: Arc<Connections>,
}

impl Server {
    /// Takes connections for ever, never more than there is room for.
    async fn accept(&self, listener: &TcpListener) {
        let failures = Limiter::new(1, FAILURE_PERIOD);
        loop {
            let accepted = listener.accept().await;
            match accepted {
                Ok((stream, _)) => {
                    let connection = self.connections.open().await;
                    self.start(stream, connection);
                }
                Err(error) if is_of_the_client(&error) => {}
                Err(error) => {
                    if let Some(suppressed) = failures.admit(()) {
                        tracing::warn!(code = "http.accept", error = %error, suppressed, "could not take a connection");
                    }
                    self.connections.end_one();
                    sleep(NO_ROOM_PAUSE).await;
                }
            }
        }
    }

    /// Takes the connections that the system has made already: closing the listener would break
    /// them, and their clients may have sent their requests.
    fn accept_waiting(&self, listener: &TcpListener) {
        while let Some(connection) = self.connections.try_open() {
            match listener.accept().now_or_never() {
                Some(Ok((stream, _))) => self.start(stream, connection),
                Some(Err(error)) if is_of_the_client(&error) => {}
                Some(Err(_)) | None => return,
            }
        }
    }

    fn start(&self, stream: TcpStream, connection: Connection) {
        let (app, shutdown, limits) = (self.app.clone(), self.shutdown.clone(), self.limits);
        self.shutdown.spawn("http connection", async move {
            // Answers are small and complete; waiting to fill a packet would only delay them.
            let _ = stream.set_nodelay(true);
            Box::pin(serve_connection(
                stream,
                app,
                &shutdown,
                limits,
                &connection,
            ))
            .await;
        });
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

/// Serves one connection to its end. Its errors are the client's: it went away, was too slow, or
/// does not speak HTTP.
async fn serve_connection<S>(
    stream: S,
    app: App,
    shutdown: &Shutdown,
    limits: Limits,
    connection: &Connection,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let closing = CancellationToken::new();
    let serving = serve_requests(stream, app, shutdown, limits, connection, &closing);
    let mut serving = pin!(serving);
    tokio::select! {
        () = &mut serving => return,
        () = shutdown.soft().cancelled() => {}
        () = connection.activity.ended() => {
            // A request may have just arrived: then it is the last one.
            if !connection.activity.serves_a_last_one() {
                return;
            }
            closing.cancel();
            let _ = shutdown.hard().run_until_cancelled(serving).await;
            return;
        }
    }
    let last = timeout(LAST_REQUEST, &mut serving);
    if let Some(Ok(())) = shutdown.hard().run_until_cancelled(last).await {
        return;
    }
    closing.cancel();
    let _ = shutdown.hard().run_until_cancelled(serving).await;
}

/// Serves requests as they come, until the client goes away or takes too long. Once `closing` is
/// cancelled, the request that is being served is the last one. While it waits for a head, the
/// connection is parked: it has none of the server library's buffers.
async fn serve_requests<S>(
    stream: S,
    app: App,
    shutdown: &Shutdown,
    limits: Limits,
    connection: &Connection,
    closing: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let wire = Wire::new(limits, connection);
    let mut stream = wire.over(stream);
    let mut builder = http1::Builder::new();
    builder
        .timer(HeaderTimer(wire.clone()))
        .header_read_timeout(limits.header_read)
        .max_headers(limits.headers)
        .max_header_size(limits.header_bytes)
        .max_buf_size(limits.header_bytes)
        .keep_alive(true)
        // Answers are small: to copy one behind its head is cheaper than to send both as pieces.
        .writev(false);
    let for_health = connection.is_for_health;
    loop {
        let is_there = closing.run_until_cancelled(stream.head_is_there()).await;
        if is_there != Some(true) {
            return;
        }
        let service =
            service_fn(|request| serve_request(request, &app, shutdown, &wire, for_health));
        let mut serving = Box::pin(builder.serve_connection(TokioIo::new(&mut stream), service));
        tokio::select! {
            _ = &mut serving => {}
            () = closing.cancelled() => {
                serving.as_mut().graceful_shutdown();
                let _ = serving.as_mut().await;
            }
        }
        drop(serving);
        if wire.is_body_left() {
            return linger(stream.below()).await;
        }
        if closing.is_cancelled() || !wire.was_parked() {
            return;
        }
    }
}

fn serve_request(
    request: Request<Incoming>,
    app: &App,
    shutdown: &Shutdown,
    wire: &Wire,
    for_health: bool,
) -> impl Future<Output = Result<Response, Infallible>> {
    wire.begin_body(request.body().size_hint().exact());
    let is_clear = !wire.is_ambiguous() && is_clear(&request);
    let is_https = browser::is_forwarded_https(request.headers());
    let is_served = !for_health || request.uri().path().starts_with(HEALTH);
    let is_meant = !app.is_for_this_machine || host::is_this_machine(request.headers());
    let answering = if is_clear && is_served && is_meant {
        Ok(answer(app.router.clone(), request))
    } else {
        // A request that another reader may take for two is answered as the server library
        // answers one that it cannot understand. No byte behind it is read.
        let refusal = match (is_clear, is_served) {
            (false, _) => StatusCode::BAD_REQUEST.into_response(),
            (true, false) => no_connection().into_response(),
            (true, true) => misdirected().into_response(),
        };
        app.metrics
            .count_unrouted(request.method(), refusal.status());
        Err(refusal)
    };
    async move {
        let (answer, is_refused) = match answering {
            Ok(answering) => (answering.await, false),
            Err(refusal) => (browser::protect(refusal), true),
        };
        let answer = if is_https {
            browser::keep_https(answer)
        } else {
            answer
        };
        let is_last = is_refused || shutdown.is_stopping() || wire.is_body_left();
        Ok(if is_last { last(answer) } else { answer })
    }
}

/// Whether all readers understand the head alike, as far as it says for which host it is, and how
/// its body is coded.
fn is_clear(request: &Request<Incoming>) -> bool {
    let hosts = request.headers().get_all(HOST).iter().count();
    let has_host = hosts == 1 || (hosts == 0 && request.version() < Version::HTTP_11);
    has_host && has_usual_coding(request.headers())
}

/// All connections but those for health checks are being served.
fn no_connection() -> Problem {
    let detail = "All connections are in use. Nothing was kept.";
    Problem::new(&kinds::OVERLOADED, detail).retry_after(RETRY_AFTER)
}

/// A page of a stranger has led its own name to this machine.
fn misdirected() -> Problem {
    let detail =
        "Without tokens, only requests whose Host is localhost or a loopback address are served.";
    Problem::new(&kinds::MISDIRECTED, detail)
}

/// Whether the body comes as it is or in chunks. Other codings, and chunks within chunks, are not
/// used by any client we know, and servers do not all read them in the same way.
fn has_usual_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

/// Ends the connection with this answer.
fn last(mut answer: Response) -> Response {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    answer
}
