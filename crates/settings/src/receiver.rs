//! The settings of the receiver alone, and its table.

use std::time::Duration;

use sampler_domain::Units;
use sampler_domain::units::UnitsError;
use sampler_service::security::SecuritySettings;
use sampler_service::settings::{HealthSettings, HttpSettings, Kind, LogSettings, TraceSettings};
use secrecy::SecretString;
use url::Url;

use crate::{
    DatabaseSettings, MonthSettings, SamplingSettings, SlackSettings, TEN_MINUTES,
    TENTH_OF_A_SECOND,
};

sampler_service::settings! {
    /// How much a receiver takes in.
    pub struct LimitsSettings("limits") {
        /// The maximum number of events, batches and mappings in flight. A quarter of it, rounded down, is
        /// reserved for single stops. Without it there is no such limit: the receiver divides its capacity fairly among
        /// clients.
        inflight: Option<usize> = "MAX_INFLIGHT", Kind::Integer(1, 100_000);
        /// The largest body, before and after decompression.
        payload: usize = "MAX_PAYLOAD", Kind::Size(1 << 10, 8 << 20), or("500kb");
        /// The largest body of a batch of events, before and after decompression.
        batch_payload: usize = "SAMPLER_MAX_BATCH_PAYLOAD", Kind::Size(1 << 10, 4 << 20), or("4mb");
        /// How long a client may take to send a body.
        body_timeout: Duration = "SAMPLER_BODY_TIMEOUT", Kind::Duration(TENTH_OF_A_SECOND, TEN_MINUTES), or("30s");
    }

    /// Where mappings go.
    pub struct ProvisioningSettings("provisioning") {
        /// The address of Abacus's provisioning service. Without it, mappings are answered 502.
        url: Option<Url> = "PROVISIONING_URL", Kind::Url;
        /// How long one of the three calls for a mapping may take.
        timeout: Duration = "SAMPLER_PROVISIONING_TIMEOUT", Kind::Duration(TENTH_OF_A_SECOND, TEN_MINUTES), or("10s");
        /// Whether mappings need the scope abacus.sampler.write. If false, a client with the scope of
        /// one resource can map the plans of this resource, and Abacus never changes a mapping.
        full_scope: bool = "SAMPLER_MAPPINGS_FULL_SCOPE", Kind::Boolean, or("false");
    }

    /// What requests that read show.
    pub struct ReadingSettings("reading") {
        /// The units of measures, as in memory = "MB", disk = "GB". Amounts of a measure that has one
        /// are also shown by the hour: in GB where the unit is B, kB or MB, and in GiB where it is KiB
        /// or MiB.
        units: Option<Units> = "SAMPLER_UNITS", Kind::Text => units;
    }

    /// The console: pages for people.
    pub struct ConsoleSettings("console") {
        /// Whether the receiver has a console, at /console. Where SECURED is true it also needs
        /// SAMPLER_CONSOLE_KEY, a client and a token server.
        enabled: bool = "SAMPLER_CONSOLE", Kind::Boolean, or("true");
        /// The OAuth client that people sign in with. Without it and its secret, CLIENT_ID and
        /// CLIENT_SECRET.
        client_id: Option<String> = "SAMPLER_CONSOLE_CLIENT_ID", Kind::Text;
        /// The secret of this client. Both are set, or neither.
        client_secret: Option<SecretString> = "SAMPLER_CONSOLE_CLIENT_SECRET", Kind::Text, secret();
        /// One or more keys of at least 32 bytes, with commas between them, the same for all
        /// receivers. The first encrypts the cookies of people who are signed in, each decrypts them.
        key: Option<SecretString> = "SAMPLER_CONSOLE_KEY", Kind::Text, secret();
    }

    /// The rules for events.
    pub struct EventsSettings("events") {
        /// Whether an event with a known id, the same target, and another timestamp or other
        /// measures is answered 201, as by the original Sampler. The first event stays unchanged.
        lenient_repeats: bool = "SAMPLER_LENIENT_REPEATS", Kind::Boolean, or("false");
        /// Whether a span may begin before the end of the target's previous one, as with the
        /// original Sampler. The overlap is billed twice.
        allow_overlap: bool = "SAMPLER_ALLOW_OVERLAP", Kind::Boolean, or("false");
    }
}

crate::programs::groups! {
    /// The settings of the receiver.
    pub struct ReceiverSettings {
        http: HttpSettings = HttpSettings::table("7070");
        limits: LimitsSettings;
        database: DatabaseSettings;
        provisioning: ProvisioningSettings;
        events: EventsSettings;
        month: MonthSettings = MonthSettings::RECEIVER_TABLE;
        slack: SlackSettings;
        sampling: SamplingSettings = SamplingSettings::RECEIVER_TABLE;
        reading: ReadingSettings;
        console: ConsoleSettings;
        health: HealthSettings;
        security: SecuritySettings;
        log: LogSettings;
        traces: TraceSettings;
    }
}

impl ReadingSettings {
    /// The units of measures; none where they are not set.
    pub fn units(&self) -> Units {
        self.units.clone().unwrap_or_default()
    }
}

fn units(text: &str) -> Result<Units, String> {
    text.parse().map_err(|error: UnitsError| error.to_string())
}
