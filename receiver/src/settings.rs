//! The settings of the receiver, and the checks of those that must fit each other.

use sampler_domain::{Granularity, Policy, Slack};
use sampler_service::http::Tls;
use sampler_service::security::SecuritySettings;
use sampler_service::settings::{
    HealthSettings, HttpSettings, LogSettings, Printout, Program, Reader, TlsSettings,
    TraceSettings,
};
use sampler_settings::receiver::{
    ConsoleSettings, EventsSettings, LimitsSettings, ProvisioningSettings, TABLE,
};
use sampler_settings::{
    DatabaseSettings, DistressSettings, MonthSettings, SamplingSettings, SlackSettings, worker,
};

use crate::console;
use crate::problems::catalogue;

/// The receiver on the command line.
pub const PROGRAM: Program = Program {
    name: "sampler-receiver",
    about: "Takes start and stop events over HTTP and keeps them as spans.",
    version: env!("CARGO_PKG_VERSION"),
    settings: TABLE,
    other: worker::TABLE,
    printouts: &[Printout {
        flag: "help-errors",
        about: "Prints what each error answer means, as Markdown",
        text: catalogue,
    }],
};

/// All settings of the receiver.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The addresses to listen on.
    pub http: HttpSettings,
    /// TLS on that port.
    pub tls: Option<Tls>,
    /// The database of the spans.
    pub database: DatabaseSettings,
    /// How long the receiver may be without progress before it is unhealthy.
    pub health: HealthSettings,
    /// The level and the format of the log.
    pub log: LogSettings,
    /// The export of traces.
    pub traces: TraceSettings,
    /// The checks of tokens, and the receiver's own credentials.
    pub security: SecuritySettings,
    /// The provisioning service.
    pub provisioning: ProvisioningSettings,
    /// The console.
    pub console: ConsoleSettings,
    /// Limits of requests and bodies.
    pub limits: LimitsSettings,
    /// Rules for events.
    pub events: EventsSettings,
    /// When a month closes.
    pub month: MonthSettings,
    /// When fewer starts are admitted because the database cannot keep up.
    pub distress: DistressSettings,
    /// How far events may be dated from now.
    pub slack: Slack,
    /// The policy of sampling. A receiver uses it for the first `due_at` of a span, for dry runs
    /// and for the backlog.
    pub policy: Policy,
    /// Whether the granularity was set.
    pub knows_granularity: bool,
}

impl Settings {
    /// Reads the settings, and checks those that must fit each other.
    pub fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let sampling = SamplingSettings::read(reader);
        if sampling.dimension.is_none() && sampling.dimension_overrides.is_some() {
            reader.complain(
                "SAMPLER_DIMENSION_OVERRIDES (sampling.dimension_overrides) is set without \
                 SAMPLER_DIMENSION (sampling.dimension): the receiver needs both or none",
            );
        }
        let security = SecuritySettings::read(reader);
        security.require_keys(reader);
        let provisioning = ProvisioningSettings::read(reader);
        if provisioning.url.is_some() {
            security.require_client(reader);
        }
        let console = ConsoleSettings::read(reader);
        console::check(&console, reader);
        let distress = DistressSettings::read(reader);
        distress.check(reader);
        Some(Self {
            console,
            http: HttpSettings::read(reader),
            tls: TlsSettings::read(reader).tls(reader),
            database: DatabaseSettings::read(reader),
            health: HealthSettings::read(reader),
            log: LogSettings::read(reader),
            traces: TraceSettings::read(reader),
            security,
            provisioning,
            limits: LimitsSettings::read(reader),
            events: EventsSettings::read(reader),
            month: MonthSettings::read(reader),
            distress,
            slack: SlackSettings::read(reader).slack(),
            knows_granularity: sampling.dimension.is_some(),
            policy: sampling.policy(Granularity::Minute),
        })
    }
}
