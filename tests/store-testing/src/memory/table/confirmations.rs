//! The rules of confirmation, for entries that Abacus is asked about.

use sampler_domain::partition::partition_of;
use sampler_domain::{CauseId, Entry, EntryState, Granularity, Timestamp};
use sampler_store::{Confirmation, Unconfirmed, UnconfirmedQuery, lifetime_from};

use super::{StoredEntry, Table};

impl StoredEntry {
    /// Its span is complete: it expires, or will once it is not asked for any more.
    pub(crate) fn expire(&mut self) {
        if Unconfirmed::of(&self.entry).is_some() {
            self.expires_once_confirmed = true;
        } else if self.expires_at.is_none() {
            self.expires_at = Some(lifetime_from(&self.entry).plus(self.lifetime));
        }
    }

    /// It is not asked for any more.
    fn end_asking(&mut self) {
        self.entry.question = None;
        if std::mem::take(&mut self.expires_once_confirmed) {
            self.expire();
        }
    }
}

impl Table {
    /// Usages that are to be asked for, the oldest month first.
    pub fn unconfirmed(&self, query: &UnconfirmedQuery) -> Vec<Unconfirmed> {
        let entries = self.entries().map(|kept| &kept.entry);
        // The totals of a span are about to count a marked usage: its state stays until they do.
        let entries = entries.filter(|entry| entry.resend.is_none());
        let found = entries.filter_map(|entry| {
            let unconfirmed = Unconfirmed::of(entry)?;
            let month = Granularity::Month.window_of(entry.interval.midpoint());
            let is_asked_for = unconfirmed.ask.at <= query.now
                && query.month.is_none_or(|wanted| wanted == month)
                && query.partitions.contains(&partition_of(&entry.target));
            is_asked_for.then_some(((month, unconfirmed.ask.at), unconfirmed))
        });
        let mut found: Vec<((Timestamp, Timestamp), Unconfirmed)> = found.collect();
        found.sort_by_key(|(key, _)| *key);
        found.truncate(query.limit);
        found.into_iter().map(|(_, it)| it).collect()
    }

    /// Records the answer for a usage, unless its entry has changed since it was read. Says
    /// whether it was noted.
    pub fn confirm(&mut self, read: &Unconfirmed, confirmation: &Confirmation) -> bool {
        let is_same = |kept: &&mut StoredEntry| {
            let now = Unconfirmed::of(&kept.entry).filter(|_| kept.entry.resend.is_none());
            now.is_some_and(|now| now.ask == read.ask)
        };
        let kept = self.entries.get_mut(&read.usage_guid).filter(is_same);
        let Some(kept) = kept else {
            return false;
        };
        note(&mut kept.entry, confirmation);
        match confirmation {
            Confirmation::AskAgain { .. } | Confirmation::Missing { .. } => return true,
            Confirmation::SetAside { cause, .. } => kept.cause = Some(*cause),
            Confirmation::Counted { .. } | Confirmation::GivenUp => {}
        }
        kept.end_asking();
        true
    }

    /// How many usages were set aside for this cause, and are still so.
    pub fn count_set_aside(&self, cause: CauseId) -> usize {
        let is_of = |kept: &&StoredEntry| {
            kept.cause == Some(cause) && kept.entry.state == EntryState::SetAside
        };
        self.entries().filter(is_of).count()
    }
}

fn note(entry: &mut Entry, confirmation: &Confirmation) {
    match confirmation {
        Confirmation::Counted { at } => {
            entry.state = EntryState::Counted;
            entry.counted_at = Some(*at);
        }
        Confirmation::SetAside { at, error, .. } => {
            *entry = entry.set_aside(*at, error);
        }
        Confirmation::AskAgain { at } => {
            entry.question.iter_mut().for_each(|ask| ask.at = *at);
        }
        Confirmation::Missing { at } => {
            if let Some(ask) = &mut entry.question {
                ask.at = *at;
                ask.is_missing = true;
            }
        }
        Confirmation::GivenUp => {}
    }
}
