//! Sound histories are right, and each way to spoil one is noticed.

use sampler_verify::api::{self, Interval, Proof};
use sampler_verify::quantity::{Measure, Quantity};
use serde_json::json;

mod ledger;

use super::*;
use crate::event::{DURATION, start_body, stop_body, target};
use crate::evidence::{Aside, Usage};
use crate::history::{Answer, Attempt, ProgramEnd};

const HOUR: i64 = 3_600_000;
/// A moment within an hour.
const BEGIN: i64 = 1_700_000_000_000;

/// A run that is made up.
#[derive(Clone, Default)]
struct Scene {
    evidence: Evidence,
    clock: i64,
}

impl Scene {
    fn target() -> Target {
        target(0, 0)
    }

    fn event(&mut self, name: &str, kind: Kind, body: serde_json::Value) {
        self.evidence.records.push(Record::Event(Event {
            name: name.to_owned(),
            client: 0,
            kind,
            intent: "test".to_owned(),
            gives_up: false,
            body,
        }));
    }

    fn answer(&mut self, name: &str, answer: Answer) {
        self.clock += 1;
        self.evidence.records.push(Record::Attempt(Attempt {
            event: name.to_owned(),
            at: self.clock,
            took: 1,
            receiver: 0,
            answer,
        }));
    }

    fn start(&mut self, name: &str, at: i64) {
        let body = start_body(name, at, &Self::target(), 7, name);
        self.event(name, Kind::Start, body);
    }

    fn stop(&mut self, name: &str, at: i64) {
        let body = stop_body(name, at, &Self::target());
        self.event(name, Kind::Stop, body);
    }

    /// The event that came last was one to be given up.
    fn gives_up(&mut self) {
        let last = self.evidence.records.iter_mut().rev();
        let mut events = last.filter_map(|record| match record {
            Record::Event(event) => Some(event),
            _ => None,
        });
        events.next().unwrap().gives_up = true;
    }

    /// The span that `name` started, of which nothing is billed yet.
    fn span(&mut self, name: &str, start: i64, end: i64) {
        self.evidence.shown.push(api::Span {
            id: format!("span of {name}"),
            target: sampler_verify::Target::from_ids(Self::target().0),
            measured_usage: measures(name),
            start,
            end: Some(end),
            state: "complete".to_owned(),
            start_event_id: Some(name.to_owned()),
            sampled_to: start,
            planned: None,
            proof: Proof {
                used: 0,
                billed: 0,
                skipped: 0,
                unanswered: 0,
                difference: 0,
                usages: 0,
                since: start,
            },
        });
    }

    /// A usage of that span: it counts, has an entry, and is in the totals.
    fn bill(&mut self, name: &str, from: i64, to: i64) {
        let usage = self.usage(name, from, to);
        self.evidence.counted.push(Usage {
            at: 0,
            dedup_id: usage.id.clone(),
            midpoint: usage.timestamp,
            target: Self::target(),
            measures: usage.measured_usage.clone(),
        });
        let mut spans = self.evidence.shown.iter_mut();
        let span = spans.find(|span| span.id == usage.span).unwrap();
        span.sampled_to = to;
        span.proof.used = to - span.start;
        span.proof.billed += to - from;
        span.proof.usages += 1;
        self.evidence.ledger.push(Entry {
            usage,
            target: Self::target(),
            planned_at: 0,
            set_aside_at: None,
            rounds: 0,
            withheld: false,
            pending: false,
        });
    }

    fn usage(&self, name: &str, from: i64, to: i64) -> api::Entry {
        let duration = Measure {
            measure: DURATION.to_owned(),
            quantity: Quantity::Integer((to - from).into()),
        };
        let mut measured_usage = measures(name);
        measured_usage.push(duration);
        api::Entry {
            id: format!("{name}/{}", self.evidence.ledger.len()),
            span: format!("span of {name}"),
            interval: Interval {
                start: from,
                end: to,
            },
            timestamp: (from + to).div_euclid(2),
            duration: to - from,
            state: "accepted".to_owned(),
            status: Some(202),
            measured_usage,
            unanswered: false,
        }
    }

    /// Usages from one moment to another, hour by hour, in either direction.
    fn sample(&mut self, name: &str, from: i64, to: i64) {
        let mut at = from;
        while at != to {
            let next = if at < to {
                ((at.div_euclid(HOUR) + 1) * HOUR).min(to)
            } else {
                ((at - 1).div_euclid(HOUR) * HOUR).max(to)
            };
            self.bill(name, at, next);
            at = next;
        }
    }

    fn broken(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> = check(&self.evidence)
            .violations
            .iter()
            .map(|violation| violation.rule)
            .collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }
}

/// What a start measures.
fn measures(name: &str) -> Vec<Measure> {
    let measure = |measure: &str, quantity| Measure {
        measure: measure.to_owned(),
        quantity,
    };
    vec![
        measure("memory", Quantity::Double(7.0)),
        measure("span", Quantity::Text(name.to_owned())),
        measure("share", Quantity::Double(0.25)),
    ]
}

fn status(status: u16, replayed: bool) -> Answer {
    Answer::Status {
        status,
        replayed,
        problem: None,
        retry_after: None,
    }
}

fn fresh() -> Answer {
    status(201, false)
}

fn replayed() -> Answer {
    status(201, true)
}

fn lost() -> Answer {
    Answer::Lost {
        error: "reset".to_owned(),
    }
}

/// A span that was sampled beyond its end and taken back, an update, retries, a repeat, and events
/// that are wrong.
fn sound() -> Scene {
    let mut scene = Scene::default();
    scene.start("a", BEGIN);
    scene.answer("a", lost());
    scene.answer("a", status(503, false));
    scene.answer("a", replayed());
    scene.start("while-open", BEGIN + 5);
    scene.answer("while-open", status(409, false));
    scene.stop("before", BEGIN - 1);
    scene.answer("before", status(422, false));
    scene.stop("b", BEGIN + 2 * HOUR);
    scene.answer("b", fresh());
    scene.start("c", BEGIN + 2 * HOUR);
    scene.answer("c", fresh());
    scene.answer("a", replayed());
    scene.stop("d", BEGIN + 3 * HOUR);
    scene.answer("d", fresh());
    scene.start("inside", BEGIN + 1);
    scene.answer("inside", status(422, false));
    let other = start_body("a", BEGIN + 4 * HOUR, &Scene::target(), 9, "taken");
    scene.event("taken", Kind::Start, other);
    scene.answer("taken", status(409, false));
    scene.event("malformed", Kind::Start, json!({ "id": "malformed" }));
    scene.answer("malformed", status(400, false));
    scene.span("a", BEGIN, BEGIN + 2 * HOUR);
    scene.sample("a", BEGIN, BEGIN + 5 * HOUR);
    scene.sample("a", BEGIN + 5 * HOUR, BEGIN + 2 * HOUR);
    scene.span("c", BEGIN + 2 * HOUR, BEGIN + 3 * HOUR);
    scene.sample("c", BEGIN + 2 * HOUR, BEGIN + 3 * HOUR);
    scene
}

/// The sound scene with something else done to it.
fn spoilt(spoil: impl FnOnce(&mut Scene)) -> Vec<Rule> {
    let mut scene = sound();
    spoil(&mut scene);
    scene.broken()
}

/// The sound scene with another answer to the last attempt of an event.
fn answered(name: &str, answer: Answer) -> Vec<Rule> {
    spoilt(|scene| {
        let attempts = scene.evidence.records.iter_mut().rev();
        let mut attempts = attempts.filter_map(|record| match record {
            Record::Attempt(attempt) if attempt.event == name => Some(attempt),
            _ => None,
        });
        attempts.next().unwrap().answer = answer;
    })
}

#[test]
fn a_sound_run_is_right() {
    let verdict = check(&sound().evidence);
    assert_eq!(verdict.violations, []);
    assert_eq!((verdict.spans, verdict.uncertain), (2, 0));
    assert!(verdict.corrections > 2, "{verdict:?}");
}

#[test]
fn any_usage_that_does_not_count_is_noticed() {
    for number in 0..sound().evidence.counted.len() {
        let broken = spoilt(|scene| _ = scene.evidence.counted.remove(number));
        assert!(broken.contains(&Rule::Ledger), "{number}: {broken:?}");
    }
}

#[test]
fn any_usage_that_counts_twice_is_noticed() {
    for number in 0..sound().evidence.counted.len() {
        let broken = spoilt(|scene| {
            let mut again = scene.evidence.counted[number].clone();
            again.dedup_id.push_str("-planned-again");
            scene.evidence.counted.push(again);
        });
        assert!(broken.contains(&Rule::Ledger), "{number}: {broken:?}");
    }
}

#[test]
fn an_acknowledged_start_that_is_lost_is_noticed() {
    let broken = spoilt(|scene| {
        let evidence = &mut scene.evidence;
        evidence.counted.retain(|usage| usage.tag() != Some("c"));
        evidence.ledger.retain(|entry| entry.tag() != "c");
        evidence.shown.retain(|span| span.id != "span of c");
    });
    assert_eq!(broken, [Rule::Billed]);
}

#[test]
fn an_acknowledged_stop_that_is_lost_is_noticed() {
    let broken = spoilt(|scene| {
        scene.sample("c", BEGIN + 3 * HOUR, BEGIN + 9 * HOUR);
        scene.evidence.shown[1].end = Some(BEGIN + 9 * HOUR);
    });
    assert_eq!(broken, [Rule::Verified]);
}

#[test]
fn whatever_was_refused_and_is_billed_is_noticed() {
    for name in ["while-open", "inside", "taken", "malformed"] {
        let broken = spoilt(|scene| {
            scene.span(name, BEGIN, BEGIN + 1);
            scene.bill(name, BEGIN, BEGIN + 1);
        });
        assert_eq!(broken, [Rule::RefusedNotBilled], "{name}");
    }
}

#[test]
fn what_nobody_has_started_is_noticed() {
    let billed = |name| {
        spoilt(|scene| {
            scene.span(name, BEGIN, BEGIN + 1);
            scene.bill(name, BEGIN, BEGIN + 1);
        })
    };
    assert_eq!(billed("nobody"), [Rule::UsageKnown]);
    // A stop starts nothing.
    assert_eq!(billed("b"), [Rule::BilledOnce, Rule::UsageKnown]);
    let without_tag = |scene: &mut Scene| {
        scene.evidence.counted[0].measures.remove(1);
    };
    assert_eq!(spoilt(without_tag), [Rule::Ledger]);
}

#[test]
fn a_usage_of_another_target_or_measure_is_noticed() {
    let broken = spoilt(|scene| scene.evidence.counted[0].target = target(0, 1));
    assert_eq!(broken, [Rule::Ledger]);
    let broken = spoilt(|scene| scene.evidence.ledger[0].target = target(0, 1));
    assert_eq!(broken, [Rule::TargetKept, Rule::Ledger]);
    let of_both = |scene: &mut Scene| {
        scene.evidence.counted[0].target = target(0, 1);
        scene.evidence.ledger[0].target = target(0, 1);
    };
    assert_eq!(spoilt(of_both), [Rule::TargetKept]);
    let with = |measure: usize, quantity| {
        spoilt(|scene| scene.evidence.counted[0].measures[measure].quantity = quantity)
    };
    assert_eq!(with(2, Quantity::Double(0.5)), [Rule::Ledger]);
    assert_eq!(with(0, Quantity::Integer(8)), [Rule::Ledger]);
    let broken = spoilt(|scene| _ = scene.evidence.counted[0].measures.remove(0));
    assert_eq!(broken, [Rule::Ledger]);
    let broken = spoilt(|scene| scene.evidence.counted[0].measures.swap(0, 2));
    assert_eq!(broken, [Rule::Ledger]);
}

#[test]
fn answers_that_no_client_should_get_are_noticed() {
    let with = |answer| spoilt(|scene| scene.answer("a", answer));
    assert_eq!(with(status(500, false)), [Rule::NoInternalError]);
    assert_eq!(with(status(502, false)), [Rule::DocumentedAnswer]);
    assert_eq!(with(status(200, false)), [Rule::DocumentedAnswer]);
    assert_eq!(with(status(409, false)), [Rule::RepeatAccepted]);
    assert_eq!(with(status(503, false)), []);
    assert_eq!(with(lost()), []);
    // Its first 201 said that it was kept before; so this one is the first that says "just now".
    assert_eq!(with(fresh()), []);
    assert_eq!(spoilt(|scene| scene.answer("b", fresh())), [Rule::KeptOnce]);
    assert_eq!(spoilt(|scene| scene.answer("b", replayed())), []);
}

#[test]
fn what_is_wrong_must_be_refused() {
    assert_eq!(answered("before", fresh()), [Rule::WrongRefused]);
    assert_eq!(answered("malformed", fresh()), [Rule::MalformedRefused]);
    assert_eq!(answered("taken", fresh()), [Rule::IdTaken]);
    for name in ["while-open", "inside"] {
        let broken = answered(name, fresh());
        assert!(broken.contains(&Rule::WrongRefused), "{name}: {broken:?}");
    }
}

#[test]
fn what_is_right_must_be_accepted() {
    let broken = answered("d", status(422, false));
    assert!(broken.contains(&Rule::RightAccepted), "{broken:?}");
    let broken = answered("c", status(409, false));
    assert!(broken.contains(&Rule::RightAccepted), "{broken:?}");
}

#[test]
fn an_event_without_answer_is_noticed_unless_it_is_given_up() {
    let send = |scene: &mut Scene| {
        scene.start("e", BEGIN + 4 * HOUR);
        scene.answer("e", status(503, false));
    };
    assert_eq!(spoilt(send), [Rule::Answered]);
    let give_up = |scene: &mut Scene| {
        send(scene);
        scene.gives_up();
    };
    assert_eq!(spoilt(give_up), []);
}

/// A start that was given up, a stop that says whether it was kept, and what is billed.
fn given_up(answer: Answer, bill: &[(i64, i64)]) -> Vec<Rule> {
    spoilt(|scene| {
        scene.start("e", BEGIN + 4 * HOUR);
        scene.gives_up();
        scene.answer("e", lost());
        scene.stop("f", BEGIN + 6 * HOUR);
        scene.answer("f", answer);
        if !bill.is_empty() {
            scene.span("e", BEGIN + 4 * HOUR, BEGIN + 6 * HOUR);
        }
        for (from, to) in bill {
            scene.sample("e", BEGIN + from * HOUR, BEGIN + to * HOUR);
        }
    })
}

#[test]
fn what_was_given_up_is_billed_once_or_not_at_all() {
    let refused = || status(422, false);
    assert_eq!(given_up(fresh(), &[(4, 6)]), []);
    assert_eq!(given_up(fresh(), &[(4, 8), (8, 6)]), []);
    assert_eq!(given_up(refused(), &[]), []);
    assert_eq!(given_up(fresh(), &[(4, 6), (4, 6)]), [Rule::Verified]);
    assert_eq!(given_up(fresh(), &[(4, 5)]), [Rule::Verified]);
    assert_eq!(given_up(fresh(), &[]), [Rule::Billed]);
    let broken = given_up(refused(), &[(4, 6)]);
    assert!(
        matches!(broken[..], [Rule::RefusedNotBilled | Rule::Incomplete]),
        "{broken:?}"
    );
}

#[test]
fn a_stop_that_was_given_up_may_have_counted_and_may_not() {
    let broken_by = |answer: Answer, to: i64| {
        spoilt(|scene| {
            scene.start("e", BEGIN + 4 * HOUR);
            scene.answer("e", fresh());
            scene.stop("f", BEGIN + 5 * HOUR);
            scene.gives_up();
            scene.answer("f", lost());
            scene.stop("g", BEGIN + 6 * HOUR);
            scene.answer("g", answer);
            scene.span("e", BEGIN + 4 * HOUR, BEGIN + to * HOUR);
            scene.sample("e", BEGIN + 4 * HOUR, BEGIN + to * HOUR);
        })
    };
    assert_eq!(broken_by(fresh(), 6), []);
    assert_eq!(broken_by(status(422, false), 5), []);
    assert_eq!(broken_by(fresh(), 5), [Rule::Verified]);
    assert_eq!(broken_by(status(422, false), 6), [Rule::Verified]);
}

#[test]
fn spans_that_are_left_are_noticed() {
    let incomplete = |scene: &mut Scene| scene.evidence.shown[0].state = "stopped".to_owned();
    assert_eq!(spoilt(incomplete), [Rule::Incomplete]);
    let never_stopped = |scene: &mut Scene| {
        scene.start("e", BEGIN + 4 * HOUR);
        scene.answer("e", fresh());
    };
    assert_eq!(spoilt(never_stopped), [Rule::Incomplete]);
}

#[test]
fn what_abacus_puts_aside_and_programs_that_die_are_noticed() {
    let aside = Aside {
        dedup_id: "1".to_owned(),
        reason: "late".to_owned(),
    };
    assert_eq!(
        spoilt(|scene| scene.evidence.aside.push(aside)),
        [Rule::PutAside]
    );
    let death = ProgramEnd {
        at: 0,
        program: "worker-1".to_owned(),
        how: "code 101".to_owned(),
    };
    let died = |scene: &mut Scene| scene.evidence.records.push(Record::ProgramEnded(death));
    assert_eq!(spoilt(died), [Rule::ProgramLives]);
}

/// A fault of a span by the name that the verifier has for it, and what is planted.
type Fault = (&'static str, fn(&mut Scene));

/// The place of a usage in the middle of a span.
const PLACE: usize = 2;

/// The verifier has more of them in its own tests; here is one for each thing that it is told. What is
/// planted is the same in the bill and in the ledger.
const FAULTS: &[Fault] = &[
    ("not-adjacent", |scene| {
        scene.evidence.ledger.remove(PLACE);
        scene.evidence.counted.remove(PLACE);
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
    ("proof", |scene| scene.evidence.shown[0].proof.billed += 1),
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

#[test]
fn the_verifier_names_each_planted_fault() {
    for (name, plant) in FAULTS {
        let mut scene = sound();
        plant(&mut scene);
        let violations = check(&scene.evidence).violations;
        let mut by_verifier = violations.iter().filter(|it| it.rule == Rule::Verified);
        let is_named = by_verifier.any(|it| it.detail.starts_with(&format!("{name}:")));
        assert!(is_named, "{name}: {violations:?}");
    }
}

#[test]
fn a_start_with_two_spans_and_a_span_that_the_api_does_not_show_are_noticed() {
    let twice = |scene: &mut Scene| scene.span("c", BEGIN + 2 * HOUR, BEGIN + 2 * HOUR);
    assert_eq!(spoilt(twice), [Rule::BilledOnce]);
    let hidden = |scene: &mut Scene| drop(scene.evidence.shown.pop());
    assert_eq!(spoilt(hidden), [Rule::Billed, Rule::Ledger]);
}
