//! The conditions of the store and of the upstream: how many calls fail, and how.

use std::sync::Mutex;
use std::time::Duration;

use sampler_domain::Timestamp;
use sampler_testkit::rng::{Rng, mix};

/// How many calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conditions {
    /// Everything works, and quickly.
    Healthy,
    /// A few calls fail, many are slow.
    Flaky,
    /// Every third call fails.
    Failing,
    /// Nearly nothing works.
    Down,
    /// Only for the upstream: it refuses usages. For the store the same as flaky.
    Refusing,
    /// Only for the store: many answers are lost, and many commands are carried out late.
    Lagging,
}

/// The outcome of a call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    /// Done, and answered.
    Done,
    /// Done, and answered; done even if the caller dies while it is under way.
    Sent,
    /// Not done, and that is certain.
    Unavailable,
    /// Not done, but the caller cannot know.
    NotDone,
    /// Done, but the answer is lost.
    Unanswered,
    /// Done only after the caller has given up waiting.
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PostOutcome {
    /// Counted, and accepted.
    Accepted,
    /// Counted, and accepted; counted even if the caller dies while it is under way.
    Sent,
    /// Counted, but the answer is lost, or says nothing: a 5xx after it was counted, a redirect.
    Unanswered,
    /// Counted only after the caller has given up waiting.
    Late,
    /// Not counted: no connection.
    Unsent,
    /// Not counted: 503 with a `Retry-After`.
    Failed,
    /// Not counted: 429.
    Busy,
    /// Not counted: refused.
    Refused,
}

/// A call: the delay of the request, the outcome, and the delay of the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer<F> {
    pub(crate) request_delay: Duration,
    pub(crate) outcome: F,
    pub(crate) reply_delay: Duration,
}

impl Conditions {
    pub(crate) const ALL: [Self; 5] = [
        Self::Healthy,
        Self::Flaky,
        Self::Failing,
        Self::Down,
        Self::Refusing,
    ];

    /// How many calls of a hundred go wrong.
    const fn failure_percent(self) -> usize {
        match self {
            Self::Healthy => 0,
            Self::Flaky | Self::Refusing => 5,
            Self::Failing | Self::Lagging => 35,
            Self::Down => 95,
        }
    }

    /// A delay; `slow` is a long time in this run, ms.
    fn delay(self, rng: &mut Rng, slow: i64) -> Duration {
        match self {
            Self::Healthy => rng.wait(5),
            _ if rng.percent(70) => rng.wait(50),
            _ => rng.wait(slow),
        }
    }

    /// Draws a call of the store.
    pub(crate) fn call(self, rng: &mut Rng, slow: i64) -> Transfer<CallOutcome> {
        let outcome = if self == Self::Lagging && rng.percent(40) {
            *rng.pick(&[CallOutcome::Late, CallOutcome::Unanswered])
        } else if rng.percent(self.failure_percent()) {
            *rng.pick(&[
                CallOutcome::Unavailable,
                CallOutcome::NotDone,
                CallOutcome::Unanswered,
                CallOutcome::Late,
            ])
        } else {
            *rng.pick(&[CallOutcome::Done, CallOutcome::Sent])
        };
        self.transfer(rng, slow, outcome)
    }

    /// Draws a post.
    pub(crate) fn post(self, rng: &mut Rng, slow: i64) -> Transfer<PostOutcome> {
        let outcome = if self == Self::Refusing && rng.percent(90) {
            PostOutcome::Refused
        } else if rng.percent(self.failure_percent()) {
            *rng.pick(&[
                PostOutcome::Unanswered,
                PostOutcome::Late,
                PostOutcome::Unsent,
                PostOutcome::Failed,
                PostOutcome::Busy,
                PostOutcome::Refused,
            ])
        } else {
            *rng.pick(&[PostOutcome::Accepted, PostOutcome::Sent])
        };
        self.transfer(rng, slow, outcome)
    }

    fn transfer<F>(self, rng: &mut Rng, slow: i64, outcome: F) -> Transfer<F> {
        Transfer {
            request_delay: self.delay(rng, slow),
            outcome,
            reply_delay: self.delay(rng, slow),
        }
    }
}

/// The outcomes of the calls of one process. Each is drawn from the moment and the kind of the call,
/// not from a sequence: so a run without some operation stays the same where that operation does not
/// matter, and a failing run can be made short.
#[derive(Debug)]
pub(crate) struct CallRng {
    seed: u64,
    /// The moment of the last call, and how many calls there were at that moment.
    last: Mutex<(i64, u64)>,
}

impl CallRng {
    pub(crate) fn new(mut rng: Rng) -> Self {
        Self {
            seed: rng.u64(),
            last: Mutex::default(),
        }
    }

    /// For one call, at `now`.
    pub(crate) fn of(&self, kind: &str, now: Timestamp) -> Rng {
        let mut last = self.last.lock().expect("nobody panics with it");
        let count = if last.0 == now.as_millis() {
            last.1 + 1
        } else {
            0
        };
        *last = (now.as_millis(), count);
        let kind = kind
            .bytes()
            .fold(count, |all, byte| mix(all ^ u64::from(byte)));
        Rng::new(self.seed, kind ^ mix(now.as_millis().unsigned_abs()))
    }
}
