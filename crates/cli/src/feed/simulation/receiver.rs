//! A receiver as the simulation needs it: spans, repeats, refusals and the comparison of a snapshot.

use std::collections::{BTreeMap, HashMap};

use sampler_api::SnapshotReport;
use sampler_verify::moment::Millis;
use serde_json::{Value, json};

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
    /// How many differences of a kind an answer names at most, if not all.
    pub(super) most: Option<usize>,
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

    pub(super) fn compare(&self, body: &str) -> SnapshotReport {
        let mut lines = body
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let head = lines.next().unwrap();
        let instances: BTreeMap<String, Value> = lines
            .map(|line| {
                (
                    line["resource_instance_id"].as_str().unwrap().to_owned(),
                    line,
                )
            })
            .collect();
        let at = head["at"].as_i64().unwrap();
        let (mut ended, mut missing, mut differs) = (Vec::new(), Vec::new(), Vec::new());
        let proposal = |kind: &str, key: &str, measures: Option<&Value>| {
            let mut event = target(key);
            event["type"] = json!(kind);
            event["id"] = json!(format!("snapshot-{kind}-{key}-{at}"));
            event["timestamp"] = json!(at);
            if let Some(measures) = measures {
                event["measured_usage"] = measures.clone();
            }
            event
        };
        for (key, spans) in &self.spans {
            let Some(span) = spans.last().filter(|span| span.2.is_none()) else {
                continue;
            };
            match instances.get(key) {
                None => ended.push(json!({
                    "span": "1", "target": target(key), "start": span.0,
                    "proposal": proposal("stop", key, None),
                })),
                Some(instance) if instance["measured_usage"] != span.1 => {
                    let measures = &instance["measured_usage"];
                    let said = json!({});
                    differs.push(json!({
                        "span": "1", "expected": said, "kept": said,
                        "proposal": proposal("update", key, Some(measures)),
                    }));
                }
                Some(_) => {}
            }
        }
        for (key, instance) in &instances {
            let spans = self.spans.get(key).and_then(|spans| spans.last());
            if spans.is_none_or(|span| span.2.is_some()) {
                let measures = &instance["measured_usage"];
                missing.push(json!({
                    "target": target(key), "proposal": proposal("start", key, Some(measures)),
                }));
            }
        }
        let mut is_cut = false;
        // Spans that are left to their events stay in the first list, so that is long.
        for found in [&mut missing, &mut differs] {
            let most = self.most.unwrap_or(found.len());
            is_cut |= found.len() > most;
            found.truncate(most);
        }
        serde_json::from_value(json!({
            "more": is_cut, "at": at, "checked": instances.len(), "open_without_instance": ended,
            "instance_without_span": missing, "differs": differs,
        }))
        .unwrap()
    }
}

fn target(key: &str) -> Value {
    json!({
        "organization_id": "o", "space_id": "s", "consumer_id": format!("app:{key}"),
        "resource_id": "linux-container", "plan_id": "basic", "resource_instance_id": key,
    })
}
