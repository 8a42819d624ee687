//! The ledger, what is on no bill, and what operators did.

use super::*;
use crate::evidence::{Post, Trace};
use crate::history::{Act, ActKind, FaultRecord};
use crate::schedule::WORKER_KILLED;

#[test]
fn each_way_in_which_the_ledger_and_the_bill_can_differ_is_noticed() {
    let spoilt = |spoil: fn(&mut Vec<Entry>)| {
        let mut scene = sound();
        spoil(&mut scene.evidence.ledger);
        scene.broken()
    };
    let both = [Rule::Verified, Rule::Ledger];
    assert_eq!(spoilt(|ledger| drop(ledger.pop())), both);
    assert_eq!(spoilt(|ledger| ledger.push(ledger[0].clone())), both);
    assert_eq!(spoilt(|ledger| ledger[0].usage.duration += 1), both);
    assert_eq!(
        spoilt(|ledger| ledger[0].usage.timestamp += 1),
        [Rule::Ledger]
    );
    assert_eq!(
        spoilt(|ledger| ledger[0].usage.id.push('x')),
        [Rule::Ledger]
    );
    let of_no_span = |ledger: &mut Vec<Entry>| ledger[0].usage.span.push('x');
    assert_eq!(spoilt(of_no_span), both);
}

/// The ledger of the sound scene with the state of one entry changed, and its usage on no bill.
fn with_off(place: usize, state: &str) -> Scene {
    let mut scene = sound();
    let evidence = &mut scene.evidence;
    let usage = &mut evidence.ledger[place].usage;
    state.clone_into(&mut usage.state);
    // It was skipped since it was refused, or a resend of it was refused.
    usage.status = Some(400);
    let (id, duration) = (usage.id.clone(), usage.duration);
    evidence.counted.retain(|usage| usage.dedup_id != id);
    if state == "set_aside" {
        evidence.aside.push(Aside {
            dedup_id: id,
            reason: ASIDE_REASON.to_owned(),
        });
        return scene;
    }
    let proof = scene.proof(place);
    proof.billed -= duration;
    proof.skipped += duration;
    proof.usages -= 1;
    scene.act(ActKind::Skip, Some(id), status(200, false), Some("done"));
    scene
}

impl Scene {
    /// The proof of the span of an entry.
    fn proof(&mut self, place: usize) -> &mut Proof {
        let span = &self.evidence.ledger[place].usage.span;
        let mut spans = self.evidence.shown.iter_mut();
        &mut spans.find(|it| it.id == *span).unwrap().proof
    }

    fn act(&mut self, kind: ActKind, usage: Option<String>, answer: Answer, trail: Option<&str>) {
        let reason = format!("reason {}", self.evidence.records.len());
        self.evidence.records.push(Record::Act(Act {
            kind,
            at: 5,
            took: 1,
            subject: "/v1/spans/1".to_owned(),
            usage,
            reason: reason.clone(),
            answer,
        }));
        self.evidence.trail.extend(trail.map(|outcome| Trace {
            reason,
            outcome: outcome.to_owned(),
        }));
    }

    fn fault(&mut self, kind: &str, from: i64, to: i64) {
        for (at, phase) in [(from, "begins"), (to, "is over")] {
            self.evidence.records.push(Record::Fault(FaultRecord {
                at,
                fault: format!("{kind}: details"),
                phase: phase.to_owned(),
            }));
        }
    }

    /// The usage of an entry counts all the same, and was posted like that.
    fn counts(&mut self, place: usize, posts: &[(i64, Option<u16>, bool)]) {
        let id = self.evidence.ledger[place].usage.id.clone();
        let sound = sound().evidence.counted;
        let usage = sound.into_iter().find(|usage| usage.dedup_id == id);
        self.evidence.counted.push(usage.unwrap());
        for (at, status, counted) in posts {
            self.evidence.posts.push(Post {
                at: *at,
                dedup_id: id.clone(),
                status: *status,
                counted: *counted,
            });
        }
    }

    /// The ledger tells that a post of the usage of this entry had no answer.
    fn tell_unanswered(&mut self, place: usize) {
        let usage = &mut self.evidence.ledger[place].usage;
        usage.unanswered = true;
        let duration = usage.duration;
        self.proof(place).unanswered += duration;
    }

    fn verdict(&self) -> Verdict {
        check(&self.evidence)
    }
}

/// An entry of an hour that is used, and one of an hour that is taken back.
fn used_and_taken_back() -> (usize, usize) {
    let ledger = sound().evidence.ledger;
    let mut usages = ledger.iter().map(|entry| &entry.usage);
    let back = usages.find(|usage| usage.duration == -HOUR).unwrap();
    let mut usages = ledger.iter().map(|entry| &entry.usage);
    let place =
        usages.position(|usage| usage.duration == HOUR && usage.timestamp == back.timestamp);
    (0, place.unwrap())
}

#[test]
fn what_was_skipped_or_set_aside_is_on_no_bill_and_everything_else_is() {
    let (used, _) = used_and_taken_back();
    for state in ["skipped", "set_aside"] {
        let verdict = with_off(used, state).verdict();
        assert_eq!(verdict.violations, [], "{state}");
        assert_eq!(verdict.skipped + verdict.set_aside, 1);
        let mut scene = with_off(used, state);
        scene.evidence.counted.pop();
        assert_eq!(scene.broken(), [Rule::Ledger], "{state}");
    }
}

#[test]
fn a_skip_that_nobody_asked_for_and_an_answer_that_denies_it_are_noticed() {
    let mut scene = with_off(0, "skipped");
    scene.evidence.records.pop();
    scene.evidence.trail.clear();
    assert_eq!(scene.broken(), [Rule::SkippedOnDemand]);
    let id = scene.evidence.ledger[0].usage.id.clone();
    scene.act(ActKind::Skip, Some(id.clone()), status(412, false), None);
    assert_eq!(scene.broken(), [Rule::SkippedOnDemand]);
    scene.act(ActKind::Skip, Some(id), lost(), None);
    assert_eq!(scene.broken(), []);
    let mut scene = with_off(0, "set_aside");
    scene.evidence.aside.clear();
    assert_eq!(scene.broken(), [Rule::PutAside]);
    let mut scene = with_off(0, "set_aside");
    scene.evidence.ledger[0].pending = true;
    assert_eq!(scene.broken(), [Rule::Unsettled]);
}

#[test]
fn a_usage_that_counts_and_is_on_no_bill_is_noticed_unless_nobody_could_know() {
    let with = |state: &str, posts: &[(i64, Option<u16>, bool)], fault: Option<&str>| {
        let mut scene = with_off(0, state);
        scene.counts(0, posts);
        if let Some(kind) = fault {
            scene.fault(kind, 0, 1_000);
        }
        let verdict = scene.verdict();
        let rules: Vec<Rule> = verdict.violations.iter().map(|it| it.rule).collect();
        (rules, verdict.undecidable)
    };
    let none = Undecidable::default();
    let late = [(0, Some(400), false), (1_000, Some(202), true)];
    assert_eq!(with("skipped", &late, None).0, [Rule::Ledger]);
    let (rules, undecidable) = with("skipped", &late, Some(WORKER_KILLED));
    assert_eq!(
        (rules, undecidable),
        (vec![], Undecidable { late: 1, ..none })
    );
    let long_after = [(0, Some(400), false), (60_000, Some(202), true)];
    assert_eq!(
        with("skipped", &long_after, Some(WORKER_KILLED)).0,
        [Rule::Ledger]
    );
    let early = [(0, None, true), (1_000, Some(400), false)];
    let counted = Undecidable { early: 1, ..none };
    assert_eq!(
        with("skipped", &early, None),
        (vec![Rule::Ledger], counted),
        "nobody is told"
    );
    for fault in [WORKER_KILLED, COMMANDS_REFUSED] {
        assert_eq!(with("skipped", &early, Some(fault)), (vec![], counted));
    }
    let mut scene = with_off(0, "skipped");
    scene.counts(0, &early);
    scene.tell_unanswered(0);
    let verdict = scene.verdict();
    let told = Undecidable { told: 1, ..counted };
    assert_eq!((verdict.violations, verdict.undecidable), (vec![], told));
    let twice = [(0, Some(202), false), (1, Some(202), true)];
    let (rules, undecidable) = with("set_aside", &twice, None);
    assert_eq!(
        (rules, undecidable),
        (vec![], Undecidable { again: 1, ..none })
    );
}

#[test]
fn an_hour_below_zero_is_noticed_unless_it_was_not_known_to_be_set_aside() {
    let (_, taken_back) = used_and_taken_back();
    assert_eq!(with_off(taken_back, "skipped").broken(), [Rule::BelowZero]);
    assert_eq!(
        with_off(taken_back, "set_aside").broken(),
        [Rule::BelowZero]
    );
    let known_at = |at| {
        let mut scene = with_off(taken_back, "set_aside");
        let ledger = &mut scene.evidence.ledger;
        for entry in ledger.iter_mut() {
            entry.planned_at = 7;
        }
        ledger[taken_back].set_aside_at = Some(at);
        scene.verdict()
    };
    let apart = 5 * 60_000;
    assert_eq!(known_at(6 - apart).violations[0].rule, Rule::BelowZero);
    let verdict = known_at(7 - apart);
    assert_eq!(
        (verdict.violations, verdict.undecidable.unknown),
        (vec![], 1)
    );
}

#[test]
fn what_is_withheld_must_take_back_what_is_on_no_bill() {
    let (_, taken_back) = used_and_taken_back();
    let withheld = |is_off: bool| {
        let mut scene = with_off(taken_back, "set_aside");
        let ledger = &mut scene.evidence.ledger;
        let forward = ledger[taken_back].clone();
        let is_its = |entry: &&mut Entry| entry.usage.duration < 0 && entry.is_part_of(&forward);
        let back = ledger.iter_mut().find(is_its).unwrap();
        (back.withheld, back.usage.state) = (true, "set_aside".to_owned());
        let id = back.usage.id.clone();
        if !is_off {
            ledger[taken_back].usage.state = "counted".to_owned();
        }
        let counted = &mut scene.evidence.counted;
        counted.retain(|usage| usage.dedup_id != id);
        scene.broken()
    };
    assert_eq!(withheld(true), []);
    assert!(withheld(false).contains(&Rule::Withheld));
}

/// It was withheld, because what it takes back was skipped, and refused once that was sent again.
#[test]
fn what_takes_back_a_usage_that_was_sent_again_may_be_refused() {
    let (_, taken_back) = used_and_taken_back();
    let forward = sound().evidence.ledger.swap_remove(taken_back);
    let is_its = |entry: &Entry| entry.usage.duration < 0 && entry.is_part_of(&forward);
    let back = sound().evidence.ledger.iter().position(is_its).unwrap();
    for (state, broken) in [
        ("skipped", Rule::SkippedOnDemand),
        ("set_aside", Rule::PutAside),
    ] {
        let mut scene = with_off(back, state);
        let evidence = &mut scene.evidence;
        evidence.aside.clear();
        evidence.trail.clear();
        evidence
            .records
            .retain(|record| !matches!(record, Record::Act(_)));
        assert_eq!(scene.broken(), [broken]);
        let id = Some(forward.usage.id.clone());
        scene.act(ActKind::Resend, id, status(202, false), Some("done"));
        assert_eq!(scene.broken(), []);
        scene.evidence.ledger[back].usage.status = Some(202);
        assert_eq!(scene.broken(), [broken]);
    }
}

#[test]
fn answers_to_operators_and_the_trail_must_agree() {
    let broken = |kind, answer, trail| {
        let mut scene = sound();
        scene.act(kind, None, answer, trail);
        scene.broken()
    };
    let (resume, resend) = (ActKind::Resume, ActKind::Resend);
    assert_eq!(broken(resume, status(200, false), Some("done")), []);
    assert_eq!(broken(resume, status(200, false), Some("asked")), []);
    assert_eq!(broken(resume, status(200, false), None), [Rule::Trail]);
    assert_eq!(
        broken(resume, status(200, false), Some("refused")),
        [Rule::Trail]
    );
    assert_eq!(broken(resume, status(412, false), None), []);
    assert_eq!(broken(resume, status(412, false), Some("refused")), []);
    assert_eq!(
        broken(resume, status(412, false), Some("done")),
        [Rule::Trail]
    );
    assert_eq!(broken(resume, lost(), Some("done")), []);
    assert_eq!(broken(resend, status(409, false), None), []);
    assert_eq!(
        broken(resend, status(412, false), None),
        [Rule::DocumentedAnswer]
    );
    assert_eq!(broken(resend, status(503, false), Some("asked")), []);
    assert_eq!(broken(resume, status(503, false), Some("unknown")), []);
    assert_eq!(broken(resume, lost(), Some("unknown")), []);
    assert_eq!(
        broken(resume, status(200, false), Some("unknown")),
        [Rule::Trail]
    );
    assert_eq!(
        broken(resume, status(412, false), Some("unknown")),
        [Rule::Trail]
    );
    assert_eq!(
        broken(resend, status(500, false), None),
        [Rule::NoInternalError]
    );
}

#[test]
fn a_500_is_right_only_while_the_database_was_told_to_refuse() {
    let answered = |from| {
        let mut scene = sound();
        scene.fault(COMMANDS_REFUSED, from, from + 10);
        scene.act(ActKind::Resend, None, status(500, false), Some("asked"));
        scene.broken()
    };
    assert_eq!(answered(0), []);
    assert_eq!(answered(100), [Rule::NoInternalError]);
}
