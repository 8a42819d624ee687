//! Where intervals begin and end, and when they are due.

use proptest::prelude::*;
use sampler_domain::{
    Delivery, Granularity, Interval, Planned, Span, Step, Timestamp, Usage, next_step, usage_guid,
};

use crate::support::{Sampled, granularity, moment, policy, scale, span};

/// Every interval lies within one window of `granularity`, and its midpoint too.
fn assert_within_window(interval: Interval, granularity: Granularity) {
    let (low, high) = (
        interval.start.min(interval.end),
        interval.start.max(interval.end),
    );
    let window = granularity.window_of(low);
    let window_end = granularity.boundary_after(low).unwrap();
    assert!(high <= window_end, "{interval:?} crosses {window_end}");
    assert_eq!(
        granularity.window_of(interval.midpoint()),
        window,
        "{interval:?}"
    );
    assert!(!interval.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn no_interval_crosses_a_boundary_in_either_direction(
        granularity in granularity(),
        start in 0_i64..4_000_000_000_000,
        sampled_on in 0_i64..5_000,
        back in 0_i64..6_000,
    ) {
        let unit = scale(granularity) / 1_000;
        let policy = policy(granularity, 0);
        let mut sampled = Sampled::new(span(moment(start)));
        sampled.sample(moment(start + sampled_on * unit), &policy);
        let oversampled = sampled.counted.len();
        let end = sampled.span.sampled_to().plus(-back * unit).max(moment(start));
        sampled.span.end = Some(end);
        sampled.sample(moment(start + sampled_on * unit), &policy);
        prop_assert!(sampled.span.processing.complete);
        for (index, interval) in sampled.counted.iter().enumerate() {
            assert_within_window(*interval, granularity);
            prop_assert_eq!(interval.duration() < 0, index >= oversampled);
        }
        prop_assert_eq!(sampled.sum(), end.since(moment(start)));
    }
}

fn planned(span: &Span, interval: Interval) -> Planned {
    Planned {
        interval,
        usage_guid: usage_guid(span, interval),
        planned_at: interval.start,
        by: None,
        unanswered: false,
        posts_end_by: None,
    }
}

fn at(text: &str) -> Timestamp {
    moment(
        chrono::DateTime::parse_from_rfc3339(text)
            .unwrap()
            .timestamp_millis(),
    )
}

/// Fault 6 of the original: a stop dated in the future was sampled at once.
#[test]
fn fault_6_a_stop_dated_in_the_future_waits_for_its_time() {
    let mut span = span(at("2026-03-01T10:00:00Z"));
    span.end = Some(at("2026-03-03T04:00:00Z"));
    let policy = policy(Granularity::Day, 0);
    let step = |now| next_step(&span, at(now), &policy);
    assert_eq!(
        step("2026-03-01T11:00:00Z"),
        Step::Wait(at("2026-03-02T00:00:00Z"))
    );
    let first = Interval {
        start: span.start,
        end: at("2026-03-02T00:00:00Z"),
    };
    assert_eq!(step("2026-03-02T00:00:00Z"), Step::Plan(first));
    let mut sampled = Sampled::new(span.clone());
    sampled.sample(at("2026-03-03T03:59:59Z"), &policy);
    let last = Step::Wait(at("2026-03-03T04:00:00Z"));
    assert_eq!(
        next_step(&sampled.span, at("2026-03-03T03:59:59Z"), &policy),
        last
    );
}

/// The same fault, left behind by the original: its plan waits until Abacus would take it.
#[test]
fn fault_6_a_planned_interval_of_the_future_is_not_executed_before_it_is_over() {
    let mut span = span(at("2026-03-01T10:00:00Z"));
    let interval = Interval {
        start: span.start,
        end: at("2026-03-03T04:00:00Z"),
    };
    span.end = Some(interval.end);
    let planned = planned(&span, interval);
    span.processing.planned = Some(planned);
    let policy = policy(Granularity::Day, 0);
    let step = |now| next_step(&span, at(now), &policy);
    assert_eq!(step("2026-03-03T03:59:59Z"), Step::Wait(interval.end));
    assert_eq!(step("2026-03-03T04:00:00Z"), Step::Execute);
}

/// Fault 7 of the original: the first window was sent one dimension after the start.
#[test]
fn fault_7_the_first_partial_window_is_due_at_its_boundary() {
    let span = span(at("2026-01-31T23:00:00Z"));
    let policy = policy(Granularity::Month, 0);
    let boundary = at("2026-02-01T00:00:00Z");
    assert_eq!(
        next_step(&span, at("2026-01-31T23:59:59Z"), &policy),
        Step::Wait(boundary)
    );
    let interval = Interval {
        start: span.start,
        end: boundary,
    };
    assert_eq!(next_step(&span, boundary, &policy), Step::Plan(interval));
}

/// Fault 8: the original plans intervals of no length. What it has left behind is recorded, and not posted.
#[test]
fn fault_8_a_plan_of_no_length_is_recorded_and_not_posted() {
    let mut span = span(at("2026-01-31T23:00:00Z"));
    let interval = Interval {
        start: span.start,
        end: span.start,
    };
    span.processing.planned = Some(planned(&span, interval));
    let mut sampled = Sampled::new(span);
    sampled.sample(interval.start, &policy(Granularity::Hour, 0));
    assert!(sampled.span.processing.planned.is_none() && sampled.counted.is_empty());
}

/// Fault 8 of the original: usages of zero length were posted.
#[test]
fn fault_8_a_span_of_no_length_is_complete_without_a_usage() {
    let mut span = span(at("2026-01-31T23:00:00Z"));
    span.end = Some(span.start);
    assert_eq!(
        next_step(&span, span.start, &policy(Granularity::Hour, 0)),
        Step::Complete
    );
}

#[test]
fn the_grace_is_for_open_spans_only() {
    let mut span = span(at("2026-01-31T23:00:00Z"));
    let policy = policy(Granularity::Day, 60_000);
    let midnight = at("2026-02-01T00:00:00Z");
    assert_eq!(
        next_step(&span, midnight, &policy),
        Step::Wait(midnight.plus(60_000))
    );
    assert!(matches!(
        next_step(&span, midnight.plus(60_000), &policy),
        Step::Plan(_)
    ));
    span.end = Some(midnight.plus(1));
    assert!(matches!(next_step(&span, midnight, &policy), Step::Plan(_)));
}

#[test]
fn a_plan_is_executed_as_it_stands_whatever_the_policy_is_by_now() {
    let mut span = span(at("2026-01-31T23:00:00Z"));
    let interval = Interval {
        start: span.start,
        end: at("2026-02-01T00:00:00Z"),
    };
    let planned = planned(&span, interval);
    span.processing.planned = Some(planned);
    span.end = Some(at("2026-01-31T23:30:00Z"));
    let step = next_step(
        &span,
        at("2026-02-02T00:00:00Z"),
        &policy(Granularity::Minute, 5),
    );
    assert_eq!(step, Step::Execute);
}

#[test]
fn what_waits_longest_is_due_first() {
    let now = at("2026-02-02T00:00:00Z");
    let span = span(now.plus(-200));
    let wait = Step::Wait(now.plus(5));
    assert_eq!(wait.due_at(now, &span), now.plus(5));
    let forwards = Interval {
        start: now.plus(-100),
        end: now.plus(-50),
    };
    assert_eq!(Step::Plan(forwards).due_at(now, &span), now.plus(-50));
    let backwards = Interval {
        start: now.plus(-50),
        end: now.plus(-100),
    };
    assert_eq!(Step::Plan(backwards).due_at(now, &span), now.plus(-100));
}

#[test]
fn a_usage_holds_the_measures_untouched_and_the_signed_duration() {
    let mut span = span(moment(1_540_211_419_000));
    let quantity = |json: &str| {
        let value = serde_json::from_str(json).unwrap();
        sampler_domain::Quantity::new(value).unwrap()
    };
    let measures = vec![
        sampler_domain::Measure::new("instances", quantity("8")).unwrap(),
        sampler_domain::Measure::new("tag", quantity(r#"{"z":1.5,"a":["x",null]}"#)).unwrap(),
    ];
    span.measures = sampler_domain::Measures::new(measures).unwrap();
    let interval = Interval {
        start: moment(1_540_215_019_001),
        end: moment(1_540_211_419_000),
    };
    let delivery = Delivery {
        interval,
        usage_guid: "769e31ee".into(),
        is_again: false,
    };
    let text = serde_json::to_string(&Usage::new(&span, &delivery)).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"dedup_id":"769e31ee","start":1540213219000,"end":1540213219000,"#,
            r#""organization_id":"organization","space_id":"space","consumer_id":"consumer","#,
            r#""resource_id":"resource","plan_id":"plan","resource_instance_id":"instance","#,
            r#""measured_usage":[{"measure":"instances","quantity":8},"#,
            r#"{"measure":"tag","quantity":{"z":1.5,"a":["x",null]}},"#,
            r#"{"measure":"duration","quantity":-3600001}]}"#,
        )
    );
}
