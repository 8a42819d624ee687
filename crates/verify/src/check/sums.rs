//! The checks once all usages of a span are read: their end, the proof, the difference.

use super::{Amounts, SpanCheck, Verdict};
use crate::finding::FindingKind;
use crate::moment::{InWords, LengthInWords, Millis};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub(super) billed: i128,
    pub(super) skipped: i128,
    /// What of `skipped` had a post without an answer.
    pub(super) unanswered: i128,
    pub(super) set_aside: i128,
    /// How many the upstream accepted, also where it set them aside later.
    pub(super) accepted: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: &Self) {
        self.billed += other.billed;
        self.skipped += other.skipped;
        self.unanswered += other.unanswered;
        self.set_aside += other.set_aside;
        self.accepted += other.accepted;
    }

    fn without(&self, other: &Self) -> Self {
        Self {
            billed: self.billed - other.billed,
            skipped: self.skipped - other.skipped,
            unanswered: self.unanswered - other.unanswered,
            set_aside: self.set_aside - other.set_aside,
            accepted: self.accepted.saturating_sub(other.accepted),
        }
    }
}

impl SpanCheck<'_> {
    /// Checks the sums, once all usages were taken.
    pub fn finish(mut self) -> Verdict {
        let noted = self.check_reach();
        let expired = self.check_proof(&noted);
        let is_overdue = self.check_progress();
        let amounts = self.check_difference(&expired, is_overdue);
        Verdict {
            amounts,
            findings: self.findings,
            more: self.more,
            is_under_way: self.is_under_way,
        }
    }

    /// The usages end where the span says that it is sampled to, or are one ahead: a usage is
    /// recorded before its execution is noted on the span. Returns the sums that the span knows.
    fn check_reach(&mut self) -> Sums {
        let (sampled_to, since) = (self.span.sampled_to, self.span.proof.since);
        if self.reached.is_none() && since != sampled_to && self.may_have_expired(sampled_to) {
            self.expired_until = Some(sampled_to);
            self.reached = Some(sampled_to);
        }
        let reached = self.reached.unwrap_or(since);
        if reached == sampled_to {
            return self.sums;
        }
        if let (Some((id, interval, sums)), Some(planned)) = (&self.last, &self.span.planned)
            && *id == planned.usage_id
            && (interval.start, interval.end) == (sampled_to, planned.end)
        {
            let noted = self.sums.without(sums);
            let detail = format!("the usage {id} is not noted yet");
            self.is_under_way = true;
            self.find(FindingKind::Behind, detail);
            return noted;
        }
        let (end, said) = (InWords(reached), InWords(sampled_to));
        let detail = format!("the usages end at {end}, but the span is sampled to {said}");
        let kind = if reached < sampled_to {
            FindingKind::Gap
        } else {
            FindingKind::Overlap
        };
        self.find(kind, detail);
        self.sums
    }

    /// Compares the proof with the usages that the span knows. Returns the sums of the expired usages: the
    /// difference between the proof and the usages that are left. Together they must cover the time up to
    /// those.
    fn check_proof(&mut self, noted: &Sums) -> Sums {
        let (proof, sampled_to) = (self.span.proof, self.span.sampled_to);
        let used = i128::from(sampled_to) - i128::from(proof.since);
        let [billed, skipped, unanswered] =
            [proof.billed, proof.skipped, proof.unanswered].map(i128::from);
        self.compare_proof("used", proof.used.into(), used);
        self.compare_proof(
            "difference",
            proof.difference.into(),
            used - billed - skipped,
        );
        self.compare_proof("difference", proof.difference.into(), 0);
        // What the upstream set aside, it had accepted.
        let listed = noted.billed + noted.set_aside;
        let Some(until) = self.expired_until else {
            self.compare_proof("billed", billed, listed);
            self.compare_proof("skipped", skipped, noted.skipped);
            self.compare_proof("unanswered", unanswered, noted.unanswered);
            self.compare_proof("usages", proof.usages.into(), noted.accepted.into());
            return Sums::default();
        };
        let expired = Sums {
            billed: billed - listed,
            skipped: skipped - noted.skipped,
            unanswered: unanswered - noted.unanswered,
            set_aside: 0,
            accepted: proof.usages.saturating_sub(noted.accepted),
        };
        let covered = i128::from(until) - i128::from(proof.since);
        let all = expired.billed + expired.skipped;
        let count = expired.accepted;
        // What was not accepted was skipped, so it adds nothing to `billed`.
        let is_counted = count > 0 || (expired.billed == 0 && noted.accepted == proof.usages);
        if all != covered || !is_counted {
            let detail = format!(
                "usages of {covered} ms are missing, for which the proof has {all} ms and {count} accepted"
            );
            self.find(FindingKind::Proof, detail);
            return expired;
        }
        let until = InWords(until);
        let detail = format!(
            "usages up to {until} have expired, {count} of them accepted; the proof covers them"
        );
        self.find(FindingKind::Expired, detail);
        if expired.unanswered != 0 {
            let detail = format!(
                "among the expired usages, an operator skipped {} ms whose post had no answer, so the upstream \
                 may count them",
                expired.unanswered
            );
            self.find(FindingKind::Unanswered, detail);
        }
        expired
    }

    fn compare_proof(&mut self, name: &str, says: i128, is: i128) {
        if says != is {
            let detail = format!("the proof says {name} {says}, the usages give {is}");
            self.find(FindingKind::Proof, detail);
        }
    }

    /// Whether sampling is where it should be by now. Returns whether it is overdue.
    fn check_progress(&mut self) -> bool {
        let (policy, span) = (self.policy, self.span);
        let end = self.used.map_or(span.end, |used| used.end);
        let due = self.due(end);
        let lateness = due.map_or(0, |due| policy.now.saturating_sub(due));
        let allowed = due.map_or(Millis::MAX, |due| policy.allowed_delay(due));
        // What a suspended span lacks is known, and waits for an operator. What it has too much is not.
        let is_excused = span.state == "suspended" && end.is_none_or(|end| span.sampled_to <= end);
        let is_overdue = lateness > allowed && !is_excused;
        if due.is_some() && lateness >= policy.allowance {
            let kind = if is_overdue {
                FindingKind::Overdue
            } else {
                FindingKind::Behind
            };
            self.find(kind, self.words_of_lateness(end, lateness));
        }
        let sampled_to = span.sampled_to;
        if sampled_to > policy.now.saturating_add(policy.allowance) {
            let detail = format!(
                "the present time is behind: sampled to {}",
                InWords(sampled_to)
            );
            self.find(FindingKind::Behind, detail);
        }
        is_overdue
    }

    /// When the next usage of the span was due, as far as that is certain: at the end, or at the next
    /// boundary. What is billed beyond the end is to be taken back at once.
    fn due(&self, end: Option<Millis>) -> Option<Millis> {
        let sampled_to = self.span.sampled_to;
        let boundary = self.policy.windows().boundary_after(sampled_to);
        match end {
            Some(end) if end == sampled_to => None,
            Some(end) => Some(end.min(boundary)),
            None => Some(boundary),
        }
    }

    fn words_of_lateness(&self, end: Option<Millis>, lateness: Millis) -> String {
        let (now, sampled_to) = (self.policy.now, self.span.sampled_to);
        let (for_long, billed_to) = (LengthInWords(lateness), InWords(sampled_to));
        let since = format!("its next usage has been due for {for_long}");
        match end.filter(|end| *end <= now) {
            Some(end) if end < sampled_to => {
                let end = InWords(end);
                format!(
                    "its stop at {end} has had no effect for {for_long}: billed on to {billed_to}"
                )
            }
            Some(end) => {
                let end = InWords(end);
                format!("billed to {billed_to}, and not to its stop at {end}: {since}")
            }
            None => {
                let expected = InWords(self.policy.windows().boundary(now));
                format!("billed to {billed_to}, by now it should be {expected}: {since}")
            }
        }
    }

    /// What was used counts up to where sampling is; up to the stop, where that is to be in effect.
    fn check_difference(&mut self, expired: &Sums, is_overdue: bool) -> Amounts {
        let (span, now) = (self.span, self.policy.now);
        let since = span.proof.since;
        let before = i128::from(since) - i128::from(span.start);
        if before != 0 {
            let detail = format!("{before} ms before {} are in no ledger", InWords(since));
            self.find(FindingKind::Expired, detail);
        }
        let reached = self.reached.unwrap_or(since);
        let used = self.used.map_or(0, |used| {
            let is_in_effect =
                |end: &Millis| span.state == "complete" || (is_overdue && *end <= now);
            let until = used.end.filter(is_in_effect).unwrap_or(reached);
            i128::from(until) - i128::from(used.start) - before
        });
        let mut sums = self.sums;
        sums.add(expired);
        let difference = used - sums.billed - sums.skipped;
        if self.used.is_some() {
            match difference {
                0 => {}
                1.. => {
                    let detail = format!("{difference} ms were used, and not billed");
                    self.find(FindingKind::Gap, detail);
                }
                _ => {
                    let detail = format!("{} ms were billed, and not used", -difference);
                    self.find(FindingKind::Overlap, detail);
                }
            }
        }
        Amounts {
            used,
            billed: sums.billed,
            skipped: sums.skipped,
            unanswered: sums.unanswered,
            difference,
            usages: self.read,
            expired: expired.accepted,
        }
    }
}
