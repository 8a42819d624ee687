//! The settings of the receiver, and the checks of settings that depend on each other.

use sampler_domain::{Granularity, Policy, Slack};
use sampler_program::ProgramSettings;
use sampler_service::http::Tls;
use sampler_service::settings::{HealthSettings, Printout, Program, Reader, TlsSettings};
use sampler_settings::receiver::{
    ConsoleSettings, EventsSettings, LimitsSettings, ProvisioningSettings, ReadingSettings, TABLE,
};
use sampler_settings::{
    CommonSettings, DistressSettings, MonthSettings, SamplingSettings, SlackSettings, worker,
};
use url::Url;

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

#[derive(Clone, Debug)]
pub struct Settings {
    /// Those that both programs have.
    pub common: CommonSettings,
    /// TLS on the port.
    pub tls: Option<Tls>,
    /// How long the receiver may be without progress before it is unhealthy.
    pub health: HealthSettings,
    pub provisioning: ProvisioningSettings,
    /// What those who read are shown.
    pub reading: ReadingSettings,
    pub console: ConsoleSettings,
    /// Limits of requests and bodies.
    pub limits: LimitsSettings,
    pub events: EventsSettings,
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

impl ProgramSettings for Settings {
    fn common(&self) -> &CommonSettings {
        &self.common
    }

    fn called(&self) -> Vec<(&'static str, &Url)> {
        let url = self.provisioning.url.iter();
        url.map(|url| ("PROVISIONING_URL", url)).collect()
    }

    /// Also checks those that must fit each other.
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let sampling = SamplingSettings::read(reader);
        if sampling.dimension.is_none() && sampling.dimension_overrides.is_some() {
            reader.complain(
                "SAMPLER_DIMENSION_OVERRIDES (sampling.dimension_overrides) is set without \
                 SAMPLER_DIMENSION (sampling.dimension): the receiver needs both or none",
            );
        }
        let common = CommonSettings::read(reader);
        common.security.require_keys(reader);
        let provisioning = ProvisioningSettings::read(reader);
        if provisioning.url.is_some() {
            common.security.require_client(reader);
        }
        let console = ConsoleSettings::read(reader);
        console::check(&console, reader);
        let distress = DistressSettings::read(reader);
        distress.check(reader);
        note(&common, &provisioning, &console, &sampling, reader);
        Some(Self {
            console,
            common,
            tls: TlsSettings::read(reader).tls(reader),
            health: HealthSettings::read(reader),
            provisioning,
            reading: ReadingSettings::read(reader),
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

/// Notes what the receiver uses, and what it does without.
fn note(
    common: &CommonSettings,
    provisioning: &ProvisioningSettings,
    console: &ConsoleSettings,
    sampling: &SamplingSettings,
    reader: &mut Reader<'_>,
) {
    common.note(reader);
    common.security.note_callers(reader);
    let mappings = match &provisioning.url {
        Some(url) => format!("are forwarded to {url}"),
        None => "are answered 502: PROVISIONING_URL is not set".to_owned(),
    };
    reader.note("mappings", mappings);
    if provisioning.url.is_some() {
        common.security.note_client(reader);
    }
    let shown = if console.enabled {
        "at /console"
    } else {
        "off"
    };
    reader.note("console", shown);
    let granularity = match sampling.dimension {
        Some(_) => {
            let name = reader.shown("sampling.dimension");
            format!("{name}{}", reader.source("sampling.dimension"))
        }
        None => "not known, so no dry runs: SAMPLER_DIMENSION is not set".to_owned(),
    };
    reader.note("granularity", granularity);
}
