//! Planted bugs, to see that the simulation finds them.

use sampler_domain::{Change, Next, Span};

/// A bug that is planted between the programs and their store, or Abacus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// None.
    #[default]
    None,
    /// Noting an execution does not ask whether the span still is as it was read.
    ExecutedIgnoresVersion,
    /// Planning does not ask whether the span still is as it was read.
    PlanIgnoresVersion,
    /// Each post of a usage has another `dedup_id`.
    GuidPerAttempt,
    /// Each post of a usage has the time of the post as its timestamps.
    TimestampPerAttempt,
    /// No answer from Abacus counts as its acceptance.
    FailureCountsAsAccepted,
    /// Complete spans are removed at once, while their starts may still be repeated.
    RetentionTooShort,
    /// A receiver says 201 to an event whose fate it does not know.
    AcceptsUnknownOutcome,
    /// A span is complete with the first execution after its stop.
    CompletesBeforeEnd,
    /// A refusal counts as final though an earlier command with the same write may come later.
    TrustsRefusalAfterLostCommand,
    /// The server carries out a command however long ago it was sent.
    CommandsWithoutTimeLimit,
    /// A stop that is carried out twice carries something else each time.
    StopsWithoutCorrelationId,
    /// A single date of Abacus decides what time it is.
    SingleDateDecides,
    /// Retries are set by the worker's own clock, and looked for by Abacus's.
    RetriesByOwnClock,
}

impl Mutant {
    /// All bugs.
    pub const ALL: [Self; 13] = [
        Self::ExecutedIgnoresVersion,
        Self::PlanIgnoresVersion,
        Self::GuidPerAttempt,
        Self::TimestampPerAttempt,
        Self::FailureCountsAsAccepted,
        Self::RetentionTooShort,
        Self::AcceptsUnknownOutcome,
        Self::CompletesBeforeEnd,
        Self::TrustsRefusalAfterLostCommand,
        Self::CommandsWithoutTimeLimit,
        Self::StopsWithoutCorrelationId,
        Self::SingleDateDecides,
        Self::RetriesByOwnClock,
    ];

    /// A change as it is made; by a planted bug the end comes too early.
    pub(crate) fn change(self, change: &Change, span: &Span) -> Change {
        match change {
            Change::Executed { due_at, .. }
                if self == Self::CompletesBeforeEnd && span.end.is_some() =>
            {
                Change::Executed {
                    next: Next::Complete,
                    due_at: *due_at,
                }
            }
            change => change.clone(),
        }
    }
}
