//! The rules of resends and of the entries that are marked.

use sampler_domain::{Acceptance, Entry, LastError, Resend, Timestamp};
use sampler_store::{EntryKey, lifetime_from};
use uuid::Uuid;

use super::{StoredEntry, Table};

impl StoredEntry {
    /// One that expires is kept for its lifetime from its last answer on, or from when it was marked.
    fn keep_longer(&mut self) {
        let from = lifetime_from(&self.entry).plus(self.lifetime);
        self.expires_at = self.expires_at.map(|at| at.max(from));
    }

    fn has_resend(&self, act: Uuid) -> bool {
        let resend = self.entry.resend.as_ref();
        resend.is_some_and(|resend| resend.act == act)
    }
}

impl Table {
    fn kept_entry(&mut self, key: &EntryKey) -> Option<&mut StoredEntry> {
        let kept = self.entries.get_mut(&key.usage_guid);
        kept.filter(|kept| kept.entry.span == key.span && kept.entry.target == key.target)
    }

    fn marked_entry(&mut self, key: &EntryKey, act: Uuid) -> Option<&mut StoredEntry> {
        self.kept_entry(key).filter(|kept| kept.has_resend(act))
    }

    /// Marks an entry, unless it is marked, or must not be sent again.
    pub fn mark_resend(&mut self, key: &EntryKey, resend: &Resend) -> bool {
        let Some(kept) = self.kept_entry(key) else {
            return false;
        };
        let Some(marked) = kept.entry.marked(resend) else {
            return false;
        };
        kept.entry = marked;
        kept.keep_longer();
        true
    }

    /// The entries that were withheld when a part of the interval of this one was taken back.
    pub fn withheld_of(&self, entry: &Entry) -> Vec<Entry> {
        let entries = self
            .entries_of(&entry.span, Some(entry.version))
            .into_iter();
        let withheld = entries.filter(|it| it.was_withheld_of(entry.interval));
        withheld.cloned().collect()
    }

    /// Whether this usage takes back a usage of the same span that does not count by now.
    pub fn takes_back_uncounted(&self, entry: &Entry) -> bool {
        let entries = self.entries_of(&entry.span, None).into_iter();
        let mut before = entries.filter(|it| it.version < entry.version);
        before.any(|it| it.is_uncounted() && entry.interval.takes_back(it.interval))
    }

    /// Marked entries that are to be tried by now, the longest waiting first.
    pub fn due_resends(&self, now: Timestamp, limit: usize) -> Vec<Entry> {
        let entries = self.entries().map(|kept| &kept.entry);
        let due = entries.filter_map(|entry| Some((entry.resend.as_ref()?.due_at, entry)));
        let mut due: Vec<_> = due.filter(|(due_at, _)| *due_at <= now).collect();
        due.sort_by_key(|(due_at, entry)| (*due_at, entry.usage_guid.clone()));
        let entries = due.into_iter().map(|(_, entry)| entry.clone());
        entries.take(limit).collect()
    }

    /// Sets when a marked entry is tried next.
    pub fn postpone_resend(&mut self, key: &EntryKey, act: Uuid, due_at: Timestamp) {
        let kept = self.marked_entry(key, act);
        if let Some(resend) = kept.and_then(|kept| kept.entry.resend.as_mut()) {
            resend.due_at = due_at;
        }
    }

    /// Sets when a marked entry is tried next, if its mark is as it was read.
    pub fn claim_resend(&mut self, key: &EntryKey, read: &Resend, due_at: Timestamp) -> bool {
        let kept = self.marked_entry(key, read.act);
        let mark = kept.and_then(|kept| kept.entry.resend.as_mut());
        let Some(mark) =
            mark.filter(|mark| mark.due_at == read.due_at && mark.acceptance.is_none())
        else {
            return false;
        };
        mark.due_at = due_at;
        true
    }

    /// Records that the upstream has accepted the usage of a marked entry.
    pub fn accept_resent(&mut self, entry: &Entry, acceptance: &Acceptance) -> bool {
        let Some(act) = entry.resend.as_ref().map(|resend| resend.act) else {
            return false;
        };
        let kept = self.marked_entry(&EntryKey::of(entry), act);
        let of = |it: &Entry| (it.state, it.unanswered);
        let Some(kept) = kept.filter(|kept| of(&kept.entry) == of(entry)) else {
            return false;
        };
        kept.entry = kept.entry.resent(acceptance);
        kept.cause = None;
        kept.keep_longer();
        kept.entry.question = entry.question;
        if entry.question.is_some() && kept.expires_at.take().is_some() {
            kept.expires_once_confirmed = true;
        }
        true
    }

    /// Whether an entry has this mark.
    pub fn has_resend(&self, key: &EntryKey, act: Uuid) -> bool {
        let kept = self.entry(&key.usage_guid);
        kept.is_some_and(|kept| kept.has_resend(act))
    }

    /// Removes a mark.
    pub fn end_resend(&mut self, key: &EntryKey, act: Uuid, refusal: Option<&LastError>) {
        let kept = self.marked_entry(key, act);
        let is_accepted = |kept: &StoredEntry| {
            let mark = kept.entry.resend.as_ref();
            mark.is_some_and(|mark| mark.acceptance.is_some())
        };
        let Some(kept) = kept
            .filter(|kept| refusal.is_none() || (kept.entry.is_uncounted() && !is_accepted(kept)))
        else {
            return;
        };
        kept.entry.resend = None;
        if let Some(refusal) = refusal {
            kept.entry.withheld = false;
            kept.entry.status = refusal.status;
            kept.entry.error = Some(refusal.error.clone());
        }
    }
}
