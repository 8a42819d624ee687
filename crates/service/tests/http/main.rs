//! A server on a real socket, and the library below it.

#![allow(clippy::unwrap_used, reason = "a test may end with a panic")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use futures_util::stream;
use sampler_service::http::{Limits, Port, bind, serve_with};
use sampler_service::lifecycle::Shutdown;
use sampler_service::platform::Identity;
use sampler_service::settings::{LogFormat, LogSettings};
use sampler_service::telemetry;
use tempfile::NamedTempFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

mod differential;
mod early;
mod hosts;
mod library;
mod readers;
mod shutdown;

const LONG: Duration = Duration::from_secs(20);

/// Bytes of a large answer.
const LARGE: usize = 1 << 20;

/// The pieces of an answer that is made in pieces, and their bytes. The system's buffers take a part of
/// all.
const PIECES: usize = 512;
const PIECE: usize = 64 << 10;

/// A server whose `/slow` answers once `go` is notified.
struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    entered: Arc<Notify>,
    go: Arc<Notify>,
    /// How many large answers were made.
    large: Arc<AtomicUsize>,
    serving: JoinHandle<std::io::Result<()>>,
}

async fn listener() -> TcpListener {
    bind("127.0.0.1", 0).await.unwrap()
}

fn serve_on(port: impl Into<Port>, limits: Limits, shutdown: Shutdown) -> Server {
    let port = port.into();
    let (entered, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (inside, may_go) = (entered.clone(), go.clone());
    let slow = async move || {
        inside.notify_one();
        may_go.notified().await;
        "slow"
    };
    let large = Arc::new(AtomicUsize::new(0));
    let made = Arc::clone(&large);
    let large_answer = async move || {
        made.fetch_add(1, Ordering::Relaxed);
        "x".repeat(LARGE)
    };
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/healthz/live", get(async || "alive"))
        .route("/large", get(large_answer))
        .route("/pieces", get(async || pieces(PIECES)))
        .route("/endless", get(async || pieces(usize::MAX)))
        .route("/echo", post(async |body: String| body))
        .route("/slow", get(slow));
    let address = port.listener.local_addr().unwrap();
    let of_server = shutdown.clone();
    let serving = tokio::spawn(async move { serve_with(port, router, &of_server, limits).await });
    Server {
        address,
        shutdown,
        entered,
        go,
        large,
        serving,
    }
}

/// An answer that is made piece by piece, as the client takes it.
fn pieces(count: usize) -> Body {
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let pieces = std::iter::repeat_n(piece, count).map(Ok::<_, Infallible>);
    Body::from_stream(stream::iter(pieces))
}

async fn serve() -> Server {
    limited(|_| {}).await
}

/// A server with other limits than the usual ones.
async fn limited(change: impl FnOnce(&mut Limits)) -> Server {
    let mut limits = Limits::default();
    change(&mut limits);
    serve_on(listener().await, limits, Shutdown::new())
}

impl Server {
    async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// A client that has had an answer, and keeps its connection.
    async fn greeted(&self) -> Client {
        let mut client = self.connect().await;
        client.greet().await;
        client
    }

    /// All that is answered to this, until the server closes.
    async fn exchange(&self, text: &str) -> String {
        let mut client = self.connect().await;
        client.send(text).await;
        client.rest().await
    }

    /// Waits until a connection is noticed.
    async fn has_connections(&self) {
        while self.shutdown.running().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// A client for which the system keeps little that it has not read.
    async fn connect_with_small_buffer(&self) -> Client {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(1 << 20).unwrap();
        Client(socket.connect(self.address).await.unwrap())
    }
}

struct Client(TcpStream);

impl Client {
    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
            .await;
    }

    /// Asks what is answered at once.
    async fn greet(&mut self) {
        self.ask("/").await;
        self.answer("hello").await;
    }

    /// One answer with a body of some length.
    async fn answer(&mut self, body: &str) -> String {
        let mut bytes = vec![0; 4096];
        let mut text = String::new();
        while !text.ends_with(body) {
            let read = timeout(LONG, self.0.read(&mut bytes))
                .await
                .expect("an answer")
                .unwrap();
            assert_ne!(read, 0, "closed after {text:?}");
            text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        text
    }

    /// Reads so many bytes. Says whether they came, or the server closed.
    async fn sip(&mut self, count: usize) -> bool {
        let mut bytes = vec![0; count];
        let read = timeout(LONG, self.0.read_exact(&mut bytes));
        read.await.expect("bytes, or an end").is_ok()
    }

    /// What comes until the server closes.
    async fn rest(&mut self) -> String {
        let mut text = String::new();
        let read = timeout(LONG, self.0.read_to_string(&mut text))
            .await
            .expect("an end");
        // A connection that was reset has ended, too.
        let _ = read;
        text
    }
}

#[tokio::test]
async fn serves_one_request_after_the_other_on_one_connection() {
    let server = serve().await;
    let mut client = server.connect().await;
    for _ in 0..3 {
        client.ask("/").await;
        let answer = client.answer("hello").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    }
    client.ask("/nowhere").await;
    let answer = client.answer("}").await;
    assert!(answer.contains("/problems/not-found"), "{answer}");
}

#[tokio::test]
async fn a_slow_client_is_cut_off_and_an_idle_one_much_later() {
    let (header_read, idle) = (Duration::from_millis(200), Duration::from_millis(1500));
    let server = limited(|limits| (limits.header_read, limits.idle) = (header_read, idle)).await;
    // The time of a connection counts from when it was made.
    let start = Instant::now();
    let (mut silent, mut slow) = (server.connect().await, server.connect().await);
    slow.send("GET / HTTP/1.1\r\nhost:").await;
    let mut idler = server.greeted().await;
    let idle_since = Instant::now();
    assert_eq!(silent.rest().await, "");
    assert!(start.elapsed() >= header_read);
    slow.rest().await;
    let took = start.elapsed();
    assert!(took < idle, "{took:?}");
    assert_eq!(idler.rest().await, "");
    let took = idle_since.elapsed();
    assert!(took >= idle.mul_f32(0.99), "{took:?}");
}

#[tokio::test]
async fn a_client_that_is_slow_with_its_second_request_is_cut_off_as_well() {
    let header_read = Duration::from_millis(200);
    let server =
        limited(|limits| (limits.header_read, limits.idle) = (header_read, LONG * 2)).await;
    let mut client = server.greeted().await;
    let start = Instant::now();
    client.send("GET / HTTP/1.1\r\nhost:").await;
    client.rest().await;
    assert!(start.elapsed() >= header_read && start.elapsed() < LONG);
}

#[tokio::test]
async fn too_many_or_too_long_headers_are_refused() {
    let server = limited(|limits| (limits.headers, limits.header_bytes) = (3, 8192)).await;
    let many = "a: 1\r\nb: 2\r\nc: 3\r\nd: 4".to_owned();
    for headers in [many, format!("a: {}", "x".repeat(8192))] {
        let head = format!("GET / HTTP/1.1\r\n{headers}\r\n\r\n");
        let answer = server.exchange(&head).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

/// A server of so many connections, beside those for health.
async fn crowded(connections: usize, health: usize) -> Server {
    limited(|limits| {
        (limits.connections, limits.health_connections) = (connections, health);
        limits.header_read = LONG * 2;
    })
    .await
}

#[tokio::test]
async fn an_idle_connection_ends_for_a_new_one_and_one_that_is_served_does_not() {
    let server = crowded(2, 0).await;
    let mut busy = server.connect().await;
    busy.ask("/slow").await;
    server.entered.notified().await;
    let mut idle = server.greeted().await;
    for _ in 0..3 {
        let next = server.greeted().await;
        assert_eq!(idle.rest().await, "");
        idle = next;
    }
    server.go.notify_one();
    busy.answer("slow").await;
}

#[tokio::test]
async fn slow_connections_end_for_new_ones() {
    let server = crowded(3, 0).await;
    let mut slow = Vec::new();
    for begun in [
        "",
        "GET / HTTP/1.1\r\nhost:",
        "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx",
    ] {
        let mut client = server.connect().await;
        client.send(begun).await;
        slow.push(client);
    }
    server.greeted().await;
    assert_eq!(slow[0].rest().await, "");
}

#[tokio::test]
async fn where_all_connections_are_served_health_is_still_told_and_others_are_turned_away() {
    let server = crowded(2, 1).await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.ask("/slow").await;
        server.entered.notified().await;
        busy.push(client);
    }
    for _ in 0..3 {
        let mut health = server.connect().await;
        health.ask("/healthz/live").await;
        health.answer("alive").await;
        let answer = server
            .exchange("GET / HTTP/1.1\r\nhost: test\r\n\r\n")
            .await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        for part in [
            "/problems/overloaded",
            "retry-after: 1\r\n",
            "connection: close\r\n",
        ] {
            assert!(answer.contains(part), "{answer}");
        }
    }
    for client in &mut busy {
        server.go.notify_one();
        client.answer("slow").await;
    }
}

/// The statuses of these answers.
fn statuses(answers: &str) -> Vec<&str> {
    let found = answers.match_indices("HTTP/1.1 ");
    found
        .map(|(at, name)| &answers[at + name.len()..][..3])
        .collect()
}

#[tokio::test]
async fn a_request_names_one_host() {
    let server = serve().await;
    for (head, status) in [
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: a", "400"),
        ("GET / HTTP/1.1\r\nhost: a\r\nHost: b", "400"),
        ("GET / HTTP/1.1", "400"),
        ("GET http://a/ HTTP/1.1", "400"),
        ("GET / HTTP/1.0\r\nhost: a\r\nhost: b", "400"),
        ("GET / HTTP/1.1\r\nhost: a\r\nconnection: close", "200"),
        ("GET / HTTP/1.0", "200"),
    ] {
        let answer = server.exchange(&format!("{head}\r\n\r\n")).await;
        let line = answer.lines().next().unwrap_or_default();
        assert_eq!(line.split(' ').nth(1), Some(status), "{head:?}: {answer}");
    }
}

/// Whatever comes first in one packet, what is behind it is checked like it.
#[tokio::test]
async fn a_head_that_was_sent_ahead_is_checked_like_the_first() {
    let server = serve().await;
    let clear = [
        ("GET / HTTP/1.1\r\nhost: a\r\n\r\n", "200"),
        (
            "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
            "200",
        ),
        (
            "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
            "200",
        ),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
            "405",
        ),
    ];
    let odd = [
        "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    ];
    for (first, first_status) in clear {
        for (second, second_status) in clear {
            for last in odd {
                let sent = format!("{first}{second}{last}GET / HTTP/1.1\r\nhost: a\r\n\r\n");
                let answer = server.exchange(&sent).await;
                let expected = [first_status, second_status, "400"];
                assert_eq!(statuses(&answer), expected, "{sent}: {answer}");
            }
        }
    }
}

#[tokio::test]
async fn says_where_it_listens() {
    let log = NamedTempFile::new().unwrap();
    let settings = LogSettings {
        format: LogFormat::Json,
        level: "info".to_owned(),
    };
    let (identity, writer) = (Identity::default(), log.reopen().unwrap());
    let subscriber = telemetry::subscriber(&settings, &identity, false, writer);
    let _logging = tracing::subscriber::set_default(subscriber.unwrap());
    let server = serve().await;
    server.greeted().await;
    let line = std::fs::read_to_string(log.path()).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["message"], "listening");
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["address"], server.address.to_string());
}

#[tokio::test]
async fn a_port_that_is_taken_is_told() {
    let taken = listener().await.local_addr().unwrap();
    let _holder = TcpListener::bind(taken).await.unwrap();
    let error = bind("127.0.0.1", taken.port()).await;
    let error = error.unwrap_err().to_string();
    assert_eq!(error, format!("listening on {taken}"));
}
