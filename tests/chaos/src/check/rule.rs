//! The rules, and what breaks them.

use std::fmt;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// No request is answered with 500.
    NoInternalError,
    /// Each answer is documented.
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
    /// What was refused is not billed.
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
        write!(f, "{:?}: {}: {}", self.rule, self.subject, self.detail)
    }
}
