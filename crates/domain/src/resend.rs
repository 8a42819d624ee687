//! Sending a usage again that was skipped or set aside (`docs/adr/042-resending.md`).
//!
//! The receiver marks the entry of the usage ([`Resend`]). A worker posts the same document again. Then
//! it changes the state of the entry, then the totals of the span ([`Resent`]), and removes the mark
//! last. Another worker can repeat each step: the span names the resend that its totals count last.

use uuid::Uuid;

use crate::{Acceptance, EARLIER_ROUNDS_MAX, Entry, EntryState, Round, Span, Timestamp};

/// The mark on an entry whose usage a worker must post again. Or Abacus has accepted the usage although
/// the ledger says that it was skipped; then only the ledger and the totals are to be corrected.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resend {
    /// The act in the audit trail. A worker that finds out that Abacus has the usage draws an id.
    pub act: Uuid,
    /// When the operator asked for it, or Abacus accepted the usage.
    pub at: Timestamp,
    /// When a worker tries it next.
    pub due_at: Timestamp,
    /// Abacus's answer, if Abacus has accepted the usage already. Then no worker posts it again.
    pub acceptance: Option<Acceptance>,
}

/// The last resend that the totals of a span count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resent {
    /// The usage.
    pub usage_guid: String,
    /// Its [`Resend::act`].
    pub act: Uuid,
}

impl Entry {
    /// Whether the usage can be sent again.
    pub fn is_resendable(&self) -> bool {
        matches!(self.state, EntryState::Skipped | EntryState::SetAside)
    }

    /// The entry after Abacus has set its usage aside. The round before, if there was one, is kept, so
    /// that what the ledger said stays.
    #[must_use]
    pub fn set_aside(&self, at: Timestamp, error: &str) -> Self {
        let mut entry = self.clone();
        if self.set_aside_at.is_some() {
            entry.earlier_rounds.push(Round {
                set_aside_at: self.set_aside_at,
                resent_at: self.resent_at,
            });
            let surplus = entry
                .earlier_rounds
                .len()
                .saturating_sub(EARLIER_ROUNDS_MAX);
            entry.earlier_rounds.drain(..surplus);
        }
        Self {
            state: EntryState::SetAside,
            set_aside_at: Some(at),
            error: Some(error.to_owned()),
            ask_again: None,
            ..entry
        }
    }

    /// The entry after Abacus has accepted its usage again. If the usage was skipped, the mark stays until
    /// the totals of the span are right. The moment of an earlier resend is in
    /// [`earlier_rounds`](Entry::earlier_rounds) since the usage was set aside again.
    #[must_use]
    pub fn resent(&self, acceptance: &Acceptance) -> Self {
        let mut entry = self.clone();
        if self.state == EntryState::SetAside {
            entry.resent_at = Some(acceptance.at);
            entry.resend = None;
        } else {
            entry.accepted_at = Some(acceptance.at);
        }
        Self {
            state: EntryState::Accepted,
            attempts: self.attempts.saturating_add(1),
            status: acceptance.status,
            location: acceptance.location.clone(),
            error: None,
            ..entry
        }
    }
}

impl Span {
    /// Whether the totals count the usage that was planned at this version. They count none that an
    /// original Sampler has sampled, because it keeps no totals.
    pub fn counts(&self, version: i64) -> bool {
        let first = self.processing.totals.first_version;
        first.is_some_and(|first| version >= first) && version < self.processing.version
    }

    /// The span once its totals count a usage as billed that they counted as skipped.
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
