//! What happens in a run: a list, made from the seed before anything runs, so that it can be
//! shortened and run again.

use std::fmt;

use sampler_domain::Timestamp;

use super::conditions::Conditions;

/// An operation, `at` ms after the run began.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) at: i64,
    pub(crate) act: Action,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A provider sends events.
    Send(Sending),
    Receiver(usize, ProcessFault),
    Worker(usize, ProcessFault),
    /// The error of a clock is this many ms from now on.
    Clock(Clocked, i64),
    /// The conditions of the store change.
    Store(Conditions),
    /// The conditions of the upstream change.
    Upstream(Conditions),
    /// Operators act; the seed says on what.
    Operator(u64),
    /// A provider stops a usage where what counts is in doubt; the seed says which and where.
    BadStop(u64),
}

/// A process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Receiver(usize),
    Worker(usize),
}

/// What has a clock that may be wrong. A receiver asks the database for the time with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clocked {
    Database,
    /// The machine of a worker.
    Worker(usize),
}

/// A fault of a process; lengths in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProcessFault {
    /// It crashes after this many checkpoints (see [`super::lifecycle`]), or soon, and another
    /// process replaces it after `down`.
    Crash {
        checkpoints: usize,
        down: i64,
        renamed: bool,
    },
    /// It shuts down, and another process replaces it at once.
    Replace { renamed: bool },
    /// It freezes after this many checkpoints, or soon, for `length`. Then it continues.
    Freeze { checkpoints: usize, length: i64 },
}

/// Events that are sent, each until it has an answer that is final.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    /// The seed of its waits and its choice of receivers.
    pub(crate) seed: u64,
    pub(crate) events: Vec<Event>,
    pub(crate) way: Way,
    /// It waits until all earlier ordered sendings for the targets are answered.
    pub(crate) ordered: bool,
    /// It is repeated until it has a final answer; otherwise it is sent once.
    pub(crate) retried: bool,
    /// Only 201 is right, as for all earlier events of the target.
    pub(crate) must_succeed: bool,
    /// How long the provider waits for an answer, ms.
    pub(crate) timeout: i64,
}

/// How events are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// One after the other.
    OneByOne,
    /// In one batch, which is repeated as a whole.
    Batch,
}

/// An event, as a provider reports it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) id: Option<String>,
    pub(crate) timestamp: Timestamp,
    pub(crate) target: usize,
    /// The number of its measures; a stop has none.
    pub(crate) measures: usize,
    /// It lacks a field.
    pub(crate) broken: bool,
}

/// Whether a usage starts, stops, or continues with other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Start,
    Stop,
    /// The usage of the target of that number stops, and that of the event's target starts.
    Update {
        previous: usize,
    },
}

impl Event {
    /// The start or the stop that it is; both, for an update.
    pub(crate) fn halves(&self) -> Vec<Self> {
        let Kind::Update { previous } = self.kind else {
            return vec![self.clone()];
        };
        let stop = Self {
            kind: Kind::Stop,
            target: previous,
            measures: 0,
            ..self.clone()
        };
        let start = Self {
            kind: Kind::Start,
            ..self.clone()
        };
        vec![stop, start]
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} ms  {:?}", self.at, self.act)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Start => "start".to_owned(),
            Kind::Stop => "stop".to_owned(),
            Kind::Update { previous } => format!("update after target {previous}"),
        };
        let id = self.id.as_deref().unwrap_or("no id");
        let Self {
            timestamp,
            target,
            measures,
            ..
        } = self;
        write!(
            f,
            "{kind} ({id}) of target {target} at {timestamp} measures {measures}"
        )?;
        if self.broken {
            f.write_str(" broken")
        } else {
            Ok(())
        }
    }
}
