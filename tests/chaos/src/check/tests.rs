//! Sound histories are right, and each way to spoil one is noticed.

use serde_json::json;

mod ledger;

use super::*;
use crate::event::{DURATION, Measure, start_body, stop_body, target};
use crate::evidence::{Aside, Entry, Usage};
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

    /// A usage of the span that `name` started.
    fn bill(&mut self, name: &str, from: i64, to: i64) {
        let measure = |measure: &str, quantity| Measure {
            measure: measure.to_owned(),
            quantity,
        };
        self.evidence.counted.push(Usage {
            at: 0,
            dedup_id: format!("{name}/{from}/{to}"),
            midpoint: (from + to).div_euclid(2),
            target: Self::target(),
            measures: vec![
                measure("memory", json!(7.0)),
                measure("span", json!(name)),
                measure("share", json!(0.25)),
                measure(DURATION, json!(to - from)),
            ],
        });
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

    fn span(&mut self, name: &str) {
        let document = json!({ "start_dedup_id": name });
        self.evidence.spans.push(Span {
            start_id: name.to_owned(),
            complete: true,
            document,
        });
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
    scene.sample("a", BEGIN, BEGIN + 5 * HOUR);
    scene.sample("a", BEGIN + 5 * HOUR, BEGIN + 2 * HOUR);
    scene.sample("c", BEGIN + 2 * HOUR, BEGIN + 3 * HOUR);
    scene.span("a");
    scene.span("c");
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
fn any_usage_that_is_missing_is_noticed() {
    for number in 0..sound().evidence.counted.len() {
        let broken = spoilt(|scene| _ = scene.evidence.counted.remove(number));
        assert!(
            matches!(broken[..], [Rule::Billed | Rule::BilledOnce]),
            "{number}: {broken:?}"
        );
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
        assert!(
            matches!(broken[..], [Rule::Billed | Rule::BilledOnce]),
            "{number}: {broken:?}"
        );
    }
}

#[test]
fn an_acknowledged_start_that_is_lost_is_noticed() {
    let broken = spoilt(|scene| {
        scene
            .evidence
            .counted
            .retain(|usage| usage.tag() != Some("c"));
    });
    assert_eq!(broken, [Rule::Billed]);
}

#[test]
fn an_acknowledged_stop_that_is_lost_is_noticed() {
    let broken = spoilt(|scene| scene.sample("c", BEGIN + 3 * HOUR, BEGIN + 9 * HOUR));
    assert_eq!(broken, [Rule::BilledOnce]);
}

#[test]
fn whatever_was_refused_and_is_billed_is_noticed() {
    for name in ["while-open", "inside", "taken", "malformed"] {
        let broken = spoilt(|scene| scene.bill(name, BEGIN, BEGIN + 1));
        assert_eq!(broken, [Rule::RefusedNotBilled], "{name}");
    }
}

#[test]
fn a_usage_of_nobody_is_noticed() {
    assert_eq!(
        spoilt(|scene| scene.bill("nobody", 0, 1)),
        [Rule::UsageKnown]
    );
    // A stop starts nothing.
    assert_eq!(spoilt(|scene| scene.bill("b", 0, 1)), [Rule::UsageKnown]);
    let without_tag = |scene: &mut Scene| {
        scene.bill("a", 0, 1);
        scene
            .evidence
            .counted
            .last_mut()
            .unwrap()
            .measures
            .remove(1);
    };
    assert_eq!(spoilt(without_tag), [Rule::UsageKnown]);
}

#[test]
fn a_usage_of_another_target_or_measure_is_noticed() {
    let broken = spoilt(|scene| scene.evidence.counted[0].target = target(0, 1));
    assert_eq!(broken, [Rule::TargetKept]);
    let broken = spoilt(|scene| scene.evidence.counted[0].measures[2].quantity = json!(0.5));
    assert_eq!(broken, [Rule::MeasuresBilled]);
    let broken = spoilt(|scene| scene.evidence.counted[0].measures[0].quantity = json!(8));
    assert_eq!(broken, [Rule::MeasuresBilled]);
    let broken = spoilt(|scene| _ = scene.evidence.counted[0].measures.remove(0));
    assert_eq!(broken, [Rule::MeasuresBilled]);
}

#[test]
fn the_right_sum_in_the_wrong_hour_is_noticed() {
    let broken = spoilt(|scene| scene.evidence.counted[0].midpoint += HOUR);
    assert_eq!(broken, [Rule::HoursBilled]);
    let broken = spoilt(|scene| {
        scene.bill("c", BEGIN, BEGIN + 1);
        scene.bill("c", BEGIN + HOUR + 1, BEGIN + HOUR);
    });
    assert_eq!(broken, [Rule::HoursBilled]);
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
    assert_eq!(given_up(fresh(), &[(4, 6), (4, 6)]), [Rule::BilledOnce]);
    assert_eq!(given_up(fresh(), &[(4, 5)]), [Rule::Billed]);
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
            scene.sample("e", BEGIN + 4 * HOUR, BEGIN + to * HOUR);
        })
    };
    assert_eq!(broken_by(fresh(), 6), []);
    assert_eq!(broken_by(status(422, false), 5), []);
    assert_eq!(broken_by(fresh(), 5), [Rule::Billed]);
    assert_eq!(broken_by(status(422, false), 6), [Rule::BilledOnce]);
}

#[test]
fn spans_that_are_left_are_noticed() {
    let incomplete = |scene: &mut Scene| scene.evidence.spans[0].complete = false;
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

#[test]
fn a_violation_shows_the_span() {
    let mut scene = sound();
    scene.evidence.counted.pop();
    let violations = check(&scene.evidence).violations;
    assert_eq!(violations[0].subject, "c");
    assert!(
        violations[0].to_string().contains("in the database"),
        "{}",
        violations[0]
    );
}
