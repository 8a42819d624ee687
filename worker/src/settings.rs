//! The settings of the worker, and the checks of those that must fit each other.

use std::time::Duration;

use sampler_domain::{Granularity, Policy};
use sampler_service::security::SecuritySettings;
use sampler_service::settings::{HttpSettings, LogSettings, Program, Reader};
use sampler_settings::worker::{
    AbacusSettings, CleanupSettings, LedgerSettings, ProcessingSettings, ShadowSettings,
    SuspensionSettings, TABLE,
};
use sampler_settings::{DatabaseSettings, SamplingSettings, SlackSettings, millis, receiver};

/// By how much the retention must be longer than the slack. A receiver reads the clock before it calls
/// the store, so a repeat that was in time may reach the store a little later, and by a clock that is
/// a little behind. If its span were removed by then, the event would be kept again.
pub(crate) const RETENTION_MARGIN: Duration = Duration::from_hours(1);

/// The worker on the command line.
pub const PROGRAM: Program = Program {
    name: "sampler-worker",
    about: "Samples spans and posts their usages to Abacus.",
    version: env!("CARGO_PKG_VERSION"),
    settings: TABLE,
    other: receiver::TABLE,
    printouts: &[],
};

/// All settings of the worker.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen.
    pub http: HttpSettings,
    /// Where the spans are.
    pub database: DatabaseSettings,
    /// What is logged.
    pub log: LogSettings,
    /// The credentials, and the checks of callers.
    pub security: SecuritySettings,
    /// How usages are delivered.
    pub abacus: AbacusSettings,
    /// How spans are sampled.
    pub policy: Policy,
    /// How due spans are found and driven.
    pub processing: ProcessingSettings,
    /// How complete spans are removed.
    pub cleanup: CleanupSettings,
    /// How long the ledger keeps entries.
    pub ledger: LedgerSettings,
    /// When spans are suspended, and how they go on.
    pub suspension: SuspensionSettings,
    /// The shadow mode.
    pub shadow: ShadowSettings,
}

impl Settings {
    /// Reads the settings, and checks those that must fit each other.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let settings = Self {
            http: HttpSettings::read(reader),
            database: DatabaseSettings::read(reader),
            log: LogSettings::read(reader),
            security: SecuritySettings::read(reader),
            abacus: AbacusSettings::read(reader),
            policy: SamplingSettings::read(reader).policy(Granularity::Day),
            processing: ProcessingSettings::read(reader),
            cleanup: CleanupSettings::read(reader),
            ledger: LedgerSettings::read(reader),
            suspension: SuspensionSettings::read(reader),
            shadow: ShadowSettings::read(reader),
        };
        settings.check(reader);
        Some(settings)
    }

    /// Values that are fine alone, but together would bill wrongly or never be healthy.
    fn check(&self, reader: &mut Reader<'_>) {
        self.security.require_client(reader);
        let slack = SlackSettings::read(reader);
        if self.cleanup.retention < slack.past + RETENTION_MARGIN {
            reader.complain(
                "SAMPLER_RETENTION (cleanup.retention) is not an hour longer than \
                 SAMPLER_SLACK_PAST_INTERVAL (slack.past): the ids of events would be forgotten \
                 while repeats of them are still taken, and those would be billed twice",
            );
        }
        let abacus = &self.abacus;
        if abacus.retry_first > abacus.retry_limit {
            reader.complain(
                "SAMPLER_RETRY_FIRST (abacus.retry_first) is longer than SAMPLER_RETRY_LIMIT \
                 (abacus.retry_limit)",
            );
        }
        let waits = millis(abacus.retry_limit).max(self.policy.grace);
        if !abacus.month_slack.is_zero() && millis(abacus.month_slack) <= waits {
            reader.complain(
                "SAMPLER_MONTH_SLACK (abacus.month_slack) is not longer than SAMPLER_RETRY_LIMIT \
                 (abacus.retry_limit) and SAMPLER_STOP_GRACE (sampling.stop_grace): usages could \
                 wait until Abacus has closed their month, and would not be billed",
            );
        }
        if self.processing.threshold <= abacus.timeout {
            reader.complain(
                "PROCESS_SPANS_MONITOR_THRESHOLD (processing.threshold) is not longer than \
                 SAMPLER_POST_TIMEOUT (abacus.timeout): a slow Abacus would look like a worker \
                 that hangs",
            );
        }
        let shadow = if self.shadow.enabled {
            self.shadow.interval
        } else {
            Duration::ZERO
        };
        for (pause, threshold, names) in [
            (
                self.processing.interval,
                self.processing.threshold,
                "PROCESS_SCHEDULE_INTERVAL (processing.interval) is not shorter than \
                 PROCESS_SPANS_MONITOR_THRESHOLD (processing.threshold): an idle worker would \
                 never be ready",
            ),
            (
                self.cleanup.interval,
                self.cleanup.threshold,
                "CLEANUP_SCHEDULE_INTERVAL (cleanup.interval) is not shorter than \
                 CLEANUP_SPANS_MONITOR_THRESHOLD (cleanup.threshold): an idle worker would never \
                 be ready",
            ),
            (
                shadow,
                self.processing.threshold,
                "SAMPLER_SHADOW_INTERVAL (shadow.interval) is not shorter than \
                 PROCESS_SPANS_MONITOR_THRESHOLD (processing.threshold): a worker that only looks \
                 would not be ready",
            ),
        ] {
            if pause >= threshold {
                reader.complain(names);
            }
        }
    }
}
