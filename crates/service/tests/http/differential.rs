//! Our framing against that of the server library alone: whatever bytes come, we serve no request that the
//! library alone would not have seen at the same place. We may stop earlier, with a refusal.
//!
//! `SAMPLER_FUZZ_SECONDS` has it run for longer than a test should.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::routing::any;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sampler_service::http::{Limits, serve_with};
use sampler_service::lifecycle::Shutdown;
use sampler_testkit::rng::Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use tower::ServiceExt;

use super::listener;

/// How long nothing may come until a connection is given up; and where the two differ, to be sure.
const QUIET: Duration = Duration::from_millis(15);
const QUIET_SURELY: Duration = Duration::from_millis(500);

/// Cases of a usual run.
const CASES: u64 = 200;

/// Parts of requests, right and wrong.
const LINES: [&str; 12] = [
    "POST /a HTTP/1.1",
    "GET /b HTTP/1.1",
    "POST /c HTTP/1.0",
    "PUT http://test/d HTTP/1.1",
    "GET  /e HTTP/1.1",
    "post /f HTTP/1.1",
    "GET /g",
    "POST /h HTTP/1.2",
    "OPTIONS * HTTP/1.1",
    " GET /i HTTP/1.1",
    "GET /j#x HTTP/1.1",
    "POST /k HTTP/1.1\t",
];
const HEADERS: [&str; 27] = [
    "host: test",
    "Host: test",
    "content-length: 3",
    "content-length: 0",
    "Content-Length: 5",
    "content-length: +3",
    "content-length: 3, 3",
    "content-length : 3",
    "content-length:\t3",
    "content-length: 03",
    "content-length: 0x3",
    "content-length: -1",
    "transfer-encoding: chunked",
    "Transfer-Encoding: Chunked",
    "transfer-encoding: gzip, chunked",
    "transfer-encoding: identity",
    "transfer-encoding : chunked",
    "transfer-encoding:\x0bchunked",
    " folded: x",
    "x: y",
    "connection: keep-alive",
    "connection: close",
    "expect: 100-continue",
    "x: \x00",
    ":empty",
    "x\ry: z",
    "upgrade: websocket",
];
const BODIES: [&str; 14] = [
    "",
    "abc",
    "abcde",
    "3\r\nabc\r\n0\r\n\r\n",
    "3;x=y\r\nabc\r\n0\r\n\r\n",
    "3\nabc\n0\n\n",
    "03\r\nabc\r\n0\r\nx: y\r\n\r\n",
    "0\r\n\r\n",
    "3 \r\nabc\r\n0\r\n\r\n",
    "+3\r\nabc\r\n0\r\n\r\n",
    "3\r\nabcd\r\n0\r\n\r\n",
    "ffffffffffffffff3\r\nabc\r\n0\r\n\r\n",
    "3;\"\r\nabc\r\n0\r\n\r\n",
    "3\r\nabc0\r\n\r\n",
];
const ENDS: [&str; 8] = ["\r\n", "\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n"];
const LAST: &[u8] = b"GET /last HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";

/// Some requests, one behind the other.
fn case(random: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..=random.below(3) {
        let line = if random.below(3) == 0 {
            random.pick(&LINES)
        } else {
            LINES[random.below(2)]
        };
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(random.pick(&ENDS).as_bytes());
        if random.below(8) != 0 {
            bytes.extend_from_slice(b"host: test\r\n");
        }
        for _ in 0..random.below(4) {
            bytes.extend_from_slice(random.pick(&HEADERS).as_bytes());
            bytes.extend_from_slice(random.pick(&ENDS).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(random.pick(&BODIES).as_bytes());
    }
    for _ in 0..random.below(3) {
        let place = random.below(bytes.len());
        match random.below(3) {
            0 => bytes[place] = random.u64().to_le_bytes()[0],
            1 => drop(bytes.remove(place)),
            _ => bytes.insert(place, b"\r\n\0 \t:,;0x\x80"[random.below(11)]),
        }
    }
    bytes.extend_from_slice(LAST);
    bytes
}

/// Says what it has understood.
async fn told(request: Request<Body>) -> String {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await;
    match body {
        Ok(body) => format!("[[{} {} {:?}]]", parts.method, parts.uri, body),
        Err(_) => "broken".to_owned(),
    }
}

fn router() -> Router {
    Router::new()
        .route("/", any(told))
        .route("/{*path}", any(told))
}

async fn the_library_alone() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_alone(stream));
        }
    });
    address
}

/// Closes the connection only once the client has: a socket that is closed with bytes that nobody has read is
/// reset, and an answer may be lost.
async fn serve_alone(stream: TcpStream) {
    let service = service_fn(|request: Request<Incoming>| {
        let answer = router().oneshot(request.map(Body::new));
        Box::pin(answer)
    });
    let mut serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    let _ = poll_fn(|context| serving.poll_without_shutdown(context)).await;
    let mut stream = serving.into_parts().io.into_inner();
    let _ = stream.shutdown().await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
}

/// What a server has understood of these bytes, which come in pieces.
async fn understood(server: SocketAddr, bytes: &[u8], cut: usize, quiet: Duration) -> Vec<String> {
    let mut client = TcpStream::connect(server).await.unwrap();
    client.set_nodelay(true).unwrap();
    let (first, second) = bytes.split_at(cut);
    let _ = client.write_all(first).await;
    tokio::task::yield_now().await;
    let _ = client.write_all(second).await;
    let mut answers = Vec::new();
    while let Ok(Ok(1..)) = timeout(quiet, client.read_buf(&mut answers)).await {}
    let text = String::from_utf8_lossy(&answers);
    let told = text.split("[[").skip(1);
    told.filter_map(|rest| Some(rest.split_once("]]")?.0.to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn we_serve_nothing_that_the_library_alone_would_not() {
    let shutdown = Shutdown::new();
    let own = listener().await;
    let ours = own.local_addr().unwrap();
    let of_server = shutdown.clone();
    let serving =
        tokio::spawn(async move { serve_with(own, router(), &of_server, Limits::default()).await });
    let theirs = the_library_alone().await;
    let seconds = std::env::var("SAMPLER_FUZZ_SECONDS").ok();
    let time = seconds.map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let (began, mut equal, mut stricter, mut served) = (Instant::now(), 0_u64, 0_u64, 0_usize);
    let mut seed = 0;
    while time.map_or(seed < CASES, |time| began.elapsed() < time) {
        let mut random = Rng::new(seed, 0);
        let bytes = case(&mut random);
        let cut = random.below(bytes.len());
        let mut both = tokio::join!(
            understood(ours, &bytes, cut, QUIET),
            understood(theirs, &bytes, cut, QUIET)
        );
        if both.0 != both.1 {
            both = tokio::join!(
                understood(ours, &bytes, cut, QUIET_SURELY),
                understood(theirs, &bytes, cut, QUIET_SURELY)
            );
        }
        let (ours, theirs) = both;
        assert!(
            theirs.starts_with(&ours),
            "seed {seed}: we served {ours:?}, the library alone {theirs:?} of {}",
            bytes.escape_ascii()
        );
        served += ours.len();
        if ours == theirs {
            equal += 1;
        } else {
            stricter += 1;
        }
        seed += 1;
    }
    println!(
        "{seed} cases, {served} requests served; alike {equal}, we stopped earlier {stricter}"
    );
    assert!(served > 0 && equal > 0);
    shutdown.begin();
    serving.await.unwrap().unwrap();
}
