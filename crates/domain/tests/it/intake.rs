//! The rule of starts and stops, case by case.

use sampler_domain::{
    ClientId, Field, IntakeRules, NotEnded, Refusal, Slack, Span, StartDecision, StartEvent,
    StopDecision, StopEvent, Timestamp, decide_start, decide_stop,
};

use crate::support::{id, moment, span};

const START: Timestamp = Timestamp::clamped(1_000);
const SLACK: i64 = 100;

fn rules() -> IntakeRules {
    IntakeRules {
        slack: Slack {
            past: SLACK,
            future: SLACK,
        },
        lenient_repeats: false,
    }
}

fn lenient() -> IntakeRules {
    IntakeRules {
        lenient_repeats: true,
        ..rules()
    }
}

/// A start at a time, under the id that [`span`] was started by.
fn start_at(millis: i64) -> StartEvent {
    span(moment(millis)).start_event()
}

fn stop_at(millis: i64) -> StopEvent {
    StopEvent {
        id: Some(id("stop")),
        timestamp: moment(millis),
        target: span(START).target,
    }
}

fn open() -> Span {
    span(START)
}

fn ended() -> Span {
    open().ended(&stop_at(2_000), None)
}

fn until(millis: i64) -> NotEnded {
    NotEnded {
        is_open: false,
        until: Some(moment(millis)),
    }
}

fn is_open() -> NotEnded {
    NotEnded {
        is_open: true,
        until: None,
    }
}

#[test]
fn a_start_is_the_one_with_its_id_or_finds_room_or_is_refused() {
    let both = NotEnded {
        is_open: true,
        ..until(2_000)
    };
    let overlaps = Refusal::Overlaps {
        until: moment(2_000),
    };
    for (others, expected) in [
        (NotEnded::default(), Ok(StartDecision::Open)),
        (is_open(), Err(Refusal::AlreadyOpen)),
        (both, Err(Refusal::AlreadyOpen)),
        (until(2_000), Err(overlaps)),
    ] {
        let decision = decide_start(&start_at(1_000), None, others);
        assert_eq!(decision, expected, "{others:?}");
        // Whatever came after it.
        let earlier = ended();
        let repeated = decide_start(&start_at(1_000), Some(&earlier), others);
        assert_eq!(repeated, Ok(StartDecision::Repeated(&earlier)));
        let differs = decide_start(&start_at(1_001), Some(&earlier), others);
        let taken = Refusal::IdTaken(vec![Field::Timestamp]);
        assert_eq!(differs, Err(taken));
    }
}

#[test]
fn a_span_that_ends_at_a_start_has_ended() {
    let ends = |millis: &[i64]| {
        let ends = millis.iter().map(|end| Some(moment(*end)));
        NotEnded::by(START, ends)
    };
    assert_eq!(ends(&[999, 1_000]), NotEnded::default());
    assert_eq!(ends(&[1_000, 1_001]), until(1_001));
    assert_eq!(ends(&[3_000, 2_000]), until(3_000));
    assert_eq!(ends(&[2_000, 3_000]), until(3_000));
    assert_eq!(NotEnded::by(START, [None]), is_open());
}

#[test]
fn a_stop_is_the_one_with_its_id_or_ends_the_open_span_or_is_refused() {
    let (earlier, open) = (ended(), open());
    let before = Refusal::BeforeStart { start: START };
    for (millis, open, expected) in [
        (1_000, Some(&open), Ok(StopDecision::End(&open))),
        (1_001, Some(&open), Ok(StopDecision::End(&open))),
        (999, Some(&open), Err(before)),
        (1_000, None, Err(Refusal::NotOpen)),
    ] {
        assert_eq!(decide_stop(&stop_at(millis), None, open), expected);
        // Even if the next span is open.
        let decide = |millis| decide_stop(&stop_at(millis), Some(&earlier), open);
        assert_eq!(decide(2_000), Ok(StopDecision::Repeated(&earlier)));
        let taken = Refusal::IdTaken(vec![Field::Timestamp]);
        assert_eq!(decide(2_001), Err(taken));
    }
}

#[test]
fn a_stop_changes_the_end_who_set_it_and_the_version_alone() {
    let client = ClientId::new("broker");
    let mut expected = Span {
        end: Some(moment(2_000)),
        end_id: Some(id("stop")),
        stop_client: client.clone(),
        ..open()
    };
    expected.processing.version += 1;
    assert_eq!(open().ended(&stop_at(2_000), client), expected);
}

#[test]
fn an_event_outside_the_slack_is_accepted_only_as_a_repeat() {
    let (open, ended) = (open(), ended());
    let now = moment(1_000 + SLACK + 1);
    let (start, stop) = (start_at(1_000), stop_at(1_000));
    let outside = Refusal::OutsideSlack {
        slack: rules().slack,
        now,
    };
    let started = |by_id| rules().admit_start(&start, by_id, NotEnded::default(), now);
    assert_eq!(started(None), Err(outside.clone()));
    assert_eq!(started(Some(&open)), Ok(StartDecision::Repeated(&open)));
    // The slack comes first: what else is in the way is not told.
    let refused = rules().admit_start(&start, None, is_open(), now);
    assert_eq!(refused, Err(outside.clone()));

    let stopped = |by_id| rules().admit_stop(&stop, by_id, Some(&open), now);
    assert_eq!(stopped(None), Err(outside));
    let taken = Refusal::IdTaken(vec![Field::Timestamp]);
    assert_eq!(stopped(Some(&ended)), Err(taken));

    let in_time = moment(1_000 + SLACK);
    let admitted = rules().admit_start(&start, None, NotEnded::default(), in_time);
    assert_eq!(admitted, Ok(StartDecision::Open));
    let admitted = rules().admit_stop(&stop, None, Some(&open), in_time);
    assert_eq!(admitted, Ok(StopDecision::End(&open)));
}

#[test]
fn a_lenient_repeat_may_differ_in_all_but_the_target() {
    let (open, ended) = (open(), ended());
    let (start, stop) = (start_at(1_001), stop_at(2_001));
    let now = moment(1_001);
    let started = lenient().admit_start(&start, Some(&open), NotEnded::default(), now);
    assert_eq!(started, Ok(StartDecision::Repeated(&open)));
    let stopped = lenient().admit_stop(&stop, Some(&ended), None, now);
    assert_eq!(stopped, Ok(StopDecision::Repeated(&ended)));

    let mut elsewhere = start;
    elsewhere.target.plan_id = id("other");
    let refused = lenient().admit_start(&elsewhere, Some(&open), NotEnded::default(), now);
    let differences = vec![Field::Target("plan_id"), Field::Timestamp];
    assert_eq!(refused, Err(Refusal::IdTaken(differences)));
}
