//! The division of spans into intervals, when a month closes, and the slack of events' timestamps.

use std::time::Duration;

use sampler_domain::granularity::GranularityOverride;
use sampler_domain::{Granularities, Granularity, Policy, Slack};

use crate::millis;
use crate::reader::Reader;
use crate::table::settings;

settings! {
    /// The division of spans into intervals.
    pub struct SamplingSettings {
        /// The granularity: the length of an interval, in UTC. It is the finest window for which the upstream's
        /// reports are right. The worker's counts; the receiver's saves the worker one read of each span, and a
        /// coarser one than the worker's makes first intervals late.
        dimension: Option<Granularity> = "SAMPLER_DIMENSION";
        /// Other granularities for some resources, or for some plans of them.
        dimension_overrides: Option<Vec<GranularityOverride>> = "SAMPLER_DIMENSION_OVERRIDES";
        /// How long an interval of an open span waits after its end for a late stop. The worker's counts; a
        /// longer one of a receiver makes the first interval late.
        stop_grace: Duration = "SAMPLER_STOP_GRACE", "0ms", in "0ms" to "1d";
    }

    /// When a month closes.
    pub struct MonthSettings {
        /// How long into a month the upstream accepts usages of the previous month (Abacus's SLACK).
        month_slack: Duration = "SAMPLER_MONTH_SLACK", "10m", in "0ms" to "27d";
    }

    /// How far the timestamp of an event may be from the present.
    pub struct SlackSettings {
        /// How far in the past an event may be dated, and no further than SAMPLER_RETENTION of the workers less an
        /// hour.
        past: Duration = "SAMPLER_SLACK_PAST_INTERVAL", "61d", in "0ms" to "366d";
        /// How far in the future an event may be dated.
        future: Duration = "SAMPLER_SLACK_FUTURE_INTERVAL", "61d", in "0ms" to "366d";
    }
}

impl SamplingSettings {
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

    pub(crate) fn check(&self, reader: &mut Reader) {
        if self.dimension.is_none() && self.dimension_overrides.is_some() {
            reader.complain(
                "SAMPLER_DIMENSION_OVERRIDES is set without SAMPLER_DIMENSION: both are needed, or none",
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
