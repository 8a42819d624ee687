//! The documents of the API, as far as pages show them.

use std::collections::BTreeMap;

use sampler_domain::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Number, Value};

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(crate) struct List<T> {
    pub(crate) items: Vec<T>,
}

/// A span.
#[derive(Debug, Deserialize)]
pub(crate) struct Span {
    pub(crate) id: String,
    pub(crate) target: Target,
    pub(crate) measured_usage: Vec<Measure>,
    pub(crate) start: Timestamp,
    pub(crate) end: Option<Timestamp>,
    pub(crate) state: String,
    pub(crate) start_event_id: Option<String>,
    pub(crate) end_event_id: Option<String>,
    pub(crate) sampled_to: Timestamp,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) planned: Option<Plan>,
    pub(crate) delivery: Delivery,
    pub(crate) proof: Proof,
}

impl Span {
    /// From where to where the planned usage reaches, if one is planned.
    pub(crate) fn planned_interval(&self) -> Option<(Timestamp, Timestamp)> {
        self.planned.as_ref().map(|plan| (plan.start, plan.end))
    }
}

/// A target.
#[derive(Debug, Deserialize)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub(crate) struct Target {
    pub(crate) organization_id: String,
    pub(crate) space_id: String,
    pub(crate) consumer_id: String,
    pub(crate) resource_id: String,
    pub(crate) plan_id: String,
    pub(crate) resource_instance_id: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Measure {
    pub(crate) measure: String,
    pub(crate) quantity: Value,
}

/// The planned interval.
#[derive(Debug, Deserialize)]
pub(crate) struct Plan {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) usage_id: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Delivery {
    pub(crate) attempts: u32,
    pub(crate) last_error: Option<LastError>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct LastError {
    pub(crate) at: Timestamp,
    pub(crate) status: Option<u16>,
    pub(crate) error: String,
}

/// That each millisecond that is used is billed once.
#[derive(Debug, Deserialize)]
pub(crate) struct Proof {
    pub(crate) used: i64,
    pub(crate) billed: i64,
    pub(crate) skipped: i64,
    pub(crate) difference: i64,
    pub(crate) usages: i64,
    pub(crate) since: Timestamp,
}

/// An entry of the ledger.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Usage {
    pub(crate) id: String,
    pub(crate) interval: Interval,
    pub(crate) timestamp: Timestamp,
    pub(crate) duration: i64,
    pub(crate) state: String,
    pub(crate) attempts: u32,
    pub(crate) planned_at: Timestamp,
    pub(crate) accepted_at: Option<Timestamp>,
    pub(crate) status: Option<u16>,
    pub(crate) location: Option<String>,
    pub(crate) error: Option<String>,
}

/// A stretch of time; backwards where it ends before it starts.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Interval {
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

/// Why something was not answered.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Problem {
    #[serde(default)]
    pub(crate) title: String,
    #[serde(default)]
    pub(crate) detail: String,
    #[serde(default)]
    pub(crate) errors: Vec<FieldError>,
}

impl Problem {
    /// One field of a form is wrong.
    pub(crate) fn of_field(name: &str, detail: &str) -> Self {
        let error = FieldError {
            pointer: None,
            parameter: Some(name.to_owned()),
            detail: detail.to_owned(),
        };
        Self {
            title: "Nothing was done".to_owned(),
            detail: String::new(),
            errors: vec![error],
        }
    }

    /// The same in the words of a form, where it names fields: the person who sent it knows of no JSON.
    pub(crate) fn in_a_form(mut self) -> Self {
        if self.errors.is_empty() {
            return self;
        }
        "Nothing was done".clone_into(&mut self.title);
        self.detail.clear();
        for error in &mut self.errors {
            if let Some(pointer) = error.pointer.take() {
                error.parameter = Some(label_of(&pointer).to_owned());
            }
        }
        self
    }
}

/// The label of the field of a form that is sent at a JSON Pointer.
fn label_of(pointer: &str) -> &str {
    match pointer {
        "#/reason" => "Why?",
        "#/starts/rate" => "Admitted of all new starts, %",
        "#/controller/target_seconds" => "Time that the backlog may need, s",
        _ => pointer.rsplit('/').next().unwrap_or(pointer),
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct FieldError {
    pub(crate) pointer: Option<String>,
    pub(crate) parameter: Option<String>,
    pub(crate) detail: String,
}

impl Usage {
    pub(crate) fn is_backward(&self) -> bool {
        self.duration < 0
    }

    /// Whether it can be sent again.
    pub(crate) fn is_resendable(&self) -> bool {
        matches!(self.state.as_str(), "skipped" | "set_aside")
    }

    /// Whether Abacus has it, as far as is known.
    pub(crate) fn is_billed(&self) -> bool {
        matches!(self.state.as_str(), "accepted" | "counted")
    }
}

/// An act in the audit trail.
#[derive(Debug, Deserialize)]
pub(crate) struct ActRecord {
    pub(crate) at: Timestamp,
    pub(crate) who: Option<String>,
    pub(crate) act: String,
    pub(crate) subject: String,
    pub(crate) reason: String,
    pub(crate) before: Value,
    pub(crate) after: Value,
    #[serde(default)]
    pub(crate) outcome: String,
}

/// The sum of usages in a window.
#[derive(Debug, Deserialize)]
pub(crate) struct Sum {
    pub(crate) window: Interval,
    /// The fields that were grouped by, in their order.
    pub(crate) group: Map<String, Value>,
    pub(crate) usages: i64,
    pub(crate) duration: Option<Number>,
    pub(crate) measures: Vec<Amount>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Amount {
    pub(crate) measure: String,
    pub(crate) amount: Option<Number>,
}

impl Sum {
    /// The value of a field that was grouped by.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.group
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// The duration in ms, where it is a whole number.
    pub(crate) fn millis(&self) -> Option<i64> {
        self.duration.as_ref()?.as_i64()
    }

    /// The duration in ms, as the API writes it.
    pub(crate) fn duration(&self) -> String {
        self.duration
            .as_ref()
            .map(Number::to_string)
            .unwrap_or_default()
    }

    /// The amount of a measure, as the API writes it; empty where it has none.
    pub(crate) fn amount(&self, measure: &str) -> String {
        let found = self.measures.iter().find(|it| it.measure == measure);
        let amount = found.and_then(|it| it.amount.as_ref());
        amount.map(Number::to_string).unwrap_or_default()
    }
}

/// A cause of suspended spans.
#[derive(Clone, Debug, Deserialize)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub(crate) struct Cause {
    pub(crate) cause: String,
    pub(crate) status: Option<u16>,
    pub(crate) error: String,
    pub(crate) resource_id: String,
    pub(crate) plan_id: String,
    pub(crate) spans: i64,
    /// Usages that Abacus has set aside for it.
    #[serde(default)]
    pub(crate) set_aside: i64,
    pub(crate) since: Timestamp,
    pub(crate) probe_at: Timestamp,
}

/// An instance of one of the programs.
#[derive(Debug, Deserialize)]
#[allow(clippy::struct_field_names, reason = "these are the names of the API")]
pub(crate) struct Instance {
    pub(crate) program: String,
    pub(crate) instance: String,
    pub(crate) index: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) seen_at: Timestamp,
    pub(crate) state: String,
    pub(crate) failing: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) partitions: Option<i64>,
    pub(crate) paused_by: Vec<String>,
    pub(crate) slack: Option<i64>,
}

impl Instance {
    pub(crate) fn is_up(&self) -> bool {
        self.state == "up"
    }

    /// Why it is not as it should be, or pauses; empty where there is nothing to say.
    pub(crate) fn troubles(&self) -> String {
        let reasons = |what: &str, names: &[String]| {
            (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
        };
        let all = [
            reasons("fails", &self.failing),
            reasons("warns", &self.warnings),
            reasons("pauses", &self.paused_by),
        ];
        all.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// The control of operators.
#[derive(Debug, Deserialize)]
pub(crate) struct Control {
    pub(crate) starts: StartRates,
    pub(crate) sampling: SamplingControl,
    pub(crate) controller: Controller,
}

#[derive(Debug, Deserialize)]
pub(crate) struct StartRates {
    pub(crate) rate: Number,
    pub(crate) resources: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SamplingControl {
    pub(crate) paused: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Controller {
    pub(crate) enabled: bool,
    pub(crate) target_seconds: Number,
    pub(crate) kp: Number,
    pub(crate) ki: Number,
    pub(crate) kd: Number,
}

/// The backlog.
#[derive(Debug, Deserialize)]
pub(crate) struct Backlog {
    pub(crate) due: i64,
    pub(crate) oldest: Option<Timestamp>,
    pub(crate) span_seconds: f64,
    pub(crate) suspended: i64,
    pub(crate) rate: f64,
    pub(crate) closing: Option<Closing>,
}

/// The backlog of the month that closes.
#[derive(Debug, Deserialize)]
pub(crate) struct Closing {
    pub(crate) month: String,
    pub(crate) left: i64,
    pub(crate) closes_at: Timestamp,
    pub(crate) done_at: Option<Timestamp>,
}
