//! What a connection relies on in the server library, which does not promise it: when the library asks its
//! timer, when it reads, and that it gives up in silence and leaves the stream to us.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::rt::{Sleep, Timer};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

/// The library's calls, in their order.
type Log = Arc<Mutex<Vec<&'static str>>>;

fn note(log: &Log, what: &'static str) {
    let mut log = log.lock().unwrap();
    // How often it reads is of no concern, only what comes before it.
    if log.last() != Some(&what) {
        log.push(what);
    }
}

/// A timer that fires when it is told to.
#[derive(Clone)]
struct Recorder {
    log: Log,
    fires: Arc<tokio::sync::Notify>,
}

impl Timer for Recorder {
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Sleep>> {
        note(&self.log, "another wait");
        self.sleep_until(self.now())
    }

    fn sleep_until(&self, _: Instant) -> Pin<Box<dyn Sleep>> {
        self.log.lock().unwrap().push("wait");
        let fires = Arc::clone(&self.fires);
        Box::pin(Fires(Box::pin(async move { fires.notified().await })))
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

struct Fires(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl Sleep for Fires {}

impl Future for Fires {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

struct Recorded {
    stream: DuplexStream,
    log: Log,
}

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_ready() {
            note(&self.log, "read");
        }
        polled
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        note(&self.log, "written");
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        note(&self.log, "shut down");
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A connection relies on this, and the library does not promise it. If this fails with a
/// newer version, `src/http/wire.rs` has to be checked against it.
#[tokio::test]
async fn the_library_waits_once_for_each_head_before_it_reads_it_and_gives_up_in_silence() {
    let log = Log::default();
    let (mut client, stream) = tokio::io::duplex(64 << 10);
    let log_of_stream = Arc::clone(&log);
    let fires = Arc::new(tokio::sync::Notify::new());
    let timer = Recorder {
        log: Arc::clone(&log),
        fires: Arc::clone(&fires),
    };
    let served = Arc::clone(&log);
    let service = service_fn(move |request: Request<Incoming>| {
        served.lock().unwrap().push("served");
        async move {
            let body = axum::body::to_bytes(Body::new(request.into_body()), 1 << 10).await;
            Ok::<_, Infallible>(Response::new(Body::from(body.unwrap())))
        }
    });
    let serving = tokio::spawn(async move {
        let mut stream = Recorded {
            stream,
            log: log_of_stream,
        };
        let serving = http1::Builder::new()
            .timer(timer)
            .header_read_timeout(Duration::from_secs(1))
            .serve_connection(TokioIo::new(&mut stream), service)
            .await;
        // The stream is still ours.
        (serving, stream)
    });
    let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
    for _ in 0..2 {
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"hello") {
            client.read_buf(&mut answer).await.unwrap();
        }
    }
    while log
        .lock()
        .unwrap()
        .iter()
        .filter(|&&what| what == "wait")
        .count()
        < 3
    {
        tokio::task::yield_now().await;
    }
    fires.notify_one();
    let (ended, stream) = serving.await.unwrap();
    assert!(ended.unwrap_err().is_timeout());
    let one = ["wait", "read", "served", "written"];
    let expected = [&one[..], &one, &["wait"]].concat();
    assert_eq!(*log.lock().unwrap(), expected);
    drop(stream);
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"", "nothing is said when it gives up");
}
