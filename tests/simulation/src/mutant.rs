//! Planted bugs, which the simulation must find.

use sampler_domain::{Change, ChangeKind, Processing, SUSPENDED_DUE_AT, Span};

use super::setup::FORGETFUL;

/// How a planted bug is found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub mutant: Mutant,
    pub bug: &'static str,
    /// A seed that finds it.
    pub seed: u64,
    /// What is wrong then is said with one of these words.
    pub words: &'static [&'static str],
}

macro_rules! planted {
    ($($name:ident, $bug:literal, $seed:expr, [$($words:expr),+];)+) => {
        /// A bug that is planted between the programs and their store, or the upstream.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Mutant {
            #[default]
            None,
            $($name),+
        }

        /// All bugs; those of upstreams that forget come last.
        pub const PLANTED: &[Found] = &[$(Found {
            mutant: Mutant::$name,
            bug: $bug,
            seed: $seed,
            words: &[$($words),+],
        }),+];
    };
}

const LAW: &str = "the span says";

planted! {
    RecordIgnoresVersion, "an execution is recorded even if the span has changed since it was read",
        2, [LAW];
    PlanIgnoresVersion, "an interval is planned even if the span has changed since it was read",
        2, [LAW];
    GuidPerAttempt, "each post of a usage has another `dedup_id`",
        0, ["was never planned"];
    TimestampPerAttempt, "each post of a usage has its own time as timestamps",
        0, ["for the second time", "does not stand for"];
    FailureCountsAsAccepted, "a failed post counts as accepted",
        1, ["the upstream has not accepted"];
    RetentionUntold, "complete spans are removed at once, and receivers are not told",
        8, ["is kept 2 times"];
    AcceptsUnknownOutcome, "a receiver answers 201 when it does not know whether the event is kept",
        0, ["is kept 0 times"];
    CompletesBeforeEnd, "a span is complete with the first execution after its stop, wherever that ends",
        0, ["is complete"];
    ResolvesLostCommands, "what a read says after a lost answer counts, though the command may be carried out later",
        59, ["and is kept now", "and was refused now"];
    CommandsWithoutTimeLimit, "the server carries out commands without a time limit",
        42, ["is kept", "has it"];
    EntryAfterRecord, "the entry of a usage is inserted after its execution was recorded",
        0, ["but has no entry"];
    ExpiresTooEarly, "entries expire when they are inserted",
        0, ["expired before its time"];
    ResendsOtherBytes, "a usage that is posted again has other measures",
        1, ["with other content"];
    ProbePerSpan, "each span of a cause is probed",
        4, ["of one cause are probed"];
    ProbeLosesCause, "a span that is probed does not know for which cause",
        0, ["does not know its cause"];
    ResumedStaysAway, "a span that is resumed stays out of the workers' way",
        0, ["not all spans get complete"];
    ResumeLeavesVersion, "a span that is resumed with its cause keeps its version",
        0, ["leaves the version"];
    SuspendsWhatWaits, "a post without an answer, or a 5xx, counts as a refusal",
        1, ["was never refused"];
    ForgetsLostAnswers, "that a post had no answer is not recorded",
        116, [LAW];
    RunOutlivesProcess, "a worker that starts again is the same run, and has forgotten what that remembered",
        25, [LAW];
    GoesByOwnClock, "a worker goes by the clock of its machine",
        11, ["before its end"];
    DropsWatches, "an accepted usage is not watched, although it should be",
        1, ["nobody knows"];
    UpdateOverlooksEnds, "an update does not look for spans that end after it: they refuse its start once its stop is kept",
        23, ["was halved"];
    PostsWithoutAsking, "a usage is posted without asking, however long ago it may have been posted before",
        FORGETFUL + 2, ["for the second time"];
    BelievesAtOnce, "\"Not there\" is believed at once, while an earlier post may still come in",
        FORGETFUL + 34, ["for the second time"];
    BelievesNoAnswer, "an answer that is not clear counts as \"not there\"",
        FORGETFUL + 36, ["for the second time"];
    ResendsWithoutAsking, "a usage that is missing is sent again without asking",
        FORGETFUL + 838, ["for the second time"];
}

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
