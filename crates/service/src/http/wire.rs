//! One connection, as its bytes come and go.
//!
//! The stream hands the server library one request at a time: its head, then its body as long as the
//! library has read from the head that it is, and nothing behind it until the library waits for the
//! next head. So each head is scanned from its first byte ([`Head`]), also where a client sends
//! several requests ahead, and no more than one answer waits to be written. How long a body is, is
//! the library's word; only where it comes in chunks the end is found here ([`Chunks`]).

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::chunks::Chunks;
use super::connections::{Activity, Phase};
use super::heads::Head;

/// Bytes that are read while nothing may be handed on, to see whether the client has gone away.
const AHEAD: usize = 1 << 10;

/// A connection that is idle keeps no more than this.
const KEPT_CAPACITY: usize = 1 << 10;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) header_read: Duration,
    pub(super) idle: Duration,
    pub(super) write: Duration,
}

/// What is known of one connection. Clones are the same.
#[derive(Clone)]
pub(super) struct Wire {
    times: Times,
    activity: Arc<Activity>,
    state: Arc<Mutex<State>>,
}

struct State {
    /// How many heads have been waited for.
    heads: usize,
    /// When the first byte of this head was handed on.
    first_byte: Option<Instant>,
    head: Head,
    reading: Reading,
    /// What was read and may not be handed on yet.
    ahead: Vec<u8>,
    /// To be woken when there is something to hand on.
    reader: Option<Waker>,
    /// Until when the answer must be written, once the client has not taken all of it.
    write: Option<Pin<Box<Sleep>>>,
    /// Whether the client has not taken what is written.
    is_blocked: bool,
    /// The one timer of all heads. To set it later costs next to nothing, to make one anew does.
    header: Pin<Box<Sleep>>,
}

/// What may be handed on.
#[derive(Debug)]
enum Reading {
    /// A head.
    Head,
    /// Nothing: of what follows the head the length is not known yet, or the request is complete.
    Nothing,
    /// So many bytes of a body.
    Length(u64),
    /// A body in chunks.
    Chunks(Chunks),
    /// Nothing more: the library and we do not agree on what was read.
    Broken,
}

impl Wire {
    pub(super) fn new(times: Times, activity: Arc<Activity>) -> Self {
        let state = State {
            heads: 0,
            first_byte: None,
            head: Head::default(),
            reading: Reading::Head,
            ahead: Vec::new(),
            reader: None,
            write: None,
            is_blocked: false,
            header: Box::pin(tokio::time::sleep(times.header_read)),
        };
        Self {
            times,
            activity,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Whether the head that came last may be understood otherwise by another reader.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.state().head.is_ambiguous()
    }

    /// The same stream, with what this sees to.
    pub(super) fn over<S>(&self, stream: S) -> WireStream<S> {
        WireStream {
            stream,
            wire: self.clone(),
        }
    }

    /// The library waits for a head from now on.
    pub(super) fn begin_head(&self) {
        let mut state = self.state();
        let agree = matches!(state.reading, Reading::Nothing) || state.heads == 0;
        state.heads += 1;
        state.first_byte = None;
        state.head = Head::default();
        state.reading = if agree {
            Reading::Head
        } else {
            Reading::Broken
        };
        self.activity.enter(Phase::Idle);
    }

    /// The library has read a head: the body is so long, or in chunks.
    pub(super) fn begin_body(&self, length: Option<u64>) {
        let mut state = self.state();
        state.reading = match length {
            Some(0) => Reading::Nothing,
            Some(length) => Reading::Length(length),
            None => Reading::Chunks(Chunks::default()),
        };
        let is_complete = matches!(state.reading, Reading::Nothing);
        self.activity.enter(if is_complete {
            Phase::Served
        } else {
            Phase::Body
        });
    }

    /// Whether the head took too long that is waited for since `since`. A client that has just
    /// connected wants something, so it is a slow one from the start.
    pub(super) fn poll_header_timeout(
        &self,
        since: Instant,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut state = self.state();
        let deadline = match state.first_byte {
            Some(first_byte) => first_byte + self.times.header_read,
            None if state.heads <= 1 => since + self.times.header_read,
            None => since + self.times.idle,
        };
        let deadline = deadline.into();
        if state.header.deadline() != deadline {
            state.header.as_mut().reset(deadline);
        }
        state.header.as_mut().poll(context)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether anything may be handed on. No head is while an answer is not taken: a client that
    /// reads nothing gets no more than one.
    fn may_hand_on(&self) -> bool {
        match self.reading {
            Reading::Nothing => false,
            Reading::Head => !self.is_blocked,
            Reading::Length(_) | Reading::Chunks(_) | Reading::Broken => true,
        }
    }

    /// How many of these bytes may be handed on, and what the connection is at then.
    fn hand_on(&mut self, bytes: &[u8]) -> io::Result<(usize, Phase)> {
        match &mut self.reading {
            Reading::Head => {
                if self.first_byte.is_none() {
                    self.first_byte = Some(tokio::time::Instant::now().into_std());
                    self.write = None;
                }
                let count = self.head.scan(bytes);
                if self.head.is_complete() {
                    self.reading = Reading::Nothing;
                }
                Ok((count, Phase::Head))
            }
            Reading::Length(left) => {
                let there = bytes.len() as u64;
                let count = there.min(*left);
                *left -= count;
                if *left == 0 {
                    self.reading = Reading::Nothing;
                }
                let count = usize::try_from(count).expect("no more than there are");
                Ok((count, self.phase_of_body()))
            }
            Reading::Chunks(chunks) => {
                let scanned = chunks.scan(bytes);
                match &scanned {
                    Ok(_) if chunks.is_complete() => self.reading = Reading::Nothing,
                    Ok(_) => {}
                    Err(_) => self.reading = Reading::Broken,
                }
                Ok((scanned?, self.phase_of_body()))
            }
            Reading::Nothing => Ok((0, Phase::Served)),
            Reading::Broken => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn phase_of_body(&self) -> Phase {
        match self.reading {
            Reading::Nothing => Phase::Served,
            _ => Phase::Body,
        }
    }

    /// Hands on what was read ahead, as far as there is room and it may be.
    fn hand_on_ahead(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<Phase> {
        let ahead = std::mem::take(&mut self.ahead);
        let fitting = ahead.len().min(buffer.remaining());
        let (count, phase) = self.hand_on(&ahead[..fitting])?;
        buffer.put_slice(&ahead[..count]);
        self.ahead = ahead;
        self.ahead.drain(..count);
        if self.ahead.is_empty() && self.ahead.capacity() > KEPT_CAPACITY {
            self.ahead = Vec::new();
        }
        Ok(phase)
    }
}

/// A stream with what is known of it.
pub(super) struct WireStream<S> {
    stream: S,
    wire: Wire,
}

impl<S: AsyncRead + Unpin> WireStream<S> {
    /// Reads while nothing may be handed on: the end of the stream, or what the client sends ahead.
    fn poll_ahead(&mut self, state: &mut State, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        state.reader = Some(context.waker().clone());
        if !state.ahead.is_empty() {
            return Poll::Pending;
        }
        let mut bytes = [0; AHEAD];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        if buffer.filled().is_empty() {
            return Poll::Ready(Ok(()));
        }
        state.ahead.extend_from_slice(buffer.filled());
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WireStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let wire = this.wire.clone();
        let mut state = wire.state();
        if !state.may_hand_on() {
            return this.poll_ahead(&mut state, context);
        }
        let phase = if state.ahead.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let read = &buffer.filled()[before..];
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let (count, phase) = state.hand_on(read)?;
            state.ahead.extend_from_slice(&read[count..]);
            buffer.set_filled(before + count);
            phase
        } else {
            state.hand_on_ahead(buffer)?
        };
        wire.activity.enter(phase);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WireStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        if polled.is_ready() {
            return polled;
        }
        let mut state = this.wire.state();
        if !std::mem::replace(&mut state.is_blocked, true) {
            this.wire.activity.enter(Phase::Writing);
        }
        let limit = this.wire.times.write;
        let deadline = state
            .write
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// The library flushes when all has been written that it has to write.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(context))?;
        let mut state = this.wire.state();
        if std::mem::take(&mut state.is_blocked) {
            this.wire.activity.enter(match state.reading {
                Reading::Head => Phase::Idle,
                _ => Phase::Served,
            });
            if let Some(reader) = state.reader.take() {
                reader.wake();
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
