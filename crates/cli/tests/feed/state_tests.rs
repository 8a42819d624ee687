use serde_json::json;

use super::super::mapping::Mapping;
use super::super::translate::start;
use super::super::usage_event::{Says, Since, UsageEvent};
use super::*;

/// Something named `i`; events date it.
fn running(kind: Kind, names: (String, String), quantities: Quantities) -> Box<Tracked> {
    Box::new(Tracked::new(
        kind,
        ["o", "s", "c", "i"],
        names,
        quantities,
        0,
    ))
}

fn process(memory: i64, instances: i64) -> Box<Tracked> {
    let names = Mapping::default().process(None);
    running(Kind::Process, names, Quantities::of(memory, instances))
}

fn service(plan: &str, guid: &str) -> Box<Tracked> {
    let names = Mapping::default().service("p-mysql", plan);
    let service = running(Kind::Service, names, Quantities::SERVICE);
    Box::new(Tracked {
        plan: Some(guid.to_owned()),
        ..*service
    })
}

fn event(guid: &str, at: Millis, says: Says) -> UsageEvent {
    UsageEvent {
        guid: guid.to_owned(),
        created_at: format!("t{at}"),
        at,
        state: "STATE".to_owned(),
        says,
    }
}

/// The same, at a time.
fn dated(now: Box<Tracked>, at: Millis) -> Box<Tracked> {
    Box::new(Tracked { last: at, ..*now })
}

fn runs(guid: &str, at: Millis, now: Box<Tracked>) -> UsageEvent {
    let says = Says::Runs {
        now: dated(now, at),
        since: Since::Event,
        was: None,
    };
    event(guid, at, says)
}

/// A change of what ran before, to something else.
fn changes(guid: &str, at: Millis, was: Quantities, now: Box<Tracked>) -> UsageEvent {
    let says = Says::Runs {
        now: dated(now, at),
        since: Since::Before,
        was: Some(was),
    };
    event(guid, at, says)
}

/// The platform notes that something runs.
fn notes(guid: &str, at: Millis, now: Box<Tracked>) -> UsageEvent {
    let says = Says::Runs {
        now: dated(now, at),
        since: Since::Noted,
        was: None,
    };
    event(guid, at, says)
}

fn ends(guid: &str, at: Millis) -> UsageEvent {
    ends_as(guid, at, None)
}

fn ends_as(guid: &str, at: Millis, was: Option<Box<Tracked>>) -> UsageEvent {
    let says = Says::Ended {
        guid: "i".to_owned(),
        was: was.map(|was| dated(was, at)),
    };
    event(guid, at, says)
}

/// The first event of a step is refused.
fn refused(is_open: bool) -> Refused {
    let refusal = Refusal {
        is_open,
        status: 409,
        problem: json!("no"),
    };
    [(0, refusal)].into()
}

/// Nothing is refused.
fn kept() -> Refused {
    Refused::new()
}

/// What is sent: type, id and timestamp. All of it is kept, but for what is refused.
fn sent(state: &mut FeedState, events: &[UsageEvent], refused: &Refused) -> Vec<String> {
    let before = state.clone();
    let mut batch = Batch::new(&before);
    for event in events {
        assert!(batch.add(Record::Apps, event));
    }
    let step = batch.step;
    let bodies = step.events().map(|event| {
        let body = &event.body;
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        format!("{} {} {}", text("type"), text("id"), body["timestamp"])
    });
    let bodies = bodies.collect();
    state.apply(&step, refused);
    bodies
}

#[test]
fn a_process_starts_changes_and_stops() {
    let mut state = FeedState::default();
    let events = [
        ends("0", 5),
        runs("1", 10, process(64, 1)),
        runs("2", 20, process(64, 1)),
        runs("3", 30, process(64, 0)),
        event("4", 35, Says::Nothing),
        ends("5", 40),
        ends("6", 50),
        runs("7", 60, process(64, 1)),
    ];
    let expected = ["start 1 10", "update 3 30", "stop 5 40", "start 7 60"];
    assert_eq!(sent(&mut state, &events, &kept()), expected);
    assert_eq!(state.mark(Record::Apps).unwrap().guid, "7");
}

#[test]
fn what_is_dated_before_the_last_event_of_its_target_is_dated_like_that() {
    let mut state = FeedState::default();
    let events = [
        runs("1", 10, process(64, 1)),
        runs("2", 9, process(64, 2)),
        ends("3", 8),
        runs("4", 7, process(64, 1)),
    ];
    let expected = ["start 1 10", "update 2 10", "stop 3 10", "start 4 10"];
    assert_eq!(sent(&mut state, &events, &kept()), expected);
    // Also in another step.
    assert_eq!(sent(&mut state, &[ends("5", 6)], &kept()), ["stop 5 10"]);
    let start = runs("6", 5, process(1, 1));
    assert_eq!(sent(&mut state, &[start], &kept()), ["start 6 10"]);
}

#[test]
fn a_seed_has_an_id_of_its_own_each_time() {
    let mut state = FeedState::default();
    let seed = |at| runs("i", at, process(64, 1));
    assert_eq!(sent(&mut state, &[seed(10)], &kept()), ["start i@t10 10"]);
    assert_eq!(sent(&mut state, &[seed(20)], &kept()), [""; 0]);
    assert_eq!(
        sent(&mut state, &[ends("1", 25), seed(30)], &kept()),
        ["stop 1 25", "start i@t30 30"]
    );
}

#[test]
fn a_plan_changes_by_its_guid_and_goes_from_the_old_names() {
    let mut state = FeedState::default();
    sent(&mut state, &[runs("1", 10, service("small", "a"))], &kept());
    // A new name of the plan is not a change, and a stop names the old one.
    assert_eq!(
        sent(&mut state, &[runs("2", 20, service("tiny", "a"))], &kept()),
        [""; 0]
    );
    let before = state.clone();
    let mut batch = Batch::new(&before);
    assert!(batch.add(Record::Services, &runs("3", 30, service("large", "b"))));
    assert!(
        !batch.add(Record::Services, &ends("4", 40)),
        "only the answer says which plan a stop names"
    );
    let step = batch.step;
    let body = &step.events().next().unwrap().body;
    assert_eq!(body["previous"], json!({ "plan_id": "small" }));
    assert_eq!(body["plan_id"], "large");
    let mut moved = state.clone();
    moved.apply(&step, &kept());
    state.apply(&step, &refused(false));
    for (mut state, plan) in [(moved, "large"), (state, "small")] {
        let before = state.clone();
        let mut batch = Batch::new(&before);
        assert!(batch.add(Record::Services, &ends("4", 40)));
        let step = batch.step;
        assert_eq!(step.events().next().unwrap().body["plan_id"], plan);
        state.apply(&step, &kept());
        assert_eq!(state.tracked().count(), 0);
    }
}

#[test]
fn a_refused_start_is_not_started_unless_its_span_is_open() {
    for (is_open, stops) in [(false, 0), (true, 1)] {
        let mut state = FeedState::default();
        let start = [runs("1", 10, process(64, 1))];
        sent(&mut state, &start, &refused(is_open));
        assert_eq!(sent(&mut state, &[ends("2", 20)], &kept()).len(), stops);
    }
}

#[test]
fn measures_are_in_their_order_also_where_they_are_zero() {
    let body = start("1", &dated(process(512, 0), 10));
    assert_eq!(
        body.to_string(),
        "{\"type\":\"start\",\"id\":\"1\",\"timestamp\":10,\"organization_id\":\"o\",\"space_id\":\"s\",\
         \"consumer_id\":\"c\",\"resource_id\":\"linux-container\",\"plan_id\":\"basic\",\
         \"resource_instance_id\":\"i\",\"measured_usage\":[{\"measure\":\"memory_mb\",\"quantity\":0},\
         {\"measure\":\"instances\",\"quantity\":0}]}"
    );
}

/// What nobody recorded: the bound, and between which times it lies.
fn unknown(state: &mut FeedState, events: &[UsageEvent]) -> Vec<(Bound, Option<Millis>, Millis)> {
    let before = state.clone();
    let mut batch = Batch::new(&before);
    for event in events {
        batch.add(Record::Apps, event);
    }
    let step = batch.step;
    let refused = kept();
    let found = step.unknown(&refused);
    let found = found.map(|it| (it.what, it.from, it.to)).collect();
    state.apply(&step, &refused);
    found
}

#[test]
fn a_start_or_stop_that_nobody_recorded_is_said_with_its_bounds() {
    let start = |guid, at| runs(guid, at, process(64, 1));
    let stop = |guid, at, memory| ends_as(guid, at, Some(process(memory, 1)));
    let change =
        |guid, at, (was, memory)| changes(guid, at, Quantities::of(was, 1), process(memory, 1));
    let ended = |from, to| (Bound::End, Some(from), to);
    let started = |from, to| (Bound::Start, from, to);
    let otherwise = |at| vec![ended(10, at), started(Some(10), at)];
    let stop_twice = [stop("3", 30, 128), stop("3", 30, 128)];
    let start_twice = [start("4", 40), start("4", 40)];
    let changed = [start("1", 10), change("2", 20, (64, 128))];
    for (events, expected) in [
        // All of it is recorded.
        ([&changed[..], &stop_twice, &start_twice].concat(), vec![]),
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
        (vec![change("1", 10, (64, 128))], vec![started(None, 10)]),
        (
            vec![start("1", 10), change("2", 20, (128, 256))],
            otherwise(20),
        ),
        // A stop of what ran otherwise.
        (vec![start("1", 10), stop("2", 20, 128)], otherwise(20)),
        // A seed of what was not started, and of what ran otherwise.
        (vec![change("i", 10, (64, 64))], vec![started(None, 10)]),
        (
            vec![
                start("1", 10),
                change("i", 20, (64, 64)),
                change("i", 30, (128, 128)),
            ],
            otherwise(30),
        ),
    ] {
        let found = unknown(&mut FeedState::default(), &events);
        assert_eq!(found, expected, "{events:?}");
        // One after the other says the same.
        let mut state = FeedState::default();
        let events = events.iter();
        let found: Vec<_> = events
            .flat_map(|event| unknown(&mut state, std::slice::from_ref(event)))
            .collect();
        assert_eq!(found, expected);
    }
    // A service's plan.
    let events = [
        runs("1", 10, service("small", "a")),
        ends_as("2", 20, Some(service("tiny", "a"))),
        runs("3", 30, service("small", "a")),
        ends_as("4", 40, Some(service("large", "b"))),
    ];
    let expected = [ended(30, 40), started(Some(30), 40)];
    assert_eq!(unknown(&mut FeedState::default(), &events), expected);
}

#[test]
fn a_stop_whose_start_was_refused_is_no_unknown_start() {
    let mut state = FeedState::default();
    let start = [runs("1", 10, process(64, 1))];
    sent(&mut state, &start, &refused(false));
    let stop = ends_as("2", 20, Some(process(64, 1)));
    assert_eq!(unknown(&mut state, &[stop]), []);
}

#[test]
fn what_the_platform_notes_is_a_start_of_what_is_not_started_and_has_not_ended() {
    // The platform writes a baseline; since when it runs is not known.
    let mut state = FeedState::default();
    let note = notes("1", 10, process(64, 2));
    assert_eq!(unknown(&mut state, &[note]), [(Bound::Start, None, 10)]);
    assert_eq!(sent(&mut state, &[ends("2", 20)], &kept()), ["stop 2 20"]);
    // It comes behind the stop of what it names.
    let note = notes("3", 20, process(64, 2));
    assert_eq!(sent(&mut state, &[note], &kept()), [""; 0]);
    // It says nothing of what is started.
    let events = [
        runs("4", 30, process(64, 1)),
        notes("5", 40, process(64, 2)),
        ends("6", 50),
    ];
    assert_eq!(
        sent(&mut state, &events, &kept()),
        ["start 4 30", "stop 6 50"]
    );
    // Since it was made, if that is known.
    let made = Idle {
        record: Record::Apps,
        why: Why::Made,
        at: 5,
        seen: 60,
    };
    state.phases.insert("i".to_owned(), Phase::Idle(made));
    let note = notes("7", 70, process(64, 2));
    assert_eq!(unknown(&mut state, &[note]), [(Bound::Start, Some(5), 70)]);
}

#[test]
fn ends_are_forgotten_by_the_time_of_the_platform() {
    let at = 1_795_000_000_000;
    let day = 24 * 3_600_000;
    let mut state = FeedState::default();
    let phase = Idle::ended(Record::Apps, at);
    state.phases.insert("i".to_owned(), phase);
    let mut read_to = |record, at: Millis| {
        let created_at = chrono::DateTime::from_timestamp_millis(at).unwrap();
        let mark = Mark {
            guid: "g".to_owned(),
            created_at: created_at.format("%Y-%m-%dT%H:%M:%SZ").to_string(),
        };
        let step = Step {
            cursors: [(record, Cursor::Behind(mark))].into(),
            changes: Vec::new(),
        };
        state.apply(&step, &kept());
        state.phases.len()
    };
    // Its own list is read up to there, however far the other is, and whatever the time is here.
    assert_eq!(read_to(Record::Apps, at + 1_000), 1);
    assert_eq!(read_to(Record::Services, at + 9 * day), 1);
    assert_eq!(read_to(Record::Apps, at + 2 * day), 0);
}

#[test]
fn a_list_is_cut_at_its_first_young_event() {
    let events = [
        runs("1", 10, process(64, 1)),
        runs("2", 30, process(64, 1)),
        runs("3", 20, process(64, 1)),
    ];
    let old = |until| super::super::usage_event::old_enough(&events, until);
    assert_eq!([9, 10, 25, 30].map(old), [0, 1, 1, 3]);
}
