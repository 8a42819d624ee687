//! Which span is which usage.

use sampler_verify::Used;
use sampler_verify::api::Span;
use sampler_verify::matching::pairs;
use sampler_verify::moment::HOUR;

use crate::truth::{NOW, bill, used};

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
    let order = [3, 1, 4, 0, 2];
    let spans = order.map(|place| span(&all[place]));
    let expected = order.map(|place| Some(&all[place]));
    assert_eq!(pairs(&all, &spans), (expected.to_vec(), vec![]));
}

/// The receiver has ids that a CSV file does not have.
#[test]
fn usages_without_ids_are_told_apart_by_target_and_end() {
    let of = |line, organization: &str, end| {
        let mut used = usage(0, end, "");
        used.target.organization_id = organization.into();
        Used { line, ..used }
    };
    let all = [of(1, "acme", 5), of(2, "zeta", 5), of(3, "zeta", 0)];
    let order = [2, 1, 0];
    let spans = order.map(|place| {
        let mut span = span(&all[place]);
        span.start_event_id = Some(format!("sampler-{place}"));
        span
    });
    let expected = order.map(|place| Some(&all[place]));
    assert_eq!(pairs(&all, &spans), (expected.to_vec(), vec![]));
}

/// How a span differs from its usage, and whether it is found all the same.
type Change = (fn(&mut Span), bool);

#[test]
fn a_span_that_differs_is_found_by_what_is_alike() {
    let changes: [Change; 5] = [
        (|span| span.target.plan_id = "xl".into(), true),
        (|span| span.start += 1, true),
        (|span| span.start_event_id = Some("b".to_owned()), true),
        (
            |span| {
                span.target.space_id = "x".into();
                span.start_event_id = None;
            },
            true,
        ),
        (
            |span| span.target.resource_instance_id = "other".into(),
            false,
        ),
    ];
    let all = [usage(7, 9, "z"), usage(0, 5, "a")];
    for (change, is_found) in changes {
        let mut other = span(&all[1]);
        change(&mut other);
        let (found, left) = pairs(&all, &[other.clone()]);
        assert_eq!(found, [is_found.then_some(&all[1])], "{other:?}");
        assert_eq!(left.len(), 2 - usize::from(is_found), "{other:?}");
    }
    let (none, left) = pairs(&all, &[span(&usage(1, 6, "b"))]);
    assert_eq!((none, left.len()), (vec![None], 2));
    // The better one has it, whatever the order.
    let mut other = span(&all[1]);
    other.start_event_id = Some("b".to_owned());
    let (found, _) = pairs(&all, &[other, span(&all[1])]);
    assert_eq!(found, [None, Some(&all[1])]);
}
