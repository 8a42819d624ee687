//! The settings of the receiver, and the checks of settings that depend on each other.

use sampler_metrics::Metric;
use sampler_program::ProgramSettings;
use sampler_service::settings::{Printout, Program, Reader};
use sampler_settings::receiver::TABLE;
use sampler_settings::{CommonSettings, ReceiverSettings, worker};
use url::Url;

use crate::console;
use crate::metrics::METRICS;
use crate::problems::catalogue;

/// The receiver on the command line.
pub const PROGRAM: Program = Program {
    name: "sampler-receiver",
    about: "Takes start and stop events over HTTP and keeps them as spans.",
    version: env!("CARGO_PKG_VERSION"),
    settings: TABLE,
    other: worker::TABLE,
    printouts: &[
        Printout {
            flag: "help-errors",
            about: "Prints what each error answer means, as Markdown",
            text: catalogue,
        },
        Printout {
            flag: "help-metrics",
            about: "Prints what each metric means, as Markdown",
            text: || sampler_metrics::document(PROGRAM.name, &metrics()),
        },
    ],
};

/// All metrics of the receiver.
pub fn metrics() -> Vec<&'static Metric> {
    [METRICS, &sampler_program::metrics()].concat()
}

#[derive(Clone, Debug)]
pub struct CheckedSettings(pub ReceiverSettings);

impl ProgramSettings for CheckedSettings {
    fn common(&self) -> CommonSettings {
        self.0.common()
    }

    fn token_destinations(&self) -> Vec<(&'static str, &Url)> {
        let url = self.0.provisioning.url.iter();
        url.filter(|_| self.0.security.secured)
            .map(|url| ("PROVISIONING_URL", url))
            .collect()
    }

    /// Also checks those that must fit each other, and what only this program can check.
    fn read(reader: &mut Reader) -> Option<Self> {
        let settings = ReceiverSettings::read(reader);
        if settings.provisioning.url.is_some() {
            settings.security.require_client(reader);
        }
        console::check(&settings.console, reader);
        note(&settings, reader);
        Some(Self(settings))
    }
}

/// Notes what the receiver uses, and what it does without.
fn note(settings: &ReceiverSettings, reader: &mut Reader) {
    let security = &settings.security;
    settings.common().note(reader);
    security.note_callers(reader);
    let mappings = match &settings.provisioning.url {
        Some(url) => format!("are forwarded to {url}"),
        None => "are answered 502: PROVISIONING_URL is not set".to_owned(),
    };
    reader.note("mappings", mappings);
    if settings.provisioning.url.is_some() {
        security.note_client(reader);
    }
    let shown = match (settings.console.enabled, console::is_complete(settings)) {
        (true, true) => "at /console",
        (true, false) => "off: SAMPLER_CONSOLE_KEY, a client or a token server is missing",
        (false, _) => "off: SAMPLER_CONSOLE is false",
    };
    reader.note("console", shown);
    let granularity = match settings.sampling.dimension {
        Some(_) => {
            let name = reader.shown("sampling.dimension");
            format!("{name}{}", reader.source("sampling.dimension"))
        }
        None => "not known: SAMPLER_DIMENSION is not set".to_owned(),
    };
    reader.note("granularity", granularity);
}
