//! What became of each post, and what explains that Abacus counts a usage that the ledger says is not
//! billed. Only the simulation knows both; no program and no operator does
//! (`docs/decisions.md#what-does-not-count`, the cases that stay undecidable).

use std::sync::Arc;

use sampler_domain::{Entry, EntryState, Timestamp};
use sampler_upstream::Answer;

use super::lifecycle::{Lifecycle, ProcessState};
use super::truth::Facts;
use super::world::{Tally, World};

/// One post of a usage.
#[derive(Debug)]
pub(crate) struct Post {
    /// The process that posts.
    life: Arc<Lifecycle>,
    begun_at: Timestamp,
    /// It is an operator's resend.
    is_resend: bool,
    /// Abacus has taken the usage by this post.
    is_taken: bool,
    told: Told,
    /// The database failed on the note of what the process was told.
    is_note_lost: bool,
}

/// What a process was told of its post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing yet.
    Nothing,
    /// That Abacus has the usage.
    Acceptance,
    /// That Abacus does not take it.
    Refusal,
    /// That no answer came, or a failure.
    Failure,
}

/// Names one post of a usage.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    usage_guid: String,
    number: usize,
}

/// Why Abacus counts what the ledger says is not billed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Undecidable {
    /// The answer was lost, and later posts were refused. The ledger tells of that (`unanswered`).
    LostAnswer,
    /// The process died before it heard the answer, or before it noted it.
    Death,
    /// The database failed on the note of the answer.
    LostNote,
    /// Abacus took the usage again by another post that was on its way, after it had set it aside. Where
    /// usages are found by their ids, workers see that.
    SecondPost,
}

impl Told {
    pub(crate) fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Accepted => Self::Acceptance,
            Answer::Refused { .. } | Answer::Wait { .. } => Self::Refusal,
            Answer::TryAgain { .. } => Self::Failure,
        }
    }
}

impl Facts {
    fn post(&mut self, ticket: &Ticket) -> &mut Post {
        let posts = self.posts.get_mut(&ticket.usage_guid);
        &mut posts.expect("it was begun")[ticket.number]
    }

    /// Why Abacus counts a usage that the ledger says is in this state; `None` if no named case explains
    /// it.
    fn undecidable(&self, entry: &Entry, finds_by_id: bool) -> Option<Undecidable> {
        let (posts, state) = (self.posts.get(&entry.usage_guid)?, entry.state);
        let is_dead = |post: &Post| post.life.stage() == ProcessState::Dead;
        let aside_at = self.aside_at.get(&entry.usage_guid);
        let is_stale = |post: &Post| {
            state == EntryState::SetAside
                && (!post.is_resend || aside_at.is_some_and(|at| post.begun_at <= *at))
        };
        // Whoever hears that Abacus has a usage sees to it that the ledger says so. What was set aside it
        // has said already.
        let is_excused = |post: &Post| {
            let is_unheard = post.told != Told::Acceptance || is_dead(post) || post.is_note_lost;
            is_unheard || state == EntryState::SetAside
        };
        let taken = posts.iter().rfind(|post| post.is_taken)?;
        if !posts.iter().all(is_excused) {
            return None;
        }
        Some(match taken.told {
            _ if is_stale(taken) && !finds_by_id => Undecidable::SecondPost,
            // Of a resend, the log tells; another worker may have ended it meanwhile.
            Told::Failure if entry.unanswered || posts.iter().any(|it| it.is_resend) => {
                Undecidable::LostAnswer
            }
            Told::Acceptance | Told::Failure if taken.is_note_lost => Undecidable::LostNote,
            Told::Failure | Told::Acceptance | Told::Nothing if is_dead(taken) => {
                Undecidable::Death
            }
            Told::Failure | Told::Acceptance | Told::Nothing | Told::Refusal => return None,
        })
    }
}

impl World {
    /// A process posts a usage.
    pub(crate) fn note_post(&self, usage_guid: &str, life: &Arc<Lifecycle>) -> Ticket {
        // What its span has planned is posted by the driver: a resend waits until that is recorded.
        let is_resend = self.store.with(|table| {
            let entry = table.entry(usage_guid).map(|kept| &kept.entry);
            let marked = entry.filter(|entry| entry.resend.is_some())?;
            let planned = table.find(&marked.span)?.processing.planned.as_ref();
            Some(planned.is_none_or(|planned| planned.usage_guid != usage_guid))
        });
        let is_resend = is_resend.unwrap_or(false);
        let begun_at = self.now();
        let mut facts = self.truth.facts();
        let posts = facts.posts.entry(usage_guid.to_owned()).or_default();
        posts.push(Post {
            life: Arc::clone(life),
            begun_at,
            is_resend,
            is_taken: false,
            told: Told::Nothing,
            is_note_lost: false,
        });
        Ticket {
            usage_guid: usage_guid.to_owned(),
            number: posts.len() - 1,
        }
    }

    /// Abacus has taken a usage by this post.
    pub(crate) fn note_taken(&self, ticket: &Ticket) {
        self.truth.facts().post(ticket).is_taken = true;
    }

    /// A process hears the answer to its post, or that there is none.
    pub(crate) fn note_told(&self, ticket: &Ticket, told: Told) {
        self.truth.facts().post(ticket).told = told;
    }

    /// The database failed on what a process was to note of a usage.
    pub(crate) fn note_lost(&self, life: &Arc<Lifecycle>, usage_guid: &str) {
        let mut facts = self.truth.facts();
        let posts = facts.posts.get_mut(usage_guid).into_iter().flatten();
        let mine = posts.filter(|post| Arc::ptr_eq(&post.life, life));
        let is_heard = |post: &&mut Post| matches!(post.told, Told::Acceptance | Told::Failure);
        for post in mine.filter(is_heard) {
            post.is_note_lost = true;
        }
    }

    /// Counts a repair that an operator makes who knows what Abacus counts. One that no named case
    /// explains is a violation.
    pub(crate) fn note_repair(&self, entry: &Entry) {
        let facts = self.truth.facts();
        let case = facts.undecidable(entry, self.setup.memory.is_some());
        let posts = format!("{:?}", facts.posts.get(&entry.usage_guid));
        drop(facts);
        let (guid, state, tally) = (&entry.usage_guid, entry.state, &self.tally);
        self.log("operator", || format!("repairs {guid}: {case:?}"));
        match case {
            Some(Undecidable::LostAnswer) => Tally::add(&tally.lost_answers),
            Some(Undecidable::Death) => Tally::add(&tally.deaths),
            Some(Undecidable::LostNote) => Tally::add(&tally.lost_notes),
            Some(Undecidable::SecondPost) => Tally::add(&tally.second_posts),
            None => self.report_violation(format!(
                "{guid} counts and is {state:?}, and no undecidable case explains that: {posts}"
            )),
        }
    }
}
