//! The control of operators: how many new starts are admitted, whether sampling is paused, and what
//! the controller is to aim at.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Id, Percent};

/// The control that an operator has set. By default it limits nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Control {
    pub starts: StartRates,
    pub sampling: SamplingControl,
    /// The settings of the controller, which can limit new starts further.
    pub controller: ControllerSettings,
}

/// How many new starts are admitted. All rates that apply to a start multiply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartRates {
    /// Of all starts.
    pub rate: Percent,
    /// Of those of single resources.
    #[serde(with = "pairs")]
    pub resources: BTreeMap<String, Percent>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingControl {
    /// Workers plan and post nothing new.
    pub paused: bool,
}

/// The parameters of the controller, which keeps the time that the backlog needs near a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerSettings {
    pub enabled: bool,
    /// How long the backlog may need at the present rate, s.
    pub target_seconds: f64,
    /// The proportional gain.
    pub kp: f64,
    /// The integral gain, per second.
    pub ki: f64,
    /// The derivative gain, s.
    pub kd: f64,
}

/// A map as a list: names of resources may hold what names of members may not.
mod pairs {
    use super::{BTreeMap, Percent};
    use serde::{Deserialize, Deserializer, Serializer};

    type Rates = BTreeMap<String, Percent>;

    pub(super) fn serialize<S: Serializer>(rates: &Rates, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(rates)
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Rates, D::Error> {
        let pairs: Vec<(String, Percent)> = Deserialize::deserialize(from)?;
        Ok(pairs.into_iter().collect())
    }
}

impl Default for StartRates {
    fn default() -> Self {
        Self {
            rate: Percent::ALL,
            resources: BTreeMap::new(),
        }
    }
}

impl Default for ControllerSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            target_seconds: 600.0,
            kp: 8.0,
            ki: 0.0,
            kd: 0.0,
        }
    }
}

impl StartRates {
    /// Resources at the most that can have rates of their own.
    pub const RESOURCES_MAX: usize = 1_000;

    /// The rate that is set for starts of a resource: the global one times its own.
    pub fn of(&self, resource: &Id) -> Percent {
        let own = self.resources.get(resource.as_str());
        own.map_or(self.rate, |own| self.rate.times(*own))
    }
}

impl ControllerSettings {
    /// The longest target, s: 31 days.
    pub const TARGET_MAX: f64 = 2_678_400.0;

    pub const GAIN_MAX: f64 = 1_000_000.0;

    /// The names of the parameters that are wrong, and what each of them must be. A controller with a
    /// wrong parameter does not run.
    pub fn errors(&self) -> Vec<(&'static str, &'static str)> {
        let mut errors = Vec::new();
        if !(1.0..=Self::TARGET_MAX).contains(&self.target_seconds) {
            let expected = "must be a number of seconds from 1 to 2678400";
            errors.push(("target_seconds", expected));
        }
        for (name, gain) in [("kp", self.kp), ("ki", self.ki), ("kd", self.kd)] {
            if !(0.0..=Self::GAIN_MAX).contains(&gain) {
                errors.push((name, "must be a number from 0 to 1000000"));
            }
        }
        if self.kp == 0.0 && self.ki == 0.0 {
            // Without both nothing would let a start in.
            errors.push(("kp", "must be more than 0 where ki is 0"));
        }
        errors
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these numbers are exact")]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_held_back_by_default() {
        let control = Control::default();
        assert_eq!(control.starts.rate, Percent::ALL);
        assert!(!control.sampling.paused && !control.controller.enabled);
        assert_eq!(Control::default().controller.errors(), []);
    }

    #[test]
    fn the_global_rate_and_that_of_the_resource_multiply() {
        let mut starts = StartRates {
            rate: Percent::of_share(0.5),
            ..StartRates::default()
        };
        let own = Percent::of_share(0.5);
        starts.resources.insert("postgres".to_owned(), own);
        assert_eq!(starts.of(&Id::from_store("postgres")).get(), 25.0);
        assert_eq!(starts.of(&Id::from_store("redis")).get(), 50.0);
    }

    #[test]
    fn each_wrong_parameter_is_named() {
        let wrong = ControllerSettings {
            enabled: true,
            target_seconds: 0.0,
            kp: f64::NAN,
            ki: -1.0,
            kd: 1e9,
        };
        let names: Vec<_> = wrong.errors().iter().map(|error| error.0).collect();
        assert_eq!(names, ["target_seconds", "kp", "ki", "kd"]);
        let nothing = ControllerSettings {
            kp: 0.0,
            ..ControllerSettings::default()
        };
        assert_eq!(nothing.errors().len(), 1);
    }
}
