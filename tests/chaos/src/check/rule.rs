//! The rules, and what breaks them.

use std::fmt;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// No request is answered with 500.
    NoInternalError,
    DocumentedAnswer,
    /// Of all answers to an event, at most one says that it was kept just now.
    KeptOnce,
    /// An event that was accepted is accepted each time it is repeated.
    RepeatAccepted,
    /// An `id` that was accepted is refused with other fields.
    IdTaken,
    /// A body that lacks something is refused.
    MalformedRefused,
    /// What may not be taken is refused.
    WrongRefused,
    /// What must be taken is accepted.
    RightAccepted,
    /// Each event gets a definite answer, unless its client gives it up.
    Answered,
    /// A start that was acknowledged has a span.
    Billed,
    /// It has no more than one, and an event that could start nothing has none.
    BilledOnce,
    RefusedNotBilled,
    /// A span belongs to a start that a client has sent.
    UsageKnown,
    /// A usage is charged to whom its start named.
    TargetKept,
    /// No hour is below zero on the bill, unless it was taken back before it was known that Abacus had set
    /// it aside.
    BelowZero,
    /// Abacus sets aside what it was ordered to, and the ledger knows each.
    PutAside,
    /// Nothing is left to be sent again, or to be asked for.
    Unsettled,
    /// What is not posted takes back what is on no bill.
    Withheld,
    /// Nothing is skipped but what an operator asked for.
    SkippedOnDemand,
    /// What operators did is in the audit trail, and nothing else as done.
    Trail,
    /// Each span, the usages of its ledger, and the API's proof fit its events, by the verifier: all that was
    /// used was billed or skipped, once, in its hour.
    Verified,
    /// Entries of the ledger, and what counts agree.
    Ledger,
    /// Each span is complete in the end.
    Incomplete,
    /// Programs end when they are asked to, and only then.
    ProgramLives,
}

impl Rule {
    /// The rule is broken, for this event or thing, in this way.
    pub(crate) fn broken(self, subject: &str, detail: impl Into<String>) -> Violation {
        let (subject, detail) = (subject.to_owned(), detail.into());
        Violation {
            rule: self,
            subject,
            detail,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NoInternalError => "an answer was 500",
            Self::DocumentedAnswer => "an answer is not documented",
            Self::KeptOnce => "an event was kept twice",
            Self::RepeatAccepted => "the repeat of an accepted event was refused",
            Self::IdTaken => "an id was taken again with other fields",
            Self::MalformedRefused => "a body that lacks something was accepted",
            Self::WrongRefused => "what may not be taken was accepted",
            Self::RightAccepted => "what must be taken was refused",
            Self::Answered => "an event has no definite answer",
            Self::Billed => "what was acknowledged is not billed",
            Self::BilledOnce => "a start is billed twice",
            Self::RefusedNotBilled => "what was refused is billed",
            Self::UsageKnown => "a span belongs to nothing",
            Self::TargetKept => "a usage is charged to somebody else",
            Self::BelowZero => "an hour is below zero on the bill",
            Self::PutAside => "a usage is set aside",
            Self::Unsettled => "a usage is still to be sent again, or to be asked for",
            Self::Withheld => "a usage was withheld",
            Self::SkippedOnDemand => "a usage is skipped that nobody skipped",
            Self::Trail => "the audit trail says something else",
            Self::Verified => "the verifier finds a fault",
            Self::Ledger => "the ledger does not agree",
            Self::Incomplete => "a span is not complete",
            Self::ProgramLives => "a program has ended by itself",
        }
    }
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    /// The event, usage or program.
    pub subject: String,
    /// In which way.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.rule.text(), self.subject, self.detail)
    }
}
