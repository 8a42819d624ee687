//! What an operator can set of the worker.

use std::time::Duration;

use sampler_domain::{Backoff, Granularity, Policy};
use sampler_service::security::{SECURITY, SecuritySettings};
use sampler_service::settings::{
    self, DATABASE, DatabaseSettings, HttpSettings, Kind, LOG, LogSettings, Program, Reader,
    SAMPLING, SLACK, Setting, SlackSettings, read_policy,
};
use url::Url;

const MOMENT: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// By how much the retention must be longer than the slack. A receiver looks at the clock before it
/// calls the store: a repeat that was in time may be kept a little later, and by a clock that is a
/// little behind. Had its span been removed by then, it would be kept again.
const RETENTION_MARGIN: Duration = HOUR;

/// A setting of the worker alone that takes a length of time.
const fn time(
    key: &'static str,
    env: &'static str,
    (min, max): (Duration, Duration),
    doc: &'static str,
) -> Setting {
    Setting::new(key, env, Kind::Duration { min, max }, doc)
}

const ABACUS: [Setting; 7] = [
    Setting::new(
        "abacus.collector_url",
        "COLLECTOR_URL",
        Kind::Url,
        "Where Abacus's collector is; /v1/metering/collected/usage is appended.",
    )
    .required(),
    time(
        "abacus.timeout",
        "SAMPLER_POST_TIMEOUT",
        (Duration::from_millis(100), HOUR),
        "How long one post of a usage may take.",
    )
    .or("30s"),
    Setting::new(
        "abacus.concurrency",
        "SAMPLER_POST_CONCURRENCY",
        Kind::Integer {
            min: 1,
            max: 10_000,
        },
        "The most usages that are in flight to Abacus at once; fewer as long as it does not bear \
         so many.",
    )
    .or("128"),
    time(
        "abacus.retry_first",
        "SAMPLER_RETRY_FIRST",
        (MOMENT, HOUR),
        "How long a span waits after its usage could not be delivered for the first time; twice \
         as long after each further time, less a random part of up to half.",
    )
    .or("1s"),
    time(
        "abacus.retry_limit",
        "SAMPLER_RETRY_LIMIT",
        (MOMENT, DAY),
        "The longest that a span waits after a failure. Shorter than SAMPLER_MONTH_SLACK: a usage \
         that is tried again after its month was closed is lost.",
    )
    .or("2m"),
    time(
        "abacus.month_slack",
        "SAMPLER_MONTH_SLACK",
        (Duration::ZERO, Duration::from_hours(24 * 27)),
        "How long into a month Abacus takes usages for the month before (its own SLACK). For so \
         long, usages of that month go before all others.",
    )
    .or("10m"),
    Setting::new(
        "abacus.accept_conflict",
        "SAMPLER_ACCEPT_CONFLICT",
        Kind::Boolean,
        "Whether an answer of 409 means that Abacus has the usage already. Abacus itself answers \
         repeats with 202, and never with 409: this is for a gateway in front of it that does.",
    )
    .or("false"),
];

const PROCESSING: [Setting; 6] = [
    Setting::new(
        "processing.concurrency",
        "SAMPLER_PROCESS_CONCURRENCY",
        Kind::Integer {
            min: 1,
            max: 10_000,
        },
        "The most spans that are driven at once; more than usages in flight, because each waits \
         for the database as well.",
    )
    .or("256"),
    Setting::new(
        "processing.batch_size",
        "PROCESS_BATCH_SIZE",
        Kind::Integer {
            min: 1,
            max: 10_000,
        },
        "The most spans that one look for due spans brings.",
    )
    .or("100"),
    time(
        "processing.interval",
        "PROCESS_SCHEDULE_INTERVAL",
        (MOMENT, HOUR),
        "The pause after a look that found nothing to do.",
    )
    .or("1s"),
    time(
        "processing.threshold",
        "PROCESS_SPANS_MONITOR_THRESHOLD",
        (SECOND, DAY),
        "How long the processing loop may be without progress before the worker is not ready.",
    )
    .or("60s"),
    time(
        "processing.heartbeat_interval",
        "SAMPLER_HEARTBEAT_INTERVAL",
        (Duration::from_millis(100), Duration::from_secs(10)),
        "How often a worker tells the others that it is alive; after 20 s without, they take its \
         spans over.",
    )
    .or("5s"),
    time(
        "processing.adopt_interval",
        "SAMPLER_ADOPT_INTERVAL",
        (MOMENT, HOUR),
        "How often to look for what an original Sampler wrote into the collection.",
    )
    .or("5s"),
];

const CLEANUP: [Setting; 4] = [
    Setting::new(
        "cleanup.batch_size",
        "CLEANUP_BATCH_SIZE",
        Kind::Integer {
            min: 1,
            max: 10_000,
        },
        "The most complete spans that are removed at once.",
    )
    .or("100"),
    time(
        "cleanup.interval",
        "CLEANUP_SCHEDULE_INTERVAL",
        (MOMENT, DAY),
        "The pause after a clean-up that removed less than a batch.",
    )
    .or("1s"),
    time(
        "cleanup.threshold",
        "CLEANUP_SPANS_MONITOR_THRESHOLD",
        (SECOND, DAY),
        "How long the clean-up loop may be without progress before the worker is not ready.",
    )
    .or("60s"),
    time(
        "cleanup.retention",
        "SAMPLER_RETENTION",
        (Duration::ZERO, Duration::from_hours(24 * 3_660)),
        "How long complete spans are kept after their end, and the ids of their events with them. \
         At least an hour longer than events may be dated into the past, or a repeat would be \
         billed twice.",
    )
    .or("62d"),
];

const SHADOW: [Setting; 2] = [
    Setting::new(
        "shadow.enabled",
        "SAMPLER_SHADOW",
        Kind::Boolean,
        "Whether the worker only looks: it compares what an original Sampler decided with what it \
         would have decided itself, writes nothing to the database and posts nothing.",
    )
    .or("false"),
    time(
        "shadow.interval",
        "SAMPLER_SHADOW_INTERVAL",
        (MOMENT, DAY),
        "The pause between two such looks at all spans.",
    )
    .or("30s"),
];

/// Environment variables and keys of the receiver alone.
const OF_THE_RECEIVER: [&str; 22] = [
    "SAMPLER_TLS_CERT_FILE",
    "tls.cert_file",
    "SAMPLER_TLS_KEY_FILE",
    "tls.key_file",
    "SAMPLER_TLS_CLIENT_CA_FILE",
    "tls.client_ca_file",
    "MAX_INFLIGHT",
    "limits.inflight",
    "MAX_PAYLOAD",
    "limits.payload",
    "SAMPLER_BODY_TIMEOUT",
    "limits.body_timeout",
    "PROVISIONING_URL",
    "provisioning.url",
    "SAMPLER_PROVISIONING_TIMEOUT",
    "provisioning.timeout",
    "SAMPLER_LENIENT_REPEATS",
    "events.lenient_repeats",
    "SAMPLER_ALLOW_OVERLAP",
    "events.allow_overlap",
    "HEALTHCHECK_THRESHOLD",
    "health.threshold",
];

/// The worker on the command line.
pub const PROGRAM: Program = Program {
    name: "sampler-worker",
    about: "Samples spans and posts their usages to Abacus.",
    version: env!("CARGO_PKG_VERSION"),
    settings: &[
        &settings::http("7071"),
        &DATABASE,
        &ABACUS,
        &SAMPLING,
        &SLACK,
        &PROCESSING,
        &CLEANUP,
        &SHADOW,
        &SECURITY,
        &LOG,
    ],
    foreign: &OF_THE_RECEIVER,
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
    /// Who may call.
    pub security: SecuritySettings,
    /// Where Abacus's collector is.
    pub collector_url: Url,
    /// How long one post may take.
    pub post_timeout: Duration,
    /// Posts in flight.
    pub posts: usize,
    /// Spans driven at once.
    pub spans: usize,
    /// How long spans wait after failures.
    pub backoff: Backoff,
    /// How long Abacus leaves a month open, ms.
    pub month_slack: i64,
    /// Whether 409 means that Abacus has the usage.
    pub accept_conflict: bool,
    /// How spans are sampled.
    pub policy: Policy,
    /// Spans looked up at once.
    pub process_batch: usize,
    /// The pause after a look in vain.
    pub process_interval: Duration,
    /// When the processing loop counts as stuck.
    pub process_threshold: Duration,
    /// Between two heartbeats.
    pub heartbeat_interval: Duration,
    /// Between two looks for what an original wrote.
    pub adopt_interval: Duration,
    /// Spans removed at once.
    pub cleanup_batch: usize,
    /// The pause after a clean-up.
    pub cleanup_interval: Duration,
    /// When the clean-up loop counts as stuck.
    pub cleanup_threshold: Duration,
    /// How long complete spans are kept.
    pub retention: Duration,
    /// Between two looks at all spans, if looking is all that is wanted.
    pub shadow: Option<Duration>,
}

impl Settings {
    /// Reads the settings, and checks those that must fit each other.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let settings = Self {
            http: HttpSettings::read(reader),
            database: DatabaseSettings::read(reader),
            log: LogSettings::read(reader),
            security: SecuritySettings::read(reader),
            collector_url: reader.url("abacus.collector_url"),
            post_timeout: reader.duration("abacus.timeout"),
            posts: reader.integer("abacus.concurrency"),
            spans: reader.integer("processing.concurrency"),
            backoff: Backoff {
                first: millis(reader.duration("abacus.retry_first")),
                limit: millis(reader.duration("abacus.retry_limit")),
            },
            month_slack: millis(reader.duration("abacus.month_slack")),
            accept_conflict: reader.boolean("abacus.accept_conflict"),
            policy: read_policy(reader, Granularity::Day),
            process_batch: reader.integer("processing.batch_size"),
            process_interval: reader.duration("processing.interval"),
            process_threshold: reader.duration("processing.threshold"),
            heartbeat_interval: reader.duration("processing.heartbeat_interval"),
            adopt_interval: reader.duration("processing.adopt_interval"),
            cleanup_batch: reader.integer("cleanup.batch_size"),
            cleanup_interval: reader.duration("cleanup.interval"),
            cleanup_threshold: reader.duration("cleanup.threshold"),
            retention: reader.duration("cleanup.retention"),
            shadow: {
                let interval = reader.duration("shadow.interval");
                reader.boolean("shadow.enabled").then_some(interval)
            },
        };
        settings.check(reader);
        Some(settings)
    }

    /// What each alone is fine, but together would bill wrongly or never be well.
    fn check(&self, reader: &mut Reader<'_>) {
        self.security.require_client(reader);
        let slack = SlackSettings::read(reader);
        if self.retention < slack.past + RETENTION_MARGIN {
            reader.complain(
                "SAMPLER_RETENTION (cleanup.retention) is not an hour longer than \
                 SAMPLER_SLACK_PAST_INTERVAL (slack.past): the ids of events would be forgotten \
                 while repeats of them are still taken, and those would be billed twice",
            );
        }
        if self.backoff.first > self.backoff.limit {
            reader.complain(
                "SAMPLER_RETRY_FIRST (abacus.retry_first) is longer than SAMPLER_RETRY_LIMIT \
                 (abacus.retry_limit)",
            );
        }
        let grace = self.policy.grace;
        if self.month_slack > 0 && self.month_slack <= self.backoff.limit.max(grace) {
            reader.complain(
                "SAMPLER_MONTH_SLACK (abacus.month_slack) is not longer than SAMPLER_RETRY_LIMIT \
                 (abacus.retry_limit) and SAMPLER_STOP_GRACE (sampling.stop_grace): usages could \
                 wait until Abacus has closed their month, and would not be billed",
            );
        }
        if self.process_threshold <= self.post_timeout {
            reader.complain(
                "PROCESS_SPANS_MONITOR_THRESHOLD (processing.threshold) is not longer than \
                 SAMPLER_POST_TIMEOUT (abacus.timeout): a slow Abacus would look like a worker \
                 that hangs",
            );
        }
        for (pause, threshold, names) in [
            (
                self.process_interval,
                self.process_threshold,
                "PROCESS_SCHEDULE_INTERVAL (processing.interval) is not shorter than \
                 PROCESS_SPANS_MONITOR_THRESHOLD (processing.threshold): an idle worker would \
                 never be ready",
            ),
            (
                self.cleanup_interval,
                self.cleanup_threshold,
                "CLEANUP_SCHEDULE_INTERVAL (cleanup.interval) is not shorter than \
                 CLEANUP_SPANS_MONITOR_THRESHOLD (cleanup.threshold): an idle worker would never \
                 be ready",
            ),
            (
                self.shadow.unwrap_or_default(),
                self.process_threshold,
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

/// Whole milliseconds; no setting takes more than fit.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
