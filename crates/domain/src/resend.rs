//! Sending a usage again that was given up or put aside (`docs/adr/042-resending.md`).
//!
//! The entry of the usage is marked ([`Resend`]). A worker posts the same document again. Only then it
//! changes the state of the entry, then the totals of the span, and removes the mark last. Each of these
//! can be done again by another worker: the span says which resend its totals count last ([`Resent`]).

use uuid::Uuid;

use crate::{Delivered, Entry, EntryState, Span, Timestamp};

/// A usage is to be posted again, or Abacus has accepted it although the ledger says that it was given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resend {
    /// The act in the audit trail; a number of its own where a worker found out that Abacus has it.
    pub act: Uuid,
    /// When that was asked for.
    pub at: Timestamp,
    /// When a worker tries it next.
    pub due_at: Timestamp,
    /// Abacus's answer, if it has accepted the usage already: then it is not posted.
    pub delivered: Option<Delivered>,
}

/// The last resend that the totals of a span count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resent {
    /// The usage.
    pub usage_guid: String,
    /// Its [`Resend::act`].
    pub act: Uuid,
}

/// How long after the last refusal a usage is given up at the earliest, ms: by then no post of it is on
/// its way any more. A worker does not begin a post by what it knew of a span for longer than
/// [`KNOWN_FOR`], and a post ends after `SAMPLER_POST_TIMEOUT`.
pub const SKIP_DELAY: i64 = 5 * 60_000;

/// For how long a worker may go by what it has read of a span when it begins a post, ms.
pub const KNOWN_FOR: i64 = 2 * 60_000;

impl Entry {
    /// Whether the usage can be sent again.
    pub fn is_resendable(&self) -> bool {
        matches!(self.state, EntryState::Skipped | EntryState::SetAside)
    }

    /// The entry after Abacus has accepted its usage once more. The mark of one that was given up stays
    /// until the totals of the span are right.
    #[must_use]
    pub fn resent(&self, delivered: &Delivered) -> Self {
        let mut entry = self.clone();
        if self.state == EntryState::SetAside {
            entry.resent_at = Some(delivered.at);
            entry.resend = None;
        } else {
            entry.accepted_at = Some(delivered.at);
        }
        Self {
            state: EntryState::Accepted,
            attempts: self.attempts.saturating_add(1),
            status: delivered.status,
            location: delivered.location.clone(),
            error: None,
            ..entry
        }
    }
}

impl Span {
    /// Whether the totals count the usage that was planned at this version. An original Sampler knows
    /// no totals; they begin anew behind what it has sampled.
    pub fn counts(&self, version: i64) -> bool {
        let first = self.processing.totals.first_version;
        first.is_some_and(|first| version >= first) && version < self.processing.version
    }

    /// The span once its totals count a usage as billed that they counted as given up.
    pub(crate) fn with_resent(&self, resent: &Resent, duration: i64) -> Self {
        let mut span = self.clone();
        let totals = &mut span.processing.totals;
        totals.billed += duration;
        totals.skipped -= duration;
        totals.usages += 1;
        span.processing.resent = Some(resent.clone());
        span
    }
}
