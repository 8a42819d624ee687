//! How long a connection waits for the headers of a request.
//!
//! The server library knows one limit, which runs from the end of one request to the end of the
//! headers of the next. That is two limits in one: a slow client gets little time, and an idle
//! connection must be kept for longer than the router in front of us keeps it. So the library's timer
//! is replaced by one that knows when the first byte of a request was read ([`Wire`]).
//!
//! This rests on what the library does not promise: it asks its timer for nothing but the wait for
//! headers, and does so each time before it reads the first byte of a head. `tests/http/library.rs`
//! drives the library and notices when that changes; CI runs it with the newest version, too.

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
