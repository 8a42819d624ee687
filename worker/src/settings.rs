//! The settings of the worker, and the checks of settings that depend on each other.

use std::fmt;
use std::time::Duration;

use sampler_domain::{Granularity, Policy};
use sampler_program::ProgramSettings;
use sampler_service::settings::{Kind, Program, Reader};
use sampler_settings::worker::{
    AbacusSettings, AuditSettings, CleanupSettings, ConfirmSettings, LedgerSettings,
    ProcessingSettings, ShadowSettings, SuspensionSettings, TABLE,
};
use sampler_settings::{
    CloudEventsSettings, CommonSettings, DistressSettings, MonthSettings, SamplingSettings,
    SlackSettings, UpstreamSettings, millis, receiver,
};
use url::Url;

/// By how much the retention must be longer than the slack. A receiver reads the clock before it calls
/// the store, so a repeat that was in time may reach the store a little later, and by a clock that is
/// a little behind. If its span were removed by then, the event would be kept again.
pub(crate) const RETENTION_MARGIN: Duration = Duration::from_hours(1);

/// The worker on the command line.
pub const PROGRAM: Program = Program {
    name: "sampler-worker",
    about: "Samples spans and posts their usages upstream, to Abacus or as CloudEvents.",
    version: env!("CARGO_PKG_VERSION"),
    settings: TABLE,
    other: receiver::TABLE,
    printouts: &[],
};

#[derive(Clone, Debug)]
pub struct Settings {
    /// Those that both programs have.
    pub common: CommonSettings,
    /// The delivery of usages.
    pub abacus: AbacusSettings,
    /// What takes the usages.
    pub upstream: Destination,
    pub month: MonthSettings,
    pub policy: Policy,
    /// The search for due spans, and the work on them.
    pub processing: ProcessingSettings,
    /// The removal of complete spans.
    pub cleanup: CleanupSettings,
    /// How long the ledger keeps entries.
    pub ledger: LedgerSettings,
    /// The suspension of spans, and its end.
    pub suspension: SuspensionSettings,
    /// The confirmation of accepted usages.
    pub confirm: ConfirmSettings,
    /// The check of spans.
    pub audit: AuditSettings,
    /// When sampling pauses because the database cannot keep up.
    pub distress: DistressSettings,
    pub shadow: ShadowSettings,
}

/// What takes the usages.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Abacus's collector at this address.
    Abacus(Url),
    /// A receiver of CloudEvents.
    CloudEvents(Box<CloudEventsSettings>),
}

impl Destination {
    /// None where something is missing or wrong, after a complaint about it.
    fn read(
        abacus: &AbacusSettings,
        confirm: &ConfirmSettings,
        reader: &mut Reader<'_>,
    ) -> Option<Self> {
        let upstream = UpstreamSettings::read(reader);
        if upstream.is_cloud_events() {
            let cloud_events = upstream.cloud_events(abacus.timeout, confirm.enabled, reader);
            return cloud_events.map(Box::new).map(Self::CloudEvents);
        }
        if abacus.collector_url.is_none() {
            reader.complain(format!(
                "{} is not set: expected {}",
                reader.described("abacus.collector_url"),
                Kind::Url
            ));
        }
        abacus.collector_url.clone().map(Self::Abacus)
    }

    /// In the place of one that is wrong, so that the other settings are checked, too.
    fn placeholder() -> Self {
        Self::Abacus(Url::parse("http://missing.invalid").expect("a plain address"))
    }
}

/// By its name in `SAMPLER_UPSTREAM`, and its host: path and query may hold a secret.
impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, url) = match self {
            Self::Abacus(url) => ("abacus", url),
            Self::CloudEvents(upstream) => ("cloudevents", &upstream.url),
        };
        write!(f, "{name} at {}", url.host_str().unwrap_or_default())
    }
}

impl ProgramSettings for Settings {
    fn common(&self) -> &CommonSettings {
        &self.common
    }

    fn called(&self) -> Vec<(&'static str, &Url)> {
        match &self.upstream {
            Destination::Abacus(url) => vec![("COLLECTOR_URL", url)],
            Destination::CloudEvents(upstream) => vec![("SAMPLER_UPSTREAM_URL", &upstream.url)],
        }
    }

    /// Also checks those that must fit each other.
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (abacus, confirm) = (AbacusSettings::read(reader), ConfirmSettings::read(reader));
        let upstream = Destination::read(&abacus, &confirm, reader);
        let settings = Self {
            common: CommonSettings::read(reader),
            abacus,
            upstream: upstream.unwrap_or_else(Destination::placeholder),
            month: MonthSettings::read(reader),
            policy: SamplingSettings::read(reader).policy(Granularity::Day),
            processing: ProcessingSettings::read(reader),
            cleanup: CleanupSettings::read(reader),
            ledger: LedgerSettings::read(reader),
            suspension: SuspensionSettings::read(reader),
            confirm,
            audit: AuditSettings::read(reader),
            distress: DistressSettings::read(reader),
            shadow: ShadowSettings::read(reader),
        };
        settings.check(reader);
        settings.note(reader);
        Some(settings)
    }
}

impl Settings {
    /// Checks values that are valid alone, but together would bill wrongly, or never be ready.
    fn check(&self, reader: &mut Reader<'_>) {
        self.common.security.require_client(reader);
        self.check_retention(reader);
        self.check_waits(reader);
        self.check_thresholds(reader);
        self.check_confirmation(reader);
        self.distress.check(reader);
    }

    /// Notes what the worker uses, and what it does without.
    fn note(&self, reader: &mut Reader<'_>) {
        self.common.note(reader);
        match &self.upstream {
            Destination::Abacus(url) => reader.note("collector", url.to_string()),
            Destination::CloudEvents(upstream) => {
                // Path and query may hold a secret.
                let host = upstream.url.host_str().unwrap_or_default();
                let horizon = reader.shown("upstream.horizon");
                let text = format!("CloudEvents to {host}, which recognises repeats for {horizon}");
                reader.note("upstream", text);
            }
        }
        self.common.security.note_client(reader);
        let source = reader.source("sampling.dimension");
        let granularity = reader.shown("sampling.dimension");
        reader.note("granularity", format!("{granularity}{source}"));
        let slack = reader.shown("abacus.month_slack");
        let source = reader.source("abacus.month_slack");
        reader.note("month closes", format!("{slack} into the next one{source}"));
        let confirmed = if self.confirm.enabled {
            "the upstream is asked whether each accepted usage counts"
        } else {
            "the upstream is not asked whether accepted usages count: SAMPLER_CONFIRM is false"
        };
        reader.note("confirmation", confirmed);
        if self.shadow.enabled {
            let text = "compares with the original Sampler, posts nothing and writes nothing";
            reader.note("shadow mode", text);
        }
    }

    fn check_retention(&self, reader: &mut Reader<'_>) {
        let slack = SlackSettings::read(reader);
        if self.cleanup.retention < slack.past + RETENTION_MARGIN {
            reader.complain(format!(
                "{} must be at least an hour longer than {}: otherwise the ids of events would be \
                 forgotten while repeats are still accepted, and repeats would be billed twice",
                reader.described("cleanup.retention"),
                reader.described("slack.past"),
            ));
        }
    }

    fn check_waits(&self, reader: &mut Reader<'_>) {
        let abacus = &self.abacus;
        if abacus.retry_first > abacus.retry_limit {
            reader.complain(format!(
                "{} must not be longer than {}",
                reader.described("abacus.retry_first"),
                reader.described("abacus.retry_limit"),
            ));
        }
        let longest = millis(abacus.retry_limit).max(self.policy.stop_grace);
        if !self.month.month_slack.is_zero() && millis(self.month.month_slack) <= longest {
            reader.complain(format!(
                "{} must be longer than both {} and {}: otherwise usages could wait until the upstream has \
                 closed their month, and would not be billed",
                reader.described("abacus.month_slack"),
                reader.described("abacus.retry_limit"),
                reader.described("sampling.stop_grace"),
            ));
        }
    }

    fn check_confirmation(&self, reader: &mut Reader<'_>) {
        let confirm = &self.confirm;
        if confirm.enabled && confirm.timeout <= confirm.interval {
            reader.complain(format!(
                "{} must be longer than {}: otherwise usages would be given up when the upstream is first \
                 asked for them",
                reader.described("confirm.timeout"),
                reader.described("confirm.interval"),
            ));
        }
    }

    fn check_thresholds(&self, reader: &mut Reader<'_>) {
        let (process, clean_up) = (self.processing.threshold, self.cleanup.threshold);
        let idle = "an idle worker would never be ready";
        let checks = [
            (
                ("processing.threshold", process),
                ("abacus.timeout", self.abacus.timeout),
                "a worker would not be ready while the upstream is slow",
            ),
            (
                ("processing.threshold", process),
                ("processing.interval", self.processing.interval),
                idle,
            ),
            (
                ("cleanup.threshold", clean_up),
                ("cleanup.interval", self.cleanup.interval),
                idle,
            ),
            (
                ("processing.threshold", process),
                ("shadow.interval", self.shadow.interval),
                "a worker in shadow mode would not be ready",
            ),
        ];
        for ((longer, threshold), (shorter, pause), otherwise) in checks {
            let applies = shorter != "shadow.interval" || self.shadow.enabled;
            if applies && threshold <= pause {
                reader.complain(format!(
                    "{} must be longer than {}: otherwise {otherwise}",
                    reader.described(longer),
                    reader.described(shorter),
                ));
            }
        }
    }
}
