//! How long a connection waits for the headers of a request.
//!
//! The server library knows one limit, which runs from the end of one request to the end of the
//! headers of the next. That is two limits in one: a slow client gets little time, and an idle
//! connection must be kept for longer than the router in front of us keeps it. So the library's timer
//! is replaced by one that knows when the first byte of a request was read ([`Wire`]).
//!
//! This rests on what the library does not promise: it asks its timer for nothing but the wait for
//! headers, and does so each time before it reads the first byte of a head. A test drives the library
//! and notices when that changes; its version is pinned.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

use super::wire::Wire;

#[derive(Clone)]
pub(super) struct HeaderTimer(pub(super) Wire);

/// The library asks for nothing but the wait for headers, and its length is ours to say.
impl Timer for HeaderTimer {
    fn sleep(&self, _duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now())
    }

    fn sleep_until(&self, _deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.0.begin_head();
        Box::pin(Wait {
            since: tokio::time::Instant::now(),
            wire: self.0.clone(),
        })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// The wait for the headers of one request.
struct Wait {
    since: tokio::time::Instant,
    wire: Wire,
}

impl Sleep for Wait {}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.wire.poll_waited(self.since, context)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::io;
    use std::sync::{Arc, Mutex};

    use axum::body::Body;
    use axum::http::{Request, Response};
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

    use super::*;

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

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            note(&self.log, "shut down");
            Pin::new(&mut self.stream).poll_shutdown(context)
        }
    }

    /// A connection relies on this, and the library does not promise it (ADR 26). If this fails
    /// after an update, `wire.rs` has to be checked against the new version.
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
}
