//! Bodies that are no JSON, or no JSON that can be read in one way only.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::event::{mapping, start, stop, with};
use crate::log::Log;
use crate::world::{ALL, MAPPINGS, NOW, START, STOP, World, request};

fn valid(path: &str) -> String {
    let body = match path {
        START => start(NOW),
        STOP => stop(NOW),
        _ => mapping(),
    };
    body.to_string()
}

/// Is refused, and never reaches the store; returns the detail.
async fn refuse(path: &str, body: impl Into<Vec<u8>>) -> String {
    let world = World::new();
    let answer = world.send(request(path, body.into())).await;
    answer.names(400, "malformed-json", &[]);
    assert_eq!(world.store.calls(), 0);
    world.assert_kept(&[]);
    let document: Value = answer.problem(400, "malformed-json");
    document["detail"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_empty_body_is_refused() {
    for path in ALL {
        for body in ["", " ", "\r\n\t "] {
            assert_eq!(refuse(path, body).await, "The body is empty.");
        }
    }
}

#[tokio::test]
async fn what_is_no_json_is_refused() {
    let odd = [
        "{",
        "}",
        "nul",
        "NaN",
        "{'a':1}",
        "{\"a\":1,}",
        "[1 2]",
        "// x\n{}",
        "\"a\nb\"",
    ];
    for path in ALL {
        for body in odd {
            refuse(path, body).await;
        }
        let valid = valid(path);
        refuse(path, &valid[..valid.len() - 1]).await;
        refuse(path, format!("{valid}{valid}")).await;
        refuse(path, format!("{valid} x")).await;
        refuse(path, format!("\u{feff}{valid}")).await;
        refuse(path, valid.replace("postgres", "\\ud800")).await;
        refuse(path, valid.replace("postgres", "\\x41")).await;
        let utf_16: Vec<u8> = valid.encode_utf16().flat_map(u16::to_le_bytes).collect();
        refuse(path, utf_16).await;
        let cut = valid.replace("postgres", "\u{1}").into_bytes();
        let latin_1 = cut.iter().map(|byte| if *byte == 1 { 0xe9 } else { *byte });
        refuse(path, latin_1.collect::<Vec<u8>>()).await;
    }
}

#[tokio::test]
async fn json_that_is_nested_too_deep_is_refused() {
    for path in ALL {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let body = format!("{}1{}", open.repeat(200), close.repeat(200));
            assert!(refuse(path, body).await.contains("too deep"));
            assert!(refuse(path, open.repeat(50_000)).await.contains("too deep"));
        }
    }
    let deep = format!("{}{}", "[".repeat(130), "]".repeat(130));
    refuse(START, valid(START).replace("0.5", &deep)).await;
}

/// How many values there are in one, itself among them.
fn count(value: &Value) -> usize {
    let within: usize = match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        _ => 0,
    };
    1 + within
}

#[tokio::test]
async fn json_of_too_many_values_is_refused() {
    let of = |values: usize| {
        let mut event = start(NOW);
        event["measured_usage"][0]["quantity"] = json!([]);
        let zeros = vec![json!(0); values - count(&event)];
        event["measured_usage"][0]["quantity"] = json!(zeros);
        assert_eq!(count(&event), values);
        event
    };
    let world = World::new();
    let event = of(50_000);
    world.start(&event).await.is_created();
    world.assert_kept(&[(&event, None)]);
    let over = of(50_001).to_string();
    assert!(
        refuse(START, over)
            .await
            .contains("more than 50,000 values")
    );
    for path in ALL {
        let flood = format!("[{}0]", "0,".repeat(200_000));
        assert!(
            refuse(path, flood)
                .await
                .contains("more than 50,000 values")
        );
        let flood = format!("[{}[]]", "[],".repeat(150_000));
        assert!(
            refuse(path, flood)
                .await
                .contains("more than 50,000 values")
        );
    }
}

#[tokio::test]
async fn a_number_out_of_range_is_refused() {
    for number in ["1e309", "-1e309", "1E400", "15e10000000000000000000000000"] {
        let timestamp = valid(START).replace("1533254400000", number);
        assert!(refuse(START, timestamp).await.contains("out of range"));
        let quantity = valid(START).replace("0.5", number);
        assert!(refuse(START, quantity).await.contains("out of range"));
        let timestamp = valid(STOP).replace("1533254400000", number);
        assert!(refuse(STOP, timestamp).await.contains("out of range"));
    }
    for number in [
        "01533254400000",
        "+1533254400000",
        ".5",
        "5.",
        "0x10",
        "1_000",
        "Infinity",
    ] {
        refuse(START, valid(START).replace("1533254400000", number)).await;
    }
}

#[tokio::test]
async fn a_member_that_is_there_twice_is_refused() {
    for path in ALL {
        for twice in [
            "\"plan_id\":\"large\",\"plan_id\":\"large\"",
            "\"plan_id\":\"large\",\"plan_id\":\"small\"",
            "\"plan_id\":\"large\",\"\\u0070lan_id\":\"small\"",
            "\"plan_id\":\"large\",\"x\":1,\"x\":1",
        ] {
            let body = valid(path).replace("\"plan_id\":\"large\"", twice);
            assert_ne!(body, valid(path));
            assert!(refuse(path, body).await.contains("two members of one name"));
        }
    }
    let in_measure = "\"quantity\":0.5,\"quantity\":0.5";
    refuse(START, valid(START).replace("\"quantity\":0.5", in_measure)).await;
    let in_quantity = "[{\"a\":{\"b\":1,\"b\":2}}]";
    refuse(START, valid(START).replace("0.5", in_quantity)).await;
}

#[tokio::test]
async fn fault_17_what_a_body_holds_is_neither_answered_nor_logged() {
    let log = Log::default();
    let _logging = tracing::subscriber::set_default(log.subscriber());
    let world = World::new();
    let broken = [
        "{\"hush\"",
        "hush",
        "{\"hush\":1,\"hush\":2}",
        "[\"hush\\x\"]",
        "{\"a\":hush}",
    ];
    for body in broken.map(str::to_owned) {
        let answer = world.send(request(START, body)).await;
        answer.names(400, "malformed-json", &[]);
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(!text.contains("hush"), "{text}");
    }
    let wrong = valid(START).replace("\"large\"", "{\"a\":\"hush\"}");
    let answer = world.send(request(START, wrong)).await;
    answer.names(400, "invalid-event", &["#/plan_id"]);
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(!text.contains("hush"), "{text}");
    let text = log.text();
    assert_eq!(text.matches("\"message\":\"refused\"").count(), 6, "{text}");
    assert!(!text.contains("hush"), "{text}");
}

/// No id is an operator of the database: neither in an event nor in a query.
#[tokio::test]
async fn an_operator_in_the_place_of_an_id_is_refused() {
    let world = World::new();
    for operator in [
        json!({ "$ne": "" }),
        json!({ "$gt": "" }),
        json!({ "$where": "1" }),
        json!(["$ne"]),
    ] {
        for (path, field) in [
            (START, "resource_id"),
            (START, "id"),
            (STOP, "resource_instance_id"),
            (STOP, "id"),
            (MAPPINGS, "plan_id"),
        ] {
            let mut body: Value = serde_json::from_str(&valid(path)).unwrap();
            body[field] = operator.clone();
            let answer = world.post(path, &body).await;
            assert_eq!(answer.status, 400, "{path} {body}: {answer:?}");
        }
    }
    for query in [
        "resource_id[$ne]=x",
        "organization_id=o&plan_id[$gt]=",
        "$where=1",
    ] {
        let request = Request::get(format!("/v1/spans?{query}")).body(Body::empty());
        world
            .send(request.unwrap())
            .await
            .problem(400, "invalid-query");
    }
    assert_eq!(world.store.calls(), 0);
    // What begins like one is an id like others.
    let event = with(&start(NOW), "resource_id", "$ne");
    world.start(&event).await.is_created();
    world.assert_kept(&[(&event, None)]);
}
