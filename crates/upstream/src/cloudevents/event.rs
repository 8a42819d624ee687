//! A usage as a CloudEvent.

use std::collections::BTreeSet;

use sampler_domain::measure::DURATION;
use sampler_domain::{Interval, Measure, Target, Usage};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::decimal::product;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventAttributes {
    source: String,
    kind: String,
}

/// The event, in the order in which it is sent.
#[derive(Serialize)]
struct Event<'a> {
    specversion: &'static str,
    id: &'a str,
    source: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    subject: &'a str,
    time: String,
    datacontenttype: &'static str,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    target: &'a Target,
    interval: Interval,
    duration: String,
    quantities: Members<'a>,
    amounts: Members<'a>,
}

/// An object, in the order of its members.
struct Members<'a>(Vec<(&'a str, String)>);

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl EventAttributes {
    pub fn new(source: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            source: source.into(),
            kind: kind.into(),
        }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// The bytes of the event of a usage. They follow from the usage and the settings alone.
    pub fn event(&self, usage: &Usage) -> Vec<u8> {
        let duration = usage.interval.duration();
        let measures = measures(usage);
        let numbers = measures.iter().filter_map(|measure| {
            let Value::Number(number) = measure.quantity.as_json() else {
                return None;
            };
            Some((measure.measure.as_str(), product(number, duration)))
        });
        let event = Event {
            specversion: "1.0",
            id: &usage.dedup_id,
            source: &self.source,
            kind: &self.kind,
            subject: usage.target.organization_id.as_str(),
            time: usage.end.to_string(),
            datacontenttype: "application/json",
            data: Data {
                target: &usage.target,
                interval: usage.interval,
                duration: duration.to_string(),
                amounts: Members(numbers.collect()),
                quantities: Members(measures.iter().map(|it| quantity(it)).collect()),
            },
        };
        serde_json::to_vec(&event).expect("ids, numbers and JSON values serialise")
    }
}

/// The measures of the start event. The original Sampler let one be named twice: its first quantity counts.
fn measures(usage: &Usage) -> Vec<&Measure> {
    let mut named = BTreeSet::new();
    let measures = usage.measured_usage.iter();
    let own = measures.filter(|it| it.measure.as_str() != DURATION);
    own.filter(|it| named.insert(it.measure.as_str())).collect()
}

/// A quantity: a decimal, or else JSON text.
fn quantity(measure: &Measure) -> (&str, String) {
    let quantity = match measure.quantity.as_json() {
        Value::Number(number) => product(number, 1),
        other => other.to_string(),
    };
    (measure.measure.as_str(), quantity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sampler_domain::{Delivery, Id, Measures, Quantity, Span, SpanId, StartEvent, Timestamp};
    use serde_json::json;

    fn usage(measures: &[(&str, Value)], start: i64, end: i64) -> Usage {
        let at = Timestamp::clamped;
        let measures = measures.iter().map(|(name, value)| Measure {
            measure: Id::new(*name).unwrap(),
            quantity: Quantity::new(value.clone()).unwrap(),
        });
        let event = StartEvent {
            id: None,
            timestamp: at(0),
            target: Target::from_store(["o\"1", "s", "c", "postgres", "large", "i"]),
            measures: Measures::new(measures.collect()).unwrap(),
        };
        let span = Span::open(SpanId::new(at(0), 0), event, at(0));
        let interval = Interval {
            start: at(start),
            end: at(end),
        };
        let delivery = Delivery {
            interval,
            usage_guid: "u-1".to_owned(),
            is_again: false,
        };
        Usage::new(&span, &delivery)
    }

    fn text(measures: &[(&str, Value)], start: i64, end: i64) -> String {
        let attributes = EventAttributes::new("sampler", "sampler.usage");
        let event = attributes.event(&usage(measures, start, end));
        String::from_utf8(event).unwrap()
    }

    #[test]
    fn an_event_is_in_the_order_and_the_forms_of_the_contract() {
        let measures = [
            ("memory", json!(512.0)),
            ("share", json!(0.5)),
            ("kind", json!("x\"y")),
            ("list", json!([1, {"b": 1, "a": 2}])),
        ];
        assert_eq!(
            text(&measures, 1_795_186_800_000, 1_795_183_200_000),
            concat!(
                r#"{"specversion":"1.0","id":"u-1","source":"sampler","type":"sampler.usage","#,
                r#""subject":"o\"1","time":"2026-11-20T14:30:00.000Z","#,
                r#""datacontenttype":"application/json","data":{"organization_id":"o\"1","#,
                r#""space_id":"s","consumer_id":"c","resource_id":"postgres","plan_id":"large","#,
                r#""resource_instance_id":"i","#,
                r#""interval":{"start":1795186800000,"end":1795183200000},"#,
                r#""duration":"-3600000","#,
                r#""quantities":{"memory":"512","share":"0.5","kind":"\"x\\\"y\"","#,
                r#""list":"[1,{\"b\":1,\"a\":2}]"},"#,
                r#""amounts":{"memory":"-1843200000","share":"-1800000"}}}"#,
            )
        );
    }

    #[test]
    fn without_measures_both_objects_are_empty() {
        let event = text(&[], 0, 1_001);
        assert!(
            event.contains(r#""time":"1970-01-01T00:00:00.500Z""#),
            "{event}"
        );
        assert!(
            event.ends_with(r#""duration":"1001","quantities":{},"amounts":{}}}"#),
            "{event}"
        );
    }
}
