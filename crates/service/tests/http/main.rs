//! A server on a real socket, and the library below it.
//!
//! A binary of its own: `cargo xtask newest` runs it with the newest version of that library.

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
use sampler_service::http::{HttpMetrics, Limits, Port, Tls, TlsFiles, bind, serve_with};
use sampler_service::lifecycle::Shutdown;
use sampler_service::platform::Identity;
use sampler_service::settings::{LogFormat, LogSettings};
use sampler_service::telemetry;
use sampler_testkit::tls::Authority;
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

async fn serve(limits: Limits) -> Server {
    serve_on(listener().await, limits, Shutdown::new())
}

impl Server {
    async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
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
    let server = serve(Limits::default()).await;
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
    let server = serve(Limits {
        header_read,
        idle,
        ..Limits::default()
    })
    .await;
    // The time of a connection counts from when it was made.
    let start = Instant::now();
    let (mut silent, mut slow, mut idler) = (
        server.connect().await,
        server.connect().await,
        server.connect().await,
    );
    slow.send("GET / HTTP/1.1\r\nhost:").await;
    idler.ask("/").await;
    idler.answer("hello").await;
    let idle_since = Instant::now();
    assert_eq!(silent.rest().await, "");
    assert!(start.elapsed() >= header_read);
    slow.rest().await;
    assert!(start.elapsed() < idle, "{:?}", start.elapsed());
    assert_eq!(idler.rest().await, "");
    assert!(
        idle_since.elapsed() >= idle.mul_f32(0.99),
        "{:?}",
        idle_since.elapsed()
    );
}

#[tokio::test]
async fn a_client_that_is_slow_with_its_second_request_is_cut_off_as_well() {
    let (header_read, idle) = (Duration::from_millis(200), LONG * 2);
    let server = serve(Limits {
        header_read,
        idle,
        ..Limits::default()
    })
    .await;
    let mut client = server.connect().await;
    client.ask("/").await;
    client.answer("hello").await;
    let start = Instant::now();
    client.send("GET / HTTP/1.1\r\nhost:").await;
    client.rest().await;
    assert!(start.elapsed() >= header_read && start.elapsed() < LONG);
}

#[tokio::test]
async fn too_many_or_too_long_headers_are_refused() {
    let server = serve(Limits {
        headers: 3,
        header_bytes: 8192,
        ..Limits::default()
    })
    .await;
    let mut client = server.connect().await;
    client
        .send("GET / HTTP/1.1\r\na: 1\r\nb: 2\r\nc: 3\r\nd: 4\r\n\r\n")
        .await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let mut client = server.connect().await;
    client
        .send(&format!(
            "GET / HTTP/1.1\r\na: {}\r\n\r\n",
            "x".repeat(8192)
        ))
        .await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn an_idle_connection_ends_for_a_new_one_and_one_that_is_served_does_not() {
    let server = serve(Limits {
        connections: 2,
        health_connections: 0,
        ..Limits::default()
    })
    .await;
    let (mut busy, mut idle) = (server.connect().await, server.connect().await);
    busy.ask("/slow").await;
    server.entered.notified().await;
    idle.ask("/").await;
    idle.answer("hello").await;
    for _ in 0..3 {
        let mut next = server.connect().await;
        next.ask("/").await;
        next.answer("hello").await;
        assert_eq!(idle.rest().await, "");
        idle = next;
    }
    server.go.notify_one();
    busy.answer("slow").await;
}

#[tokio::test]
async fn slow_connections_end_for_new_ones() {
    let server = serve(Limits {
        connections: 3,
        health_connections: 0,
        header_read: LONG * 2,
        ..Limits::default()
    })
    .await;
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
    let mut honest = server.connect().await;
    honest.ask("/").await;
    honest.answer("hello").await;
    assert_eq!(slow[0].rest().await, "");
}

#[tokio::test]
async fn where_all_connections_are_served_health_is_still_told_and_others_are_turned_away() {
    let server = serve(Limits {
        connections: 2,
        health_connections: 1,
        ..Limits::default()
    })
    .await;
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
        let mut other = server.connect().await;
        other.ask("/").await;
        let answer = other.rest().await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("/problems/overloaded"), "{answer}");
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
    }
    for client in &mut busy {
        server.go.notify_one();
        client.answer("slow").await;
    }
}

#[tokio::test]
async fn a_request_names_one_host() {
    let server = serve(Limits::default()).await;
    for (head, status) in [
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("GET http://a/ HTTP/1.1\r\n\r\n", "400"),
        ("GET / HTTP/1.0\r\nhost: a\r\nhost: b\r\n\r\n", "400"),
        (
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            "200",
        ),
        ("GET / HTTP/1.0\r\n\r\n", "200"),
    ] {
        let mut client = server.connect().await;
        client.send(head).await;
        let answer = client.rest().await;
        let line = answer.lines().next().unwrap_or_default();
        assert_eq!(line.split(' ').nth(1), Some(status), "{head:?}: {answer}");
    }
}

/// Whatever comes first in one packet, what is behind it is checked like it.
#[tokio::test]
async fn a_head_that_was_sent_ahead_is_checked_like_the_first() {
    let server = serve(Limits::default()).await;
    let clear = [
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello",
    ];
    let odd = [
        "POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
    ];
    for first in clear {
        for second in clear {
            for last in odd {
                let mut client = server.connect().await;
                client
                    .send(&format!(
                        "{first}{second}{last}GET / HTTP/1.1\r\nhost: a\r\n\r\n"
                    ))
                    .await;
                let answer = client.rest().await;
                let statuses: Vec<_> = answer
                    .match_indices("HTTP/1.1 ")
                    .map(|(at, name)| answer[at + name.len()..][..3].to_owned())
                    .collect();
                let status = |request: &str| {
                    if request.starts_with("POST / ") {
                        "405"
                    } else {
                        "200"
                    }
                };
                assert_eq!(
                    statuses,
                    [status(first), status(second), "400"],
                    "{first}{second}{last}: {answer}"
                );
            }
        }
    }
}

/// A handshake is part of its connection: while it takes, it is slow, and ends for another.
#[tokio::test]
async fn a_handshake_that_does_not_come_to_its_end_ends_for_another_connection() {
    let authority = Authority::new("Ours").unwrap();
    let file = authority.issue("server").unwrap();
    let tls = Tls::read(TlsFiles {
        certificate: file.clone(),
        key: file,
        client_authorities: None,
    });
    let port = Port {
        listener: listener().await,
        tls: Some(tls.unwrap()),
        metrics: HttpMetrics::default(),
        is_open: false,
    };
    let limits = Limits {
        connections: 1,
        health_connections: 0,
        header_read: LONG * 2,
        ..Limits::default()
    };
    let server = serve_on(port, limits, Shutdown::new());
    let mut silent = server.connect().await;
    while server.shutdown.running().is_empty() {
        tokio::task::yield_now().await;
    }
    let trusted = std::fs::read(authority.certificate()).unwrap();
    let client = reqwest::Client::builder()
        .timeout(LONG)
        .tls_certs_only([reqwest::Certificate::from_pem(&trusted).unwrap()]);
    let honest = client
        .build()
        .unwrap()
        .get(format!("https://{}/", server.address));
    let answer = honest.send().await.unwrap().text().await.unwrap();
    assert_eq!(answer, "hello");
    assert_eq!(silent.rest().await, "");
}

#[tokio::test]
async fn says_where_it_listens() {
    let log = NamedTempFile::new().unwrap();
    let settings = LogSettings {
        format: LogFormat::Json,
        level: "info".to_owned(),
    };
    let subscriber = telemetry::subscriber(
        &settings,
        &Identity::default(),
        false,
        log.reopen().unwrap(),
    )
    .unwrap();
    let _logging = tracing::subscriber::set_default(subscriber);
    let server = serve(Limits::default()).await;
    let mut client = server.connect().await;
    client.ask("/").await;
    client.answer("hello").await;
    let line: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(log.path()).unwrap()).unwrap();
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
