use sampler_api::Problem;
use serde_json::json;

use super::super::mapping::Mapping;
use super::super::usage_event::{Says, What, old_enough};
use super::*;

/// Something named `i`.
fn part(kind: Kind, names: (String, String), quantities: Vec<Measure>) -> Tracked {
    Tracked::new(kind, ["o", "s", "c", "i"], names, quantities, 0)
}

fn process(memory: i64, instances: i64) -> Tracked {
    let names = Mapping::default().process(None);
    part(Kind::Process, names, measures(memory, instances))
}

fn service(plan: &str, guid: &str) -> Tracked {
    let names = Mapping::default().service("p-mysql", plan);
    Tracked {
        plan: Some(guid.to_owned()),
        ..part(Kind::Service, names, one())
    }
}

/// An event about `i`, and what runs from then on or until then.
fn event(guid: &str, at: Millis, what: What, part: Option<Tracked>) -> UsageEvent {
    let part = part.map(|part| Tracked { last: at, ..part });
    let says = Says {
        guid: "i".to_owned(),
        what,
        part,
        was: None,
    };
    UsageEvent {
        guid: guid.to_owned(),
        created_at: format!("t{at}"),
        at,
        state: "STATE".to_owned(),
        says: Some(says),
    }
}

fn starts(guid: &str, at: Millis, now: Tracked) -> UsageEvent {
    event(guid, at, What::Starts, Some(now))
}

fn ends(guid: &str, at: Millis) -> UsageEvent {
    event(guid, at, What::Ends, None)
}

fn notes(guid: &str, at: Millis) -> UsageEvent {
    event(guid, at, What::Noted, Some(process(64, 2)))
}

/// A change of what ran before, to something else.
fn changes(guid: &str, at: Millis, was: i64, now: i64) -> UsageEvent {
    let mut event = event(guid, at, What::Changes, Some(process(now, 1)));
    let says = event.says.as_mut();
    says.unwrap().was = Some(measures(was, 1));
    event
}

/// The event of this id is refused.
fn refused(id: &str, is_open: bool) -> Refused {
    let kind = if is_open { "open-span" } else { "other" };
    let refusal = Refusal {
        line: 0,
        status: 409,
        problem: Problem {
            r#type: format!("/problems/{kind}"),
            ..Problem::default()
        },
    };
    [(id.to_owned(), refusal)].into()
}

/// All steps that follow from events, and what is known then.
fn steps(state: &mut FeedState, mut events: &[UsageEvent], refused: &Refused) -> Vec<Step> {
    let mut steps = Vec::new();
    while !events.is_empty() {
        let (step, count) = state.step(Record::Apps, events);
        state.apply(&step, refused);
        steps.push(step);
        events = &events[count..];
    }
    steps
}

fn bodies(state: &mut FeedState, events: &[UsageEvent], refused: &Refused) -> Vec<Value> {
    let steps = steps(state, events, refused).into_iter();
    let changes = steps.flat_map(|step| step.changes);
    changes.filter_map(|change| change.body).collect()
}

/// What is sent: type, id and timestamp.
fn sent(state: &mut FeedState, events: &[UsageEvent]) -> Vec<String> {
    let bodies = bodies(state, events, &Refused::new()).into_iter();
    let words = bodies.map(|body| {
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        format!("{} {} {}", text("type"), text("id"), body["timestamp"])
    });
    words.collect()
}

/// What nobody recorded: the bound, and between which times it lies.
fn unknown(state: &mut FeedState, events: &[UsageEvent]) -> Vec<(Bound, Option<Millis>, Millis)> {
    let steps = steps(state, events, &Refused::new()).into_iter();
    let unknown = steps
        .flat_map(|step| step.changes)
        .flat_map(|change| change.unknown);
    unknown.map(|it| (it.what, it.from, it.to)).collect()
}

#[test]
fn events_follow_from_what_runs() {
    let nothing = UsageEvent {
        says: None,
        ..ends("4", 35)
    };
    let one = || process(64, 1);
    for (events, expected) in [
        (
            vec![
                ends("0", 5),
                starts("1", 10, one()),
                starts("2", 20, one()),
                starts("3", 30, process(64, 0)),
                nothing,
                ends("5", 40),
                ends("6", 50),
                starts("7", 60, one()),
            ],
            &["start 1 10", "update 3 30", "stop 5 40", "start 7 60"][..],
        ),
        // None is dated before the last event of its target.
        (
            vec![
                starts("1", 10, one()),
                starts("2", 9, process(64, 2)),
                ends("3", 8),
                starts("4", 7, one()),
            ],
            &["start 1 10", "update 2 10", "stop 3 10", "start 4 10"],
        ),
        // A seed has an id of its own each time.
        (
            vec![
                starts("i", 10, one()),
                starts("i", 20, one()),
                ends("1", 25),
                starts("i", 30, one()),
            ],
            &["start i@t10 10", "stop 1 25", "start i@t30 30"],
        ),
        // A note is a start of what is not started and has not ended; it can come behind the stop.
        (
            vec![notes("1", 10), ends("2", 20), notes("3", 20)],
            &["start 1 10", "stop 2 20"],
        ),
        // It says nothing of what is started.
        (
            vec![starts("4", 30, one()), notes("5", 40), ends("6", 50)],
            &["start 4 30", "stop 6 50"],
        ),
    ] {
        assert_eq!(sent(&mut FeedState::default(), &events), expected);
    }
}

#[test]
fn a_plan_changes_by_its_guid_and_goes_from_the_old_names() {
    for (is_refused, plan) in [(false, "large"), (true, "small")] {
        let mut state = FeedState::default();
        let events = [
            starts("1", 10, service("small", "a")),
            // A new name of the plan is not a change, and a stop names the old one.
            starts("2", 20, service("tiny", "a")),
            starts("3", 30, service("large", "b")),
            ends("4", 40),
        ];
        let mut refusals = Refused::new();
        if is_refused {
            refusals = refused("3", false);
        }
        let bodies = bodies(&mut state, &events, &refusals);
        let plans: Vec<_> = bodies.iter().map(|body| body["plan_id"].as_str()).collect();
        assert_eq!(plans, [Some("small"), Some("large"), Some(plan)]);
        assert_eq!(bodies[1]["previous"], json!({ "plan_id": "small" }));
        assert_eq!(state.tracked().count(), 0);
    }
}

#[test]
fn a_refused_start_is_not_started_unless_its_span_is_open() {
    for (is_open, sent) in [(false, 1), (true, 2)] {
        let events = [starts("1", 10, process(64, 1)), ends("2", 20)];
        let refused = refused("1", is_open);
        let bodies = bodies(&mut FeedState::default(), &events, &refused);
        assert_eq!(bodies.len(), sent);
    }
}

#[test]
fn measures_are_in_their_order_also_where_they_are_zero() {
    let mut state = FeedState::default();
    let body = &bodies(
        &mut state,
        &[starts("1", 10, process(512, 0))],
        &Refused::new(),
    )[0];
    assert_eq!(
        body.to_string(),
        "{\"type\":\"start\",\"id\":\"1\",\"timestamp\":10,\"organization_id\":\"o\",\"space_id\":\"s\",\
         \"consumer_id\":\"c\",\"resource_id\":\"linux-container\",\"plan_id\":\"basic\",\
         \"resource_instance_id\":\"i\",\"measured_usage\":[{\"measure\":\"memory_mb\",\"quantity\":0},\
         {\"measure\":\"instances\",\"quantity\":0}]}"
    );
}

#[test]
fn a_start_or_stop_that_nobody_recorded_is_said_with_its_bounds() {
    let start = |guid, at| starts(guid, at, process(64, 1));
    let stop = |guid, at, memory| event(guid, at, What::Ends, Some(process(memory, 1)));
    let stop_of = |guid, at, service| event(guid, at, What::Ends, Some(service));
    let ended = |from, to| (Bound::End, Some(from), to);
    let started = |from, to| (Bound::Start, from, to);
    let otherwise = |at| vec![ended(10, at), started(Some(10), at)];
    for (events, expected) in [
        // All of it is recorded, and some of it twice.
        (
            vec![
                start("1", 10),
                changes("2", 20, 64, 128),
                stop("3", 30, 128),
                stop("3", 30, 128),
                start("4", 40),
                start("4", 40),
            ],
            vec![],
        ),
        // A stop without a start.
        (vec![stop("1", 10, 64)], vec![started(None, 10)]),
        // Another one, after a stop: it was started in between.
        (
            vec![start("1", 10), stop("2", 20, 64), stop("3", 30, 64)],
            vec![started(Some(20), 30)],
        ),
        // A start without a stop before it.
        (vec![start("1", 10), start("2", 20)], vec![ended(10, 20)]),
        // A change of what was not started, and of what ran otherwise.
        (vec![changes("1", 10, 64, 128)], vec![started(None, 10)]),
        (
            vec![start("1", 10), changes("2", 20, 128, 256)],
            otherwise(20),
        ),
        // A stop of what ran otherwise.
        (vec![start("1", 10), stop("2", 20, 128)], otherwise(20)),
        // A seed of what was not started, and of what ran otherwise.
        (vec![changes("i", 10, 64, 64)], vec![started(None, 10)]),
        (
            vec![
                start("1", 10),
                changes("i", 20, 64, 64),
                changes("i", 30, 128, 128),
            ],
            otherwise(30),
        ),
        // A baseline of the platform: since when it runs is not known.
        (vec![notes("1", 10)], vec![started(None, 10)]),
        // A service's plan.
        (
            vec![
                starts("1", 10, service("small", "a")),
                stop_of("2", 20, service("tiny", "a")),
                starts("3", 30, service("small", "a")),
                stop_of("4", 40, service("large", "b")),
            ],
            vec![ended(30, 40), started(Some(30), 40)],
        ),
    ] {
        let found = unknown(&mut FeedState::default(), &events);
        assert_eq!(found, expected, "{events:?}");
    }
    // Nothing, if its start was refused.
    let mut state = FeedState::default();
    let phase = Phase::Refused(5);
    state.phases.insert("i".to_owned(), phase);
    assert_eq!(unknown(&mut state.clone(), &[notes("7", 70)]), []);
    assert_eq!(unknown(&mut state, &[stop("7", 70, 64)]), []);
}

/// However late it is here.
#[test]
fn ends_are_forgotten_by_the_time_of_the_platform() {
    let at = 1_795_000_000_000;
    let mut state = FeedState::default();
    state.phases.insert("i".to_owned(), Phase::Ended(at));
    let mut read_to = |at: Millis| {
        let created_at = chrono::DateTime::from_timestamp_millis(at).unwrap();
        let mark = Mark {
            guid: "g".to_owned(),
            created_at: created_at.to_rfc3339(),
        };
        let step = Step {
            record: Record::Apps,
            cursor: Some(Cursor::Behind(mark)),
            changes: Vec::new(),
        };
        state.apply(&step, &Refused::new());
        state.phases.len()
    };
    assert_eq!(read_to(at + 1_000), 1);
    assert_eq!(read_to(at + 2 * DAY), 0);
}

#[test]
fn a_list_is_cut_at_its_first_young_event() {
    let events = [ends("1", 10), ends("2", 30), ends("3", 20)];
    let old = |until| old_enough(&events, until);
    assert_eq!([9, 10, 25, 30].map(old), [0, 1, 1, 3]);
}
