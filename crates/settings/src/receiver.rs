//! The settings of the receiver.

use std::time::Duration;

use sampler_domain::Units;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::common::{HttpSettings, LogSettings, TraceSettings};
use crate::reader::Reader;
use crate::sampling::MonthSettings;
use crate::table::{groups, settings};
use crate::value::Size;
use crate::{DatabaseSettings, SamplingSettings, SecuritySettings, SlackSettings};

/// The least length of a key of the console's cookies, in bytes.
const CONSOLE_KEY_MIN: usize = 32;

settings! {
    /// How much a receiver takes in.
    pub struct LimitsSettings {
        /// The maximum number of events, batches and mappings in flight. A quarter of it, rounded down, is reserved
        /// for single stops. Without it there is no such limit: the receiver divides its capacity fairly among
        /// clients.
        inflight: Option<usize> = "MAX_INFLIGHT", in "1" to "100000";
        /// The largest body, before and after decompression.
        payload: usize as Size = "MAX_PAYLOAD", "500kb", in "1kb" to "8mb";
    }

    /// Where mappings go.
    pub struct ProvisioningSettings {
        /// The address of Abacus's provisioning service. Without it, mappings are answered 502.
        url: Option<Url> = "PROVISIONING_URL";
    }

    /// What requests that read show.
    pub struct ReadingSettings {
        /// The units of measures, as in memory = "MB", disk = "GB". Amounts of a measure that has one are also shown
        /// by the hour: in GB where the unit is B, kB or MB, and in GiB where it is KiB or MiB.
        units: Option<Units> = "SAMPLER_UNITS";
    }

    /// The console: pages for people.
    pub struct ConsoleSettings {
        /// Whether the receiver has a console, at /console. Where SECURED is true it also needs SAMPLER_CONSOLE_KEY, a
        /// client and a token server.
        enabled: bool = "SAMPLER_CONSOLE", "true";
        /// The OAuth client that people sign in with. Without it and its secret, CLIENT_ID and CLIENT_SECRET.
        client_id: Option<String> = "SAMPLER_CONSOLE_CLIENT_ID";
        /// The secret of this client. Both are set, or neither.
        client_secret: Option<SecretString> = "SAMPLER_CONSOLE_CLIENT_SECRET";
        /// One or more keys of at least 32 bytes, with commas between them, the same for all receivers. The first
        /// encrypts the cookies of people who are signed in, each decrypts them.
        key: Option<SecretString> = "SAMPLER_CONSOLE_KEY";
    }

    /// The rules for events.
    pub struct EventsSettings {
        /// Whether an event with a known id, the same target, and another timestamp or other measures is answered
        /// 201, as by the original Sampler. The first event stays unchanged.
        lenient_repeats: bool = "SAMPLER_LENIENT_REPEATS", "false";
    }

    /// When a receiver is unhealthy.
    pub struct HealthSettings {
        /// How long the database may be out of reach before the receiver is unhealthy.
        threshold: Duration = "HEALTHCHECK_THRESHOLD", "60s", in "100ms" to "1d";
    }
}

groups! {
    /// The settings of the receiver.
    pub struct ReceiverSettings(defaults: &[]) {
        http: HttpSettings;
        limits: LimitsSettings;
        database: DatabaseSettings;
        provisioning: ProvisioningSettings;
        events: EventsSettings;
        month: MonthSettings;
        slack: SlackSettings;
        sampling: SamplingSettings;
        reading: ReadingSettings;
        console: ConsoleSettings;
        health: HealthSettings;
        security: SecuritySettings;
        log: LogSettings;
        traces: TraceSettings;
    }
}

impl ReceiverSettings {
    fn called(&self) -> Option<(&'static str, Url)> {
        let url = self.provisioning.url.clone();
        let url = url.filter(|_| self.security.secured);
        url.map(|url| ("PROVISIONING_URL", url))
    }

    fn check(&self, reader: &mut Reader) {
        if self.provisioning.url.is_some() {
            self.security.require_client(reader);
        }
        self.console.check(reader);
    }
}

impl ReadingSettings {
    /// The units of measures; none where they are not set.
    pub fn units(&self) -> Units {
        self.units.clone().unwrap_or_default()
    }
}

impl ConsoleSettings {
    /// Refuses keys that are too short, and half a client.
    fn check(&self, reader: &mut Reader) {
        let is_short = |keys: &SecretString| {
            let mut keys = keys.expose_secret().split(',');
            keys.any(|key| key.trim().len() < CONSOLE_KEY_MIN)
        };
        if self.key.as_ref().is_some_and(is_short) {
            let expected = format!(
                "one or more keys of at least {CONSOLE_KEY_MIN} bytes, with commas between"
            );
            reader.reject("SAMPLER_CONSOLE_KEY", &expected);
        }
        if self.client_id.is_some() != self.client_secret.is_some() {
            reader.complain(
                "SAMPLER_CONSOLE_CLIENT_ID and SAMPLER_CONSOLE_CLIENT_SECRET are set together, or not at all",
            );
        }
    }
}
