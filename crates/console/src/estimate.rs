//! The usages that follow an action, in numbers that an operator can weigh.

use sampler_api::{Cause, Span};
use sampler_domain::{Granularity, Timestamp};

use crate::show;
use crate::timeline::{is_boundary, shortest_window};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// How much is to be sampled once spans resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) spans: i64,
    /// The time that the span furthest behind has to sample, in ms.
    pub(crate) behind: i64,
    /// Usages that follow, about.
    pub(crate) usages: i64,
}

impl Estimate {
    /// Of `count` spans, `spans` of which were read.
    ///
    /// The length of the windows follows from what is planned: see [`granularity`].
    pub(crate) fn of(spans: &[Span], count: u64, now: Timestamp) -> Self {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let granularity = granularity(spans);
        let behind = spans.iter().map(|span| left(span, now).abs()).max();
        // Each has at least the usage that is planned.
        let usages = spans.iter().map(|it| ended(it, granularity, now).max(1));
        let known: i64 = usages.sum();
        let read = i64::try_from(spans.len()).unwrap_or(i64::MAX);
        let usages = if count > read && read > 0 {
            let all = i128::from(known) * i128::from(count) / i128::from(read);
            i64::try_from(all).unwrap_or(i64::MAX)
        } else {
            known
        };
        Self {
            spans: count,
            behind: behind.unwrap_or(0),
            usages,
        }
    }

    /// Of a span whose planned usage, which ends at this time, is skipped.
    pub(crate) fn after_skip(span: &Span, planned_to: Timestamp, now: Timestamp) -> Self {
        let before = Self::of(std::slice::from_ref(span), 1, now);
        Self {
            behind: left_from(planned_to, span, now).abs(),
            usages: (before.usages - 1).max(0),
            ..before
        }
    }

    /// `812 spans, 31 days behind, about 25,000 usages`.
    pub(crate) fn in_words(self) -> String {
        let about = if self.is_cut() { "at least" } else { "about" };
        format!(
            "{}, {} behind, {about} {}",
            self.spans_in_words(),
            roughly(self.behind),
            counted(rounded(self.usages), "usage")
        )
    }

    /// `812 spans`, or `at least 100,000 spans`.
    pub(crate) fn spans_in_words(self) -> String {
        let spans = counted(self.spans, "span");
        if self.is_cut() {
            return format!("at least {spans}");
        }
        spans
    }

    /// Whether there may be more spans than were counted.
    fn is_cut(self) -> bool {
        self.spans >= Cause::COUNTED_MAX.cast_signed()
    }
}

/// The time of a span up to now, or to its end, that is not sampled, in ms. Negative if it is
/// sampled beyond its end.
pub(crate) fn left(span: &Span, now: Timestamp) -> i64 {
    left_from(span.sampled_to, span, now)
}

fn left_from(sampled_to: Timestamp, span: &Span, now: Timestamp) -> i64 {
    let until = span.end.map_or(now, |end| end.min(now));
    let left = until.since(sampled_to);
    // A span without an end is never taken back.
    if span.end.is_none() {
        left.max(0)
    } else {
        left
    }
}

/// Windows that are left of a span and have ended, or in which it has.
fn ended(span: &Span, granularity: Granularity, now: Timestamp) -> i64 {
    let window = shortest_window(granularity);
    let until = span.end.map_or(now, |end| end.min(now));
    let (low, high) = (span.sampled_to.min(until), span.sampled_to.max(until));
    let length = high.since(granularity.window_of(low));
    match span.end {
        Some(end) if end <= now => (length + window - 1) / window,
        _ if left(span, now) == 0 => 0,
        _ => length / window,
    }
}

/// The granularity by which these spans are sampled, as far as their plans show it: the coarsest that
/// all plans agree with. A plan of an hour that ends at midnight may be one of a day that began late,
/// but of 24 hours only one ends so. Without plans it is the hour. Where plans agree with none, the
/// longest of them decides.
fn granularity(spans: &[Span]) -> Granularity {
    let plans: Vec<_> = spans
        .iter()
        .filter_map(|span| Some((span, span.planned.as_ref()?)))
        .collect();
    if plans.is_empty() {
        return Granularity::Hour;
    }
    let mut all = Granularity::ALL.into_iter().rev();
    let coarsest = all.find(|granularity| {
        let mut plans = plans.iter();
        plans.all(|(span, plan)| is_plan_of(*granularity, span, (plan.start, plan.end)))
    });
    coarsest.unwrap_or_else(|| {
        let lengths = plans.iter().map(|(_, it)| it.end.since(it.start).abs());
        let longest = lengths.max().unwrap_or(HOUR);
        let fitting = Granularity::ALL
            .into_iter()
            .find(|granularity| longest <= shortest_window(*granularity));
        fitting.unwrap_or(Granularity::Month)
    })
}

/// Whether a worker plans this interval of a span by this granularity: within one window, and from
/// boundary to boundary but where the span itself begins or ends.
fn is_plan_of(granularity: Granularity, span: &Span, (start, end): (Timestamp, Timestamp)) -> bool {
    let next = granularity.boundary_after(start.min(end));
    let is_in_window = next.is_none_or(|next| start.max(end) <= next);
    let begins =
        is_boundary(granularity, start) || start == span.start || start == span.proof.since;
    let ends = is_boundary(granularity, end) || Some(end) == span.end;
    is_in_window && begins && ends
}

/// `1 span`, `812 spans`.
pub(crate) fn counted(count: i64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", show::grouped(count))
}

/// A length of time in the largest unit that fits at least twice.
pub(crate) fn roughly(millis: i64) -> String {
    let units = [(DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")];
    let fitting = units.into_iter().find(|(unit, _)| millis >= 2 * unit);
    let (unit, noun) = fitting.unwrap_or((1_000, "second"));
    counted(millis / unit, noun)
}

/// To two digits from 100 on: more would only look exact.
fn rounded(count: i64) -> i64 {
    let mut scale = 1;
    while count / scale >= 100 {
        scale *= 10;
    }
    (count + scale / 2) / scale * scale
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_795_132_800_000;

    fn span(end: Option<i64>, sampled_to: i64, planned: (i64, i64)) -> Span {
        serde_json::from_value(json!({
            "id": "s", "start": 0, "end": end, "sampled_to": sampled_to, "state": "suspended",
            "target": {
                "organization_id": "o", "space_id": "s", "consumer_id": "c", "resource_id": "r",
                "plan_id": "p", "resource_instance_id": "i",
            },
            "measured_usage": [], "start_event_id": null, "end_event_id": null, "due_at": null,
            "planned": { "start": planned.0, "end": planned.1, "usage_id": "u" },
            "delivery": { "attempts": 3, "unanswered": false, "last_error": null },
            "proof": {
                "used": 0, "billed": 0, "skipped": 0, "unanswered": 0, "difference": 0, "usages": 0,
                "since": 0,
            },
        }))
        .unwrap()
    }

    fn estimate(spans: &[Span], count: u64) -> String {
        Estimate::of(spans, count, Timestamp::clamped(NOW)).in_words()
    }

    #[test]
    fn it_counts_spans_time_and_usages() {
        let open = || span(None, NOW - 31 * DAY, (NOW - 31 * DAY, NOW - 30 * DAY));
        let many: Vec<Span> = (0..812).map(|_| open()).collect();
        let expected = "812 spans, 31 days behind, about 25,000 usages";
        assert_eq!(estimate(&many, 812), expected);
        // Of more spans than are read, the rest is taken to be alike.
        assert_eq!(estimate(&many[..400], 812), expected);
        // No more are counted, so there may be more.
        assert_eq!(
            estimate(&many[..400], Cause::COUNTED_MAX),
            "at least 100,000 spans, 31 days behind, at least 3,100,000 usages"
        );
        let minutes = (NOW - 5 * HOUR, NOW - 5 * HOUR + MINUTE);
        assert_eq!(
            estimate(&[span(None, minutes.0, minutes)], 1),
            "1 span, 5 hours behind, about 300 usages"
        );
    }

    /// A span that has not been sampled yet.
    fn new(start: i64, planned_to: i64) -> Span {
        let mut span = span(None, start, (start, planned_to));
        span.start = Timestamp::clamped(start);
        span
    }

    #[test]
    fn a_plan_that_is_shorter_than_its_window_tells_its_granularity() {
        // It began in the last seconds of an hour.
        let begin = NOW - 25 * HOUR - 20_000;
        let last_minute = new(begin, NOW - 25 * HOUR);
        let expected = "1 span, 25 hours behind, about 26 usages";
        assert_eq!(estimate(&[last_minute], 1), expected);
        let of_minutes = new(NOW - 90_000, NOW - MINUTE);
        let expected = "1 span, 90 seconds behind, about 2 usages";
        assert_eq!(estimate(&[of_minutes], 1), expected);
        // One plan is enough to tell a cause whose other spans may be of days.
        let late = || new(NOW - 2 * DAY - 30_000, NOW - 2 * DAY);
        let hour = new(NOW - 50 * HOUR - 1, NOW - 50 * HOUR);
        let of_cause = [late(), hour];
        assert_eq!(granularity(&of_cause), Granularity::Hour);
        assert_eq!(granularity(&[late()]), Granularity::Day);
    }

    #[test]
    fn a_window_that_has_not_ended_has_no_usage() {
        let begin = NOW - 5 * HOUR;
        let open = span(None, begin, (begin, begin + HOUR));
        let of = |span: &Span, now: i64| {
            Estimate::of(std::slice::from_ref(span), 1, Timestamp::clamped(now)).usages
        };
        assert_eq!(of(&open, NOW + HOUR / 2), 5);
        // A stop ends its last one.
        let end = NOW + HOUR / 2;
        let stopped = span(Some(end), begin, (begin, begin + HOUR));
        assert_eq!(of(&stopped, end), 6);
        // The stop is still to come.
        assert_eq!(of(&stopped, end - 1), 5);
        // What is planned is sent in any case.
        assert_eq!(of(&open, begin + HOUR / 2), 1);
    }

    #[test]
    fn a_plan_that_ends_with_its_span_leaves_its_granularity_open() {
        let ends = NOW - 3 * HOUR + 5 * MINUTE + 7;
        let stopped = span(Some(ends), NOW - 3 * HOUR, (NOW - 3 * HOUR, ends));
        assert_eq!(granularity(&[stopped]), Granularity::Hour);
        // Backwards, from a boundary down to where the span ends.
        let back = span(Some(ends), NOW - 2 * HOUR, (NOW - 2 * HOUR, ends));
        assert_eq!(granularity(&[back]), Granularity::Hour);
        let back = span(Some(ends), NOW - DAY, (NOW, ends));
        assert_eq!(granularity(&[back]), Granularity::Day);
        assert_eq!(granularity(&[]), Granularity::Hour);
    }

    #[test]
    fn it_counts_what_is_taken_back_and_nothing_after_the_end() {
        let back = span(Some(NOW - 3 * DAY), NOW - DAY, (NOW - DAY, NOW - 2 * DAY));
        assert_eq!(
            estimate(&[back], 1),
            "1 span, 2 days behind, about 2 usages"
        );
        let ahead = span(None, NOW + DAY, (NOW, NOW + DAY));
        assert_eq!(
            estimate(&[ahead], 1),
            "1 span, 0 seconds behind, about 1 usage"
        );
        assert_eq!(
            estimate(&[], 0),
            "0 spans, 0 seconds behind, about 0 usages"
        );
    }

    #[test]
    fn what_is_about_is_rounded() {
        for (count, expected) in [(0, 0), (99, 99), (104, 100), (105, 110), (25_172, 25_000)] {
            assert_eq!(rounded(count), expected, "{count}");
        }
        assert_eq!(roughly(119_000), "119 seconds");
        assert_eq!(roughly(47 * HOUR), "47 hours");
        assert_eq!(roughly(2 * MINUTE), "2 minutes");
    }
}
