//! A server on a real socket.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use sampler_service::http::{Limits, Port, Tls, TlsFiles, bind, serve_with};
use sampler_service::lifecycle::Shutdown;
use sampler_service::platform::Identity;
use sampler_service::settings::{HttpSettings, LogFormat, LogSettings};
use sampler_service::telemetry;
use sampler_testkit::tls::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::settings::file;

const LONG: Duration = Duration::from_secs(20);

/// A server whose `/slow` answers once `go` is notified.
struct Server {
    address: SocketAddr,
    shutdown: Shutdown,
    entered: Arc<Notify>,
    go: Arc<Notify>,
    serving: JoinHandle<std::io::Result<()>>,
}

async fn listener() -> TcpListener {
    bind(&HttpSettings {
        host: "127.0.0.1".to_owned(),
        port: 0,
    })
    .await
    .unwrap()
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
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/slow", get(slow));
    let address = port.listener.local_addr().unwrap();
    let of_server = shutdown.clone();
    let serving = tokio::spawn(async move { serve_with(port, router, &of_server, limits).await });
    Server {
        address,
        shutdown,
        entered,
        go,
        serving,
    }
}

async fn serve(limits: Limits) -> Server {
    serve_on(listener().await, limits, Shutdown::new())
}

impl Server {
    async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
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
    assert!(answer.contains("urn:sampler:problem:not-found"), "{answer}");
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
    let (mut silent, mut slow, mut idler) = (
        server.connect().await,
        server.connect().await,
        server.connect().await,
    );
    let start = Instant::now();
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
async fn more_connections_than_there_is_room_for_wait() {
    let server = serve(Limits {
        connections: 1,
        ..Limits::default()
    })
    .await;
    let mut first = server.connect().await;
    first.ask("/").await;
    first.answer("hello").await;
    let mut second = server.connect().await;
    second.ask("/").await;
    let mut byte = [0];
    let early = timeout(Duration::from_millis(200), second.0.read(&mut byte)).await;
    assert!(early.is_err(), "answered while there was no room");
    drop(first);
    second.answer("hello").await;
}

/// A handshake is part of its connection: it takes a place, for as long as headers may take.
#[tokio::test]
async fn a_handshake_that_does_not_come_to_its_end_takes_a_place_for_a_while() {
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
    };
    let limits = Limits {
        connections: 1,
        header_read: Duration::from_millis(500),
        ..Limits::default()
    };
    let server = serve_on(port, limits, Shutdown::new());
    let mut silent = server.connect().await;
    while server.shutdown.running().is_empty() {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
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
    assert!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(silent.rest().await, "");
}

#[tokio::test]
async fn on_stop_what_is_under_way_is_finished_and_nothing_else_let_in() {
    let server = serve(Limits::default()).await;
    let (mut idle, mut busy) = (server.connect().await, server.connect().await);
    idle.ask("/").await;
    idle.answer("hello").await;
    busy.ask("/slow").await;
    server.entered.notified().await;
    server.shutdown.begin();
    assert_eq!(idle.rest().await, "");
    server.serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
    assert_eq!(server.shutdown.running().get("http connection"), Some(&1));
    server.go.notify_one();
    let answer = busy.rest().await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("slow"),
        "{answer}"
    );
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

/// A router keeps its connections, and cannot know that this is not the time for a request.
#[tokio::test]
async fn an_idle_connection_is_good_for_one_more_request_after_the_stop() {
    let server = serve(Limits::default()).await;
    let mut idle = server.connect().await;
    idle.ask("/").await;
    idle.answer("hello").await;
    server.shutdown.begin();
    server.serving.await.unwrap().unwrap();
    let mut byte = [0];
    let closed = timeout(Duration::from_millis(200), idle.0.read(&mut byte)).await;
    assert!(closed.is_err(), "closed while a request may be on its way");
    idle.ask("/").await;
    let answer = idle.rest().await;
    assert!(
        answer.contains("connection: close\r\n") && answer.ends_with("hello"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_client_that_was_let_in_just_before_the_stop_is_still_served() {
    let server = serve(Limits::default()).await;
    let mut fresh = server.connect().await;
    while server.shutdown.running().is_empty() {
        tokio::task::yield_now().await;
    }
    server.shutdown.begin();
    server.serving.await.unwrap().unwrap();
    fresh.ask("/").await;
    let answer = fresh.rest().await;
    assert!(answer.ends_with("hello"), "{answer:?}");
}

#[tokio::test]
async fn a_request_that_arrives_with_the_stop_is_still_served() {
    let server = serve(Limits::default()).await;
    let mut client = server.connect().await;
    client.ask("/").await;
    client.answer("hello").await;
    client.ask("/").await;
    server.shutdown.begin();
    let answer = client.rest().await;
    assert!(answer.ends_with("hello"), "{answer:?}");
}

#[tokio::test]
async fn clients_in_the_queue_of_the_system_are_still_served() {
    let listener = listener().await;
    let address = listener.local_addr().unwrap();
    let mut queued = Client(TcpStream::connect(address).await.unwrap());
    queued.ask("/").await;
    let shutdown = Shutdown::new();
    shutdown.begin();
    let server = serve_on(listener, Limits::default(), shutdown);
    let answer = queued.rest().await;
    assert!(answer.ends_with("hello"), "{answer:?}");
    server.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn what_is_still_under_way_at_the_hard_stop_is_let_go() {
    let server = serve(Limits::default()).await;
    let mut busy = server.connect().await;
    busy.ask("/slow").await;
    server.entered.notified().await;
    server.shutdown.begin();
    server.shutdown.hard().cancel();
    assert_eq!(busy.rest().await, "");
    while !server.shutdown.running().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn says_where_it_listens() {
    let (_file, path) = file("");
    let log = File::create(&path).unwrap();
    let settings = LogSettings {
        format: LogFormat::Json,
        level: "info".to_owned(),
    };
    let subscriber = telemetry::subscriber(&settings, &Identity::default(), false, log).unwrap();
    let _logging = tracing::subscriber::set_default(subscriber);
    let server = serve(Limits::default()).await;
    let mut client = server.connect().await;
    client.ask("/").await;
    client.answer("hello").await;
    let line: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(line["message"], "listening");
    assert_eq!(line["level"], "INFO");
    assert_eq!(line["address"], server.address.to_string());
}

#[tokio::test]
async fn a_port_that_is_taken_is_told() {
    let taken = listener().await.local_addr().unwrap();
    let _holder = TcpListener::bind(taken).await.unwrap();
    let settings = HttpSettings {
        host: "127.0.0.1".to_owned(),
        port: taken.port(),
    };
    let error = bind(&settings).await.unwrap_err().to_string();
    assert_eq!(error, format!("listening on {taken}"));
}
