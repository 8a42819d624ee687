//! Usages, and their sums.

use sampler_domain::Timestamp;
use sampler_domain::units::{Hourly, Unit};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};
use utoipa::ToSchema;

use crate::{Interval, Measure, Moment, Target};

/// An entry of the ledger: a usage that the upstream has accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    #[schema(example = "ad1f2853-43e0-5cbf-b4f7-39fd0d67600c")]
    pub id: String,
    pub span: String,
    pub interval: Interval,
    #[schema(value_type = Moment)]
    pub timestamp: Timestamp,
    /// In ms; negative where it takes something back.
    pub duration: i64,
    /// As it is posted upstream: the measures of the start, then `duration`.
    pub measured_usage: Vec<Measure>,
    #[schema(value_type = Moment)]
    pub accepted_at: Timestamp,
    pub status: Option<u16>,
    pub location: Option<String>,
}

/// A usage that was accepted, and is not found to count yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unconfirmed {
    #[schema(example = "ad1f2853-43e0-5cbf-b4f7-39fd0d67600c")]
    pub usage: String,
    pub span: String,
    pub target: Target,
    pub interval: Interval,
    /// In ms; negative where it takes something back.
    pub duration: i64,
    /// Why it does not count. Null while the upstream is still asked.
    pub error: Option<String>,
    /// Since when it is known not to count; without an error, when it was accepted.
    #[schema(value_type = Moment)]
    pub since: Timestamp,
}

/// The sum of the usages of a group in a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Sum {
    pub window: Interval,
    /// The fields that were grouped by, in the order in which they were asked for.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    pub group: Map<String, Value>,
    pub usages: u64,
    /// In ms.
    #[schema(value_type = Option<f64>)]
    pub duration: Option<Number>,
    pub measures: Vec<Amount>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    #[schema(example = "memory")]
    pub measure: String,
    /// Quantity × duration in ms; null where a quantity is not a number.
    #[schema(value_type = Option<f64>)]
    pub amount: Option<Number>,
    /// The unit of the quantity, so that the amount is in unit × ms; only where `SAMPLER_UNITS` names
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "MB")]
    pub unit: Option<String>,
}

impl Amount {
    /// How the amount is shown by the hour, where its measure has a unit.
    pub fn hourly(&self) -> Option<Hourly> {
        Some(Unit::new(self.unit.as_ref()?).hourly())
    }

    /// The amount by the hour.
    pub fn by_the_hour(&self) -> Option<String> {
        Some(self.hourly()?.of(self.amount.as_ref()?.as_f64()?))
    }
}

impl Sum {
    /// The value of a field that was grouped by.
    pub fn field(&self, name: &str) -> &str {
        let value = self.group.get(name).and_then(Value::as_str);
        value.unwrap_or_default()
    }

    /// The duration in ms, where it is a whole number.
    pub fn millis(&self) -> Option<i64> {
        self.duration.as_ref()?.as_i64()
    }

    /// The duration in ms, as the API writes it.
    pub fn duration(&self) -> String {
        self.duration
            .as_ref()
            .map(Number::to_string)
            .unwrap_or_default()
    }
}
