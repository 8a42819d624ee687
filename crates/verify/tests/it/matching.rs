//! Which span is which usage.

use sampler_verify::api::Span;
use sampler_verify::{Matcher, Used};

use crate::truth::{HOUR, NOW, bill, used};

fn usage(start: i64, end: i64, id: &str) -> Used {
    Used {
        start_id: (!id.is_empty()).then(|| id.to_owned()),
        ..used(NOW + start, Some(NOW + end))
    }
}

fn span(used: &Used) -> Span {
    bill(used, HOUR, false, NOW).span
}

#[test]
fn spans_of_one_start_are_told_apart_by_id_and_end() {
    let all = [
        usage(0, 0, "a"),
        usage(0, 0, "b"),
        usage(0, 5, ""),
        usage(0, 9, ""),
        usage(5, 9, "a"),
    ];
    let mut matcher = Matcher::new(all.to_vec());
    for place in [3, 1, 4, 0, 2] {
        assert_eq!(matcher.take(&span(&all[place])), Some(place));
    }
    assert!(matcher.left().is_empty());
    assert_eq!(matcher.take(&span(&all[0])), None);
}

#[test]
fn a_span_that_differs_is_found_by_what_is_alike() {
    let wanted = usage(0, 5, "a");
    let changes: [fn(&mut Span); 4] = [
        |span| span.target.plan_id = "xl".into(),
        |span| span.start += 1,
        |span| span.start_event_id = Some("b".to_owned()),
        |span| {
            span.target.space_id = "x".into();
            span.start_event_id = None;
        },
    ];
    for change in changes {
        let mut matcher = Matcher::new(vec![usage(7, 9, "z"), wanted.clone()]);
        let mut other = span(&wanted);
        change(&mut other);
        assert_eq!(matcher.take(&other), None);
        assert_eq!(matcher.take_similar(&other), Some(1), "{other:?}");
        assert_eq!(matcher.left(), [0]);
    }
}

#[test]
fn what_is_not_alike_is_not_taken() {
    let mut matcher = Matcher::new(vec![usage(0, 5, "a")]);
    let mut other = span(&usage(0, 5, "a"));
    other.target.resource_instance_id = "other".into();
    assert_eq!(matcher.take(&other), None);
    assert_eq!(matcher.take_similar(&other), None);
    assert_eq!(matcher.take_similar(&span(&usage(1, 6, "b"))), None);
    assert_eq!(matcher.left(), [0]);
}
