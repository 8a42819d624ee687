//! Starts and stops: which are taken, which stand in each other's way, and when they may be dated.

use sampler_domain::{Interval, SpanId, Timestamp};
use serde_json::{Value, json};

use crate::event::{by, start, stop, with};
use crate::world::{DAY, FUTURE, HOUR, NOW, PAST, START, World, request};

#[tokio::test]
async fn a_start_is_kept_as_a_span_that_nobody_has_sampled_yet() {
    let world = World::new();
    let event = by("a start", &start(NOW - HOUR));
    world.start(&event).await.is_created();
    world.assert_kept(&[(&event, None)]);
    let documents = world.documents();
    let span = &documents[0].span;
    let moment = Timestamp::clamped(NOW - HOUR);
    assert_eq!(span.processing.last, Interval::at(moment));
    assert_eq!(span.processing.planned, None);
    assert_eq!(span.processing.version, 1);
    assert!(!span.processing.complete);
    assert_eq!(span.id, SpanId::new(Timestamp::clamped(NOW), 0));
    // The policy samples by the day.
    assert_eq!(documents[0].due_at, Some(Timestamp::clamped(NOW)));
}

#[tokio::test]
async fn a_stop_ends_the_open_span_of_its_target() {
    let world = World::new();
    let (event, end) = (by("a", &start(NOW)), by("z", &stop(NOW + HOUR)));
    let other = with(&start(NOW), "resource_instance_id", "another");
    world.start(&event).await.is_created();
    world.start(&other).await.is_created();
    world.stop(&end).await.is_created();
    world.assert_kept(&[(&event, Some(&end)), (&other, None)]);
    let document = &world.documents()[0];
    assert_eq!(document.due_at, Some(Timestamp::clamped(NOW + HOUR)));
    assert!(!document.span.processing.complete);
    assert_eq!(document.span.processing.version, 1);
}

#[tokio::test]
async fn events_need_no_id_and_an_empty_one_counts_as_none() {
    let world = World::new();
    let (first, end) = (start(NOW), stop(NOW + HOUR));
    world.start(&first).await.is_created();
    world.stop(&end).await.is_created();
    let second = start(NOW + HOUR);
    let second_end = stop(NOW + 2 * HOUR);
    world.start(&by("", &second)).await.is_created();
    world.stop(&by("", &second_end)).await.is_created();
    world.assert_kept(&[(&first, Some(&end)), (&second, Some(&second_end))]);
}

#[tokio::test]
async fn an_update_is_a_stop_and_a_start_at_one_moment_with_one_id() {
    let world = World::new();
    let first = by("create", &start(NOW));
    let (end, second) = (by("update", &stop(NOW + HOUR)), start(NOW + HOUR));
    let second = with(&by("update", &second), "measured_usage", json!([]));
    world.start(&first).await.is_created();
    world.stop(&end).await.is_created();
    world.start(&second).await.is_created();
    world.assert_kept(&[(&first, Some(&end)), (&second, None)]);
}

#[tokio::test]
async fn a_second_start_of_an_open_target_is_refused() {
    let world = World::new();
    let event = by("first", &start(NOW));
    world.start(&event).await.is_created();
    let later = start(NOW + HOUR);
    let other = with(&start(NOW), "measured_usage", json!([]));
    for again in [
        start(NOW),
        by("second", &event),
        by("second", &later),
        other,
    ] {
        world.start(&again).await.names(409, "open-span", &[]);
    }
    world.assert_kept(&[(&event, None)]);
}

#[tokio::test]
async fn without_an_id_a_repeated_start_is_taken_for_a_second_one() {
    let world = World::new();
    world.start(&start(NOW)).await.is_created();
    world.start(&start(NOW)).await.names(409, "open-span", &[]);
    world.assert_kept(&[(&start(NOW), None)]);
}

#[tokio::test]
async fn a_stop_without_an_open_span_is_refused() {
    let world = World::new();
    for event in [stop(NOW), by("z", &stop(NOW))] {
        world.stop(&event).await.names(422, "no-open-span", &[]);
    }
    world.assert_kept(&[]);
    let (event, end) = (start(NOW), stop(NOW + HOUR));
    world.start(&event).await.is_created();
    let other = with(&end, "plan_id", "another");
    world.stop(&other).await.names(422, "no-open-span", &[]);
    world.assert_kept(&[(&event, None)]);
    world.stop(&end).await.is_created();
    for again in [stop(NOW + HOUR), by("z", &stop(NOW + HOUR))] {
        world.stop(&again).await.names(422, "no-open-span", &[]);
    }
    world.assert_kept(&[(&event, Some(&end))]);
}

#[tokio::test]
async fn fault_5_a_stop_before_its_start_is_refused_and_one_at_its_start_is_taken() {
    let world = World::new();
    let event = start(NOW);
    world.start(&event).await.is_created();
    let answer = world.stop(&by("z", &stop(NOW - 1))).await;
    answer.names(422, "stop-before-start", &["#/timestamp"]);
    let problem = answer.problem(422, "stop-before-start");
    let detail = problem["errors"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("2018-08-03T00:00:00.000Z"), "{detail}");
    world.assert_kept(&[(&event, None)]);
    // The id of what was refused is free.
    let end = by("z", &stop(NOW));
    world.stop(&end).await.is_created();
    world.assert_kept(&[(&event, Some(&end))]);
}

#[tokio::test]
async fn fault_12_a_start_before_the_end_of_the_previous_span_is_refused() {
    let world = World::new();
    let (first, end) = (start(NOW - 2 * HOUR), stop(NOW));
    world.start(&first).await.is_created();
    world.stop(&end).await.is_created();
    for inside in [NOW - 1, NOW - 2 * HOUR, NOW - 3 * HOUR] {
        let answer = world.start(&by("b", &start(inside))).await;
        answer.names(422, "overlapping-start", &["#/timestamp"]);
        let text = answer.problem(422, "overlapping-start").to_string();
        assert!(text.contains("2018-08-03T00:00:00.000Z"), "{text}");
    }
    world.assert_kept(&[(&first, Some(&end))]);
    let next = by("b", &start(NOW));
    world.start(&next).await.is_created();
    world.assert_kept(&[(&first, Some(&end)), (&next, None)]);
}

#[tokio::test]
async fn a_setting_lets_spans_overlap() {
    let world = World::with(|options| options.settings.events.allow_overlap = true);
    let (first, end, inside) = (start(NOW - HOUR), stop(NOW), start(NOW - 1));
    world.start(&first).await.is_created();
    world.stop(&end).await.is_created();
    world.start(&inside).await.is_created();
    world.assert_kept(&[(&first, Some(&end)), (&inside, None)]);
}

#[tokio::test]
async fn a_start_outside_the_slack_is_refused_and_one_at_its_edge_is_taken() {
    for edge in [NOW - PAST, NOW + FUTURE] {
        let world = World::new();
        world.start(&start(edge)).await.is_created();
        world.assert_kept(&[(&start(edge), None)]);
    }
    let world = World::new();
    for beyond in [NOW - PAST - 1, NOW + FUTURE + 1, 0, 253_402_300_800_000] {
        for event in [start(beyond), by("a", &start(beyond))] {
            let answer = world.start(&event).await;
            answer.names(422, "outside-slack", &["#/timestamp"]);
            let text = answer.problem(422, "outside-slack").to_string();
            assert!(text.contains("2018-06-03T00:00:00.000Z"), "{text}");
            assert!(text.contains("2018-08-05T00:00:00.000Z"), "{text}");
        }
    }
    world.assert_kept(&[]);
}

#[tokio::test]
async fn a_stop_outside_the_slack_is_refused_and_one_at_its_edge_is_taken() {
    let event = start(NOW - PAST);
    for edge in [NOW - PAST, NOW + FUTURE] {
        let world = World::new();
        world.start(&event).await.is_created();
        world.stop(&stop(edge)).await.is_created();
        world.assert_kept(&[(&event, Some(&stop(edge)))]);
    }
    let world = World::new();
    world.start(&event).await.is_created();
    world.clock.set(NOW + DAY);
    for beyond in [NOW + DAY - PAST - 1, NOW + DAY + FUTURE + 1] {
        for end in [stop(beyond), by("z", &stop(beyond))] {
            let answer = world.stop(&end).await;
            answer.names(422, "outside-slack", &["#/timestamp"]);
        }
    }
    world.assert_kept(&[(&event, None)]);
}

#[tokio::test]
async fn a_whole_number_of_milliseconds_may_be_written_in_any_way() {
    let written = [
        "1533254400000",
        "1533254400000.0",
        "1.5332544e12",
        "15332544E+5",
    ];
    for timestamp in written {
        let world = World::new();
        let body = |event: Value| event.to_string().replace("1533254400000", timestamp);
        let answer = world.send(request(START, body(start(NOW)))).await;
        answer.is_created();
        let answer = world
            .send(request(crate::world::STOP, body(stop(NOW))))
            .await;
        answer.is_created();
        world.assert_kept(&[(&start(NOW), Some(&stop(NOW)))]);
    }
}

#[tokio::test]
async fn quantities_of_all_kinds_are_kept_as_they_were_given() {
    let world = World::new();
    let quantities = json!([
        0, 1, -1, 3_000_000_000_i64, 9_007_199_254_740_992_i64, -9_007_199_254_740_992_i64,
        1.0, 0.1, -0.5, 1e300, 5e-324,
        "", "many", "\u{0}\u{7f} \u{1f388} \u{202e}",
        [], [1, 1.0, null, true, "x", [[]]],
        {}, {"b": 1, "a": {"c": [2.0, null]}, "": false, "a.b": "x", "é": 0},
    ]);
    let measures = quantities.as_array().unwrap().iter().enumerate();
    let measures: Vec<Value> = measures
        .map(|(index, quantity)| json!({"measure": format!("m{index}"), "quantity": quantity}))
        .collect();
    let event = with(&start(NOW), "measured_usage", measures);
    world.start(&event).await.is_created();
    world.assert_kept(&[(&event, None)]);
    // The order of members, which comparing does not look at, stays too.
    let kept = world.kept()[0].0["measured_usage"].to_string();
    assert_eq!(kept, event["measured_usage"].to_string());
}

#[tokio::test]
async fn a_quantity_that_is_a_double_is_kept_to_its_last_digit() {
    for text in [
        "31.245270191439438",
        "121.48791951161945",
        "9007199254740993.0",
        "9007199254740994",
        "-9223372036854775808",
        "18446744073709549568",
        "10000000000000000000000",
    ] {
        let world = World::new();
        let body = by("a", &start(NOW)).to_string().replace("0.5", text);
        world.send(request(START, body.clone())).await.is_created();
        let kept = world.kept()[0].0["measured_usage"][1]["quantity"].clone();
        let given: f64 = text.parse().unwrap();
        assert!(kept.is_f64(), "{text}");
        assert_eq!(kept.as_f64(), Some(given), "{text}");
        // The same once more is a repeat, whoever kept it.
        let answer = world.send(request(START, body)).await;
        assert_eq!(answer.status, 201, "{text}");
    }
}

#[tokio::test]
async fn measures_may_be_none_and_texts_may_be_long_and_odd() {
    let world = World::new();
    let long = "é".repeat(512);
    let mut event = with(&start(NOW), "measured_usage", json!([]));
    event["id"] = json!(long);
    event["space_id"] = json!(long);
    event["plan_id"] = json!("$set.a/b \u{1f388}\u{202e}' {}");
    world.start(&event).await.is_created();
    let mut end = stop(NOW);
    end["id"] = json!("x".repeat(1024));
    end["space_id"] = event["space_id"].clone();
    end["plan_id"] = event["plan_id"].clone();
    world.stop(&end).await.is_created();
    world.assert_kept(&[(&event, Some(&end))]);
}
