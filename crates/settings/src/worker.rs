//! The settings of the worker.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use sampler_domain::{Backoff, Bounds, Granularity};
use url::Url;

use crate::common::{HttpSettings, LogSettings, TraceSettings};
use crate::reader::Reader;
use crate::sampling::MonthSettings;
use crate::table::{groups, settings};
use crate::upstream::UpstreamKind;
use crate::value::{duration, values};
use crate::{DatabaseSettings, SamplingSettings, SecuritySettings, UpstreamSettings, millis};

/// How long entries of the ledger may be kept.
const LEDGER_RANGE: RangeInclusive<Duration> =
    Duration::from_hours(1)..=Duration::from_hours(3_660 * 24);

/// How long a span waits after the first failed post of its usage.
const RETRY_FIRST: Duration = Duration::from_secs(1);

settings! {
    /// The delivery of usages, to whichever upstream.
    pub struct DeliverySettings {
        /// The address of Abacus's collector; /v1/metering/collected/usage is appended. It must be set where
        /// SAMPLER_UPSTREAM is abacus.
        collector_url: Option<Url> = "COLLECTOR_URL";
        /// How long one post of a usage, or one lookup, may take.
        timeout: Duration = "SAMPLER_POST_TIMEOUT", "30s", in "100ms" to "2m";
        /// The maximum number of usages in flight to the upstream. The worker uses fewer while the upstream is slow
        /// or fails.
        concurrency: usize = "SAMPLER_POST_CONCURRENCY", "128", in "1" to "10000";
        /// The longest wait after a failed post. The wait begins with 1 s and doubles after each further failure, less
        /// a random part of up to half. It must be shorter than SAMPLER_MONTH_SLACK, unless that is 0: a usage that is
        /// retried after its month has been closed is lost.
        retry_limit: Duration = "SAMPLER_RETRY_LIMIT", "2m", in "1s" to "1d";
    }

    /// The search for due spans, and the work on them.
    pub struct ProcessingSettings {
        /// The maximum number of spans in progress. It should exceed the usages in flight, because spans also wait for
        /// the database.
        concurrency: usize = "SAMPLER_PROCESS_CONCURRENCY", "512", in "1" to "10000";
        /// The maximum number of spans that one query for due spans returns.
        batch_size: usize = "PROCESS_BATCH_SIZE", "100", in "1" to "10000";
        /// The pause after a query that found no due span.
        interval: Duration = "PROCESS_SCHEDULE_INTERVAL", "1s", in "10ms" to "1h";
        /// How long the processing loop may be without progress before the worker is not ready.
        threshold: Duration = "PROCESS_SPANS_MONITOR_THRESHOLD", "60s", in "1s" to "1d";
    }

    /// The removal of complete spans.
    pub struct CleanupSettings {
        /// The maximum number of complete spans that are removed at once.
        batch_size: usize = "CLEANUP_BATCH_SIZE", "100", in "1" to "10000";
        /// The pause after a clean-up that removed less than a batch.
        interval: Duration = "CLEANUP_SCHEDULE_INTERVAL", "1s", in "10ms" to "1d";
        /// How long the clean-up loop may be without progress before the worker is not ready.
        threshold: Duration = "CLEANUP_SPANS_MONITOR_THRESHOLD", "60s", in "1s" to "1d";
        /// How long complete spans are kept after their end, and the ids of their events with them. Receivers take
        /// no event that is older than this, less an hour.
        retention: Duration = "SAMPLER_RETENTION", "62d", in "1d" to "3660d";
    }

    /// How long the ledger keeps entries of usages.
    pub struct LedgerSettings {
        /// How long the entry of a usage is kept, by the granularity of its target. A granularity that is left out
        /// keeps its default. Each is from 1h to 3660d. A change counts for entries that are written from then on.
        retention: LedgerRetention = "SAMPLER_LEDGER_RETENTION", "minute=400d,hour=400d,day=400d,month=800d";
    }

    /// The suspension of spans whose usages the upstream refuses, and its end.
    pub struct SuspensionSettings {
        /// How many refusals of its usage suspend a span (400, 422, 451 and other answers that blame the usage, such as
        /// a 404 that names an error; never 401, 403, 429 or 5xx). The spans of one cause are kept together: those with
        /// the same status, error, resource and plan.
        after: usize = "SAMPLER_SUSPEND_AFTER", "3", in "1" to "1000";
        /// How often one suspended span of each cause is tried again. Once it is accepted, all spans of the cause
        /// resume. Workers look every 5 s.
        probe_interval: Duration = "SAMPLER_PROBE_INTERVAL", "10m", in "100ms" to "1d";
    }

    /// Whether the worker follows up what the upstream has accepted: Abacus only queues a usage, and may still set it
    /// aside.
    pub struct ConfirmSettings {
        /// Whether the worker asks the upstream for each usage that it has accepted, five minutes after the acceptance and
        /// each five minutes after that, until the usage counts or is missing. The token needs the right to read collected usages.
        enabled: bool = "SAMPLER_CONFIRM", "false";
        /// How long the worker asks for a usage that the upstream does not know, from its acceptance on. After that the
        /// usage is missing.
        timeout: Duration = "SAMPLER_CONFIRM_TIMEOUT", "1d", in "100ms" to "62d";
    }

    /// When sampling pauses because the database cannot keep up.
    pub struct DistressSettings {
        /// Sampling pauses while a write of the worker takes longer than this to reach the journals of a majority.
        commit_upper: Duration = "SAMPLER_COMMIT_UPPER", "5s", in "10ms" to "1h";
        /// Sampling resumes once it takes less than this. It must be less than SAMPLER_COMMIT_UPPER.
        commit_lower: Duration = "SAMPLER_COMMIT_LOWER", "1s", in "10ms" to "1h";
    }
}

groups! {
    /// The settings of the worker.
    pub struct WorkerSettings(defaults: &[("PORT", "7071"), ("SAMPLER_DIMENSION", "day")]) {
        http: HttpSettings;
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

/// How long an entry is kept whose target is sampled by the minute, the hour, the day or the month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRetention {
    pub minute: Duration,
    pub hour: Duration,
    pub day: Duration,
    pub month: Duration,
}

values! {
    LedgerRetention: "granularities (minute, hour, day, month), each once with a duration from 1h to 3660d, as in \
        minute=32d,hour=93d", LedgerRetention::read;
}

impl LedgerRetention {
    fn read(text: &str) -> Option<Self> {
        let mut given = HashMap::new();
        for part in text.split(',') {
            let (granularity, kept) = part.split_once('=')?;
            let kept = duration(kept.trim()).filter(|kept| LEDGER_RANGE.contains(kept))?;
            let granularity: Granularity = granularity.trim().parse().ok()?;
            given.insert(granularity, kept).is_none().then_some(())?;
        }
        let of = |granularity, days: u64| {
            let given = given.get(&granularity).copied();
            given.unwrap_or(Duration::from_hours(24 * days))
        };
        Some(Self {
            minute: of(Granularity::Minute, 400),
            hour: of(Granularity::Hour, 400),
            day: of(Granularity::Day, 400),
            month: of(Granularity::Month, 800),
        })
    }

    /// How long the entry of a usage is kept whose target is sampled so.
    pub fn of(self, granularity: Granularity) -> Duration {
        match granularity {
            Granularity::Minute => self.minute,
            Granularity::Hour => self.hour,
            Granularity::Day => self.day,
            Granularity::Month => self.month,
        }
    }
}

impl DeliverySettings {
    /// How long spans wait after failures.
    pub fn backoff(&self) -> Backoff {
        Backoff {
            first: millis(RETRY_FIRST),
            limit: millis(self.retry_limit),
        }
    }
}

impl DistressSettings {
    /// The bounds of the time of a commit, s.
    pub fn commit(&self) -> Bounds {
        Bounds {
            upper: self.commit_upper.as_secs_f64(),
            lower: self.commit_lower.as_secs_f64(),
        }
    }
}

impl WorkerSettings {
    fn called(&self) -> Option<(&'static str, Url)> {
        let has_token = self.security.secured
            || (self.upstream.kind == UpstreamKind::CloudEvents && self.upstream.token.is_some());
        let (setting, url) = self.destination();
        url.filter(|_| has_token).map(|url| (setting, url.clone()))
    }

    /// Refuses settings that are valid alone, but together would bill wrongly, or never be ready.
    fn check(&self, reader: &mut Reader) {
        self.security.require_client(reader);
        if let (missing, None) = self.destination() {
            reader.miss(missing);
        }
        if self.upstream.kind == UpstreamKind::CloudEvents {
            self.upstream.check(self.confirm.enabled, reader);
        }
        let (processing, cleanup) = (&self.processing, &self.cleanup);
        let ready = "otherwise a worker that is well would not be ready";
        let threshold = ("PROCESS_SPANS_MONITOR_THRESHOLD", processing.threshold);
        let post = ("SAMPLER_POST_TIMEOUT", self.delivery.timeout);
        let pause = ("PROCESS_SCHEDULE_INTERVAL", processing.interval);
        reader.less(post, threshold, ready);
        reader.less(pause, threshold, ready);
        let pause = ("CLEANUP_SCHEDULE_INTERVAL", cleanup.interval);
        let threshold = ("CLEANUP_SPANS_MONITOR_THRESHOLD", cleanup.threshold);
        reader.less(pause, threshold, ready);
        let lower = ("SAMPLER_COMMIT_LOWER", self.distress.commit_lower);
        let upper = ("SAMPLER_COMMIT_UPPER", self.distress.commit_upper);
        reader.less(
            lower,
            upper,
            "otherwise sampling would pause and resume without end",
        );
        let slack = ("SAMPLER_MONTH_SLACK", self.month.month_slack);
        if !slack.1.is_zero() {
            let why = "otherwise usages could wait until the upstream has closed their month, and would not be billed";
            reader.less(
                ("SAMPLER_RETRY_LIMIT", self.delivery.retry_limit),
                slack,
                why,
            );
            reader.less(("SAMPLER_STOP_GRACE", self.sampling.stop_grace), slack, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    #[test]
    fn each_granularity_has_its_own_retention_and_keeps_its_default() {
        let default = LedgerSettings::default().retention;
        let days = |days: u64| Duration::from_hours(24 * days);
        let retention = LedgerRetention::parse("hour=30d, day = 1h").unwrap();
        assert_eq!(retention.of(Granularity::Hour), days(30));
        assert_eq!(retention.of(Granularity::Day), Duration::from_hours(1));
        for (granularity, kept) in [
            (Granularity::Minute, days(400)),
            (Granularity::Month, days(800)),
        ] {
            assert_eq!(retention.of(granularity), kept);
            assert_eq!(default.of(granularity), kept);
        }
        for text in [
            "30d",
            "hours=30d",
            "hour=",
            "hour=30d,",
            "hour=59m",
            "hour=3661d",
            "hour=1d,hour=2d",
            "hour=30d day=1d",
        ] {
            assert!(LedgerRetention::parse(text).is_none(), "{text}");
        }
    }
}
