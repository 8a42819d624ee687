//! What happens in a run: a list, made from the seed before anything runs, so that it can be
//! shortened and run again.

use std::fmt;

use sampler_domain::Timestamp;

use super::weather::Weather;

/// Something that happens, so many ms after the run began.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) at: i64,
    pub(crate) act: Act,
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// A provider sends events.
    Send(Sending),
    /// An original Sampler writes a span.
    Original(Original),
    /// Something befalls a receiver.
    Receiver(usize, Fate),
    /// Something befalls a worker.
    Worker(usize, Fate),
    /// A process's clock is wrong by so many ms from now on.
    Clock(Process, i64),
    /// The store gets better or worse.
    Store(Weather),
    /// Abacus gets better or worse.
    Abacus(Weather),
}

/// A process, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    Receiver(usize),
    Worker(usize),
}

/// What befalls a process; lengths in ms.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It dies as it passes for the next so many times (see [`super::life`]), or soon, and another
    /// one takes its place after a while.
    Crash {
        passes: usize,
        down: i64,
        renamed: bool,
    },
    /// It is told to stop, and another one takes its place at once.
    Replace { renamed: bool },
    /// It freezes as it passes for the next so many times, or soon; does nothing for so long, and
    /// then goes on as if nothing had happened.
    Freeze { passes: usize, length: i64 },
}

/// Events that are sent one after the other, each until it has an answer that is final.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    /// For the waits of this sending, and its choice of receivers.
    pub(crate) seed: u64,
    pub(crate) events: Vec<Event>,
    /// It waits until what was sent before for the same target has its answer.
    pub(crate) in_turn: bool,
    /// It is sent again until it has a final answer; else never.
    pub(crate) again: bool,
    /// Nothing but 201 is right: all that was sent before for this target is fit, too.
    pub(crate) fit: bool,
    /// How long an answer is waited for, ms.
    pub(crate) patience: i64,
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
            Act::Send(sending) => write!(f, "{sending}"),
            Act::Original(original) => write!(f, "{original:?}"),
            Act::Receiver(number, fate) => write!(f, "receiver {number}: {fate:?}"),
            Act::Worker(number, fate) => write!(f, "worker {number}: {fate:?}"),
            Act::Clock(process, offset) => write!(f, "{process:?}: clock off by {offset} ms"),
            Act::Store(weather) => write!(f, "store: {weather:?}"),
            Act::Abacus(weather) => write!(f, "Abacus: {weather:?}"),
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
            (self.in_turn, "in turn"),
            (self.again, "until answered"),
            (self.fit, "must be kept"),
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
