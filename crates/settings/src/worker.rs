//! The settings of the worker alone, and its table.

use std::time::Duration;

use sampler_domain::Backoff;
use sampler_service::security::SecuritySettings;
use sampler_service::settings::{HttpSettings, Kind, LogSettings, Reader, TraceSettings};
use url::Url;

use crate::{
    DAY, DatabaseSettings, DistressSettings, HOUR, LedgerRetention, MonthSettings, SECOND,
    SamplingSettings, TEN_MILLIS, TENTH_OF_A_SECOND, UpstreamSettings, millis,
};

/// The longest post that has ended when its usage can be skipped. It was begun by a read of the span
/// from before the suspension. What is left of `sampler_domain::SKIP_DELAY` is for the two writes of the suspension:
/// `worker/src/settings.rs` checks that they fit.
const POST_TIMEOUT_MAX: Duration = Duration::from_mins(2);

sampler_service::settings! {
    // Its section has the name of the first upstream.
    /// The delivery of usages, to whichever upstream.
    pub struct DeliverySettings("abacus", checked by DeliverySettings::check) {
        /// The address of Abacus's collector; /v1/metering/collected/usage is appended. It must be set
        /// where SAMPLER_UPSTREAM is abacus.
        collector_url: Option<Url> = "COLLECTOR_URL", Kind::Url;
        /// How long one post of a usage, or one lookup, may take. An operator's skip waits until no post of its usage
        /// can be in flight, which is why this is at most 2 minutes.
        timeout: Duration = "SAMPLER_POST_TIMEOUT", Kind::Duration(TENTH_OF_A_SECOND, POST_TIMEOUT_MAX), or("30s");
        /// The maximum number of usages in flight to the upstream. The worker uses fewer while the
        /// upstream is slow or fails.
        concurrency: usize = "SAMPLER_POST_CONCURRENCY", Kind::Integer(1, 10_000), or("128");
        /// How long a span waits after the first failed delivery of its usage. The wait doubles
        /// after each further failure, less a random part of up to half.
        retry_first: Duration = "SAMPLER_RETRY_FIRST", Kind::Duration(TEN_MILLIS, HOUR), or("1s");
        /// The longest wait after a failed post, also of a usage that is sent again. It must be shorter
        /// than SAMPLER_MONTH_SLACK, unless that is 0: a usage that is retried after its month has been
        /// closed is lost.
        retry_limit: Duration = "SAMPLER_RETRY_LIMIT", Kind::Duration(TEN_MILLIS, DAY), or("2m");
    }

    /// The search for due spans, and the work on them.
    pub struct ProcessingSettings("processing") {
        /// The maximum number of spans in progress. It should exceed the usages in flight, because
        /// spans also wait for the database.
        concurrency: usize = "SAMPLER_PROCESS_CONCURRENCY", Kind::Integer(1, 10_000), or("512");
        /// The maximum number of spans that one query for due spans returns.
        batch_size: usize = "PROCESS_BATCH_SIZE", Kind::Integer(1, 10_000), or("100");
        /// The pause after a query that found no due span.
        interval: Duration = "PROCESS_SCHEDULE_INTERVAL", Kind::Duration(TEN_MILLIS, HOUR), or("1s");
        /// How long the processing loop may be without progress before the worker is not ready.
        threshold: Duration = "PROCESS_SPANS_MONITOR_THRESHOLD", Kind::Duration(SECOND, DAY), or("60s");
        /// The interval of a worker's heartbeat. After 20 s without a heartbeat, the other workers
        /// take over its spans.
        heartbeat_interval: Duration = "SAMPLER_HEARTBEAT_INTERVAL",
            Kind::Duration(TENTH_OF_A_SECOND, Duration::from_secs(10)), or("5s");
        /// How often to search the collection for spans and stops of the original Sampler.
        adopt_interval: Duration = "SAMPLER_ADOPT_INTERVAL", Kind::Duration(TEN_MILLIS, HOUR), or("5s");
        /// Whether the original Sampler and earlier releases have stopped writing to the collection. The
        /// worker then removes the indexes that only they need, and the ids of events count within
        /// their targets.
        original_gone: bool = "SAMPLER_ORIGINAL_GONE", Kind::Boolean, or("false");
    }

    /// The removal of complete spans.
    pub struct CleanupSettings("cleanup") {
        /// The maximum number of complete spans that are removed at once.
        batch_size: usize = "CLEANUP_BATCH_SIZE", Kind::Integer(1, 10_000), or("100");
        /// The pause after a clean-up that removed less than a batch.
        interval: Duration = "CLEANUP_SCHEDULE_INTERVAL", Kind::Duration(TEN_MILLIS, DAY), or("1s");
        /// How long the clean-up loop may be without progress before the worker is not ready.
        threshold: Duration = "CLEANUP_SPANS_MONITOR_THRESHOLD", Kind::Duration(SECOND, DAY), or("60s");
        /// How long complete spans are kept after their end, and the ids of their events with them.
        /// Receivers take no event that is older than this, less an hour.
        retention: Duration = "SAMPLER_RETENTION",
            Kind::Duration(DAY, Duration::from_hours(24 * 3_660)), or("62d");
    }

    /// How long the ledger keeps entries of usages. An entry is kept at least until its span is
    /// complete.
    pub struct LedgerSettings("ledger") {
        /// How long the entry of a usage is kept after its last change of state, and at least until its
        /// span is complete, by the granularity of its target. A granularity that is left out keeps its
        /// default. Each is from 1h to 3660d. A change counts for entries that are written from then on.
        retention: LedgerRetention = "SAMPLER_LEDGER_RETENTION", Kind::Text,
            or("minute=32d,hour=93d,day=400d,month=800d") => LedgerRetention::parse;
    }

    /// The suspension of spans whose usages the upstream refuses, and its end.
    pub struct SuspensionSettings("suspension") {
        /// How many refusals of its usage suspend a span (400, 422, 451 and other answers that
        /// blame the usage, such as a 404 that names an error; never 401, 403, 429 or 5xx). The spans
        /// of one cause are kept together: those with the same status, error, resource and plan.
        after: usize = "SAMPLER_SUSPEND_AFTER", Kind::Integer(1, 1_000), or("3");
        /// How often one suspended span of each cause is tried again. Once it is accepted, all spans
        /// of the cause resume. Workers look every 5 s.
        probe_interval: Duration = "SAMPLER_PROBE_INTERVAL", Kind::Duration(TENTH_OF_A_SECOND, DAY), or("10m");
    }

    /// Whether the worker follows up what the upstream has accepted: Abacus only queues a usage, and may
    /// still set it aside.
    pub struct ConfirmSettings("confirm", checked by ConfirmSettings::check) {
        /// Whether the worker asks the upstream for each usage that it has accepted, until the usage
        /// counts or is set aside. The token needs the right to read collected usages.
        enabled: bool = "SAMPLER_CONFIRM", Kind::Boolean, or("false");
        /// How long after its acceptance a usage is first asked for, and how often after that.
        /// Workers look every 5 s.
        interval: Duration = "SAMPLER_CONFIRM_INTERVAL", Kind::Duration(TENTH_OF_A_SECOND, DAY), or("1m");
        /// How long the worker asks for a usage that the upstream does not know, from its acceptance on.
        /// After that the usage stays accepted, or is set aside if it is a CloudEvent. A change counts for
        /// usages that are accepted from then on.
        timeout: Duration = "SAMPLER_CONFIRM_TIMEOUT",
            Kind::Duration(TENTH_OF_A_SECOND, Duration::from_hours(24 * 62)), or("1d");
    }
}

impl DeliverySettings {
    /// How long spans wait after failures.
    pub fn backoff(&self) -> Backoff {
        Backoff {
            first: millis(self.retry_first),
            limit: millis(self.retry_limit),
        }
    }

    fn check(&self, reader: &mut Reader) {
        reader.require(
            self.retry_first <= self.retry_limit,
            "abacus.retry_first",
            "not be longer than",
            "abacus.retry_limit",
            "the first wait would be longer than the longest one",
        );
    }
}

impl ConfirmSettings {
    fn check(&self, reader: &mut Reader) {
        reader.require(
            !self.enabled || self.timeout > self.interval,
            "confirm.timeout",
            "be longer than",
            "confirm.interval",
            "usages would be given up when the upstream is first asked for them",
        );
    }
}

crate::programs::groups! {
    /// The settings of the worker.
    pub struct WorkerSettings {
        http: HttpSettings = HttpSettings::table("7071");
        database: DatabaseSettings;
        delivery: DeliverySettings;
        month: MonthSettings;
        upstream: UpstreamSettings;
        sampling: SamplingSettings;
        processing: ProcessingSettings;
        cleanup: CleanupSettings;
        ledger: LedgerSettings;
        suspension: SuspensionSettings;
        confirm: ConfirmSettings;
        distress: DistressSettings;
        security: SecuritySettings;
        log: LogSettings;
        traces: TraceSettings;
    }
}
