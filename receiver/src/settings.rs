//! What an operator can set of the receiver.

use std::time::Duration;

use sampler_domain::{Granularity, Policy, Slack};
use sampler_service::http::Tls;
use sampler_service::problem::catalogue;
use sampler_service::security::{SECURITY, SecuritySettings};
use sampler_service::settings::{
    self, DATABASE, DatabaseSettings, HEALTH, HealthSettings, HttpSettings, Kind, LOG, LogSettings,
    Printout, Program, Reader, SAMPLING, SLACK, Setting, SlackSettings, TLS, read_policy, read_tls,
};
use url::Url;

const BRIEF: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_mins(10);

const LIMITS: [Setting; 3] = [
    Setting::new(
        "limits.inflight",
        "MAX_INFLIGHT",
        Kind::Integer {
            min: 1,
            max: 100_000,
        },
        "The most requests in flight at once; a quarter of the room is for stops alone.",
    )
    .or("200"),
    Setting::new(
        "limits.payload",
        "MAX_PAYLOAD",
        Kind::Size {
            min: 1_024,
            max: 8 * 1_024 * 1_024,
        },
        "The largest body, packed and unpacked.",
    )
    .or("500kb"),
    Setting::new(
        "limits.body_timeout",
        "SAMPLER_BODY_TIMEOUT",
        Kind::Duration {
            min: BRIEF,
            max: LONG,
        },
        "How long a client may take to send a body.",
    )
    .or("30s"),
];

const PROVISIONING: [Setting; 2] = [
    Setting::new(
        "provisioning.url",
        "PROVISIONING_URL",
        Kind::Url,
        "Where Abacus's provisioning service is. Without it, mappings are answered 502.",
    ),
    Setting::new(
        "provisioning.timeout",
        "SAMPLER_PROVISIONING_TIMEOUT",
        Kind::Duration {
            min: BRIEF,
            max: LONG,
        },
        "How long one of the three calls for a mapping may take.",
    )
    .or("10s"),
];

const EVENTS: [Setting; 2] = [
    Setting::new(
        "events.lenient_repeats",
        "SAMPLER_LENIENT_REPEATS",
        Kind::Boolean,
        "Whether an id that was seen before, with another timestamp or other measures of the same \
         target, is answered 201 as an original Sampler does. The first event stays.",
    )
    .or("false"),
    Setting::new(
        "events.allow_overlap",
        "SAMPLER_ALLOW_OVERLAP",
        Kind::Boolean,
        "Whether a span may begin before the end of the target's previous one, as an original \
         Sampler lets it. What overlaps is billed twice.",
    )
    .or("false"),
];

/// [`SAMPLING`] without its default: a receiver that is not told how spans are sampled has each
/// looked at after its first minute, which is early enough for any worker.
const SAMPLING_IF_KNOWN: [Setting; 3] = {
    let mut sampling = SAMPLING;
    sampling[0].default = None;
    sampling[0].doc = "How long an interval is; as for the worker. A receiver that is told saves \
                       the worker one look at each span; one that is told wrongly makes it late.";
    sampling
};

/// Environment variables and keys of the worker alone.
const OF_THE_WORKER: [&str; 38] = [
    "COLLECTOR_URL",
    "abacus.collector_url",
    "SAMPLER_POST_TIMEOUT",
    "abacus.timeout",
    "SAMPLER_POST_CONCURRENCY",
    "abacus.concurrency",
    "SAMPLER_RETRY_FIRST",
    "abacus.retry_first",
    "SAMPLER_RETRY_LIMIT",
    "abacus.retry_limit",
    "SAMPLER_MONTH_SLACK",
    "abacus.month_slack",
    "SAMPLER_ACCEPT_CONFLICT",
    "abacus.accept_conflict",
    "SAMPLER_PROCESS_CONCURRENCY",
    "processing.concurrency",
    "PROCESS_BATCH_SIZE",
    "processing.batch_size",
    "PROCESS_SCHEDULE_INTERVAL",
    "processing.interval",
    "PROCESS_SPANS_MONITOR_THRESHOLD",
    "processing.threshold",
    "SAMPLER_HEARTBEAT_INTERVAL",
    "processing.heartbeat_interval",
    "SAMPLER_ADOPT_INTERVAL",
    "processing.adopt_interval",
    "CLEANUP_BATCH_SIZE",
    "cleanup.batch_size",
    "CLEANUP_SCHEDULE_INTERVAL",
    "cleanup.interval",
    "CLEANUP_SPANS_MONITOR_THRESHOLD",
    "cleanup.threshold",
    "SAMPLER_RETENTION",
    "cleanup.retention",
    "SAMPLER_SHADOW",
    "shadow.enabled",
    "SAMPLER_SHADOW_INTERVAL",
    "shadow.interval",
];

/// The receiver on the command line.
pub const PROGRAM: Program = Program {
    name: "sampler-receiver",
    about: "Takes start and stop events over HTTP and keeps them as spans.",
    version: env!("CARGO_PKG_VERSION"),
    settings: &[
        &settings::http("7070"),
        &TLS,
        &LIMITS,
        &DATABASE,
        &PROVISIONING,
        &EVENTS,
        &SLACK,
        &SAMPLING_IF_KNOWN,
        &HEALTH,
        &SECURITY,
        &LOG,
    ],
    foreign: &OF_THE_WORKER,
    printouts: &[Printout {
        flag: "help-errors",
        about: "Prints what each error answer means, as Markdown",
        text: catalogue,
    }],
};

/// All settings of the receiver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen.
    pub http: HttpSettings,
    /// TLS on that port.
    pub tls: Option<Tls>,
    /// Where the spans are.
    pub database: DatabaseSettings,
    /// When the receiver counts as well.
    pub health: HealthSettings,
    /// What is logged.
    pub log: LogSettings,
    /// Who may call.
    pub security: SecuritySettings,
    /// Requests in flight.
    pub max_inflight: usize,
    /// The largest body, in bytes.
    pub max_payload: usize,
    /// How long a body may take.
    pub body_timeout: Duration,
    /// Where mappings go.
    pub provisioning_url: Option<Url>,
    /// How long one call for a mapping may take.
    pub provisioning_timeout: Duration,
    /// Whether repeats with other fields are answered 201.
    pub lenient_repeats: bool,
    /// Whether spans may overlap.
    pub allow_overlap: bool,
    /// How far events may be dated from now.
    pub slack: Slack,
    /// How spans are sampled, as far as the receiver knows.
    pub policy: Policy,
}

impl Settings {
    /// Reads the settings, and checks those that must fit each other.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let slack = SlackSettings::read(reader);
        let millis = |length: Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        if reader.optional_text("sampling.dimension").is_none()
            && reader
                .optional_text("sampling.dimension_overrides")
                .is_some()
        {
            reader.complain(
                "SAMPLER_DIMENSION_OVERRIDES (sampling.dimension_overrides) is set without \
                 SAMPLER_DIMENSION (sampling.dimension): the receiver needs both or none",
            );
        }
        let security = SecuritySettings::read(reader);
        security.require_keys(reader);
        let provisioning_url = reader.optional_url("provisioning.url");
        if provisioning_url.is_some() {
            security.require_client(reader);
        }
        Some(Self {
            http: HttpSettings::read(reader),
            tls: read_tls(reader),
            database: DatabaseSettings::read(reader),
            health: HealthSettings::read(reader),
            log: LogSettings::read(reader),
            security,
            max_inflight: reader.integer("limits.inflight"),
            max_payload: reader.size("limits.payload"),
            body_timeout: reader.duration("limits.body_timeout"),
            provisioning_url,
            provisioning_timeout: reader.duration("provisioning.timeout"),
            lenient_repeats: reader.boolean("events.lenient_repeats"),
            allow_overlap: reader.boolean("events.allow_overlap"),
            slack: Slack {
                past: millis(slack.past),
                future: millis(slack.future),
            },
            policy: read_policy(reader, Granularity::Minute),
        })
    }
}
