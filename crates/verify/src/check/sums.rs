//! The checks once all usages of a span are read: their end, the proof, the difference.

use super::{Amounts, SpanCheck, Sums, Verdict};
use crate::finding::FindingKind;
use crate::moment::{InWords, LengthInWords, Millis};
use crate::words::counted;

impl SpanCheck<'_> {
    /// Checks the sums, once all usages were taken.
    pub fn finish(mut self) -> Verdict {
        self.check_beginning();
        let noted = self.check_reach();
        let expired = self.check_proof(&noted);
        let taken_over = self.taken_over();
        let is_overdue = self.check_progress();
        let amounts = self.check_difference(&expired, taken_over, is_overdue);
        Verdict {
            amounts,
            findings: self.findings,
            more: self.more,
        }
    }

    /// Where no usage is left, or none was executed since the proof begins.
    fn check_beginning(&mut self) {
        let (sampled_to, proof) = (self.span.sampled_to, self.span.proof);
        let is_empty = proof.usages == 0 && proof.since == sampled_to;
        if is_empty && self.reached != Some(sampled_to) {
            self.begin_proof_at(sampled_to);
            self.reached = Some(sampled_to);
        }
        if self.reached.is_some() || is_empty {
            return;
        }
        if self.may_have_expired(sampled_to) {
            self.expired_until = Some(sampled_to);
            self.reached = Some(sampled_to);
        } else {
            let (count, skipped) = (proof.usages, proof.skipped);
            let detail = format!(
                "the proof counts {}, and {skipped} ms that were skipped, and none is in the ledger",
                counted(count, "usage")
            );
            self.find(FindingKind::EntriesMissing, detail);
        }
    }

    /// The usages end where the span says that it is sampled to, or are one ahead: a usage is
    /// recorded before its execution is noted on the span. The sums are those that the span knows.
    fn check_reach(&mut self) -> Sums {
        let sampled_to = self.span.sampled_to;
        let reached = self.reached.unwrap_or(self.span.proof.since);
        if reached == sampled_to {
            return self.since;
        }
        let planned = self.span.planned.as_ref();
        let last = self
            .last
            .as_ref()
            .zip(planned)
            .filter(|((id, interval, _), planned)| {
                *id == planned.usage_id
                    && (interval.start, interval.end) == (sampled_to, planned.end)
            });
        if let Some(((id, _, sums), _)) = last {
            let (detail, noted) = (
                format!("the usage {id} is not noted yet"),
                self.since.without(sums),
            );
            self.find(FindingKind::NotNotedYet, detail);
            return noted;
        }
        let (reached, sampled_to) = (InWords(reached), InWords(sampled_to));
        let detail =
            format!("the usages end at {reached}, but the span is sampled to {sampled_to}");
        self.find(FindingKind::SampledTo, detail);
        self.since
    }

    /// Compares the proof with the usages that the span knows. The expired usages are the
    /// difference between the proof and the usages that are left; together they must cover the time
    /// up to those.
    fn check_proof(&mut self, noted: &Sums) -> Sums {
        let (proof, sampled_to) = (self.span.proof, self.span.sampled_to);
        let says = Sums {
            billed: proof.billed.into(),
            skipped: proof.skipped.into(),
            unanswered: proof.unanswered.into(),
            set_aside: 0,
            accepted: proof.usages,
        };
        let used = i128::from(sampled_to) - i128::from(proof.since);
        self.compare_proof("used", proof.used.into(), used);
        self.compare_proof("difference", proof.difference.into(), used - says.all());
        self.compare_proof("difference", proof.difference.into(), 0);
        let listed = noted.billed + noted.set_aside;
        let Some(until) = self.expired_until else {
            self.compare_proof("billed", says.billed, listed);
            self.compare_proof("skipped", says.skipped, noted.skipped);
            self.compare_proof("unanswered", says.unanswered, noted.unanswered);
            self.compare_proof("usages", says.accepted.into(), noted.accepted.into());
            return Sums::default();
        };
        let expired = Sums {
            billed: says.billed - listed,
            ..says.without(noted)
        };
        let expired = Sums {
            set_aside: 0,
            ..expired
        };
        let covered = i128::from(until) - i128::from(proof.since);
        // What was not accepted was skipped, so it adds nothing to `billed`.
        let is_counted =
            expired.accepted > 0 || (expired.billed == 0 && noted.accepted == says.accepted);
        let (count, all) = (expired.accepted, expired.all());
        if all == covered && is_counted {
            let until = InWords(until);
            let detail = format!(
                "usages up to {until} have expired, {count} of them accepted; the proof covers them"
            );
            self.find(FindingKind::Expired, detail);
            self.tell_unanswered(expired.unanswered);
        } else {
            let detail = format!(
                "usages of {covered} ms are missing, for which the proof has {all} ms and {count} accepted"
            );
            self.find(FindingKind::Proof, detail);
        }
        expired
    }

    /// What nobody may bill by hand without a look at Abacus's books, where the usages themselves have
    /// expired.
    fn tell_unanswered(&mut self, unanswered: i128) {
        if unanswered != 0 {
            let detail = format!(
                "among the expired usages, an operator skipped {unanswered} ms whose post had no answer, so \
                 the upstream may count them"
            );
            self.find(FindingKind::Unanswered, detail);
        }
    }

    fn compare_proof(&mut self, name: &str, says: i128, is: i128) {
        if says != is {
            let detail = format!("the proof says {name} {says}, the usages give {is}");
            self.find(FindingKind::Proof, detail);
        }
    }

    /// The time of the span that is before its proof, and is in no usage of its ledger.
    fn taken_over(&mut self) -> i128 {
        let (start, since) = (self.span.start, self.span.proof.since);
        if since == start || (!self.is_since && self.expired_until.is_none()) {
            return 0;
        }
        let taken_over = i128::from(since) - i128::from(start) - self.before.all();
        if taken_over != 0 {
            let since = InWords(since);
            let detail = format!(
                "{taken_over} ms before {since} were billed before this ledger began, by the original Sampler or an earlier release"
            );
            self.find(FindingKind::TakenOver, detail);
        }
        taken_over
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
            let detail = format!("sampled to {}, which is in the future", InWords(sampled_to));
            self.find(FindingKind::Ahead, detail);
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
        let for_long = LengthInWords(lateness);
        let since = format!("its next usage has been due for {for_long}");
        let billed_to = InWords(sampled_to);
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
    fn check_difference(&mut self, expired: &Sums, taken_over: i128, is_overdue: bool) -> Amounts {
        let (span, now) = (self.span, self.policy.now);
        let reached = self.reached.unwrap_or(span.proof.since);
        let is_complete = span.state == "complete";
        let used = self.used.map_or(0, |used| {
            let until = used
                .end
                .filter(|end| is_complete || (is_overdue && *end <= now))
                .unwrap_or(reached);
            i128::from(until) - i128::from(used.start) - taken_over
        });
        let mut sums = self.before;
        sums.add(&self.since);
        sums.add(expired);
        let difference = used - sums.billed - sums.skipped;
        if difference != 0 && self.used.is_some() {
            let detail = match difference {
                1.. => format!("{difference} ms were used, and not billed"),
                _ => format!("{} ms were billed, and not used", -difference),
            };
            self.find(FindingKind::Difference, detail);
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
