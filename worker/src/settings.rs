//! The settings of the worker, and the checks of settings that depend on each other.

use std::fmt;
use std::time::Duration;

use sampler_domain::{READ_VALID_FOR, SKIP_DELAY};
use sampler_metrics::Metric;
use sampler_program::ProgramSettings;
use sampler_service::settings::{Kind, Printout, Program, Reader};
use sampler_settings::worker::TABLE;
use sampler_settings::{CloudEventsSettings, CommonSettings, WorkerSettings, receiver};
use url::Url;

use crate::search::SEARCH_LENGTH;
use crate::{confirm, metrics, upstream_time};

/// What a write of the database may take beyond its two limits.
const WRITE_MARGIN: Duration = Duration::from_secs(1);

/// The worker on the command line.
pub const PROGRAM: Program = Program {
    name: "sampler-worker",
    about: "Samples spans and posts their usages upstream, to Abacus or as CloudEvents.",
    version: env!("CARGO_PKG_VERSION"),
    settings: TABLE,
    other: receiver::TABLE,
    printouts: &[Printout {
        flag: "help-metrics",
        about: "Prints what each metric means, as Markdown",
        text: || sampler_metrics::document(PROGRAM.name, &metrics()),
    }],
};

/// All metrics of the worker.
pub fn metrics() -> Vec<&'static Metric> {
    let own = [metrics::METRICS, confirm::METRICS, upstream_time::METRICS];
    [own.concat(), sampler_program::metrics()].concat()
}

/// The settings of the worker, and what follows from several of them.
#[derive(Clone, Debug)]
pub struct CheckedSettings {
    pub settings: WorkerSettings,
    pub destination: Destination,
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
    fn of(settings: &WorkerSettings, reader: &mut Reader) -> Option<Self> {
        let (delivery, upstream) = (&settings.delivery, &settings.upstream);
        if upstream.is_cloud_events() {
            let confirms = settings.confirm.enabled;
            let cloud_events = upstream.cloud_events(delivery.timeout, confirms, reader);
            return cloud_events.map(Box::new).map(Self::CloudEvents);
        }
        if delivery.collector_url.is_none() {
            reader.reject("abacus.collector_url", &Kind::Url.to_string());
        }
        delivery.collector_url.clone().map(Self::Abacus)
    }

    /// Whether it has a token of its own, in place of those of this program's client.
    fn has_token(&self) -> bool {
        matches!(self, Self::CloudEvents(upstream) if upstream.token.is_some())
    }

    /// Notes what is known of it, but nothing that may be secret.
    fn note(&self, reader: &mut Reader) {
        match self {
            Self::Abacus(url) => reader.note("collector", url.to_string()),
            Self::CloudEvents(upstream) => {
                // Path and query may hold a secret.
                let host = upstream.url.host_str().unwrap_or_default();
                let horizon = reader.shown("upstream.horizon");
                let text = format!("CloudEvents to {host}, which recognises repeats for {horizon}");
                reader.note("upstream", text);
            }
        }
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

impl ProgramSettings for CheckedSettings {
    fn common(&self) -> CommonSettings {
        self.settings.common()
    }

    fn token_destinations(&self) -> Vec<(&'static str, &Url)> {
        if !self.settings.security.secured && !self.destination.has_token() {
            return Vec::new();
        }
        match &self.destination {
            Destination::Abacus(url) => vec![("COLLECTOR_URL", url)],
            Destination::CloudEvents(upstream) => vec![("SAMPLER_UPSTREAM_URL", &upstream.url)],
        }
    }

    /// Also checks those that must fit each other: values that are valid alone, but together would bill
    /// wrongly, or never be ready.
    fn read(reader: &mut Reader) -> Option<Self> {
        let settings = WorkerSettings::read(reader);
        let destination = Destination::of(&settings, reader);
        settings.security.require_client(reader);
        check_month(&settings, reader);
        check_skip(&settings, reader);
        check_thresholds(&settings, reader);
        let destination = destination?;
        note(&settings, &destination, reader);
        Some(Self {
            settings,
            destination,
        })
    }
}

/// Notes what the worker uses, and what it does without.
fn note(settings: &WorkerSettings, destination: &Destination, reader: &mut Reader) {
    settings.common().note(reader);
    destination.note(reader);
    if destination.has_token() {
        settings
            .security
            .note_calls("with SAMPLER_UPSTREAM_TOKEN", reader);
    } else {
        settings.security.note_client(reader);
    }
    let source = reader.source("sampling.dimension");
    let granularity = reader.shown("sampling.dimension");
    reader.note("granularity", format!("{granularity}{source}"));
    let slack = reader.shown("abacus.month_slack");
    let source = reader.source("abacus.month_slack");
    reader.note("month closes", format!("{slack} into the next one{source}"));
    let confirmed = if settings.confirm.enabled {
        "the upstream is asked whether each accepted usage counts"
    } else {
        "the upstream is not asked whether accepted usages count: SAMPLER_CONFIRM is false"
    };
    reader.note("confirmation", confirmed);
}

/// A skip waits for [`SKIP_DELAY`] after the refusal. Until then the suspension is written, its cause first,
/// and each post has ended that was begun by a read from before that.
fn check_skip(settings: &WorkerSettings, reader: &mut Reader) {
    let database = &settings.database;
    let write = 2 * database.server_selection_timeout + database.operation_timeout;
    let all = settings.delivery.timeout + 2 * write;
    let delay = Duration::from_millis((SKIP_DELAY - READ_VALID_FOR).unsigned_abs());
    let limit = delay.saturating_sub(SEARCH_LENGTH + 2 * WRITE_MARGIN);
    if all > limit {
        reader.complain(format!(
            "{}, four times {} and twice {} must add up to at most {} seconds: otherwise a usage could be posted \
             after it was skipped, and be billed although the ledger says that it is not",
            reader.described("abacus.timeout"),
            reader.described("database.server_selection_timeout"),
            reader.described("database.operation_timeout"),
            limit.as_secs(),
        ));
    }
}

fn check_month(settings: &WorkerSettings, reader: &mut Reader) {
    let slack = settings.month.month_slack;
    let longest = settings
        .delivery
        .retry_limit
        .max(settings.sampling.stop_grace);
    if !slack.is_zero() && slack <= longest {
        reader.complain(format!(
            "{} must be longer than both {} and {}: otherwise usages could wait until the upstream has \
             closed their month, and would not be billed",
            reader.described("abacus.month_slack"),
            reader.described("abacus.retry_limit"),
            reader.described("sampling.stop_grace"),
        ));
    }
}

fn check_thresholds(settings: &WorkerSettings, reader: &mut Reader) {
    let (process, clean_up) = (settings.processing.threshold, settings.cleanup.threshold);
    let idle = "an idle worker would never be ready";
    for (fits, longer, shorter, otherwise) in [
        (
            process > settings.delivery.timeout,
            "processing.threshold",
            "abacus.timeout",
            "a worker would not be ready while the upstream is slow",
        ),
        (
            process > settings.processing.interval,
            "processing.threshold",
            "processing.interval",
            idle,
        ),
        (
            clean_up > settings.cleanup.interval,
            "cleanup.threshold",
            "cleanup.interval",
            idle,
        ),
    ] {
        reader.require(fits, longer, "be longer than", shorter, otherwise);
    }
}
