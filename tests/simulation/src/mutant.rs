//! Planted bugs, which the simulation must find.

use sampler_domain::{Change, ChangeKind, Processing, SUSPENDED_DUE_AT, Span};

use super::setup::FORGETFUL;

/// A bug that is planted between the programs and their store, or the upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// None.
    #[default]
    None,
    /// An execution is recorded even if the span has changed since it was read.
    RecordIgnoresVersion,
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
    /// What a read says after a lost answer counts, though the command may be carried out later.
    ResolvesLostCommands,
    /// The server carries out commands without a time limit.
    CommandsWithoutTimeLimit,
    /// The entry of a usage is inserted after its execution was recorded.
    EntryAfterRecord,
    /// Entries expire when they are inserted.
    ExpiresTooEarly,
    /// A usage that is posted again has other measures.
    ResendsOtherBytes,
    /// Each span of a cause is probed.
    ProbePerSpan,
    /// A span that is probed does not know for which cause.
    ProbeLosesCause,
    /// A span that is resumed stays out of the workers' way.
    ResumedStaysAway,
    /// A span that is resumed with its cause keeps its version.
    ResumeLeavesVersion,
    /// A post without an answer, or a 5xx, counts as a refusal.
    SuspendsWhatWaits,
    /// That a post had no answer is not recorded.
    ForgetsLostAnswers,
    /// A worker that starts again is the same run, and has forgotten what that remembered.
    RunOutlivesProcess,
    /// A worker goes by the clock of its machine.
    GoesByOwnClock,
    /// An accepted usage is not watched, although it should be.
    DropsWatches,
    /// An update does not look for spans that end after it: they refuse its start once its stop is
    /// kept.
    UpdateOverlooksEnds,
    /// A usage is posted without asking, however long ago it may have been posted before.
    PostsWithoutAsking,
    /// "Not there" is believed at once, while an earlier post may still come in.
    BelievesAtOnce,
    /// An answer that is not clear counts as "not there".
    BelievesNoAnswer,
    /// A usage that is missing is sent again without asking.
    ResendsWithoutAsking,
}

/// How a planted bug is found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub mutant: Mutant,
    /// A seed that finds it.
    pub seed: u64,
    /// What is wrong then is said with one of these words.
    pub words: &'static [&'static str],
}

const fn found(mutant: Mutant, seed: u64, words: &'static [&'static str]) -> Found {
    Found {
        mutant,
        seed,
        words,
    }
}

const LAW: &str = "the span says";

/// All bugs, with a seed that finds each; those of upstreams that forget come last.
pub const PLANTED: [Found; 27] = [
    found(Mutant::RecordIgnoresVersion, 2, &[LAW]),
    found(Mutant::PlanIgnoresVersion, 2, &[LAW]),
    found(Mutant::GuidPerAttempt, 0, &["was never planned"]),
    found(
        Mutant::TimestampPerAttempt,
        0,
        &["for the second time", "does not stand for"],
    ),
    found(
        Mutant::FailureCountsAsAccepted,
        1,
        &["the upstream has not accepted"],
    ),
    found(Mutant::RetentionUntold, 8, &["is kept 2 times"]),
    found(Mutant::AcceptsUnknownOutcome, 0, &["is kept 0 times"]),
    found(Mutant::CompletesBeforeEnd, 0, &["is complete"]),
    found(
        Mutant::ResolvesLostCommands,
        59,
        &["and is kept now", "and was refused now"],
    ),
    found(Mutant::CommandsWithoutTimeLimit, 42, &["is kept", "has it"]),
    found(Mutant::EntryAfterRecord, 0, &["but has no entry"]),
    found(Mutant::ExpiresTooEarly, 0, &["expired before its time"]),
    found(Mutant::ResendsOtherBytes, 1, &["with other content"]),
    found(Mutant::ProbePerSpan, 4, &["of one cause are probed"]),
    found(Mutant::ProbeLosesCause, 0, &["does not know its cause"]),
    found(Mutant::ResumedStaysAway, 0, &["not all spans get complete"]),
    found(Mutant::ResumeLeavesVersion, 0, &["leaves the version"]),
    found(Mutant::SuspendsWhatWaits, 1, &["was never refused"]),
    found(Mutant::ForgetsLostAnswers, 116, &[LAW]),
    found(Mutant::RunOutlivesProcess, 25, &[LAW]),
    found(Mutant::GoesByOwnClock, 11, &["before its end"]),
    found(Mutant::DropsWatches, 1, &["nobody knows"]),
    found(Mutant::UpdateOverlooksEnds, 23, &["was halved"]),
    found(
        Mutant::PostsWithoutAsking,
        FORGETFUL + 2,
        &["for the second time"],
    ),
    found(
        Mutant::BelievesAtOnce,
        FORGETFUL + 34,
        &["for the second time"],
    ),
    found(
        Mutant::BelievesNoAnswer,
        FORGETFUL + 36,
        &["for the second time"],
    ),
    found(
        Mutant::ResendsWithoutAsking,
        FORGETFUL + 838,
        &["for the second time"],
    ),
];

impl Mutant {
    /// The bug of this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = PLANTED.iter().map(|found| found.mutant);
        let mut all = all.chain([Self::None]);
        all.find(|mutant| format!("{mutant:?}") == name)
    }

    /// Whether a change of a worker is made whatever the version is.
    pub(crate) fn is_blind(self, kind: ChangeKind) -> bool {
        match kind {
            ChangeKind::Plan => self == Self::PlanIgnoresVersion,
            ChangeKind::Record => self == Self::RecordIgnoresVersion,
            _ => false,
        }
    }

    /// A change of a worker as it reaches the store.
    pub(crate) fn change(self, read: &Span, change: &Change) -> Change {
        let mut change = change.clone();
        let (kind, before) = (change.kind, &read.processing);
        let after = &mut change.after.processing;
        match self {
            Self::CompletesBeforeEnd if kind == ChangeKind::Record && read.end.is_some() => {
                after.complete = true;
            }
            Self::ForgetsLostAnswers if kind == ChangeKind::Fail => unflag(before, after),
            _ => {}
        }
        change
    }

    /// A span that was resumed, where it is planted otherwise.
    pub(crate) fn resumed(self, before: &Span, after: &Span) -> Option<Span> {
        let mut planted = after.clone();
        let processing = &mut planted.processing;
        match self {
            Self::ResumedStaysAway => processing.due_at = SUSPENDED_DUE_AT,
            Self::ResumeLeavesVersion => processing.version = before.processing.version,
            Self::ProbeLosesCause => processing.probe = None,
            _ => return None,
        }
        Some(planted)
    }

    /// Whether a change is not made, and the worker is told that it is.
    pub(crate) fn drops(self, kind: ChangeKind) -> bool {
        self == Self::ForgetsLostAnswers && kind == ChangeKind::Flag
    }
}

/// Takes the flags away that a change sets on what is in hand.
fn unflag(before: &Processing, after: &mut Processing) {
    if let (Some(before), Some(after)) = (&before.planned, &mut after.planned) {
        after.unanswered = before.unanswered;
    }
    if let (Some(before), Some(after)) = (before.again.first(), after.again.first_mut()) {
        after.range.unanswered = before.range.unanswered;
    }
}
