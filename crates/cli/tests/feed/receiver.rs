//! A receiver as the simulation needs it: spans, repeats and refusals.

use std::collections::{BTreeMap, HashMap};

use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use crate::feed::gap;

/// A span: since when, how much, and until when.
pub(super) type Span = (Millis, Value, Option<Millis>);

/// A receiver: it knows repeats, and refuses what does not fit.
#[derive(Default)]
pub(super) struct Receiver {
    pub(super) ids: HashMap<String, Value>,
    pub(super) spans: BTreeMap<String, Vec<Span>>,
    pub(super) refused: u64,
    /// How many events it was sent, and how many of these it had already.
    pub(super) taken: u64,
    pub(super) repeated: u64,
}

impl Receiver {
    pub(super) fn take(&mut self, event: &Value) -> bool {
        self.taken += 1;
        let id = event["id"].as_str().unwrap_or_default();
        if let Some(before) = self.ids.get(id) {
            assert_eq!(before, event, "an id says one thing");
            self.repeated += 1;
            return true;
        }
        let key = event["resource_instance_id"].as_str().unwrap_or_default();
        let at = event["timestamp"].as_i64().unwrap_or_default();
        let spans = self.spans.entry(key.to_owned()).or_default();
        let is_open = spans.last().is_some_and(|span| span.2.is_none());
        let starts = event["type"] != "stop";
        let stops = event["type"] != "start";
        let last = spans.last().map_or(at, |span| span.2.unwrap_or(span.0));
        if is_open != stops || at < last {
            self.refused += 1;
            return false;
        }
        if let (true, Some(span)) = (stops, spans.last_mut()) {
            span.2 = Some(at);
        }
        if starts {
            spans.push((at, event["measured_usage"].clone(), None));
        }
        self.ids.insert(id.to_owned(), event.clone());
        true
    }

    /// What `GET /v1/spans?state=open` lists.
    pub(super) fn open(&self) -> Vec<gap::Span> {
        let last = self.spans.iter().filter_map(|(key, spans)| {
            let (start, measures, end) = spans.last()?;
            let span = json!({
                "target": target(key), "measured_usage": measures,
                "start": start, "end": end,
            });
            end.is_none().then(|| serde_json::from_value(span).unwrap())
        });
        last.collect()
    }
}

fn target(key: &str) -> Value {
    json!({
        "organization_id": "o", "space_id": "s", "consumer_id": format!("app:{key}"),
        "resource_id": "linux-container", "plan_id": "basic", "resource_instance_id": key,
    })
}
