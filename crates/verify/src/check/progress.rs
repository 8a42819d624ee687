//! The checks once all usages of a span are read: what they cover, and whether sampling is where it should be.

use super::coverage::{Found, Stretch};
use super::{Amounts, SpanCheck, Verdict};
use crate::finding::FindingKind;
use crate::moment::{InWords, LengthInWords, Millis};

impl SpanCheck<'_> {
    /// Checks what is covered, once all usages were taken.
    pub fn finish(mut self) -> Verdict {
        let is_overdue = self.check_progress();
        let amounts = self.check_coverage(is_overdue);
        Verdict {
            amounts,
            findings: self.findings,
            more: self.more,
            is_under_way: self.is_under_way,
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

    /// Each millisecond up to where sampling is must be covered once. What was used counts up to there; up to
    /// the stop, where that is to be in effect.
    fn check_coverage(&mut self, is_overdue: bool) -> Amounts {
        let (span, now) = (self.span, self.policy.now);
        let oldest = now.saturating_sub(self.policy.kept);
        let (mut expired, mut settled) = (0, 0);
        for Stretch {
            from,
            to,
            found,
            length,
        } in self.coverage.stretches()
        {
            let (begin, end) = (InWords(from), InWords(to));
            match found {
                // No usage is accepted before its interval is over, so none after that can have expired.
                Found::Missing if to <= oldest => expired += length,
                Found::Missing => {
                    let detail = format!("nothing covers {length} ms from {begin} to {end}");
                    self.find(FindingKind::Gap, detail);
                }
                Found::TakenBack if to <= oldest => {}
                Found::TakenBack => {
                    let detail = format!(
                        "usages take back {length} ms from {begin} to {end}, which none has billed"
                    );
                    self.find(FindingKind::Gap, detail);
                }
                // A usage was accepted although its range is excluded, or is sent again.
                Found::Settled => settled += length,
                Found::Twice => {
                    let detail = format!(
                        "{length} ms from {begin} to {end} are covered twice, or were not sampled"
                    );
                    self.find(FindingKind::Overlap, detail);
                }
            }
        }
        if expired != 0 {
            let detail = format!(
                "usages of {expired} ms have expired: only the span says that they are billed"
            );
            self.find(FindingKind::Expired, detail);
        }
        let used = self.used.map_or(0, |used| {
            let is_in_effect =
                |end: &Millis| span.state == "complete" || (is_overdue && *end <= now);
            let until = used.end.filter(is_in_effect).unwrap_or(span.sampled_to);
            i128::from(until) - i128::from(used.start)
        });
        let (billed, skipped) = (
            self.billed + expired,
            i128::from(span.proof.skipped) - settled,
        );
        let difference = used - billed - skipped;
        self.tell_difference(difference);
        Amounts {
            used,
            billed,
            skipped,
            unanswered: span.proof.unanswered.into(),
            difference,
            usages: self.ids.len() as u64,
            expired,
        }
    }
    /// Says what the amounts are apart by, where nothing has said so yet.
    fn tell_difference(&mut self, difference: i128) {
        let is_told = |kind| matches!(kind, FindingKind::Gap | FindingKind::Overlap);
        if self.used.is_none() || self.findings.iter().any(|it| is_told(it.kind)) {
            return;
        }
        if difference > 0 {
            let detail = format!("{difference} ms were used, and not billed");
            self.find(FindingKind::Gap, detail);
        } else if difference < 0 {
            let detail = format!("{} ms were billed, and not used", -difference);
            self.find(FindingKind::Overlap, detail);
        }
    }
}
