use super::*;

fn process(memory: i64, instances: i64) -> Box<Running> {
    let mut running = Running::of_kind(Kind::Process { r#type: None });
    running.quantities = Quantities::of(memory, instances);
    Box::new(running)
}

fn service(plan: &str, guid: &str) -> Box<Running> {
    Box::new(Running::of_kind(Kind::Service {
        offering: "p-mysql".to_owned(),
        plan: plan.to_owned(),
        plan_guid: guid.to_owned(),
    }))
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

fn runs(guid: &str, at: Millis, running: Box<Running>) -> UsageEvent {
    let is_change = false;
    event(guid, at, Says::Runs { running, is_change })
}

fn ends(guid: &str, at: Millis) -> UsageEvent {
    event(guid, at, Says::Ended("i".to_owned()))
}

/// What is sent: type, id and timestamp. All of it is kept, but for what is refused.
fn sent(state: &mut State, events: &[UsageEvent], refused: &[Refused]) -> Vec<String> {
    let (before, mapping) = (state.clone(), Mapping::default());
    let mut batch = Batch::new(&before, &mapping);
    for event in events {
        assert!(!batch.must_wait(event));
        batch.add(Record::Apps, event);
    }
    let step = batch.step;
    let bodies = step.events.iter().map(|event| {
        let body = &event.body;
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        format!("{} {} {}", text("type"), text("id"), body["timestamp"])
    });
    let bodies = bodies.collect();
    state.apply(step, refused);
    bodies
}

#[test]
fn a_process_starts_changes_and_stops() {
    let mut state = State::default();
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
    assert_eq!(
        sent(&mut state, &events, &[]),
        ["start 1 10", "update 3 30", "stop 5 40", "start 7 60"]
    );
    let mark = state.cursors[&Record::Apps].mark.clone().unwrap();
    assert_eq!(mark.guid, "7");
}

#[test]
fn what_is_dated_before_the_last_event_of_its_target_is_dated_like_that() {
    let mut state = State::default();
    let events = [
        runs("1", 10, process(64, 1)),
        runs("2", 9, process(64, 2)),
        ends("3", 8),
        runs("4", 7, process(64, 1)),
    ];
    assert_eq!(
        sent(&mut state, &events, &[]),
        ["start 1 10", "update 2 10", "stop 3 10", "start 4 10"]
    );
    // Also in another step.
    assert_eq!(sent(&mut state, &[ends("5", 6)], &[]), ["stop 5 10"]);
    assert_eq!(
        sent(&mut state, &[runs("6", 5, process(1, 1))], &[]),
        ["start 6 10"]
    );
}

#[test]
fn a_seed_has_an_id_of_its_own_each_time() {
    let mut state = State::default();
    let seed = |at| runs("i", at, process(64, 1));
    assert_eq!(sent(&mut state, &[seed(10)], &[]), ["start i@t10 10"]);
    assert_eq!(sent(&mut state, &[seed(20)], &[]), [""; 0]);
    assert_eq!(
        sent(&mut state, &[ends("1", 25), seed(30)], &[]),
        ["stop 1 25", "start i@t30 30"]
    );
}

#[test]
fn a_plan_changes_by_its_guid_and_goes_from_the_old_names() {
    let mut state = State::default();
    sent(&mut state, &[runs("1", 10, service("small", "a"))], &[]);
    // A new name of the plan is no change, and a stop names the old one.
    assert_eq!(
        sent(&mut state, &[runs("2", 20, service("tiny", "a"))], &[]),
        [""; 0]
    );
    let (before, mapping) = (state.clone(), Mapping::default());
    let mut batch = Batch::new(&before, &mapping);
    batch.add(Record::Services, &runs("3", 30, service("large", "b")));
    assert!(
        batch.must_wait(&ends("4", 40)),
        "only the answer says which plan a stop names"
    );
    let step = batch.step;
    let body = &step.events[0].body;
    assert_eq!(body["previous"], json!({ "plan_id": "small" }));
    assert_eq!(body["plan_id"], "large");
    let refused = Refused {
        index: 0,
        status: 409,
        is_open: false,
    };
    let mut kept = state.clone();
    kept.apply(step.clone(), &[]);
    state.apply(step, &[refused]);
    for (mut state, plan) in [(kept, "large"), (state, "small")] {
        let (before, mapping) = (state.clone(), Mapping::default());
        let mut batch = Batch::new(&before, &mapping);
        batch.add(Record::Services, &ends("4", 40));
        let step = batch.step;
        assert_eq!(step.events[0].body["plan_id"], plan);
        state.apply(step, &[]);
        assert_eq!(state.tracked().count(), 0);
    }
}

#[test]
fn a_refused_start_is_not_started_unless_its_span_is_open() {
    for (is_open, stops) in [(false, 0), (true, 1)] {
        let mut state = State::default();
        let refused = Refused {
            index: 0,
            status: 409,
            is_open,
        };
        sent(&mut state, &[runs("1", 10, process(64, 1))], &[refused]);
        assert_eq!(sent(&mut state, &[ends("2", 20)], &[]).len(), stops);
    }
}

#[test]
fn measures_are_in_their_order_also_where_they_are_zero() {
    let tracked = tracked(&process(512, 0), 10, &Mapping::default());
    let body = start("1", &tracked);
    assert_eq!(
        body.to_string(),
        "{\"type\":\"start\",\"id\":\"1\",\"timestamp\":10,\"organization_id\":\"o\",\"space_id\":\"s\",\
         \"consumer_id\":\"c\",\"resource_id\":\"linux-container\",\"plan_id\":\"basic\",\
         \"resource_instance_id\":\"i\",\"measured_usage\":[{\"measure\":\"memory_mb\",\"quantity\":0},\
         {\"measure\":\"instances\",\"quantity\":0}]}"
    );
}
