//! Usage documents, as strictly as Abacus reads them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A discrete usage that fits the schema.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// By which repeats are recognised, together with most of the other fields.
    pub dedup_id: String,
    /// The moment of the usage, ms since epoch.
    pub start: i64,
    /// The same moment again.
    pub end: i64,
    /// Who is charged.
    pub organization_id: String,
    /// The space in that organization.
    pub space_id: String,
    /// The consumer in that space.
    pub consumer_id: String,
    /// The kind of resource.
    pub resource_id: String,
    /// The plan of that resource.
    pub plan_id: String,
    pub resource_instance_id: String,
    /// What was used.
    pub measured_usage: Vec<Measure>,
}

/// One measure of a usage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// Its name.
    pub measure: String,
    /// Anything but null and a boolean.
    pub quantity: Value,
}

/// Why a document is answered with 400; the text is the `name` in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Schema,
    Instance,
}

impl Refusal {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Schema => "Invalid usage: invalid schema",
            Self::Instance => "Invalid usage: invalid resource instance",
        }
    }
}

impl Usage {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let usage: Self = serde_json::from_slice(body).map_err(|_| Refusal::Schema)?;
        if !usage.is_sound() {
            return Err(Refusal::Schema);
        }
        if usage.target().iter().any(|id| id.is_empty()) {
            return Err(Refusal::Instance);
        }
        Ok(usage)
    }

    fn is_sound(&self) -> bool {
        let sound = |measure: &Measure| {
            let kind = !matches!(measure.quantity, Value::Null | Value::Bool(_));
            kind && !measure.measure.is_empty()
        };
        let timely = 0 <= self.start && self.start <= self.end;
        timely
            && !self.dedup_id.is_empty()
            && !self.measured_usage.is_empty()
            && self.measured_usage.iter().all(sound)
    }

    /// Organization, space, consumer, resource, plan and instance.
    pub fn target(&self) -> [&str; 6] {
        [
            &self.organization_id,
            &self.space_id,
            &self.consumer_id,
            &self.resource_id,
            &self.plan_id,
            &self.resource_instance_id,
        ]
    }

    /// The quantity of a measure as the metering function sees it: the last of a name wins.
    pub fn quantity(&self, measure: &str) -> Option<&Value> {
        let last = self
            .measured_usage
            .iter()
            .rev()
            .find(|entry| entry.measure == measure)?;
        Some(&last.quantity)
    }

    /// The length of the usage's interval in ms, negative for a correction; 0 if it has none.
    pub fn duration(&self) -> i128 {
        self.quantity("duration")
            .and_then(Value::as_i64)
            .map_or(0, i128::from)
    }
}
