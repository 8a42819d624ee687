//! The settings of the worker alone, and its table.

use std::time::Duration;

use sampler_domain::Backoff;
use sampler_service::security::SecuritySettings;
use sampler_service::settings::{Groups, HttpSettings, Kind, LogSettings};
use url::Url;

use crate::{
    BRIEF, DAY, DatabaseSettings, HOUR, MOMENT, SECOND, SamplingSettings, SlackSettings, millis,
};

sampler_service::settings! {
    /// How usages are delivered.
    pub struct AbacusSettings("abacus") {
        /// Where Abacus's collector is; /v1/metering/collected/usage is appended.
        collector_url: Url = "COLLECTOR_URL", Kind::Url, required();
        /// How long one post of a usage may take.
        timeout: Duration = "SAMPLER_POST_TIMEOUT", Kind::time(BRIEF, HOUR), or("30s");
        /// The most usages that are in flight to Abacus at once; fewer as long as it does not bear
        /// so many.
        concurrency: usize = "SAMPLER_POST_CONCURRENCY", Kind::integer(1, 10_000), or("128");
        /// How long a span waits after its usage could not be delivered for the first time; twice
        /// as long after each further time, less a random part of up to half.
        retry_first: Duration = "SAMPLER_RETRY_FIRST", Kind::time(MOMENT, HOUR), or("1s");
        /// The longest that a span waits after a failure. Shorter than SAMPLER_MONTH_SLACK: a usage
        /// that is tried again after its month was closed is lost.
        retry_limit: Duration = "SAMPLER_RETRY_LIMIT", Kind::time(MOMENT, DAY), or("2m");
        /// How long into a month Abacus takes usages for the month before (its own SLACK). For so
        /// long, usages of that month go before all others.
        month_slack: Duration = "SAMPLER_MONTH_SLACK",
            Kind::time(Duration::ZERO, Duration::from_hours(24 * 27)), or("10m");
        /// Whether an answer of 409 means that Abacus has the usage already. Abacus itself answers
        /// repeats with 202, and never with 409: this is for a gateway in front of it that does.
        accept_conflict: bool = "SAMPLER_ACCEPT_CONFLICT", Kind::Boolean, or("false");
    }

    /// How due spans are found and driven.
    pub struct ProcessingSettings("processing") {
        /// The most spans that are driven at once; more than usages in flight, because each waits
        /// for the database as well.
        concurrency: usize = "SAMPLER_PROCESS_CONCURRENCY", Kind::integer(1, 10_000), or("256");
        /// The most spans that one look for due spans brings.
        batch_size: usize = "PROCESS_BATCH_SIZE", Kind::integer(1, 10_000), or("100");
        /// The pause after a look that found nothing to do.
        interval: Duration = "PROCESS_SCHEDULE_INTERVAL", Kind::time(MOMENT, HOUR), or("1s");
        /// How long the processing loop may be without progress before the worker is not ready.
        threshold: Duration = "PROCESS_SPANS_MONITOR_THRESHOLD", Kind::time(SECOND, DAY), or("60s");
        /// How often a worker tells the others that it is alive; after 20 s without, they take its
        /// spans over.
        heartbeat_interval: Duration = "SAMPLER_HEARTBEAT_INTERVAL",
            Kind::time(BRIEF, Duration::from_secs(10)), or("5s");
        /// How often to look for what an original Sampler wrote into the collection.
        adopt_interval: Duration = "SAMPLER_ADOPT_INTERVAL", Kind::time(MOMENT, HOUR), or("5s");
        /// Whether no original Sampler and no earlier release writes to the collection any more. The
        /// worker then removes the indexes that only those need, and the ids of events count within
        /// their targets.
        original_gone: bool = "SAMPLER_ORIGINAL_GONE", Kind::Boolean, or("false");
    }

    /// How complete spans are removed.
    pub struct CleanupSettings("cleanup") {
        /// The most complete spans that are removed at once.
        batch_size: usize = "CLEANUP_BATCH_SIZE", Kind::integer(1, 10_000), or("100");
        /// The pause after a clean-up that removed less than a batch.
        interval: Duration = "CLEANUP_SCHEDULE_INTERVAL", Kind::time(MOMENT, DAY), or("1s");
        /// How long the clean-up loop may be without progress before the worker is not ready.
        threshold: Duration = "CLEANUP_SPANS_MONITOR_THRESHOLD", Kind::time(SECOND, DAY), or("60s");
        /// How long complete spans are kept after their end, and the ids of their events with them.
        /// At least an hour longer than events may be dated into the past, or a repeat would be
        /// billed twice.
        retention: Duration = "SAMPLER_RETENTION",
            Kind::time(Duration::ZERO, Duration::from_hours(24 * 3_660)), or("62d");
    }

    /// Whether the worker only looks.
    pub struct ShadowSettings("shadow") {
        /// Whether the worker only looks: it compares what an original Sampler decided with what it
        /// would have decided itself, writes nothing to the database and posts nothing.
        enabled: bool = "SAMPLER_SHADOW", Kind::Boolean, or("false");
        /// The pause between two such looks at all spans.
        interval: Duration = "SAMPLER_SHADOW_INTERVAL", Kind::time(MOMENT, DAY), or("30s");
    }
}

impl AbacusSettings {
    /// How long spans wait after failures.
    pub fn backoff(&self) -> Backoff {
        Backoff {
            first: millis(self.retry_first),
            limit: millis(self.retry_limit),
        }
    }
}

/// All settings of the worker.
pub const TABLE: Groups = &[
    &HttpSettings::table("7071"),
    &DatabaseSettings::TABLE,
    &AbacusSettings::TABLE,
    &SamplingSettings::TABLE,
    &SlackSettings::TABLE,
    &ProcessingSettings::TABLE,
    &CleanupSettings::TABLE,
    &ShadowSettings::TABLE,
    &SecuritySettings::TABLE,
    &LogSettings::TABLE,
];
