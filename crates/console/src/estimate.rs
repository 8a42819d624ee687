//! What an act will set going, in numbers that an operator can weigh.

use sampler_domain::{Granularity, Timestamp};

use crate::documents::Span;
use crate::show;
use crate::timeline::shortest_window;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// How much is to be sampled once spans go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// Spans that go on.
    pub(crate) spans: i64,
    /// What the span that is furthest behind has to sample, in ms.
    pub(crate) behind: i64,
    /// Usages that follow, about.
    pub(crate) usages: i64,
}

impl Estimate {
    /// Of `count` spans, of which these were read.
    ///
    /// The length of the windows follows from what is planned: the longest plan fills its window,
    /// unless all spans begin or end in the middle of one.
    pub(crate) fn of(spans: &[Span], count: i64, now: Timestamp) -> Self {
        let planned = spans.iter().filter_map(|span| span.planned.as_ref());
        let longest = planned.map(|plan| plan.end.since(plan.start).abs()).max();
        let window = window(longest.unwrap_or(HOUR));
        let behind = |span: &Span| left(span, now).abs();
        // Each has at least the usage that is planned.
        let usages = |span: &Span| ((behind(span) + window - 1) / window).max(1);
        let known: i64 = spans.iter().map(usages).sum();
        let read = i64::try_from(spans.len()).unwrap_or(i64::MAX);
        let usages = if count > read && read > 0 {
            let all = i128::from(known) * i128::from(count) / i128::from(read);
            i64::try_from(all).unwrap_or(i64::MAX)
        } else {
            known
        };
        Self {
            spans: count,
            behind: spans.iter().map(behind).max().unwrap_or(0),
            usages,
        }
    }

    /// `812 spans, 31 days behind, about 25,000 usages`.
    pub(crate) fn in_words(self) -> String {
        format!(
            "{}, {} behind, about {}",
            counted(self.spans, "span"),
            roughly(self.behind),
            counted(rounded(self.usages), "usage")
        )
    }
}

/// What of the time of a span up to now, or to its end, is not sampled, in ms; negative where it is
/// sampled beyond its end.
pub(crate) fn left(span: &Span, now: Timestamp) -> i64 {
    let until = span.end.map_or(now, |end| end.min(now));
    let left = until.since(span.sampled_to);
    // A span without an end is never taken back.
    if span.end.is_none() {
        left.max(0)
    } else {
        left
    }
}

/// The length of the windows that a usage of this length fits into, in ms.
fn window(length: i64) -> i64 {
    let mut windows = Granularity::ALL.into_iter().map(shortest_window);
    let fitting = windows.find(|window| length <= *window);
    fitting.unwrap_or(shortest_window(Granularity::Month))
}

/// `1 span`, `812 spans`.
pub(crate) fn counted(count: i64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", show::grouped(count))
}

/// A length of time in the largest unit of which there are at least two.
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
            "delivery": { "attempts": 3, "last_error": null },
            "proof": { "used": 0, "billed": 0, "skipped": 0, "difference": 0, "usages": 0, "since": 0 },
        }))
        .unwrap()
    }

    fn estimate(spans: &[Span], count: i64) -> String {
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
        let hours = [span(
            None,
            NOW - 5 * HOUR,
            (NOW - 5 * HOUR, NOW - 5 * HOUR + 9),
        )];
        assert_eq!(
            estimate(&hours, 1),
            "1 span, 5 hours behind, about 300 usages"
        );
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
