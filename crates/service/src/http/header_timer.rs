//! How long a connection waits for its client.
//!
//! The server library knows one limit, which runs from the end of one request to the end of the
//! headers of the next. That is two things in one: a slow client, who gets little time, and an
//! idle connection, which must be kept for longer than the router in front of us keeps it. So
//! its timer is made to look at when the first byte of a request was read. Whoever sees that byte
//! sees the whole head, and looks whether it is one that all understand alike.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::heads::Head;

/// The timer of one connection. Clones are the same.
#[derive(Clone)]
pub(super) struct HeaderTimer {
    header_read: Duration,
    idle: Duration,
    state: Arc<Mutex<State>>,
}

/// What is known of the connection.
struct State {
    /// How often the headers of a request have been waited for.
    waits: usize,
    /// When the first byte came since they are waited for.
    first_byte: Option<Instant>,
    /// What has come of them.
    head: Head,
    /// The one timer of all waits. To set it later costs next to nothing, to make one anew does.
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl HeaderTimer {
    pub(super) fn new(header_read: Duration, idle: Duration) -> Self {
        Self {
            header_read,
            idle,
            state: Arc::new(Mutex::new(State {
                waits: 0,
                first_byte: None,
                head: Head::default(),
                sleep: Box::pin(tokio::time::sleep(header_read)),
            })),
        }
    }

    /// Whether the headers that came last may be understood otherwise by another reader.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.state().head.is_ambiguous()
    }

    /// The same stream; its reading is seen.
    pub(super) fn watch<S>(&self, stream: S) -> Watched<S> {
        Watched {
            stream,
            timer: self.clone(),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until when to wait for headers that are waited for since `since`. Who has just connected
    /// wants something, so it is a slow client from the start.
    fn deadline(&self, state: &State, since: Instant) -> Instant {
        match state.first_byte {
            Some(first_byte) => first_byte + self.header_read,
            None if state.waits <= 1 => since + self.header_read,
            None => since + self.idle,
        }
    }

    fn wait(&self, since: Instant) -> Pin<Box<dyn Sleep>> {
        let mut state = self.state();
        state.waits += 1;
        state.first_byte = None;
        state.head = Head::default();
        drop(state);
        Box::pin(Wait {
            since,
            timer: self.clone(),
        })
    }
}

/// The library asks for nothing but the wait for headers, and its length is ours to say.
impl Timer for HeaderTimer {
    fn sleep(&self, _duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.wait(self.now())
    }

    fn sleep_until(&self, _deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.wait(self.now())
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// The wait for the headers of one request.
struct Wait {
    since: Instant,
    timer: HeaderTimer,
}

impl Sleep for Wait {}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.timer.state();
        let deadline = self.timer.deadline(&state, self.since).into();
        if state.sleep.deadline() != deadline {
            state.sleep.as_mut().reset(deadline);
        }
        state.sleep.as_mut().poll(context)
    }
}

/// A stream whose first byte since the last request is noticed.
pub(super) struct Watched<S> {
    stream: S,
    timer: HeaderTimer,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            let now = self.timer.now();
            let mut state = self.timer.state();
            state.first_byte.get_or_insert(now);
            state.head.scan(&buffer.filled()[before..]);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }
}
