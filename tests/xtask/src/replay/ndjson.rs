//! Events as lines of JSON.

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

use super::moment::take_moment;
use super::{Event, Kind, Target};

pub(super) fn parse(text: &str, now: i64) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let event = parse_line(line, now).with_context(|| format!("line {}", number + 1))?;
        events.push(event);
    }
    Ok(events)
}

fn parse_line(line: &str, now: i64) -> Result<Event> {
    let mut fields: Map<String, Value> = serde_json::from_str(line).context("not a JSON object")?;
    let kind = fields.shift_remove("type").unwrap_or_default();
    let kind = match kind.as_str() {
        Some("start") => Kind::Start,
        Some("stop") => Kind::Stop,
        Some("update") => Kind::Update(previous(&fields)?),
        _ => bail!("\"type\" is not \"start\", \"stop\" or \"update\""),
    };
    let timestamp = take_moment(&mut fields, now)?;
    let after = fields.shift_remove("after");
    let after_sampled = match after.as_ref().map(|after| (&kind, after.as_str())) {
        None => false,
        Some((Kind::Stop, Some("sampled"))) => true,
        Some(_) => bail!("\"after\" can only be \"sampled\", and only of a stop"),
    };
    let target = Target::read(|name| fields.get(name).and_then(Value::as_str))?;
    Ok(Event {
        kind,
        timestamp,
        target,
        fields: Value::Object(fields),
        after_sampled,
    })
}

/// The target whose span an update ends.
fn previous(fields: &Map<String, Value>) -> Result<Target> {
    let previous = fields.get("previous");
    Target::read(|name| {
        let own = fields.get(name);
        previous
            .and_then(|previous| previous.get(name))
            .or(own)
            .and_then(Value::as_str)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(more: &Value) -> String {
        let mut event = json!({
            "organization_id": "o", "space_id": "s", "consumer_id": "c", "resource_id": "r",
            "plan_id": "p", "resource_instance_id": "i",
        });
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        event.to_string()
    }

    #[test]
    fn reads_events_and_leaves_out_comments() {
        let start = json!({ "type": "start", "timestamp": 5, "measured_usage": [], "id": "1" });
        let stop = json!({ "type": "stop", "timestamp": 6, "after": "sampled" });
        let text = format!("# a comment\n\n{}\n  {}\n", line(&start), line(&stop));
        let events = parse(&text, 0).unwrap();
        assert_eq!(events[0].kind, Kind::Start);
        assert_eq!(events[1].kind, Kind::Stop);
        assert_eq!(
            (events[0].after_sampled, events[1].after_sampled),
            (false, true)
        );
        assert_eq!(events[0].target.0, ["o", "s", "c", "r", "p", "i"]);
        let body = events[0].body();
        assert_eq!((&body["timestamp"], &body["id"]), (&json!(5), &json!("1")));
        assert_eq!(body.as_object().unwrap().len(), 9, "{body}");
        assert_eq!(events[1].body().as_object().unwrap().len(), 7);
    }

    #[test]
    fn an_update_ends_the_span_of_its_previous_target() {
        let update = json!({ "type": "update", "timestamp": 5, "previous": { "plan_id": "q" } });
        let events = parse(&line(&update), 0).unwrap();
        let ended = events[0].ended().unwrap();
        assert_eq!(ended.0, ["o", "s", "c", "r", "q", "i"]);
        assert_eq!(events[0].target.0[4], "p");
        assert_eq!(events[0].body()["previous"], update["previous"]);
    }

    #[test]
    fn says_which_line_is_wrong() {
        for wrong in [
            "{".to_owned(),
            line(&json!({ "type": "updated", "timestamp": 5 })),
            line(&json!({ "type": "update", "timestamp": 5, "previous": { "plan_id": 5 } })),
            line(&json!({ "type": "start" })),
            line(&json!({ "type": "start", "timestamp": 5, "plan_id": 5 })),
            line(&json!({ "type": "start", "timestamp": 5, "after": "sampled" })),
            line(&json!({ "type": "stop", "timestamp": 5, "after": "noon" })),
        ] {
            let error = parse(&format!("#\n{wrong}"), 0).unwrap_err();
            assert_eq!(error.to_string(), "line 2", "{wrong}");
        }
    }
}
