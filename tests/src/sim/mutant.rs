//! Planted bugs, to see that the simulation finds them.

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
    SilenceIsConsent,
    /// Complete spans are removed at once, while their starts may still be repeated.
    ForgetsTooEarly,
    /// A receiver says 201 to an event whose fate it does not know.
    AnswersTooEarly,
    /// A span is complete with the first execution after its stop.
    CompletesTooEarly,
}

impl Mutant {
    /// All bugs.
    pub const ALL: [Self; 8] = [
        Self::ExecutedIgnoresVersion,
        Self::PlanIgnoresVersion,
        Self::GuidPerAttempt,
        Self::TimestampPerAttempt,
        Self::SilenceIsConsent,
        Self::ForgetsTooEarly,
        Self::AnswersTooEarly,
        Self::CompletesTooEarly,
    ];
}
