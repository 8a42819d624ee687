//! A server on a real socket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use futures_util::stream;
use sampler_service::http::{Limits, bind, serve};
use sampler_service::lifecycle::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

const LONG: Duration = Duration::from_secs(20);

const SHORT: Duration = Duration::from_millis(200);

/// A server whose `/slow` answers once `go` is notified.
struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    entered: Arc<Notify>,
    go: Arc<Notify>,
    /// Notified when an answer without end is given up.
    given_up: Arc<Notify>,
    serving: JoinHandle<std::io::Result<()>>,
}

async fn listener() -> TcpListener {
    bind("127.0.0.1", 0).await.unwrap()
}

struct Guard(Arc<Notify>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn serve_on(listener: TcpListener, limits: Limits, shutdown: Shutdown) -> Server {
    let [entered, go, given_up] = [(); 3].map(|()| Arc::new(Notify::new()));
    let (inside, may_go, dropped) = (entered.clone(), go.clone(), given_up.clone());
    let slow = async move || {
        inside.notify_one();
        may_go.notified().await;
        "slow"
    };
    let endless = async move || {
        let guard = Guard(dropped.clone());
        let pieces = std::iter::repeat_with(move || {
            let _held = &guard;
            Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 16 << 10]))
        });
        Body::from_stream(stream::iter(pieces))
    };
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/healthz/live", get(async || "alive"))
        .route("/endless", get(endless))
        .route("/slow", get(slow));
    let address = listener.local_addr().unwrap();
    let of_server = shutdown.clone();
    let serving = tokio::spawn(async move { serve(listener, router, &of_server, limits).await });
    Server {
        address,
        shutdown,
        entered,
        go,
        given_up,
        serving,
    }
}

/// A server with other limits than the usual ones.
async fn limited(change: impl FnOnce(&mut Limits)) -> Server {
    let mut limits = Limits::default();
    change(&mut limits);
    serve_on(listener().await, limits, Shutdown::default())
}

impl Server {
    async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// A client that has had an answer, and keeps its connection.
    async fn greeted(&self) -> Client {
        let mut client = self.connect().await;
        client.ask("/").await;
        client.answer("hello").await;
        client
    }

    /// A client whose request is being served.
    async fn busy(&self) -> Client {
        let mut client = self.connect().await;
        client.ask("/slow").await;
        self.entered.notified().await;
        client
    }
}

struct Client(TcpStream);

impl Client {
    async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n");
        self.send(&request).await;
    }

    /// One answer whose body ends so.
    async fn answer(&mut self, end: &str) -> String {
        let (mut bytes, mut text) = (vec![0; 4096], String::new());
        while !text.ends_with(end) {
            let read = timeout(LONG, self.0.read(&mut bytes)).await;
            let read = read.expect("an answer").unwrap();
            assert_ne!(read, 0, "closed after {text:?}");
            text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
        text
    }

    /// What comes until the server closes. A connection that was reset has ended, too.
    async fn rest(&mut self) -> String {
        let mut text = String::new();
        let read = self.0.read_to_string(&mut text);
        let _ = timeout(LONG, read).await.expect("an end");
        text
    }
}

#[tokio::test]
async fn one_request_after_the_other_is_served_on_one_connection() {
    let server = limited(|_| {}).await;
    let mut client = server.greeted().await;
    client.ask("/").await;
    let answer = client.answer("hello").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    client.ask("/nowhere").await;
    let answer = client.answer("}").await;
    assert!(answer.contains("/problems/not-found"), "{answer}");
}

#[tokio::test]
async fn who_is_silent_slow_or_idle_is_cut_off() {
    let server = limited(|limits| limits.head = SHORT).await;
    let start = Instant::now();
    let (mut silent, mut slow) = (server.connect().await, server.connect().await);
    slow.send("GET / HTTP/1.1\r\nhost:").await;
    let mut idle = server.greeted().await;
    for client in [&mut silent, &mut slow, &mut idle] {
        client.rest().await;
    }
    assert!(start.elapsed() >= SHORT);
}

#[tokio::test]
async fn who_takes_nothing_of_an_answer_is_cut_off() {
    let server = limited(|limits| limits.write = SHORT).await;
    let mut client = server.connect().await;
    client.ask("/endless").await;
    timeout(LONG, server.given_up.notified()).await.unwrap();
}

#[tokio::test]
async fn too_many_or_too_long_headers_are_refused() {
    let server = limited(|_| {}).await;
    for headers in [
        "a: 1\r\n".repeat(101),
        format!("a: {}\r\n", "x".repeat(16 << 10)),
    ] {
        let mut client = server.connect().await;
        client
            .send(&format!("GET / HTTP/1.1\r\n{headers}\r\n"))
            .await;
        let answer = client.rest().await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[tokio::test]
async fn where_all_connections_are_taken_health_is_still_told_and_others_are_turned_away() {
    let server = limited(|limits| (limits.connections, limits.reserved) = (1, 1)).await;
    let mut busy = server.busy().await;
    for _ in 0..3 {
        let mut health = server.connect().await;
        health.ask("/healthz/live").await;
        assert!(health.rest().await.ends_with("alive"));
        let mut other = server.connect().await;
        other.ask("/").await;
        let answer = other.rest().await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("/problems/overloaded"), "{answer}");
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    }
    server.go.notify_one();
    busy.answer("slow").await;
}

#[tokio::test]
async fn on_stop_what_is_under_way_is_finished_and_nothing_else_is_taken() {
    let server = limited(|_| {}).await;
    let (mut idle, mut busy) = (server.greeted().await, server.busy().await);
    server.shutdown.begin();
    assert_eq!(idle.rest().await, "");
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    server.go.notify_one();
    let answer = busy.rest().await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains("connection: close\r\n") && answer.ends_with("slow"),
        "{answer}"
    );
    server.serving.await.unwrap().unwrap();
}

/// A router keeps its connections, and makes new ones: it cannot know of the stop yet.
#[tokio::test]
async fn idle_new_and_queued_connections_are_good_for_a_request_after_the_stop() {
    let listener = listener().await;
    let address = listener.local_addr().unwrap();
    let mut queued = Client(TcpStream::connect(address).await.unwrap());
    let server = serve_on(listener, Limits::default(), Shutdown::default());
    let mut idle = server.greeted().await;
    server.shutdown.begin();
    let mut fresh = server.connect().await;
    for client in [&mut idle, &mut queued, &mut fresh] {
        client.ask("/").await;
        let answer = client.rest().await;
        assert!(
            answer.contains("connection: close\r\n") && answer.ends_with("hello"),
            "{answer}"
        );
    }
    server.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_still_under_way_at_the_hard_stop_is_let_go() {
    let server = limited(|_| {}).await;
    let mut busy = server.busy().await;
    server.shutdown.begin();
    server.shutdown.hard().cancel();
    assert_eq!(busy.rest().await, "");
    timeout(LONG, server.serving)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_port_that_is_taken_is_told() {
    let taken = listener().await;
    let address = taken.local_addr().unwrap();
    let error = bind("127.0.0.1", address.port()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("listening on {address}"));
}
