//! The division of spans into intervals, when a month closes, and the slack of events' timestamps.

use std::time::Duration;

use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularities, Granularity, Policy, Slack};
use sampler_service::settings::{Kind, Reader, Setting};

use crate::{DAY, YEAR, millis};

sampler_service::settings! {
    /// The division of spans into intervals.
    pub struct SamplingSettings("sampling", checked by SamplingSettings::check) {
        /// The granularity: the length of an interval, in UTC. It is the finest window for which
        /// the upstream's reports are right.
        dimension: Option<Granularity> = "SAMPLER_DIMENSION",
            Kind::Choice(&["minute", "hour", "day", "month"]), or("day") => dimension;
        /// Other granularities for some resources, or for some plans of them.
        dimension_overrides: Option<Vec<GranularityOverride>> = "SAMPLER_DIMENSION_OVERRIDES",
            Kind::Text => overrides;
        /// How long an interval of an open span waits after its end for a late stop. The
        /// worker's counts; a longer one of a receiver makes the first interval late.
        stop_grace: Duration = "SAMPLER_STOP_GRACE", Kind::Duration(Duration::ZERO, DAY), or("0ms");
    }

    // In the section of the worker's `DeliverySettings`.
    /// When a month closes.
    pub struct MonthSettings("abacus") {
        /// How long into a month the upstream accepts usages of the previous month (Abacus's SLACK).
        month_slack: Duration = "SAMPLER_MONTH_SLACK",
            Kind::Duration(Duration::ZERO, Duration::from_hours(24 * 27)), or("10m");
    }

    /// How far the timestamp of an event may be from the present.
    pub struct SlackSettings("slack") {
        /// How far in the past an event may be dated, and no further than SAMPLER_RETENTION of the
        /// workers less an hour.
        past: Duration = "SAMPLER_SLACK_PAST_INTERVAL", Kind::Duration(Duration::ZERO, YEAR),
            or("61d");
        /// How far in the future an event may be dated.
        future: Duration = "SAMPLER_SLACK_FUTURE_INTERVAL", Kind::Duration(Duration::ZERO, YEAR),
            or("61d");
    }
}

impl MonthSettings {
    /// The receiver's table.
    pub const RECEIVER_TABLE: [Setting; 1] = {
        let [mut month_slack] = Self::TABLE;
        month_slack.doc = "How long into a month the upstream accepts usages of the previous month (Abacus's SLACK), \
            as for the worker. It only decides what is shown of the month that closes.";
        [month_slack]
    };
}

impl SamplingSettings {
    /// The receiver's table. The granularity has no default: without it, the receiver makes each span
    /// due at the next minute (plus the grace), and the worker corrects that.
    pub const RECEIVER_TABLE: [Setting; 3] = {
        let [mut dimension, overrides, mut grace] = Self::TABLE;
        dimension.default = None;
        dimension.doc = "The granularity, as for the worker. With it, the receiver saves the \
            worker one read of each span. A coarser one than the worker's makes first intervals late.";
        grace.doc = "The grace for late stops, as for the worker. It decides when a \
            worker first reads a new span (without it the worker reads each span once more), and, while \
            no worker counts the backlog, which spans count for the month that closes. A longer one than \
            the worker's makes first intervals late.";
        [dimension, overrides, grace]
    };

    /// The policy of the domain. Without a granularity it is the minute: the finest one makes no span due
    /// too late.
    pub fn policy(&self) -> Policy {
        let default = self.dimension.unwrap_or(Granularity::Minute);
        let overrides = self.dimension_overrides.clone().unwrap_or_default();
        Policy {
            granularities: Granularities::new(default, overrides)
                .expect("duplicate overrides are refused when they are read"),
            stop_grace: millis(self.stop_grace),
        }
    }

    fn check(&self, reader: &mut Reader) {
        if self.dimension.is_none() && self.dimension_overrides.is_some() {
            reader.complain(
                "SAMPLER_DIMENSION_OVERRIDES (sampling.dimension_overrides) is set without \
                 SAMPLER_DIMENSION (sampling.dimension): the receiver needs both or none",
            );
        }
    }
}

impl SlackSettings {
    /// The slack of the domain.
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
