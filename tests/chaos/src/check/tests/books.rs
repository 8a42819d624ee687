//! Faults that are the same in the bill and in the ledger, and faults of a span: the verifier names them. It has
//! more of them in its own tests; here is one for each thing that it is told.

use super::*;

/// A fault by its name, and what is planted.
type Fault = (&'static str, fn(&mut Scene));

/// The place of a usage in the middle of a span.
const PLACE: usize = 2;

const FAULTS: &[Fault] = &[
    ("not-adjacent", |scene| {
        scene.evidence.ledger.remove(PLACE);
        scene.evidence.counted.remove(PLACE);
    }),
    // Once more, under another id.
    ("not-adjacent", |scene| {
        let Interval { start, end } = scene.evidence.ledger[PLACE].usage.interval;
        scene.bill("a", start, end);
    }),
    ("duration", |scene| {
        scene.evidence.ledger[PLACE].usage.duration += 1;
    }),
    ("usage-quantities", |scene| {
        let evidence = &mut scene.evidence;
        let usage = &mut evidence.ledger[PLACE].usage;
        usage.measured_usage[0].quantity = Quantity::Integer(8);
        evidence.counted[PLACE].measures = usage.measured_usage.clone();
    }),
    ("timestamp", |scene| {
        let evidence = &mut scene.evidence;
        evidence.ledger[PLACE].usage.timestamp += HOUR;
        evidence.counted[PLACE].midpoint += HOUR;
    }),
    ("crosses-boundary", |scene| {
        scene.evidence.ledger[PLACE].usage.interval.end += HOUR;
    }),
    ("proof", |scene| scene.evidence.shown[0].proof.billed += 1),
    ("taken-over", |scene| {
        let evidence = &mut scene.evidence;
        let first = evidence.ledger.remove(0).usage;
        evidence.counted.remove(0);
        let proof = &mut evidence.shown[0].proof;
        proof.since = first.interval.end;
        proof.used -= first.duration;
        proof.billed -= first.duration;
        proof.usages -= 1;
    }),
    ("start", |scene| scene.evidence.shown[0].start += 1),
    ("end", |scene| {
        scene.evidence.shown[0].end = Some(BEGIN + HOUR);
    }),
    ("target", |scene| {
        scene.evidence.shown[0].target.plan_id.push('x');
    }),
    ("quantities", |scene| {
        drop(scene.evidence.shown[0].measured_usage.remove(0));
    }),
];

/// The names of the findings.
fn found(scene: &Scene) -> Vec<String> {
    let violations = check(&scene.evidence).violations.into_iter();
    let by_verifier = violations.filter(|it| it.rule == Rule::Verified);
    let name = |it: Violation| it.detail.split(':').next().unwrap().to_owned();
    by_verifier.map(name).collect()
}

#[test]
fn the_verifier_names_each_planted_fault() {
    for (number, (name, plant)) in FAULTS.iter().enumerate() {
        let mut scene = sound();
        plant(&mut scene);
        let found = found(&scene);
        assert!(
            found.contains(&(*name).to_owned()),
            "{number} {name}: {found:?}"
        );
    }
}

#[test]
fn a_start_with_two_spans_and_a_span_that_the_api_does_not_show_are_noticed() {
    let twice = |scene: &mut Scene| scene.span("c", BEGIN + 2 * HOUR, BEGIN + 2 * HOUR);
    assert_eq!(spoilt(twice), [Rule::BilledOnce]);
    let hidden = |scene: &mut Scene| drop(scene.evidence.shown.pop());
    assert_eq!(
        spoilt(hidden),
        [Rule::Billed, Rule::Ledger, Rule::Incomplete]
    );
}
