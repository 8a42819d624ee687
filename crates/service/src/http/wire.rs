//! One connection, as its bytes come and go.
//!
//! The stream hands the server library one request at a time: the head, once all of it has arrived;
//! then the body, of the length that the library has read in the head; and nothing after the body until
//! the library waits for the next head. So each head is scanned from its first byte ([`Head`]), also
//! where a client sends several requests ahead, and at most one answer waits to be written. The library
//! decides how long a body is; only the end of a body in chunks is found here ([`Chunks`]).
//!
//! The part of a head that has arrived is kept here, so that the library's buffers are needed for whole
//! requests alone: a connection that is idle, or slow with its head, waits without buffers.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::Limits;
use super::chunks::Chunks;
use super::connections::{Activity, Connection, KeptBytes, Phase};
use super::heads::Head;

/// How long a connection waits for the next head until it is parked. A client that sends one request
/// after the other needs much less.
const PARKED_AFTER: Duration = Duration::from_millis(100);

/// Bytes that are read while nothing may be handed on, to see whether the client has gone away.
const AHEAD: usize = 4 << 10;

/// The most bytes that an idle connection keeps.
const KEPT_CAPACITY: usize = 1 << 10;

/// The approximate memory of a request while its body arrives, in bytes: the library's buffers, and
/// the parts that serve it.
const REQUEST_BYTES: usize = 20 << 10;

/// The state of one connection. Clones share it.
#[derive(Clone)]
pub(super) struct Wire {
    limits: Limits,
    activity: Arc<Activity>,
    state: Arc<Mutex<WireState>>,
}

struct WireState {
    /// How many heads have been waited for, and since when this one is.
    heads: usize,
    since: Instant,
    first_byte: Option<Instant>,
    head: Head,
    reading: WireReading,
    /// Whether the last thing that the library could have is a body, and not a head.
    is_body: bool,
    is_parked: bool,
    /// The bytes that have arrived and may not be handed on yet.
    ahead: Vec<u8>,
    kept: KeptBytes,
    /// To be woken when there may be something to hand on.
    reader: Option<Waker>,
    /// Until when the client must take what is written, while it has not taken all of it.
    write: Option<Pin<Box<Sleep>>>,
    /// Until when it must have the whole answer, once it has not taken all that was written.
    answer_until: Option<Instant>,
    /// Whether the client has not taken what is written.
    is_blocked: bool,
    /// The one timer of all heads. Setting it later is cheap, creating another one is not.
    header: Pin<Box<Sleep>>,
}

/// The bytes that the library may have.
#[derive(Debug)]
enum WireReading {
    /// Nothing: a head is arriving. So many bytes of `ahead` belong to it.
    Head(usize),
    /// So many bytes of a head, or of a body.
    Bytes(u64),
    Chunks(Chunks),
    /// Nothing: how long the body is has not been said yet, or the request is complete.
    Nothing,
    /// Nothing more: the library and we do not agree on what was read.
    Broken,
}

impl Wire {
    pub(super) fn new(limits: Limits, connection: &Connection) -> Self {
        let state = WireState {
            heads: 1,
            since: Instant::now(),
            first_byte: None,
            head: Head::default(),
            reading: WireReading::Head(0),
            is_body: false,
            is_parked: false,
            ahead: Vec::new(),
            kept: connection.kept_bytes(),
            reader: None,
            write: None,
            answer_until: None,
            is_blocked: false,
            header: Box::pin(tokio::time::sleep(limits.header_read)),
        };
        Self {
            limits,
            activity: Arc::clone(&connection.activity),
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

    /// The library waits for a head from now on: for the next one, or, where it has just been given
    /// the connection, for the one that is arriving.
    pub(super) fn begin_head(&self) {
        let mut state = self.state();
        match state.reading {
            WireReading::Nothing if state.is_body => {
                state.heads += 1;
                state.since = Instant::now();
                state.first_byte = None;
                state.head = Head::default();
                state.reading = WireReading::Head(0);
                state.answer_until = None;
                state.note(&self.activity);
            }
            WireReading::Head(_) => {}
            WireReading::Bytes(_) if !state.is_body => {}
            _ => state.reading = WireReading::Broken,
        }
    }

    /// The library has read a head: the body has this length, or comes in chunks.
    pub(super) fn begin_body(&self, length: Option<u64>) {
        let mut state = self.state();
        state.is_body = true;
        state.reading = match length {
            Some(0) => WireReading::Nothing,
            Some(length) => WireReading::Bytes(length),
            None => WireReading::Chunks(Chunks::default()),
        };
        state.note(&self.activity);
    }

    /// Whether the body of the last request has not arrived to its end. If the request is answered now,
    /// the connection ends with this answer.
    pub(super) fn is_body_left(&self) -> bool {
        let state = self.state();
        match state.reading {
            WireReading::Bytes(left) => state.is_body && left > state.ahead.len() as u64,
            WireReading::Chunks(_) => true,
            WireReading::Nothing | WireReading::Head(_) | WireReading::Broken => false,
        }
    }

    /// Whether the library has waited for long enough: the head took too long, or the connection is to
    /// be parked.
    pub(super) fn poll_waited(&self, since: Instant, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.is_blocked {
            // An answer waits to be written, and that has a limit of its own.
            return Poll::Pending;
        }
        let deadline = state.deadline(&self.limits).min(since + PARKED_AFTER);
        ready!(state.poll_deadline(deadline, context));
        state.is_parked = true;
        Poll::Ready(())
    }

    /// Whether the library gave up the connection because its wait was
    /// ended, as at a timeout.
    pub(super) fn was_parked(&self) -> bool {
        std::mem::take(&mut self.state().is_parked)
    }

    /// The client does not take what is written. Ready once it has had long enough for that, or for
    /// the whole answer.
    fn poll_blocked(&self, context: &mut Context<'_>) -> Poll<io::Error> {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_blocked, true) {
            state.note(&self.activity);
        }
        let now = Instant::now();
        let until = state.answer_until.get_or_insert(now + self.limits.answer);
        let until = (*until).min(now + self.limits.write);
        let deadline = state
            .write
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    /// The client has taken all that was written so far.
    fn unblock(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.is_blocked) {
            state.write = None;
            state.note(&self.activity);
            if let Some(reader) = state.reader.take() {
                reader.wake();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, WireState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WireState {
    /// By when the head must have arrived. A client that has just connected has a request, so it
    /// counts as slow from the start.
    fn deadline(&self, limits: &Limits) -> Instant {
        match self.first_byte {
            Some(first_byte) => first_byte + limits.header_read,
            None if self.heads <= 1 => self.since + limits.header_read,
            None => self.since + limits.idle,
        }
    }

    fn poll_deadline(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        if self.header.deadline() != deadline {
            self.header.as_mut().reset(deadline);
        }
        self.header.as_mut().poll(context)
    }

    /// Scans what has arrived of the head. The library gets the head once it is complete, or too
    /// long: the library answers that.
    fn scan_head(&mut self, limits: &Limits) {
        let WireReading::Head(scanned) = self.reading else {
            return;
        };
        if self.first_byte.is_none() && !self.ahead.is_empty() {
            self.first_byte = Some(Instant::now());
        }
        let length = scanned + self.head.scan(&self.ahead[scanned..]);
        let is_ready = self.head.is_complete() || length >= limits.header_bytes;
        self.reading = if is_ready {
            self.is_body = false;
            WireReading::Bytes(length as u64)
        } else {
            WireReading::Head(length)
        };
    }

    /// Whether the library may have anything. A head is withheld from it while an answer is not taken: a
    /// client that reads nothing gets at most one.
    fn may_hand_on(&self) -> bool {
        match self.reading {
            WireReading::Nothing | WireReading::Head(_) => false,
            WireReading::Bytes(_) => self.is_body || !self.is_blocked,
            WireReading::Chunks(_) | WireReading::Broken => true,
        }
    }

    /// Whether more is read while the library may have nothing: bytes of a head, or any byte, to
    /// see whether the client has gone away.
    fn may_read_ahead(&self) -> bool {
        self.ahead.is_empty() || matches!(self.reading, WireReading::Head(_))
    }

    /// How many of these bytes the library may have.
    fn hand_on(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.reading {
            WireReading::Bytes(left) => {
                let count = (*left).min(bytes.len() as u64);
                *left -= count;
                if *left == 0 {
                    self.reading = WireReading::Nothing;
                }
                Ok(usize::try_from(count).expect("no more than there are"))
            }
            WireReading::Chunks(chunks) => {
                let scanned = chunks.scan(bytes);
                if scanned.is_err() {
                    self.reading = WireReading::Broken;
                } else if chunks.is_complete() {
                    self.reading = WireReading::Nothing;
                }
                scanned
            }
            WireReading::Nothing | WireReading::Head(_) => Ok(0),
            WireReading::Broken => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn phase(&self) -> Phase {
        match self.reading {
            _ if self.is_blocked => Phase::Writing,
            WireReading::Head(0) if self.heads <= 1 => Phase::New,
            WireReading::Head(0) => Phase::Idle,
            WireReading::Head(_) => Phase::Head,
            WireReading::Nothing => Phase::Served,
            WireReading::Bytes(_) if !self.is_body => Phase::Served,
            WireReading::Bytes(_) | WireReading::Chunks(_) | WireReading::Broken => Phase::Body,
        }
    }

    /// Hands on what has arrived, as far as it fits and may be.
    fn hand_on_ahead(&mut self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let ahead = std::mem::take(&mut self.ahead);
        let fitting = ahead.len().min(buffer.remaining());
        let count = self.hand_on(&ahead[..fitting])?;
        buffer.put_slice(&ahead[..count]);
        self.ahead = ahead;
        self.ahead.drain(..count);
        if self.ahead.is_empty() && self.ahead.capacity() > KEPT_CAPACITY {
            self.ahead = Vec::new();
        }
        Ok(())
    }

    /// Notes the phase of the connection, and the bytes that it keeps for a request that is not
    /// complete.
    fn note(&mut self, activity: &Activity) {
        let phase = self.phase();
        activity.enter(phase);
        let of_body = if phase == Phase::Body {
            REQUEST_BYTES
        } else {
            0
        };
        self.kept.set(self.ahead.capacity() + of_body);
    }
}

pub(super) struct WireStream<S> {
    stream: S,
    wire: Wire,
}

impl<S: AsyncRead + Unpin> WireStream<S> {
    /// Waits until a head is there for the library. Says whether it is: the client may go away, or take
    /// too long.
    pub(super) async fn head_is_there(&mut self) -> bool {
        std::future::poll_fn(|context| self.poll_head(context)).await
    }

    /// The stream below, once the library is done with this one.
    pub(super) fn below(&mut self) -> &mut S {
        &mut self.stream
    }

    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let wire = self.wire.clone();
        let mut state = wire.state();
        match self.poll_more(&mut state, context) {
            Poll::Ready(more) => return Poll::Ready(more.unwrap_or(false)),
            Poll::Pending => {}
        }
        let deadline = state.deadline(&wire.limits);
        state.poll_deadline(deadline, context).map(|()| false)
    }

    /// Reads what the library may not have yet. Says whether there was anything.
    fn poll_ahead(
        &mut self,
        state: &mut WireState,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        // Filling it with zeros first would cost more than reading a usual request.
        let mut bytes = [MaybeUninit::uninit(); AHEAD];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        let read = buffer.filled();
        if state.ahead.len() + read.len() > state.ahead.capacity() {
            state.ahead.reserve_exact(read.len());
        }
        state.ahead.extend_from_slice(read);
        state.scan_head(&self.wire.limits);
        state.note(&self.wire.activity);
        Poll::Ready(Ok(!buffer.filled().is_empty()))
    }

    /// Waits until the library may have something. Says whether there will be anything.
    fn poll_more(
        &mut self,
        state: &mut WireState,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        state.scan_head(&self.wire.limits);
        while !state.may_hand_on() {
            let polled = if state.may_read_ahead() {
                self.poll_ahead(state, context)
            } else {
                Poll::Pending
            };
            if polled.is_pending() {
                state.reader = Some(context.waker().clone());
            }
            if !ready!(polled)? {
                return Poll::Ready(Ok(false));
            }
        }
        Poll::Ready(Ok(true))
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
        if !ready!(this.poll_more(&mut state, context))? {
            return Poll::Ready(Ok(()));
        }
        if state.ahead.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
            let read = &buffer.filled()[before..];
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let count = state.hand_on(read)?;
            state.ahead.extend_from_slice(&read[count..]);
            buffer.set_filled(before + count);
        } else {
            state.hand_on_ahead(buffer)?;
        }
        state.note(&wire.activity);
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
        if polled.is_pending() {
            return this.wire.poll_blocked(context).map(Err);
        }
        polled
    }

    /// The library flushes when all has been written that it has: the whole answer, or a piece of one
    /// that is made in pieces.
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Poll::Ready(flushed) = Pin::new(&mut this.stream).poll_flush(context) else {
            return this.wire.poll_blocked(context).map(Err);
        };
        flushed?;
        this.wire.unblock();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_shutdown(context);
        if polled.is_pending() {
            return this.wire.poll_blocked(context).map(Err);
        }
        polled
    }
}

#[cfg(test)]
mod tests;
