//! Planted bugs, which the simulation must find.

use sampler_domain::{Change, Next, Span};

/// A bug that is planted between the programs and their store, or Abacus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// None.
    #[default]
    None,
    /// An execution is noted even if the span has changed since it was read.
    ExecutedIgnoresVersion,
    /// An interval is planned even if the span has changed since it was read.
    PlanIgnoresVersion,
    /// Each post of a usage has another `dedup_id`.
    GuidPerAttempt,
    /// Each post of a usage has its own time as timestamps.
    TimestampPerAttempt,
    /// A failed post counts as accepted.
    FailureCountsAsAccepted,
    /// Complete spans are removed at once, and receivers are not told.
    RetentionUntold,
    /// A receiver answers 201 when it does not know whether the event is kept.
    AcceptsUnknownOutcome,
    /// A span is complete with the first execution after its stop, wherever that ends.
    CompletesBeforeEnd,
    /// A refusal counts as final though an earlier command with the same write may be carried out
    /// later.
    TrustsRefusalAfterLostCommand,
    /// The server carries out commands without a time limit.
    CommandsWithoutTimeLimit,
    /// Each attempt at a stop has another correlation id.
    StopsWithoutCorrelationId,
    /// One wrong date of Abacus sets the worker's time.
    SingleDateDecides,
    /// Retries are scheduled by the worker's own clock, and due by Abacus's.
    RetriesByOwnClock,
    /// The entry of a usage is written after its execution was noted.
    EntryAfterNote,
    /// What executions come to is kept in a change of its own.
    TotalsApart,
    /// Entries expire before their span is complete.
    ExpiresBeforeCompletion,
    /// A usage that is posted again has other measures.
    ResendsOtherBytes,
    /// Each span of a cause is probed.
    ProbePerSpan,
    /// A span that is resumed stays out of the workers' way.
    ResumedStaysAway,
    /// A post without an answer, or a 5xx, counts as a refusal.
    SuspendsWhatWaits,
    /// The totals of a span do not count what was sent again.
    TotalsForgetResends,
    /// What takes back a usage that never counted is posted.
    PostsWhatIsWithheld,
    /// That Abacus has set a usage aside is noted on its entry alone, not on its span.
    SetAsideUnknownToSpan,
    /// A usage that is not there is noted on its span, while its entry does not say that it is lost.
    ForgetsThatItIsLost,
    /// A worker does not note that a post had no answer.
    ForgetsLostAnswers,
    /// An update does not look for spans that end after it: they refuse its start once its stop is
    /// kept.
    UpdateOverlooksEnds,
    /// A usage is posted without asking, however long ago it may have been posted before.
    PostsWithoutAsking,
    /// "Not there" is believed at once, while an earlier post may still come in.
    BelievesAtOnce,
    /// An answer that is not clear counts as "not there".
    BelievesNoAnswer,
}

impl Mutant {
    /// All bugs.
    pub const ALL: [Self; 29] = [
        Self::ExecutedIgnoresVersion,
        Self::PlanIgnoresVersion,
        Self::GuidPerAttempt,
        Self::TimestampPerAttempt,
        Self::FailureCountsAsAccepted,
        Self::RetentionUntold,
        Self::AcceptsUnknownOutcome,
        Self::CompletesBeforeEnd,
        Self::TrustsRefusalAfterLostCommand,
        Self::CommandsWithoutTimeLimit,
        Self::StopsWithoutCorrelationId,
        Self::SingleDateDecides,
        Self::RetriesByOwnClock,
        Self::EntryAfterNote,
        Self::TotalsApart,
        Self::ExpiresBeforeCompletion,
        Self::ResendsOtherBytes,
        Self::ProbePerSpan,
        Self::ResumedStaysAway,
        Self::SuspendsWhatWaits,
        Self::TotalsForgetResends,
        Self::PostsWhatIsWithheld,
        Self::SetAsideUnknownToSpan,
        Self::ForgetsThatItIsLost,
        Self::ForgetsLostAnswers,
        Self::UpdateOverlooksEnds,
        Self::PostsWithoutAsking,
        Self::BelievesAtOnce,
        Self::BelievesNoAnswer,
    ];

    /// A change as the server makes it; a planted bug completes the span too early.
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
