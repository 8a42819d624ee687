//! The ledger, what is on no bill, and what operators did.

use super::*;
use crate::evidence::{Post, Proof, Trace};
use crate::history::{Act, ActKind, FaultRecord};
use crate::schedule::WORKER_KILLED;

/// The sound scene with a ledger of all that counts.
fn with_ledger() -> Scene {
    let mut scene = sound();
    let evidence = &mut scene.evidence;
    for (number, span) in evidence.spans.iter_mut().enumerate() {
        let (mut billed, mut usages) = (0, 0);
        for usage in &evidence.counted {
            if usage.tag() == Some(&span.start_id) {
                let duration = usage.duration().unwrap();
                billed += duration;
                usages += 1;
                evidence.ledger.get_or_insert_default().push(Entry {
                    usage_guid: usage.dedup_id.clone(),
                    span: json!(number),
                    target: usage.target.clone(),
                    timestamp: usage.midpoint,
                    duration,
                    state: "accepted".to_owned(),
                    tag: span.start_id.clone(),
                    planned_at: 0,
                    set_aside_at: None,
                    start: usage.midpoint - duration.div_euclid(2),
                    rounds: 0,
                    withheld: false,
                    unanswered: false,
                    pending: false,
                });
            }
        }
        span.document = json!({ "_id": number, "start": BEGIN, "processing": {
            "last_interval": { "start": BEGIN, "end": BEGIN + billed },
            "totals": { "billed": billed, "usages": usages },
        } });
    }
    scene
}

#[test]
fn a_ledger_that_agrees_is_right_and_each_way_to_spoil_it_is_noticed() {
    assert_eq!(with_ledger().broken(), []);
    let spoilt = |spoil: fn(&mut Vec<Entry>)| {
        let mut scene = with_ledger();
        spoil(scene.evidence.ledger.as_mut().unwrap());
        scene.broken()
    };
    assert_eq!(spoilt(|ledger| drop(ledger.pop())), [Rule::Ledger]);
    assert_eq!(
        spoilt(|ledger| ledger.push(ledger[0].clone())),
        [Rule::Ledger]
    );
    assert_eq!(spoilt(|ledger| ledger[0].duration += 1), [Rule::Ledger]);
    assert_eq!(spoilt(|ledger| ledger[0].timestamp += 1), [Rule::Ledger]);
    let of_nothing = |ledger: &mut Vec<Entry>| ledger[0].usage_guid.push('x');
    assert_eq!(spoilt(of_nothing), [Rule::Ledger]);
    let mut scene = with_ledger();
    scene.evidence.spans[0].document["processing"]["totals"]["billed"] = json!(1);
    assert_eq!(scene.broken(), [Rule::Ledger]);
    let mut scene = with_ledger();
    scene.evidence.spans[0].document["processing"]["last_interval"]["end"] = json!(BEGIN);
    assert_eq!(scene.broken(), [Rule::Ledger]);
}

/// The ledger of the sound scene with the state of one entry changed, and its usage on no bill.
fn with_off(place: usize, state: &str) -> Scene {
    let mut scene = with_ledger();
    let evidence = &mut scene.evidence;
    let entry = &mut evidence.ledger.as_mut().unwrap()[place];
    entry.state = state.to_owned();
    let (id, duration) = (entry.usage_guid.clone(), entry.duration);
    evidence.counted.retain(|usage| usage.dedup_id != id);
    if state == "set_aside" {
        evidence.aside.push(Aside {
            dedup_id: id,
            reason: ASIDE_REASON.to_owned(),
        });
        return scene;
    }
    let span = entry.span.as_u64().unwrap();
    let totals =
        &mut evidence.spans[usize::try_from(span).unwrap()].document["processing"]["totals"];
    totals["billed"] = json!(totals["billed"].as_i64().unwrap() - duration);
    totals["skipped"] = json!(duration);
    totals["usages"] = json!(totals["usages"].as_i64().unwrap() - 1);
    scene.act(ActKind::Skip, Some(id), status(200, false), Some("done"));
    scene
}

impl Scene {
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
        let id = self.evidence.ledger.as_ref().unwrap()[place]
            .usage_guid
            .clone();
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
        let evidence = &mut self.evidence;
        let entry = &mut evidence.ledger.as_mut().unwrap()[place];
        entry.unanswered = true;
        let span = usize::try_from(entry.span.as_u64().unwrap()).unwrap();
        let totals = &mut evidence.spans[span].document["processing"]["totals"];
        totals["unanswered"] = json!(entry.duration);
    }

    fn verdict(&self) -> Verdict {
        check(&self.evidence)
    }
}

/// An entry of an hour that is used, and one of an hour that is taken back.
fn used_and_taken_back() -> (usize, usize) {
    let scene = with_ledger();
    let ledger = scene.evidence.ledger.as_ref().unwrap();
    let is_back = |entry: &&Entry| entry.duration == -HOUR;
    let back = ledger.iter().find(is_back).unwrap();
    let is_its = |entry: &Entry| entry.duration == HOUR && entry.timestamp == back.timestamp;
    (0, ledger.iter().position(is_its).unwrap())
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
        assert_eq!(scene.broken(), [Rule::Billed, Rule::Ledger], "{state}");
    }
}

#[test]
fn a_skip_that_nobody_asked_for_and_an_answer_that_denies_it_are_noticed() {
    let mut scene = with_off(0, "skipped");
    scene.evidence.records.pop();
    scene.evidence.trail.clear();
    assert_eq!(scene.broken(), [Rule::SkippedOnDemand]);
    let id = scene.evidence.ledger.as_ref().unwrap()[0]
        .usage_guid
        .clone();
    scene.act(ActKind::Skip, Some(id.clone()), status(412, false), None);
    assert_eq!(scene.broken(), [Rule::SkippedOnDemand]);
    scene.act(ActKind::Skip, Some(id), lost(), None);
    assert_eq!(scene.broken(), []);
    let mut scene = with_off(0, "set_aside");
    scene.evidence.aside.clear();
    assert_eq!(scene.broken(), [Rule::PutAside]);
    let mut scene = with_off(0, "set_aside");
    scene.evidence.ledger.as_mut().unwrap()[0].pending = true;
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
        let ledger = scene.evidence.ledger.as_mut().unwrap();
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
        let ledger = scene.evidence.ledger.as_mut().unwrap();
        let forward = ledger[taken_back].clone();
        let is_its = |entry: &&mut Entry| entry.duration < 0 && entry.is_part_of(&forward);
        let back = ledger.iter_mut().find(is_its).unwrap();
        (back.withheld, back.state) = (true, "set_aside".to_owned());
        let id = back.usage_guid.clone();
        if !is_off {
            ledger[taken_back].state = "counted".to_owned();
        }
        let counted = &mut scene.evidence.counted;
        counted.retain(|usage| usage.dedup_id != id);
        scene.broken()
    };
    assert_eq!(withheld(true), []);
    assert!(withheld(false).contains(&Rule::Withheld));
}

#[test]
fn a_proof_that_says_something_else_is_noticed() {
    let proven = |spoil: fn(&mut Proof)| {
        let mut scene = with_off(0, "skipped");
        let evidence = &mut scene.evidence;
        for (number, span) in evidence.spans.iter_mut().enumerate() {
            // The ids of real spans look like that.
            let id = format!("{number}");
            span.document["_id"] = json!({ "$oid": id });
            let document = &span.document["processing"];
            let of = |name: &str| document["totals"][name].as_i64().unwrap_or(0);
            let mut proof = Proof {
                id,
                state: "complete".to_owned(),
                used: of("billed") + of("skipped"),
                billed: of("billed"),
                skipped: of("skipped"),
                unanswered: of("unanswered"),
                difference: 0,
            };
            spoil(&mut proof);
            evidence.proofs.push(proof);
        }
        for entry in evidence.ledger.as_mut().unwrap() {
            entry.span = json!({ "$oid": entry.span.to_string() });
        }
        scene.broken()
    };
    assert_eq!(proven(|_| {}), []);
    assert_eq!(proven(|proof| proof.billed += 1), [Rule::Proof]);
    assert_eq!(proven(|proof| proof.used += 1), [Rule::Proof]);
    assert_eq!(proven(|proof| proof.unanswered = 1), [Rule::Proof]);
    assert_eq!(proven(|proof| proof.difference = 1), [Rule::Proof]);
    assert_eq!(
        proven(|proof| proof.state = "stopped".to_owned()),
        [Rule::Proof]
    );
    assert_eq!(proven(|proof| proof.id.push('x')), [Rule::Proof]);
}

#[test]
fn answers_to_operators_and_the_trail_must_agree() {
    let broken = |kind, answer, trail| {
        let mut scene = with_ledger();
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
        let mut scene = with_ledger();
        scene.fault(COMMANDS_REFUSED, from, from + 10);
        scene.act(ActKind::Resend, None, status(500, false), Some("asked"));
        scene.broken()
    };
    assert_eq!(answered(0), []);
    assert_eq!(answered(100), [Rule::NoInternalError]);
}
