//! What a span says it has billed. The ledger is the independent account. Once a span is complete and nothing is
//! excluded, `billed` is its end minus its start.

use crate::{Again, Excluded, Interval, Span, Timestamp};

/// The time of a span, by where it stands. All in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// From its start to where it is sampled.
    pub used: i64,
    /// `used` without what is skipped.
    pub billed: i64,
    /// What does not count upstream: Σ excluded and Σ again.
    pub skipped: i64,
    /// What may count all the same, because a post had no answer: whole usages, also where a stop has trimmed them.
    pub unanswered: i64,
    /// What has run and is not sampled yet; less than nothing where sampling went beyond the end.
    pub unsampled: i64,
}

impl Span {
    pub fn proof(&self, now: Timestamp) -> Proof {
        let processing = &self.processing;
        let excluded = processing.excluded.iter();
        let again = processing.again.iter();
        let used = self.sampled_to().since(self.start);
        let skipped = excluded.clone().map(Excluded::duration).sum::<i64>()
            + again.clone().map(Again::duration).sum::<i64>();
        let excluded = excluded.filter(|it| it.unanswered).map(|it| it.interval);
        let again = again.filter(|it| it.range.unanswered).map(Again::left);
        let unanswered = excluded.chain(again).map(Interval::duration).sum();
        Proof {
            used,
            billed: used - skipped,
            skipped,
            unanswered,
            unsampled: self.unsampled(now),
        }
    }

    /// What the span says is billed of the time from `since` on, ms: the entries of that time add up to this.
    pub fn billed_since(&self, since: Timestamp) -> i64 {
        let clip = |interval: Interval| {
            let end = interval.end.max(since);
            end.since(interval.start.max(since))
        };
        let sampled = clip(Interval {
            start: self.start,
            end: self.sampled_to(),
        });
        let of_range = |range: &Excluded| {
            clip(Interval {
                start: range.interval.start,
                end: range.reach(),
            })
        };
        let excluded: i64 = self.processing.excluded.iter().map(of_range).sum();
        let again = self.processing.again.iter().map(|again| {
            let way_back = again.way_back_left();
            way_back.map_or_else(|| of_range(&again.range), clip)
        });
        sampled - excluded - again.sum::<i64>()
    }
}
