//! What happens in a run: a list, made from the seed before anything runs, so that it can be
//! shortened and run again.

use std::fmt;

use sampler_domain::Timestamp;

use super::conditions::Conditions;

/// Something that happens, so many ms after the run began.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) at: i64,
    pub(crate) act: Action,
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A provider sends events.
    Send(Sending),
    /// An original Sampler writes a span.
    Original(Original),
    /// Something befalls a receiver.
    Receiver(usize, ProcessFault),
    /// Something befalls a worker.
    Worker(usize, ProcessFault),
    /// A process's clock is wrong by so many ms from now on.
    Clock(Process, i64),
    /// The store gets better or worse.
    Store(Conditions),
    /// Abacus gets better or worse.
    Abacus(Conditions),
}

/// A process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Receiver(usize),
    Worker(usize),
}

/// What befalls a process; lengths in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProcessFault {
    /// It dies as it passes for the next so many times (see [`super::lifecycle`]), or soon, and another
    /// one takes its place after a while.
    Crash {
        checkpoints: usize,
        down: i64,
        renamed: bool,
    },
    /// It is told to stop, and another one takes its place at once.
    Replace { renamed: bool },
    /// It freezes as it passes for the next so many times, or soon; does nothing for so long, and
    /// then goes on as if nothing had happened.
    Freeze { checkpoints: usize, length: i64 },
}

/// Events that are sent one after the other, each until it has an answer that is final.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    /// For the waits of this sending, and its choice of receivers.
    pub(crate) seed: u64,
    pub(crate) events: Vec<Event>,
    /// It waits until what was sent before for the same target has its answer.
    pub(crate) ordered: bool,
    /// It is sent again until it has a final answer; else never.
    pub(crate) retried: bool,
    /// Nothing but 201 is right: all that was sent before for this target is fit, too.
    pub(crate) must_succeed: bool,
    /// How long an answer is waited for, ms.
    pub(crate) timeout: i64,
}

/// An event, as a provider reports it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) id: Option<String>,
    pub(crate) timestamp: Timestamp,
    pub(crate) target: usize,
    /// Which measures it has; a stop has none.
    pub(crate) measures: usize,
    /// It lacks a field.
    pub(crate) broken: bool,
}

/// Whether a usage starts or stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Start,
    Stop,
}

/// A span as an original Sampler leaves it.
#[derive(Clone, Debug)]
pub(crate) struct Original {
    pub(crate) number: u64,
    pub(crate) target: usize,
    pub(crate) with_id: bool,
    pub(crate) start: Timestamp,
    pub(crate) sampled_to: Timestamp,
    pub(crate) end: Option<Timestamp>,
    /// Where the planned interval ends, and whether its usage was posted already.
    pub(crate) planned: Option<(Timestamp, bool)>,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} ms  ", self.at)?;
        match &self.act {
            Action::Send(sending) => write!(f, "{sending}"),
            Action::Original(original) => write!(f, "{original:?}"),
            Action::Receiver(number, fault) => write!(f, "receiver {number}: {fault:?}"),
            Action::Worker(number, fault) => write!(f, "worker {number}: {fault:?}"),
            Action::Clock(process, offset) => write!(f, "{process:?}: clock off by {offset} ms"),
            Action::Store(conditions) => write!(f, "store: {conditions:?}"),
            Action::Abacus(conditions) => write!(f, "Abacus: {conditions:?}"),
        }
    }
}

impl fmt::Display for Sending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, event) in self.events.iter().enumerate() {
            let then = if number > 0 { ", then " } else { "" };
            write!(f, "{then}{event}")?;
        }
        let flags = [
            (self.ordered, "in turn"),
            (self.retried, "until answered"),
            (self.must_succeed, "must be kept"),
        ];
        for (_, flag) in flags.iter().filter(|(is_set, _)| *is_set) {
            write!(f, " [{flag}]")?;
        }
        Ok(())
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Start => "start",
            Kind::Stop => "stop",
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
