//! Old rules against new time: the state machine over leap days, month ends, year ends and the
//! limits of its type, compared with an oracle that walks through the calendar step by step.

use sampler_domain::{Granularity, Interval, Span, Step, Timestamp, next_step};

use crate::oracle::{DAY, HOUR, MINUTE, midnight, months, pieces};
use crate::support::{moment, policy};

fn span(start: i64, end: Option<i64>) -> Span {
    let mut span = crate::support::span(moment(start));
    span.end = end.map(moment);
    span
}

/// Does all that is due by `now`, as a worker does. Returns the intervals.
fn sampled(span: &mut Span, now: i64, granularity: Granularity) -> Vec<(i64, i64)> {
    let mut intervals = Vec::new();
    loop {
        match next_step(span, moment(now), &policy(granularity, 0)) {
            Step::Plan(interval) => {
                let Interval { start, end } = interval;
                intervals.push((start.as_millis(), end.as_millis()));
                span.processing.last = interval;
            }
            Step::Complete => {
                span.processing.complete = true;
                return intervals;
            }
            Step::Wait(until) => {
                assert!(until > moment(now) || until == Timestamp::MAX);
                return intervals;
            }
            Step::Execute | Step::Trim(_) => unreachable!("each plan is carried out at once"),
        }
    }
}

/// Stretches of time with something in them that a calendar may stumble over.
fn stretches() -> Vec<(i64, i64)> {
    let day = midnight;
    vec![
        // Leap days, and those that are none.
        (day(2024, 2, 28) + 23 * HOUR, day(2024, 3, 1) + HOUR),
        (day(2023, 2, 28) + 23 * HOUR, day(2023, 3, 1) + HOUR),
        (day(2000, 2, 28) + 1, day(2000, 3, 2) - 1),
        (day(2100, 2, 27), day(2100, 3, 2) + MINUTE),
        (day(2400, 2, 29), day(2400, 2, 29) + 1),
        // Ends of months of every length.
        (day(2026, 1, 31) + 5, day(2026, 2, 1) + 5),
        (day(2026, 4, 30) + 23 * HOUR, day(2026, 5, 1) + 23 * HOUR),
        (day(2026, 2, 1), day(2026, 3, 1)),
        // Ends of years, of a century and of an age.
        (
            day(2025, 12, 31) + 23 * HOUR + 59 * MINUTE,
            day(2026, 1, 1) + 1,
        ),
        (day(1999, 12, 31) + 1, day(2000, 1, 1) + 1),
        (day(2037, 12, 31), day(2038, 1, 20)),
        // Where clocks are moved somewhere in the world, and UTC does not.
        (day(2026, 3, 29), day(2026, 3, 30)),
        (day(2026, 10, 25), day(2026, 10, 26)),
        // Where a leap second was: UTC as computers count it has none.
        (day(2016, 12, 31) + 23 * HOUR, day(2017, 1, 1) + HOUR),
        // Edges: nothing, a moment, exactly a window, a moment off it.
        (day(2026, 3, 1), day(2026, 3, 1)),
        (day(2026, 3, 1) - 1, day(2026, 3, 1)),
        (day(2026, 3, 1), day(2026, 3, 1) + 1),
        (day(2026, 3, 1), day(2026, 3, 1) + MINUTE),
        (day(2026, 3, 1) + 1, day(2026, 3, 1) + MINUTE + 1),
        // The limits of the type.
        (0, 1),
        (0, DAY),
        (1, MINUTE),
        (253_402_300_800_000 - 2 * DAY, 253_402_300_800_000),
        (253_402_300_800_000 - 1, 253_402_300_800_000),
        (253_402_300_800_000, 253_402_300_800_000),
    ]
}

#[test]
fn a_stopped_span_is_cut_as_the_calendar_cuts_it() {
    for (start, end) in stretches() {
        for granularity in Granularity::ALL {
            let mut span = span(start, Some(end));
            let intervals = sampled(&mut span, end, granularity);
            let expected = pieces(granularity, start, end);
            assert_eq!(intervals, expected, "{granularity} from {start} to {end}");
            assert!(span.processing.complete);
        }
    }
}

#[test]
fn what_was_sampled_too_far_is_taken_back_as_the_calendar_cuts_it() {
    for (end, sampled_to) in stretches() {
        for granularity in Granularity::ALL {
            let mut span = span(end, Some(end));
            span.processing.last.end = moment(sampled_to);
            let intervals = sampled(&mut span, sampled_to, granularity);
            let mut expected = pieces(granularity, end, sampled_to);
            expected.reverse();
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(low, high)| (high, low))
                .collect();
            assert_eq!(intervals, expected, "{granularity} back from {sampled_to}");
            assert!(span.processing.complete);
        }
    }
}

#[test]
fn an_open_span_is_sampled_to_the_last_boundary_and_not_beyond() {
    for (start, now) in stretches() {
        for granularity in Granularity::ALL {
            let mut span = span(start, None);
            let intervals = sampled(&mut span, now, granularity);
            let mut expected = pieces(granularity, start, now);
            let next = pieces(granularity, start, now + 2);
            // The last piece is over only where a boundary ends it.
            let ends_at_boundary = next.iter().any(|(_, until)| *until == now);
            let is_last_moment = now == Timestamp::MAX.as_millis();
            if !ends_at_boundary && !is_last_moment {
                expected.pop();
            }
            assert_eq!(
                intervals, expected,
                "{granularity} from {start} until {now}"
            );
            assert!(!span.processing.complete);
        }
    }
}

#[test]
fn every_month_to_the_year_10000_begins_where_the_calendar_says() {
    let all: Vec<i64> = months().map(|(_, start)| start).collect();
    assert_eq!(all.len(), 8_030 * 12);
    for (index, start) in all.iter().copied().enumerate() {
        let next = all.get(index + 1).copied().unwrap_or(253_402_300_800_000);
        let month = Granularity::Month;
        assert_eq!(month.boundary_after(moment(start)), Some(moment(next)));
        assert_eq!(month.boundary_after(moment(next - 1)), Some(moment(next)));
        assert_eq!(month.boundary_before(moment(next)), Some(moment(start)));
        assert_eq!(
            month.boundary_before(moment(start + 1)),
            Some(moment(start))
        );
        assert_eq!(month.window_of(moment(next - 1)), moment(start));
    }
}

#[test]
fn every_day_to_the_year_10000_begins_where_the_calendar_says() {
    for (month, start) in months() {
        for day in 0..month.days() {
            let midnight = start + day * DAY;
            let next = moment(midnight + DAY);
            for granularity in [Granularity::Minute, Granularity::Hour, Granularity::Day] {
                let last = moment(midnight + DAY - 1);
                assert_eq!(granularity.boundary_after(last), Some(next));
            }
            assert_eq!(
                Granularity::Day.boundary_before(next),
                Some(moment(midnight))
            );
        }
    }
}

/// At the limits of the type nothing overflows, crosses or waits for ever.
#[test]
fn the_first_and_the_last_moment_are_moments_like_any_other() {
    let last = Timestamp::MAX.as_millis();
    for granularity in Granularity::ALL.into_iter().skip(1) {
        let mut span = span(last - 40 * DAY, None);
        let intervals = sampled(&mut span, last, granularity);
        assert_eq!(intervals, pieces(granularity, last - 40 * DAY, last));
        let waiting = next_step(&span, Timestamp::MAX, &policy(granularity, 0));
        assert_eq!(waiting, Step::Wait(Timestamp::MAX));
        span.end = Some(Timestamp::MAX);
        assert!(sampled(&mut span, last, granularity).is_empty());
        assert!(span.processing.complete);
    }
    let whole = Interval {
        start: Timestamp::MAX,
        end: Timestamp::MIN,
    };
    assert_eq!(whole.duration(), -last);
    assert_eq!(whole.midpoint().as_millis(), last / 2);
}
