//! What operators do in a run: they look at what is suspended or skipped, and act.

use sampler_domain::{Change, Changed, EntryState, Resend, SKIP_DELAY, Skip, Span, Timestamp};
use sampler_store::EntryKey;
use sampler_testkit::rng::Rng;
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
        for key in self.skipped() {
            if rng.percent(30) {
                self.resend(&key, act(rng));
            }
        }
    }

    /// An operator who has compared the ledger with what Abacus counts resends what counts and is skipped:
    /// nobody here knows of a post that was carried out long after its worker died. Says whether there is
    /// nothing left to do, neither for operators nor for workers.
    pub(crate) fn resend_what_counts(&self, round: u64) -> bool {
        let rng = &mut Rng::new(self.setup.seed, 1_000 + round);
        let counts = |key: &EntryKey| {
            let plans = &self.truth.facts().plans;
            plans.get(&key.usage_guid).is_some_and(|plan| plan.counted)
        };
        let counted: Vec<EntryKey> = self.skipped().into_iter().filter(counts).collect();
        for key in &counted {
            self.resend(key, act(rng));
        }
        let marked = self
            .store
            .with(|table| table.due_resends(Timestamp::MAX, 1));
        counted.is_empty() && marked.is_empty()
    }

    /// What is skipped and not being sent again.
    fn skipped(&self) -> Vec<EntryKey> {
        self.store.with(|table| {
            let entries = table.entries().map(|kept| &kept.entry);
            let skipped = entries.filter(|entry| entry.state == EntryState::Skipped);
            let left = skipped.filter(|entry| entry.resend.is_none());
            left.map(EntryKey::of).collect()
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

    fn change_by_operator(&self, span: &Span, change: &Change) -> bool {
        let changed = self.store.with(|table| table.change(span, change));
        changed == Changed::Made
    }

    fn resend(&self, key: &EntryKey, act: Uuid) {
        let resend = Resend {
            act,
            at: self.now(),
            due_at: Timestamp::MIN,
            acceptance: None,
        };
        let is_marked = self.store.with(|table| table.mark_resend(key, &resend));
        self.log("operator", || {
            format!("resends {}: {is_marked}", key.usage_guid)
        });
    }
}

fn act(rng: &mut Rng) -> Uuid {
    Uuid::from_u64_pair(rng.u64(), rng.u64())
}
