//! The law, for any order of stop, plan, skip and resend, with two workers that fail anywhere.

use proptest::prelude::*;
use sampler_domain::{Granularity, Timestamp};

use crate::support::{granularity, moment, scale, span};
use crate::world::{Outcome, World};

/// What may happen, one after another; times in thousandths of a window.
#[derive(Clone, Debug)]
enum Op {
    /// The clock moves on.
    Clock(i64),
    /// A run takes some steps, which all end so.
    Work(usize, Outcome, u8),
    /// A run dies. What it was about to do may still be carried out.
    Die(usize, bool),
    /// Something that had no answer is carried out, or lost.
    Arrive(usize, bool),
    /// The stop comes, dated so far before now.
    Stop(i64),
    /// An operator skips, up to so many boundaries further.
    Skip(u8),
    /// An operator sends again what is excluded within two times.
    Resend(Option<i64>, Option<i64>),
    Resume,
    /// The setting changes.
    Cut(Granularity),
}

fn op() -> impl Strategy<Value = Op> {
    let outcome = prop_oneof![
        6 => Just(Outcome::Done),
        4 => Just(Outcome::Refused),
        1 => Just(Outcome::DoneUnanswered),
        1 => Just(Outcome::Lost),
        1 => Just(Outcome::Late),
    ];
    let time = || prop::option::of(0_i64..12_000);
    prop_oneof![
        4 => (0_i64..3_000).prop_map(Op::Clock),
        16 => (0_usize..2, outcome, 1_u8..8).prop_map(|(run, outcome, steps)| Op::Work(run, outcome, steps)),
        1 => (0_usize..2, any::<bool>()).prop_map(|(run, abandons)| Op::Die(run, abandons)),
        2 => (0_usize..3, any::<bool>()).prop_map(|(which, takes)| Op::Arrive(which, takes)),
        1 => (0_i64..6_000).prop_map(Op::Stop),
        5 => (0_u8..4).prop_map(Op::Skip),
        2 => (time(), time()).prop_map(|(from, to)| Op::Resend(from, to)),
        1 => Just(Op::Resume),
        1 => granularity().prop_map(Op::Cut),
    ]
}

/// The end of the refused interval, or a boundary that is due further on.
fn until(world: &World, boundaries: u8) -> Option<Timestamp> {
    let planned = world.span.processing.planned.as_ref()?;
    let mut until = planned.interval.end;
    for _ in 0..boundaries {
        let next = world.span.cut_after(until)?;
        let next = world.span.end.map_or(next, |end| end.min(next));
        if next > world.now {
            break;
        }
        until = next;
    }
    Some(until)
}

fn apply(world: &mut World, op: &Op, unit: i64) {
    match op {
        Op::Clock(by) => world.now = world.now.plus(by * unit),
        Op::Work(run, outcome, steps) => {
            for _ in 0..*steps {
                world.work(*run, *outcome);
                world.check();
            }
        }
        Op::Die(run, abandons) => world.die(*run, *abandons),
        Op::Arrive(which, takes_effect) => world.arrive(*which, *takes_effect),
        Op::Stop(before) => world.stop(world.now.plus(-before * unit)),
        Op::Skip(boundaries) => {
            let until = until(world, *boundaries);
            let change = world.span.to_skip(until, world.now).ok();
            world.operate(change);
        }
        Op::Resend(from, to) => {
            let at = |time: &Option<i64>| time.map(|time| world.span.start.plus(time * unit));
            let change = world.span.to_resend(at(from), at(to), world.now);
            world.operate(change);
        }
        Op::Resume => _ = world.operate(world.span.to_resume(world.now)),
        // Minutes in a month are too many for a test.
        Op::Cut(granularity) if scale(*granularity) >= unit * 100 => {
            world.granularity = *granularity;
        }
        Op::Cut(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn what_counts_is_what_the_span_says_whatever_happens(
        granularity in granularity(),
        start in 1_500_000_000_000_i64..1_800_000_000_000,
        ops in prop::collection::vec(op(), 0..80),
        late_end in 0_i64..3_000,
    ) {
        let unit = scale(granularity) / 1_000;
        let mut world = World::new(span(moment(start)), granularity);
        for op in &ops {
            apply(&mut world, op, unit);
            world.check();
        }
        world.stop(world.now.plus(-late_end * unit).max(world.span.start));
        world.now = world.now.plus(scale(Granularity::Month) * 2);
        world.end_well();
        let processing = &world.span.processing;
        prop_assert!(processing.complete, "{:?}", processing);
        prop_assert!(processing.excluded.is_empty() && processing.again.is_empty(), "{:?}", processing);
        let end = world.span.end.unwrap();
        prop_assert_eq!(world.sum(), end.since(world.span.start));
        prop_assert_eq!(&world.ledger, &world.counted);
        let since = world.ledger.values().map(|it| it.start).min();
        prop_assert_eq!(world.span.billed_since(since.unwrap_or(end)), world.sum());
        prop_assert_eq!(world.span.proof(world.now).billed, world.sum());
    }
}
