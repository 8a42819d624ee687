//! Quantities come back as they were sent, to the last bit.

use serde_json::{Value, json};

use super::{assert_agrees, instance, proposals};
use crate::world::{HOUR, NOW, World, request};

const EXACT: &str = "31.245270191439438";

/// A snapshot whose quantities are these texts: a value of JSON in a test may lose the last bit.
fn text(quantities: &[(&str, &str)]) -> String {
    let all: Vec<String> = quantities
        .iter()
        .map(|(name, quantity)| {
            let mut one = instance(name, "large");
            one["measured_usage"] = json!([{ "measure": "memory", "quantity": "?" }]);
            one.to_string().replace("\"?\"", quantity)
        })
        .collect();
    let (at, all) = (NOW - HOUR, all.join(","));
    format!("{{\"resource_id\":\"postgres\",\"at\":{at},\"instances\":[{all}]}}")
}

impl World {
    /// The answer, and its text.
    async fn compare_text(&self, snapshot: &str) -> (Value, String) {
        let request = request(super::SNAPSHOTS, snapshot.to_owned());
        let answer = self.send(request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        (answer.json(), answer.text())
    }

    /// Posts the items of a list of the answer as their text has them.
    async fn apply_text(&self, text: &str) {
        let mut events = Vec::new();
        for part in text.split("\"proposal\":").skip(1) {
            let mut depth = 0;
            let end = part.find(|letter| {
                depth += i32::from(letter == '{') - i32::from(letter == '}');
                depth == 0
            });
            events.push(&part[..=end.unwrap()]);
        }
        let body = format!("[{}]", events.join(","));
        let answer = self.send(request("/v1/events", body)).await;
        let answer = answer.json();
        assert_eq!(answer["accepted"], events.len(), "{answer}");
    }
}

#[tokio::test]
async fn a_quantity_is_proposed_as_it_was_sent() {
    let world = World::new();
    let nested = format!("{{\"a\":[1,{EXACT},{{\"b\":-0.1}}],\"c\":9007199254740994}}");
    for name in ["plain", "nested"] {
        world.starts_one(name, "large", NOW - 2 * HOUR).await;
    }
    let truth = text(&[
        ("plain", EXACT),
        ("nested", &nested),
        ("new", EXACT),
        ("large", "1e300"),
        ("text", "\"a \\\" text\""),
    ]);
    let (answer, said) = world.compare_text(&truth).await;
    assert_eq!(proposals(&answer).len(), 5);
    assert_eq!(said.matches(EXACT).count(), 2 + 1 + 2, "{said}");
    world.apply_text(&said).await;
    assert_agrees(&world.compare_text(&truth).await.0);
}
