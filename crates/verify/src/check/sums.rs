//! The checks once all usages of a span are read: their end, the proof, the difference.

use super::{Amounts, SpanCheck, Sums, Verdict};
use crate::finding::Kind;
use crate::moment::{Granularity, InWords, Millis};

impl SpanCheck<'_> {
    /// Checks the sums, once all usages were taken.
    pub fn finish(mut self) -> Verdict {
        self.check_beginning();
        let noted = self.check_reach();
        let expired = self.check_proof(&noted);
        let taken_over = self.taken_over();
        self.check_progress();
        let amounts = self.check_difference(&expired, taken_over);
        Verdict {
            amounts,
            findings: self.findings,
            more: self.more,
        }
    }

    /// Where no usage is left, or none was executed since the proof begins.
    fn check_beginning(&mut self) {
        let (sampled_to, proof) = (self.span.sampled_to, self.span.proof);
        if proof.usages == 0 && proof.since == sampled_to && self.reached != Some(sampled_to) {
            self.begin_proof_at(sampled_to);
            self.reached = Some(sampled_to);
        }
        if self.reached.is_some() || proof.usages == 0 {
            return;
        }
        if self.may_have_expired(sampled_to) {
            self.expired_until = Some(sampled_to);
            self.reached = Some(sampled_to);
        } else {
            let count = proof.usages;
            let detail = format!("the proof counts {count} usages, and none is in the ledger");
            self.find(Kind::EntriesMissing, detail);
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
            self.find(Kind::NotNotedYet, detail);
            return noted;
        }
        let (reached, sampled_to) = (InWords(reached), InWords(sampled_to));
        let detail =
            format!("the usages end at {reached}, but the span is sampled to {sampled_to}");
        self.find(Kind::SampledTo, detail);
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
            set_aside: 0,
            usages: proof.usages,
        };
        let used = i128::from(sampled_to) - i128::from(proof.since);
        self.compare_proof("used", proof.used.into(), used);
        self.compare_proof("difference", proof.difference.into(), used - says.all());
        self.compare_proof("difference", proof.difference.into(), 0);
        let listed = noted.billed + noted.set_aside;
        let Some(until) = self.expired_until else {
            self.compare_proof("billed", says.billed, listed);
            self.compare_proof("skipped", says.skipped, noted.skipped);
            self.compare_proof("usages", says.usages.into(), noted.usages.into());
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
        if expired.all() == covered && expired.usages > 0 {
            let (count, until) = (expired.usages, InWords(until));
            let detail =
                format!("{count} usages up to {until} have expired; the proof covers them");
            self.find(Kind::Expired, detail);
        } else {
            let (all, count) = (expired.all(), expired.usages);
            let detail = format!(
                "usages of {covered} ms are missing, for which the proof has {count} of {all} ms"
            );
            self.find(Kind::Proof, detail);
        }
        expired
    }

    fn compare_proof(&mut self, name: &str, says: i128, is: i128) {
        if says != is {
            let detail = format!("the proof says {name} {says}, the usages give {is}");
            self.find(Kind::Proof, detail);
        }
    }

    /// The time of the span that lies before its proof, and is in no usage of its ledger.
    fn taken_over(&mut self) -> i128 {
        let (start, since) = (self.span.start, self.span.proof.since);
        if since == start || (!self.is_since && self.expired_until.is_none()) {
            return 0;
        }
        let taken_over = i128::from(since) - i128::from(start) - self.before.all();
        if taken_over != 0 {
            let since = InWords(since);
            let detail = format!(
                "{taken_over} ms before {since} were billed before this ledger began, by an original Sampler or an earlier release"
            );
            self.find(Kind::TakenOver, detail);
        }
        taken_over
    }

    /// Whether sampling is where it should be by now.
    fn check_progress(&mut self) {
        let (now, allowance) = (self.policy.now, self.policy.allowance);
        let settled = now.saturating_sub(allowance);
        let sampled_to = self.span.sampled_to;
        let end = self.used.map_or(self.span.end, |used| used.end);
        let expected = self.expected_by(settled, end);
        if let Some(expected) = expected.filter(|expected| *expected != sampled_to) {
            let (expected, sampled_to) = (InWords(expected), InWords(sampled_to));
            let detail = format!("sampled to {sampled_to}, and by now it should be {expected}");
            self.find(Kind::Behind, detail);
        }
        if sampled_to > now.saturating_add(allowance) {
            let detail = format!("sampled to {}, which is in the future", InWords(sampled_to));
            self.find(Kind::Ahead, detail);
        }
    }

    /// Where sampling should have come, as far as that is certain: to the end, or to the last
    /// boundary.
    fn expected_by(&self, settled: Millis, end: Option<Millis>) -> Option<Millis> {
        if let Some(end) = end.filter(|end| *end <= settled) {
            return Some(end);
        }
        let windows = self.policy.granularity.unwrap_or(Granularity::Month);
        Some(windows.boundary(settled)).filter(|boundary| *boundary > self.span.sampled_to)
    }

    fn check_difference(&mut self, expired: &Sums, taken_over: i128) -> Amounts {
        let span = self.span;
        let reached = self.reached.unwrap_or(span.proof.since);
        let is_complete = span.state == "complete";
        let used = self.used.map_or(0, |used| {
            let until = used.end.filter(|_| is_complete).unwrap_or(reached);
            i128::from(until) - i128::from(used.start) - taken_over
        });
        let mut sums = self.before;
        sums.add(&self.since);
        let read = sums.usages;
        sums.add(expired);
        let difference = used - sums.billed - sums.skipped;
        if difference != 0 && self.used.is_some() {
            let detail = match difference {
                1.. => format!("{difference} ms were used, and not billed"),
                _ => format!("{} ms were billed, and not used", -difference),
            };
            self.find(Kind::Difference, detail);
        }
        Amounts {
            used,
            billed: sums.billed,
            skipped: sums.skipped,
            difference,
            usages: read,
            expired: expired.usages,
        }
    }
}
