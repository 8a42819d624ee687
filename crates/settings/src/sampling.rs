//! How spans are cut into intervals, and how far events may be dated from now.

use std::time::Duration;

use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularities, Granularity, Policy, Slack};
use sampler_service::settings::{Kind, Setting};

use crate::{DAY, YEAR, millis};

sampler_service::settings! {
    /// How spans are cut into intervals.
    pub struct SamplingSettings("sampling") {
        /// The length of an interval, in UTC. It is the finest window for which Abacus's reports are
        /// right.
        dimension: Option<Granularity> = "SAMPLER_DIMENSION",
            Kind::Choice(&["minute", "hour", "day", "month"]), or("day") => dimension;
        /// Other dimensions for some resources, or for some plans of them.
        dimension_overrides: Option<Vec<GranularityOverride>> = "SAMPLER_DIMENSION_OVERRIDES",
            Kind::Text => overrides;
        /// How long an interval of an open span waits after its end for a late stop.
        stop_grace: Duration = "SAMPLER_STOP_GRACE", Kind::time(Duration::ZERO, DAY), or("0ms");
    }

    /// How far the timestamp of an event may be from the present.
    pub struct SlackSettings("slack") {
        /// How far in the past an event may be dated.
        past: Duration = "SAMPLER_SLACK_PAST_INTERVAL", Kind::time(Duration::ZERO, YEAR),
            or("61d");
        /// How far in the future an event may be dated.
        future: Duration = "SAMPLER_SLACK_FUTURE_INTERVAL", Kind::time(Duration::ZERO, YEAR),
            or("61d");
    }
}

impl SamplingSettings {
    /// The table without a default for the dimension: a receiver that is not told how spans are
    /// sampled has each looked at after its first minute, which is early enough for any worker.
    pub const TABLE_OF_THE_RECEIVER: [Setting; 3] = {
        let mut table = Self::TABLE;
        let dimension = Setting::position(&table, "SAMPLER_DIMENSION");
        table[dimension].default = None;
        table[dimension].doc = "The length of an interval, as for the worker. It saves the worker one read \
                        of each span. A longer one than the worker's makes first intervals late.";
        table
    };

    /// What the domain makes of it. Where nothing is set, and the table has no default, `otherwise`
    /// applies.
    pub fn policy(self, otherwise: Granularity) -> Policy {
        let default = self.dimension.unwrap_or(otherwise);
        let overrides = self.dimension_overrides.unwrap_or_default();
        Policy {
            granularities: Granularities::new(default, overrides)
                .expect("overrides that are there twice are refused when they are read"),
            grace: millis(self.stop_grace),
        }
    }
}

impl SlackSettings {
    /// What the domain makes of it.
    pub fn slack(&self) -> Slack {
        Slack {
            past: millis(self.past),
            future: millis(self.future),
        }
    }
}

fn dimension(text: &str) -> Result<Granularity, String> {
    text.parse()
        .map_err(|error: sampler_domain::granularity::GranularityError| error.to_string())
}

fn overrides(text: &str) -> Result<Vec<GranularityOverride>, String> {
    let expected = r#"a list such as [{"resource_id":"postgres","plan_id":"large","granularity":"hour"}], where plan_id may be left out"#;
    let overrides: Vec<GranularityOverride> =
        serde_json::from_str(text).map_err(|error| format!("{expected}: {error}"))?;
    Granularities::new(Granularity::Day, overrides.clone())
        .map_err(|error| format!("{expected}: {error}"))?;
    Ok(overrides)
}
