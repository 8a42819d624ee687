//! What operators may skip, and what is sent again.

use sampler_domain::{
    Cut, EXCLUDED_MAX, Excluded, Granularity, Interval, SkipRefusal, Span, Timestamp,
};

use crate::support::{moment, span};
use crate::world::{Outcome, World};

const HOUR: i64 = 3_600_000;
const START: i64 = 1_700_000_000_000 / HOUR * HOUR;

fn hours(hours: i64) -> Timestamp {
    moment(START + hours * HOUR)
}

/// A world whose span is refused for its first hour, five hours after its start.
fn refused() -> World {
    let mut world = World::new(span(hours(0)), Granularity::Hour);
    world.now = hours(5);
    while world.span.suspension().is_none() {
        assert!(world.work(0, Outcome::Refused));
    }
    world
}

fn skip(world: &mut World, until: Option<Timestamp>) -> Result<(), SkipRefusal> {
    let change = world.span.to_skip(until, world.now)?;
    assert!(world.operate(Some(change)));
    world.check();
    Ok(())
}

fn excluded(span: &Span) -> Vec<(i64, i64, Option<i64>)> {
    let hour = |at: Timestamp| (at.as_millis() - START) / HOUR;
    let ranges = span.processing.excluded.iter();
    ranges
        .map(|it| {
            (
                hour(it.interval.start),
                hour(it.interval.end),
                it.back_to.map(hour),
            )
        })
        .collect()
}

#[test]
fn a_skip_goes_to_the_end_of_the_refused_interval_or_to_a_later_boundary() {
    let mut world = refused();
    assert_eq!(skip(&mut world, None), Ok(()));
    assert_eq!(excluded(&world.span), [(0, 1, None)]);
    let mut world = refused();
    assert_eq!(skip(&mut world, Some(hours(4))), Ok(()));
    assert_eq!(excluded(&world.span), [(0, 4, None)]);
    assert_eq!(world.span.sampled_to(), hours(4));
}

#[test]
fn a_skip_is_refused_for_what_is_no_boundary_or_not_due() {
    let mut world = refused();
    for (until, refusal) in [
        (hours(2).plus(1), SkipRefusal::NoBoundary),
        (hours(0), SkipRefusal::TooEarly),
        (hours(6), SkipRefusal::InFuture),
    ] {
        assert_eq!(skip(&mut world, Some(until)), Err(refusal), "{until}");
    }
    world.stop(hours(3).plus(10));
    let after = SkipRefusal::AfterEnd;
    assert_eq!(skip(&mut world, Some(hours(4))), Err(after));
    assert_eq!(skip(&mut world, Some(hours(3).plus(10))), Ok(()));
    let not_suspended = SkipRefusal::NotSuspended;
    assert_eq!(skip(&mut world, None), Err(not_suspended));
}

#[test]
fn a_span_that_is_probed_is_not_skipped() {
    let world = refused();
    let probed = world.span.resumed(1, true, world.now);
    assert!(probed.processing.probe.is_some());
    let refusal = probed.to_skip(None, world.now).map(|_| ());
    assert_eq!(refusal, Err(SkipRefusal::NotSuspended));
}

fn as_many_ranges_as_there_may_be() -> Vec<Excluded> {
    let ranges = (0..).take(EXCLUDED_MAX).map(|index: i64| Excluded {
        interval: Interval {
            start: moment(2 * index),
            end: moment(2 * index + 1),
        },
        back_to: None,
        unanswered: false,
        usage_guid: None,
        error: None,
    });
    ranges.collect()
}

#[test]
fn a_skip_too_many_is_refused() {
    let mut world = refused();
    world.span.processing.excluded = as_many_ranges_as_there_may_be();
    let refusal = world.span.to_skip(None, world.now).map(|_| ());
    assert_eq!(refusal, Err(SkipRefusal::TooManyRanges));
}

#[test]
fn a_late_stop_trims_what_was_skipped_and_posts_nothing() {
    let mut world = refused();
    skip(&mut world, Some(hours(4))).unwrap();
    world.stop(hours(2));
    while world.work(0, Outcome::Refused) {}
    assert!(world.span.processing.complete);
    assert_eq!(excluded(&world.span), [(0, 4, Some(2))]);
    assert!(world.counted.is_empty());
    world.end_well();
    assert_eq!(world.sum(), 2 * HOUR);
}

#[test]
fn whole_intervals_alone_are_sent_again() {
    let mut world = refused();
    skip(&mut world, Some(hours(4))).unwrap();
    let (from, to) = (hours(1).plus(-1), hours(3).plus(1));
    let change = world.span.to_resend(Some(from), Some(to), world.now);
    assert!(world.operate(change));
    assert_eq!(excluded(&world.span), [(0, 1, None), (3, 4, None)]);
    let nothing = world
        .span
        .to_resend(Some(hours(3).plus(1)), None, world.now);
    assert_eq!(nothing, None);
    world.end_well();
    assert_eq!(world.span.sampled_to(), hours(5));
}

#[test]
fn what_is_refused_again_is_excluded_again_and_the_span_goes_on() {
    let mut world = refused();
    skip(&mut world, Some(hours(2))).unwrap();
    let change = world.span.to_resend(None, None, world.now);
    assert!(world.operate(change));
    while excluded(&world.span).is_empty() {
        assert!(world.work(0, Outcome::Refused));
    }
    assert_eq!(excluded(&world.span), [(0, 1, None)]);
    assert_eq!(world.span.processing.again.len(), 1);
    while world.work(0, Outcome::Done) {}
    assert_eq!(world.span.sampled_to(), hours(5));
    assert_eq!(excluded(&world.span), [(0, 1, None)]);
}

/// A world whose first hour was posted without an answer, refused, skipped, and trimmed to its half by a late stop.
fn flagged_and_trimmed() -> World {
    let mut world = World::new(span(hours(0)), Granularity::Hour);
    world.now = hours(5);
    while world.span.processing.planned.is_none() {
        assert!(world.work(0, Outcome::Done));
    }
    assert!(world.work(0, Outcome::Lost), "the post");
    while world.span.suspension().is_none() {
        assert!(world.work(0, Outcome::Refused));
    }
    skip(&mut world, None).unwrap();
    world.stop(hours(0).plus(HOUR / 2));
    while world.work(0, Outcome::Done) {}
    assert!(world.span.processing.complete);
    world
}

#[test]
fn the_whole_usage_may_count_of_which_a_stop_has_trimmed_a_part() {
    let world = flagged_and_trimmed();
    let proof = world.span.proof(world.now);
    assert_eq!((proof.skipped, proof.unanswered), (HOUR / 2, HOUR));
}

#[test]
fn a_way_back_that_is_refused_was_never_posted_without_an_answer() {
    let mut world = flagged_and_trimmed();
    let change = world.span.to_resend(None, None, world.now);
    assert!(world.operate(change));
    while !world.span.processing.again[0].is_way_back {
        assert!(world.work(0, Outcome::Done));
    }
    while world.span.processing.excluded.is_empty() {
        assert!(world.work(0, Outcome::Refused));
    }
    assert_eq!(world.span.proof(world.now).unanswered, 0);
    assert!(!world.span.processing.excluded[0].unanswered);
}

/// What another program has sampled is taken back, skipped and sent again in the pieces in which it was sampled.
#[test]
fn time_before_the_first_cut_is_cut_as_that_is() {
    let mut world = World::new(span(hours(0)), Granularity::Day);
    world.now = hours(7);
    let granularity = Granularity::Hour;
    let from = hours(6);
    world.span.processing.cuts = vec![Cut { from, granularity }];
    world.span.processing.last = Interval {
        start: hours(5),
        end: hours(6),
    };
    world.stop(hours(4));
    for _ in 0..2 {
        while world.span.suspension().is_none() {
            assert!(world.work(0, Outcome::Refused));
        }
        let change = world.span.to_skip(None, world.now).unwrap();
        assert!(world.operate(Some(change)));
    }
    while world.work(0, Outcome::Done) {}
    let change = world.span.to_resend(None, None, world.now);
    assert!(world.operate(change));
    while world.work(0, Outcome::Done) {}
    let counted = world.counted.values().map(|it| it.duration());
    assert_eq!(counted.collect::<Vec<_>>(), [-HOUR, -HOUR]);
}

#[test]
fn a_refusal_too_many_ends_a_resend() {
    let mut world = refused();
    skip(&mut world, Some(hours(4))).unwrap();
    let change = world.span.to_resend(None, None, world.now);
    assert!(world.operate(change));
    world.span.processing.excluded = as_many_ranges_as_there_may_be();
    while !world.span.processing.again.is_empty() {
        assert!(world.work(0, Outcome::Refused));
    }
    assert_eq!(world.span.processing.excluded.len(), EXCLUDED_MAX + 1);
    assert_eq!(world.span.proof(world.now).skipped, 4 * HOUR + 500);
}
