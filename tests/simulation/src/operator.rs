//! What operators do in a run: they look at what is suspended, skipped or set aside, and act, some of them
//! at once when they see it. They do not know what Abacus counts.

use sampler_domain::{
    CauseId, Change, Changed, Entry, Resend, SKIP_DELAY, Skip, Span, SpanId, Timestamp,
};
use sampler_store::EntryKey;
use sampler_testkit::rng::{Rng, mix};
use uuid::Uuid;

use super::world::World;

impl World {
    /// An operator skips, resumes and resends some of what there is at this moment.
    pub(crate) fn operate(&self, seed: u64) {
        let rng = &mut Rng::new(seed, 0);
        let kept = self.store.all().into_iter().map(|kept| kept.span);
        for span in kept.filter(|span| span.processing.suspended.is_some()) {
            match rng.below(10) {
                0..=4 => self.skip(&span, act(rng)),
                5..=6 => self.resume(&span),
                _ => {}
            }
        }
        for entry in self.resendable() {
            if rng.percent(30) {
                self.resend(&entry, act(rng));
            }
        }
        let causes = |table: &mut sampler_store_testing::memory::Table| -> Vec<CauseId> {
            table.causes().map(|cause| cause.id).collect()
        };
        for cause in self.store.with(causes) {
            if rng.percent(25) {
                self.resume_cause(cause);
            }
        }
    }

    /// A span was suspended just now: an operator may act before anything else happens.
    pub(crate) fn operate_on_span(&self, id: &SpanId) {
        let Some(span) = self.store.with(|table| table.find(id).cloned()) else {
            return;
        };
        let version = span.processing.version.unsigned_abs();
        let rng = &mut self.rng_of_watch(&id.to_string(), version);
        if !self.is_watched(rng) {
            return;
        }
        match (rng.below(3), span.processing.suspended) {
            (0, _) => self.skip(&span, act(rng)),
            (1, _) => self.resume(&span),
            (_, Some(suspension)) => self.resume_cause(suspension.cause),
            _ => {}
        }
    }

    /// A usage was skipped or set aside just now: the same.
    pub(crate) fn operate_on_entry(&self, entry: &Entry) {
        let now = self.now().as_millis().unsigned_abs();
        let rng = &mut self.rng_of_watch(&entry.usage_guid, now);
        if self.is_watched(rng) && !entry.withheld {
            self.resend(entry, act(rng));
        }
    }

    /// A probe of a cause has begun just now: the same.
    pub(crate) fn operate_on_cause(&self, cause: CauseId) {
        let now = self.now().as_millis().unsigned_abs();
        let rng = &mut self.rng_of_watch(&format!("{cause:?}"), now);
        if self.is_watched(rng) {
            self.resume_cause(cause);
        }
    }

    fn rng_of_watch(&self, name: &str, round: u64) -> Rng {
        let bytes = name.bytes();
        let row = bytes.fold(round, |all, byte| mix(all ^ u64::from(byte)));
        Rng::new(self.setup.seed ^ row, 10)
    }

    fn is_watched(&self, rng: &mut Rng) -> bool {
        self.setup.has_operator && !self.is_over() && rng.percent(self.setup.watchful)
    }

    /// An operator who has compared the ledger with what Abacus counts resends what counts and is said not
    /// to: nothing else settles the cases that stay undecidable (`docs/decisions.md#what-does-not-count`). Each must be
    /// one of them. What it takes back is sent with it. Says whether there is nothing left to
    /// do, neither for operators nor for workers.
    pub(crate) fn resend_what_counts(&self, round: u64) -> bool {
        let rng = &mut Rng::new(self.setup.seed, 1_000 + round);
        let uncounted: Vec<Entry> = self.store.with(|table| {
            let entries = table.entries().map(|kept| &kept.entry);
            entries.filter(|it| it.is_uncounted()).cloned().collect()
        });
        let mut is_right = true;
        for entry in uncounted.iter().filter(|entry| self.counts(entry)) {
            let is_sent = |it: &&Entry| {
                let is_taken_back = it.span == entry.span && entry.interval.takes_back(it.interval);
                it.resend.is_none() && (*it == entry || is_taken_back)
            };
            let sent = uncounted.iter().filter(is_sent).filter(|it| !it.withheld);
            let sent: Vec<&Entry> = sent.collect();
            if !sent.is_empty() {
                self.note_repair(entry);
                is_right = false;
            }
            for it in sent {
                self.resend(it, act(rng));
            }
        }
        let is_busy = self.store.with(|table| {
            let mut entries = table.entries().map(|kept| &kept.entry);
            entries.any(|entry| {
                // What takes back a usage that does not count waits for it.
                let is_sent = |resend: &Resend| {
                    resend.acceptance.is_some() || !table.takes_back_uncounted(entry)
                };
                entry.question.is_some() || entry.resend.as_ref().is_some_and(is_sent)
            })
        });
        is_right && !is_busy
    }

    /// Whether Abacus counts the usage of an entry.
    fn counts(&self, entry: &Entry) -> bool {
        let plans = &self.truth.facts().plans;
        let plan = plans.get(&entry.usage_guid);
        plan.is_some_and(|plan| plan.counted)
    }

    /// What is skipped or set aside, and not being sent again. As the receiver has it, what takes such a usage
    /// back is sent with it alone.
    fn resendable(&self) -> Vec<Entry> {
        self.store.with(|table| {
            let entries = table.entries().map(|kept| &kept.entry);
            let left = entries.filter(|entry| entry.is_uncounted() && entry.resend.is_none());
            let left = left.filter(|entry| !entry.withheld);
            left.cloned().collect()
        })
    }

    fn skip(&self, span: &Span, act: Uuid) {
        let (planned, suspended) = (&span.processing.planned, span.processing.suspended);
        let (Some(planned), Some(suspension)) = (planned, suspended) else {
            return;
        };
        let not_before = suspension.since.plus(SKIP_DELAY);
        let change = Change::RequestSkip {
            skip: Skip {
                usage_guid: planned.usage_guid.clone(),
                at: self.now(),
                not_before,
                act,
            },
            suspension,
            due_at: not_before,
        };
        self.log("operator", || format!("skips {}", planned.usage_guid));
        if self.change_by_operator(span, &change) {
            self.note_asked_to_skip(&planned.usage_guid);
        }
    }

    fn resume(&self, span: &Span) {
        if let Some(suspension) = span.processing.suspended {
            let due_at = self.now();
            self.log("operator", || format!("resumes {}", span.id));
            self.change_by_operator(span, &Change::Resume { suspension, due_at });
        }
    }

    fn resume_cause(&self, cause: CauseId) {
        let is_known = self.store.with(|table| table.resume_by_operator(cause));
        self.log("operator", || {
            format!("resumes the cause {cause:?}: {is_known}")
        });
    }

    fn change_by_operator(&self, span: &Span, change: &Change) -> bool {
        let changed = self.store.with(|table| table.change(span, change));
        changed == Changed::Made
    }

    fn resend(&self, entry: &Entry, act: Uuid) {
        let resend = Resend {
            act,
            from: entry.state,
            at: self.now(),
            due_at: Timestamp::MIN,
            acceptance: None,
        };
        let key = EntryKey::of(entry);
        let is_marked = self.store.with(|table| table.mark_resend(&key, &resend));
        self.log("operator", || {
            format!("resends {}: {is_marked}", key.usage_guid)
        });
    }
}

fn act(rng: &mut Rng) -> Uuid {
    Uuid::from_u64_pair(rng.u64(), rng.u64())
}
