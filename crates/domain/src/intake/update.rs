//! The decision about an update, without I/O (ADR 33).
//!
//! An update is a stop and a start under one id. Each is kept by itself, and others may keep events
//! between any two steps. So the order of the steps is a part of the decision:
//!
//! ```text
//! Read: OpenOfPrevious ─► NotEndedOfTarget ─► StartOfUpdate ─► StopOfUpdate ─► Kept or Refused, or
//! IsIdFree ─► Keep(Stop) ─► Keep(Start) ─► Kept    (only what is missing)
//! ```
//!
//! What may prevent the update is read first, and the halves that are kept are read after it: another
//! request with the same update may make a half between two reads, and that refuses nothing. A half
//! that turns out to be kept only when it is made may be one of another update under this id. Then both
//! halves are read again.
//!
//! The receiver and the model carry out the steps that [`UpdateIntake::next`] returns.

use uuid::Uuid;

use super::{IntakeRules, NotEnded, Refusal, require_open};
use crate::{Span, Timestamp, UpdateEvent};

/// A half of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The stop of the previous span.
    Stop,
    /// The start of the new one.
    Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpdateRead {
    OpenOfPrevious,
    /// The spans of the new target that have not ended by the time of the update.
    NotEndedOfTarget,
    /// The span of the new target that was started under the id.
    StartOfUpdate,
    /// The span of the previous target that was stopped under the id.
    StopOfUpdate,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum UpdateStep {
    /// Read these spans. Answer with [`UpdateIntake::on_spans`].
    Read(UpdateRead),
    /// Find out whether the id is free for this half: an index of the original Sampler refuses
    /// one that another target has. Answer with [`UpdateIntake::on_id`].
    IsIdFree(Half),
    /// Keep this half. Answer with [`UpdateIntake::on_kept`].
    Keep(Half),
    /// Both halves are kept.
    Kept {
        /// Whether another request has completed the update.
        is_replayed: bool,
    },
    Refused {
        refusal: Refusal,
        /// Whether its stop is kept, by this request or another one.
        has_stop: bool,
    },
}

/// The answer to a half that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HalfKept {
    /// It was kept now.
    Made,
    /// It was kept before, by another request.
    Repeated,
}

/// Decides about one update for one request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UpdateIntake {
    event: UpdateEvent,
    rules: IntakeRules,
    now: Timestamp,
    state: UpdateState,
    /// Whether what may prevent the update was read.
    has_looked: bool,
    /// The open span of the previous target.
    open: Option<Span>,
    /// The spans of the new target that had not ended.
    others: Vec<Span>,
    /// The span that was stopped under the id.
    ended: Option<Span>,
    /// The span that was started under the id.
    started: Option<Span>,
    stop: Progress,
    start: Progress,
}

/// What is done next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum UpdateState {
    Reading(UpdateRead),
    CheckingId(Half),
    Keeping(Half),
    Kept,
    Refused(Refusal),
}

/// Whether a half of the update is kept, and who kept it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    Missing,
    /// The half was kept before this request read it.
    Found,
    /// Another request, since then.
    Repeated,
    /// This request.
    Made,
}

impl Progress {
    fn is_kept(self) -> bool {
        self != Self::Missing
    }

    /// Notes how the half was found, unless that is known.
    fn note(&mut self, found: Self) {
        if !self.is_kept() {
            *self = found;
        }
    }
}

impl UpdateIntake {
    pub fn new(event: UpdateEvent, rules: IntakeRules, now: Timestamp) -> Self {
        Self {
            event,
            rules,
            now,
            state: UpdateState::Reading(UpdateRead::OpenOfPrevious),
            has_looked: false,
            open: None,
            others: Vec::new(),
            ended: None,
            started: None,
            stop: Progress::Missing,
            start: Progress::Missing,
        }
    }

    pub fn event(&self) -> &UpdateEvent {
        &self.event
    }

    /// Whether its stop is known to be kept.
    pub fn has_stop(&self) -> bool {
        self.stop.is_kept()
    }

    /// Whether its start is known to be kept.
    pub fn has_start(&self) -> bool {
        self.start.is_kept()
    }

    /// The span that its stop has ended, or would end. None where that span was removed.
    pub fn previous(&self) -> Option<&Span> {
        if self.has_stop() {
            self.ended.as_ref()
        } else {
            self.open.as_ref()
        }
    }

    /// The span that its start has opened, if it was read.
    pub fn started(&self) -> Option<&Span> {
        self.started.as_ref()
    }

    pub fn next(&self) -> UpdateStep {
        match &self.state {
            UpdateState::Reading(read) => UpdateStep::Read(*read),
            UpdateState::CheckingId(half) => UpdateStep::IsIdFree(*half),
            UpdateState::Keeping(half) => UpdateStep::Keep(*half),
            UpdateState::Kept => UpdateStep::Kept {
                // Of several requests one makes the half that was missing last.
                is_replayed: match self.start {
                    Progress::Found => self.stop != Progress::Made,
                    start => start != Progress::Made,
                },
            },
            UpdateState::Refused(refusal) => UpdateStep::Refused {
                refusal: refusal.clone(),
                has_stop: self.has_stop(),
            },
        }
    }

    /// Takes the spans that were read.
    ///
    /// # Panics
    /// If the last step was not [`UpdateStep::Read`].
    pub fn on_spans(&mut self, spans: Vec<Span>) {
        let UpdateState::Reading(read) = self.state else {
            panic!("no spans were to be read: {:?}", self.state);
        };
        let mut spans = spans.into_iter();
        self.state = match read {
            UpdateRead::OpenOfPrevious => {
                self.open = spans.find(|span| span.end.is_none());
                UpdateState::Reading(UpdateRead::NotEndedOfTarget)
            }
            UpdateRead::NotEndedOfTarget => {
                self.others = spans.collect();
                UpdateState::Reading(UpdateRead::StartOfUpdate)
            }
            UpdateRead::StartOfUpdate => {
                self.started = spans.next();
                UpdateState::Reading(UpdateRead::StopOfUpdate)
            }
            UpdateRead::StopOfUpdate => {
                self.ended = spans.next();
                self.decide().unwrap_or_else(UpdateState::Refused)
            }
        };
    }

    /// Takes whether the id is free for a half.
    ///
    /// # Panics
    /// If the last step was not [`UpdateStep::IsIdFree`].
    pub fn on_id(&mut self, is_free: bool) {
        let UpdateState::CheckingId(half) = self.state else {
            panic!("no id was to be looked for: {:?}", self.state);
        };
        self.state = match half {
            _ if !is_free => UpdateState::Refused(Refusal::IdTakenElsewhere),
            Half::Stop if !self.has_start() => UpdateState::CheckingId(Half::Start),
            _ => self.keep_missing(),
        };
    }

    /// Takes the answer to a half that was to be kept.
    ///
    /// # Panics
    /// If the last step was not [`UpdateStep::Keep`].
    pub fn on_kept(&mut self, answer: Result<HalfKept, Refusal>) {
        let UpdateState::Keeping(half) = self.state else {
            panic!("no half was to be kept: {:?}", self.state);
        };
        let progress = match half {
            Half::Stop => &mut self.stop,
            Half::Start => &mut self.start,
        };
        self.state = match answer {
            Ok(HalfKept::Made) => {
                *progress = Progress::Made;
                self.keep_missing()
            }
            // By whoever was faster: another update under this id, perhaps.
            Ok(HalfKept::Repeated) => {
                *progress = Progress::Repeated;
                UpdateState::Reading(UpdateRead::StartOfUpdate)
            }
            Err(refusal) => UpdateState::Refused(refusal),
        };
    }

    /// The state after both halves were looked for.
    fn decide(&mut self) -> Result<UpdateState, Refusal> {
        let found = if self.has_looked {
            Progress::Repeated
        } else {
            Progress::Found
        };
        self.judge(found)?;
        if self.has_looked || self.has_stop() && self.has_start() {
            return Ok(self.keep_missing());
        }
        self.has_looked = true;
        self.look()
    }

    /// Tells whether what was found under the id are halves of this update. A half that was sent as
    /// an event of its own counts for any update that says the same.
    fn judge(&mut self, found: Progress) -> Result<(), Refusal> {
        if let Some(span) = &self.ended {
            let differences = self.event.stop().differences(span);
            let own = self.require_own(span.stop_update);
            let same = own.and_then(|()| self.rules.require_same(differences));
            if same.is_err() {
                self.stop = Progress::Missing;
            }
            same?;
            self.stop.note(found);
        }
        if let Some(span) = &self.started {
            self.require_own(span.start_update)?;
            let differences = self.event.start().differences(span);
            self.rules.require_same(differences)?;
            self.start.note(found);
            if span.start_update.is_some() {
                // Its stop came before it. The span that this has ended may be removed by now.
                self.stop.note(found);
            }
        }
        Ok(())
    }

    /// Refuses a half that another update has made.
    fn require_own(&self, update: Option<Uuid>) -> Result<(), Refusal> {
        match update {
            Some(update) if update != self.event.targets_digest() => {
                Err(Refusal::IdOfAnotherUpdate)
            }
            _ => Ok(()),
        }
    }

    /// Refuses the update for what would refuse a half that is missing.
    fn look(&mut self) -> Result<UpdateState, Refusal> {
        let at = self.event.timestamp;
        self.rules.require_slack(at, self.now)?;
        // The update does not end the span that it has started itself.
        let started = self.started.as_ref().map(|span| &span.id);
        self.open.take_if(|open| started == Some(&open.id));
        if !self.has_stop() {
            require_open(self.open.as_ref(), at)?;
        }
        if self.has_start() {
            return Ok(UpdateState::CheckingId(Half::Stop));
        }
        let previous = self.previous().map(|span| &span.id);
        let others = self.others.iter();
        let others = others.filter(|span| previous != Some(&span.id));
        NotEnded::by(at, others.map(|span| span.end)).require_room(self.rules.may_overlap)?;
        Ok(UpdateState::CheckingId(if self.has_stop() {
            Half::Start
        } else {
            Half::Stop
        }))
    }

    fn keep_missing(&self) -> UpdateState {
        if !self.has_stop() {
            UpdateState::Keeping(Half::Stop)
        } else if !self.has_start() {
            UpdateState::Keeping(Half::Start)
        } else {
            UpdateState::Kept
        }
    }
}
