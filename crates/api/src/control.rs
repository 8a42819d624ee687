//! The control of operators.

use std::collections::BTreeMap;

use sampler_domain::plain;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

use crate::given::{Distinct, object};

/// The control of operators. A request has all members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Control {
    #[serde(deserialize_with = "object")]
    pub starts: StartRates,
    #[serde(deserialize_with = "object")]
    pub sampling: SamplingControl,
    #[serde(deserialize_with = "object")]
    pub controller: ControllerSettings,
    /// Why it is set: in requests alone, and required there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schema(example = "The upstream is slow.", max_length = 1000)]
    pub reason: String,
}

/// Percentages of new starts that are admitted: of all, and of single resources. They multiply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRates {
    #[serde(serialize_with = "plain")]
    #[schema(minimum = 0, maximum = 100, example = 100)]
    pub rate: f64,
    #[serde(serialize_with = "plain_each", deserialize_with = "distinct")]
    #[schema(example = json!({ "postgres": 50 }))]
    pub resources: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SamplingControl {
    #[schema(example = false)]
    pub paused: bool,
}

/// The controller that keeps the time that the backlog needs near a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ControllerSettings {
    #[schema(example = false)]
    pub enabled: bool,
    #[serde(serialize_with = "plain")]
    #[schema(example = 600)]
    pub target_seconds: f64,
    #[serde(serialize_with = "plain")]
    #[schema(example = 8)]
    pub kp: f64,
    #[serde(serialize_with = "plain")]
    #[schema(example = 0)]
    pub ki: f64,
    #[serde(serialize_with = "plain")]
    #[schema(example = 0)]
    pub kd: f64,
}

impl Control {
    /// The request that sets it.
    #[must_use]
    pub fn with_reason(self, reason: String) -> Self {
        Self { reason, ..self }
    }
}

impl From<&sampler_domain::Control> for Control {
    fn from(control: &sampler_domain::Control) -> Self {
        let resources = control.starts.resources.iter();
        let controller = control.controller;
        Self {
            starts: StartRates {
                rate: control.starts.rate.get(),
                resources: resources
                    .map(|(id, rate)| (id.clone(), rate.get()))
                    .collect(),
            },
            sampling: SamplingControl {
                paused: control.sampling.paused,
            },
            controller: ControllerSettings {
                enabled: controller.enabled,
                target_seconds: controller.target_seconds,
                kp: controller.kp,
                ki: controller.ki,
                kd: controller.kd,
            },
            reason: String::new(),
        }
    }
}

fn plain_each<S: Serializer>(
    rates: &BTreeMap<String, f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Plain(#[serde(serialize_with = "plain")] f64);
    serializer.collect_map(rates.iter().map(|(name, rate)| (name, Plain(*rate))))
}

fn distinct<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let Distinct(rates) = Distinct::deserialize(deserializer)?;
    Ok(rates.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_no_fraction() {
        let mut control = Control::from(&sampler_domain::Control::default());
        control.starts.resources.insert("postgres".to_owned(), 0.5);
        let text = serde_json::to_string(&control).unwrap();
        let expected = r#"{"starts":{"rate":100,"resources":{"postgres":0.5}},"sampling":{"paused":false},"controller":{"enabled":false,"target_seconds":600,"kp":8,"ki":0,"kd":0}}"#;
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Control>(&text).unwrap(), control);
    }
}
