//! How long an interval may be, where it must end, and when it is due.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use chrono::{Datelike, NaiveDate};
use serde::{Deserialize, Serialize};

use crate::{Target, Timestamp, named};

/// The windows within which the upstream accumulates; no interval crosses a boundary between two of
/// them (section 5.2 of the paper). All in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Granularity {
    /// 60,000 ms.
    Minute,
    /// 3,600,000 ms.
    Hour,
    /// 86,400,000 ms.
    Day,
    Month,
}

/// A text that names no granularity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be minute, hour, day or month")]
pub struct GranularityError;

// From the finest to the coarsest.
named! { pub Granularity: Minute = "minute", Hour = "hour", Day = "day", Month = "month" }

impl Granularity {
    /// The next boundary strictly after `time`; none after the last one.
    pub fn boundary_after(self, time: Timestamp) -> Option<Timestamp> {
        if time == Timestamp::MAX {
            return None;
        }
        let next = match self.fixed_length() {
            Some(length) => (time.as_millis().div_euclid(length) + 1) * length,
            None => month_start(time, 1),
        };
        Some(Timestamp::clamped(next))
    }

    /// The next boundary strictly before `time`; none before the first one.
    pub fn boundary_before(self, time: Timestamp) -> Option<Timestamp> {
        if time == Timestamp::MIN {
            return None;
        }
        Some(self.window_of(time.plus(-1)))
    }

    /// The name of the month of a time, such as 2026-10.
    pub fn month_name(time: Timestamp) -> String {
        time.to_utc().format("%Y-%m").to_string()
    }

    /// Where the window that holds `time` starts: the boundary at or before it.
    pub fn window_of(self, time: Timestamp) -> Timestamp {
        let start = match self.fixed_length() {
            Some(length) => time.as_millis().div_euclid(length) * length,
            None => month_start(time, 0),
        };
        Timestamp::clamped(start)
    }

    /// In milliseconds; a month has none. UTC days are all alike, leap seconds are not counted.
    const fn fixed_length(self) -> Option<i64> {
        match self {
            Self::Minute => Some(60_000),
            Self::Hour => Some(3_600_000),
            Self::Day => Some(86_400_000),
            Self::Month => None,
        }
    }
}

/// The start of the month that is `months` after that of `time`, in ms.
fn month_start(time: Timestamp, months: i32) -> i64 {
    let date = time.to_utc().date_naive();
    let month = date.year() * 12 + i32::try_from(date.month0()).expect("0 to 11") + months;
    let in_year = u32::try_from(month.rem_euclid(12)).expect("0 to 11") + 1;
    NaiveDate::from_ymd_opt(month.div_euclid(12), in_year, 1)
        .and_then(|first| first.and_hms_opt(0, 0, 0))
        .expect("every month up to the year 10000 has a first day")
        .and_utc()
        .timestamp_millis()
}

impl FromStr for Granularity {
    type Err = GranularityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::from_name(text).ok_or(GranularityError)
    }
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which granularity applies to which target: a default, overrides by `resource_id`, and before
/// those overrides by `resource_id` and `plan_id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granularities {
    default: Granularity,
    by_resource: HashMap<String, HashMap<Option<String>, Granularity>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GranularityOverride {
    pub resource_id: String,
    /// The plan of the resource that it is for; all without an override of their own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    pub granularity: Granularity,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("resource_id {resource_id:?} with plan_id {plan_id:?} is repeated")]
pub struct OverrideTwice {
    resource_id: String,
    plan_id: Option<String>,
}

impl Granularities {
    pub fn all(default: Granularity) -> Self {
        Self {
            default,
            by_resource: HashMap::new(),
        }
    }

    /// A default with overrides.
    pub fn new(
        default: Granularity,
        overrides: Vec<GranularityOverride>,
    ) -> Result<Self, OverrideTwice> {
        let mut granularities = Self::all(default);
        for GranularityOverride {
            resource_id,
            plan_id,
            granularity,
        } in overrides
        {
            let plans = granularities
                .by_resource
                .entry(resource_id.clone())
                .or_default();
            if plans.insert(plan_id.clone(), granularity).is_some() {
                return Err(OverrideTwice {
                    resource_id,
                    plan_id,
                });
            }
        }
        Ok(granularities)
    }

    /// The overrides: a resource, a plan of it where it is for that alone, and what applies.
    pub fn overrides(&self) -> impl Iterator<Item = (&str, Option<&str>, Granularity)> {
        self.by_resource.iter().flat_map(|(resource, plans)| {
            plans
                .iter()
                .map(move |(plan, granularity)| (resource.as_str(), plan.as_deref(), *granularity))
        })
    }

    pub fn of(&self, target: &Target) -> Granularity {
        let Some(plans) = self.by_resource.get(target.resource_id.as_str()) else {
            return self.default;
        };
        let of_plan = plans.get(&Some(target.plan_id.as_str().to_owned()));
        *of_plan
            .or_else(|| plans.get(&None))
            .unwrap_or(&self.default)
    }
}

/// The policy of sampling: granularity and grace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long intervals are.
    pub granularities: Granularities,
    /// How long after its end an interval of an open span waits for a late stop, in ms.
    pub stop_grace: i64,
}

impl Policy {
    /// When an open span of `target` that is sampled to `time` needs a worker next.
    pub fn open_due_at(&self, target: &Target, time: Timestamp) -> Timestamp {
        let boundary = self.granularities.of(target).boundary_after(time);
        boundary.unwrap_or(Timestamp::MAX).plus(self.stop_grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_ends_on_a_boundary() {
        for granularity in Granularity::ALL {
            assert_eq!(granularity.boundary_after(Timestamp::MAX), None);
            assert_eq!(
                granularity.boundary_after(Timestamp::MAX.plus(-1)),
                Some(Timestamp::MAX)
            );
            assert_eq!(granularity.boundary_before(Timestamp::MIN), None);
            assert_eq!(
                granularity.boundary_before(Timestamp::MIN.plus(1)),
                Some(Timestamp::MIN)
            );
        }
    }

    #[test]
    fn a_plan_overrides_its_resource_and_that_the_default() {
        let target =
            |resource: &str, plan: &str| Target::from_store(["o", "s", "c", resource, plan, "i"]);
        let json = r#"[{"resource_id":"pg","granularity":"hour"},
            {"resource_id":"pg","plan_id":"large","granularity":"minute"},
            {"resource_id":"redis","plan_id":"x","granularity":"month"}]"#;
        let overrides: Vec<GranularityOverride> = serde_json::from_str(json).unwrap();
        let granularities = Granularities::new(Granularity::Day, overrides.clone()).unwrap();
        assert_eq!(
            granularities.of(&target("pg", "large")),
            Granularity::Minute
        );
        assert_eq!(granularities.of(&target("pg", "small")), Granularity::Hour);
        assert_eq!(granularities.of(&target("redis", "x")), Granularity::Month);
        assert_eq!(
            granularities.of(&target("redis", "large")),
            Granularity::Day
        );
        assert!(
            Granularities::new(Granularity::Day, [overrides.clone(), overrides].concat()).is_err()
        );
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for granularity in Granularity::ALL {
            assert_eq!(granularity.to_string().parse(), Ok(granularity));
        }
        assert!("days".parse::<Granularity>().is_err());
    }
}
