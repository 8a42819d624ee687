//! JSON that is not what is expected: every wrong field is named, all of them at once.

use serde_json::{Value, json};

use crate::event::{TARGET, mapping, start, stop, with, without};
use crate::world::{ALL, MAPPINGS, NOW, START, STOP, World};

/// Is refused with these fields named, and never reaches the store.
async fn refuse(path: &str, body: &Value, pointers: &[&str]) {
    let world = World::new();
    let answer = world.post(path, body).await;
    answer.names(400, "invalid-event", pointers);
    assert_eq!(world.store.calls(), 0, "{path} {body}");
    world.assert_kept(&[]);
}

fn valid(path: &str) -> Value {
    match path {
        START => start(NOW),
        STOP => stop(NOW),
        _ => mapping(),
    }
}

/// The member names of a body, `measured_usage` and `timestamp` among them.
fn names(body: &Value) -> Vec<String> {
    body.as_object().unwrap().keys().cloned().collect()
}

/// A measure in the place of the first.
fn measure(value: impl Into<Value>) -> Value {
    let mut event = start(NOW);
    event["measured_usage"][0] = value.into();
    event
}

fn quantity(value: impl Into<Value>) -> Value {
    measure(json!({"measure": "instances", "quantity": value.into()}))
}

#[tokio::test]
async fn a_body_that_is_no_object_is_refused() {
    for path in ALL {
        for body in [
            json!(null),
            json!(true),
            json!(1),
            json!("x"),
            json!([]),
            json!([{}]),
        ] {
            refuse(path, &body, &["#"]).await;
        }
    }
}

#[tokio::test]
async fn each_field_that_is_missing_is_named() {
    for path in ALL {
        let body = valid(path);
        for name in names(&body) {
            refuse(path, &without(&body, &name), &[&format!("#/{name}")]).await;
        }
    }
}

#[tokio::test]
async fn each_field_of_a_wrong_type_is_named() {
    for path in ALL {
        let body = valid(path);
        for name in names(&body) {
            for wrong in [json!(null), json!(true), json!({"a": 1})] {
                refuse(path, &with(&body, &name, wrong), &[&format!("#/{name}")]).await;
            }
        }
        for name in names(&body) {
            if name != "timestamp" && name != "measured_usage" {
                refuse(path, &with(&body, &name, 1), &[&format!("#/{name}")]).await;
                refuse(
                    path,
                    &with(&body, &name, json!(["x"])),
                    &[&format!("#/{name}")],
                )
                .await;
            }
        }
    }
}

#[tokio::test]
async fn each_field_that_is_unknown_is_named() {
    let unknown = [
        ("extra", "#/extra"),
        ("Timestamp", "#/Timestamp"),
        ("correlation_id", "#/correlation_id"),
        ("", "#/"),
        ("a/b~c d", "#/a~1b~0c%20d"),
        ("größe", "#/gr%C3%B6%C3%9Fe"),
        ("__proto__", "#/__proto__"),
    ];
    for path in ALL {
        for (name, pointer) in unknown {
            refuse(path, &with(&valid(path), name, json!(null)), &[pointer]).await;
        }
    }
    refuse(
        STOP,
        &with(&stop(NOW), "measured_usage", json!([])),
        &["#/measured_usage"],
    )
    .await;
    refuse(MAPPINGS, &with(&mapping(), "id", "x"), &["#/id"]).await;
    let extra = measure(json!({"measure": "a", "quantity": 1, "unit": "MB"}));
    refuse(START, &extra, &["#/measured_usage/0/unit"]).await;
}

#[tokio::test]
async fn all_that_is_wrong_is_named_at_once() {
    let body = json!({
        "id": null,
        "timestamp": "1533254400000",
        "organization_id": "",
        "consumer_id": 1,
        "resource_id": "\n",
        "plan_id": null,
        "resource_instance_id": "x".repeat(1025),
        "measured_usage": [
            {"measure": "duration", "quantity": null, "unit": "MB"},
            {"measure": "a", "quantity": 1},
            {"quantity": true},
            {"measure": "a"},
            7,
        ],
        "extra": 1,
        "more": 2,
    });
    let measures = [
        "#/measured_usage/0/quantity",
        "#/measured_usage/0/unit",
        "#/measured_usage/2/measure",
        "#/measured_usage/2/quantity",
        "#/measured_usage/3/quantity",
        "#/measured_usage/4",
        "#/measured_usage/0/measure",
        "#/measured_usage/3/measure",
    ];
    let mut pointers = vec!["#/id", "#/timestamp"];
    let targets: Vec<_> = TARGET.iter().map(|name| format!("#/{name}")).collect();
    pointers.extend(targets.iter().map(String::as_str));
    let (first, last) = (pointers.clone(), ["#/extra", "#/more"]);
    pointers.extend(measures.iter().chain(&last));
    refuse(START, &body, &pointers).await;
    let all: Vec<_> = first
        .iter()
        .chain(&["#/measured_usage"])
        .chain(&last)
        .copied()
        .collect();
    refuse(STOP, &body, &all).await;
}

#[tokio::test]
async fn no_more_than_a_hundred_fields_are_named() {
    let mut body = start(NOW);
    for number in 0..1_000 {
        body[format!("f{number}")] = json!(number);
    }
    let world = World::new();
    let document = world.start(&body).await.problem(400, "invalid-event");
    assert_eq!(document["errors"].as_array().unwrap().len(), 100);
    world.assert_kept(&[]);
}

#[tokio::test]
async fn a_timestamp_that_is_no_moment_is_refused() {
    let wrong = [
        json!("1533254400000"),
        json!("2018-08-03T00:00:00"),
        json!(NOW as f64 + 0.5),
        json!(-1),
        json!(-0.5),
        json!(253_402_300_800_001_i64),
        json!(1e300),
        json!(-1e300),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!([NOW]),
        json!(false),
    ];
    for timestamp in wrong {
        for path in [START, STOP] {
            let event = with(&valid(path), "timestamp", timestamp.clone());
            refuse(path, &event, &["#/timestamp"]).await;
        }
    }
}

#[tokio::test]
async fn a_text_that_is_empty_too_long_or_holds_a_control_character_is_refused() {
    let long = ["x".repeat(1025), "é".repeat(513)];
    let wrong = long.iter().map(String::as_str);
    for text in wrong.chain(["", "\0", "a\nb", "\u{7f}", "\u{85}", "\u{9f}x"]) {
        for path in ALL {
            let body = valid(path);
            let texts = names(&body);
            let texts = texts.iter().filter(|name| body[name].is_string());
            for name in texts {
                refuse(path, &with(&body, name, text), &[&format!("#/{name}")]).await;
            }
        }
        refuse(
            START,
            &measure(json!({"measure": text, "quantity": 1})),
            &["#/measured_usage/0/measure"],
        )
        .await;
    }
}

#[tokio::test]
async fn an_id_may_be_left_out_or_empty_but_not_wrong() {
    let long = "x".repeat(1025);
    for id in [
        json!(null),
        json!(1),
        json!("\n"),
        json!(long),
        json!(["a"]),
        json!(false),
    ] {
        refuse(START, &with(&start(NOW), "id", id.clone()), &["#/id"]).await;
        refuse(STOP, &with(&stop(NOW), "id", id), &["#/id"]).await;
    }
}

#[tokio::test]
async fn measured_usage_that_is_no_list_of_measures_is_refused() {
    for wrong in [json!(null), json!({}), json!("x"), json!(1), json!(true)] {
        let event = with(&start(NOW), "measured_usage", wrong);
        refuse(START, &event, &["#/measured_usage"]).await;
    }
    for wrong in [json!(null), json!([]), json!("x"), json!(1)] {
        refuse(START, &measure(wrong), &["#/measured_usage/0"]).await;
    }
    let both = ["#/measured_usage/0/measure", "#/measured_usage/0/quantity"];
    refuse(START, &measure(json!({})), &both).await;
    refuse(START, &measure(json!({"measure": "a"})), &both[1..]).await;
    refuse(START, &measure(json!({"quantity": 1})), &both[..1]).await;
    refuse(
        START,
        &measure(json!({"measure": 1, "quantity": 1})),
        &both[..1],
    )
    .await;
}

#[tokio::test]
async fn fault_12_a_measure_of_the_name_that_sampling_appends_is_refused_and_so_are_two_of_one() {
    let event = measure(json!({"measure": "duration", "quantity": 1}));
    refuse(START, &event, &["#/measured_usage/0/measure"]).await;
    let event = measure(json!({"measure": "memory", "quantity": 1}));
    refuse(START, &event, &["#/measured_usage/1/measure"]).await;
    let world = World::new();
    let event = measure(json!({"measure": "Duration", "quantity": 1}));
    world.start(&event).await.is_created();
    world.assert_kept(&[(&event, None)]);
}

#[tokio::test]
async fn a_quantity_that_cannot_be_kept_or_passed_on_is_refused() {
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let wrong = [
        json!(null),
        json!(true),
        json!(false),
        nested(33),
        json!({"$set": 1}),
        json!([{"a": {"$x": 1}}]),
        json!({"a\0b": 1}),
        json!(u64::MAX),
        json!([u64::MAX]),
    ];
    for value in wrong {
        refuse(START, &quantity(value), &["#/measured_usage/0/quantity"]).await;
    }
    let world = World::new();
    let event = quantity(nested(32));
    world.start(&event).await.is_created();
    world.assert_kept(&[(&event, None)]);
}

/// The original let these in, and stopped billing for everyone when Abacus refused them.
#[tokio::test]
async fn fault_1_an_empty_space_and_a_number_beyond_a_double_are_refused() {
    refuse(START, &with(&start(NOW), "space_id", ""), &["#/space_id"]).await;
    let world = World::new();
    for beyond in ["1e309", "-1e309", "[1e309]"] {
        let body = start(NOW).to_string().replace("0.5", beyond);
        let answer = world.send(crate::world::request(START, body)).await;
        answer.names(400, "malformed-json", &[]);
    }
    world.assert_kept(&[]);
}

/// What is kept is what was sent, or nothing is.
#[tokio::test]
async fn a_number_that_a_double_does_not_hold_is_refused() {
    let world = World::new();
    for (number, reason) in [
        ("9007199254740993", "does not hold exactly"),
        ("9223372036854775807", "does not hold exactly"),
        ("18446744073709551615", "does not hold exactly"),
        ("-9223372036854775809", "does not hold exactly"),
        ("100000000000000000000000001", "does not hold exactly"),
        ("1e-400", "takes it for zero"),
        ("0.123456789012345678", "more than 17 digits"),
    ] {
        for within in ["?", "[1.5,{\"a\":?}]"] {
            let quantity = within.replace('?', number);
            let body = start(NOW).to_string().replace("0.5", &quantity);
            let answer = world.send(crate::world::request(START, body)).await;
            let wrong = "#/measured_usage/1/quantity";
            answer.names(400, "invalid-event", &[wrong]);
            let problem = answer.problem(400, "invalid-event");
            let detail = problem["errors"][0]["detail"].as_str().unwrap();
            assert!(
                detail.contains(number) && detail.contains(reason),
                "{detail}"
            );
        }
    }
    world.assert_kept(&[]);
}

#[tokio::test]
async fn a_mapping_has_no_names_that_lead_elsewhere() {
    for name in names(&mapping()) {
        for dots in [".", ".."] {
            refuse(
                MAPPINGS,
                &with(&mapping(), &name, dots),
                &[&format!("#/{name}")],
            )
            .await;
        }
    }
    let dots = names(&mapping())
        .into_iter()
        .fold(mapping(), |body, name| with(&body, &name, ".."));
    let all = [
        "resource_id",
        "plan_id",
        "metering_plan",
        "rating_plan",
        "pricing_plan",
    ];
    let all: Vec<_> = all.iter().map(|name| format!("#/{name}")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    refuse(MAPPINGS, &dots, &all).await;
}
