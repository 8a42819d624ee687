//! What contradicts each other. All mistakes are named at once.

use sampler_service::oauth::Keys;
use sampler_service::oauth::discovery::is_private;
use sampler_service::oauth::verify::shared_key_len;
use sampler_upstream::FindUrl;
use secrecy::ExposeSecret;
use url::Url;

use crate::kinds::DURATION;
use crate::table::{Of, Reader};
use crate::{Horizon, SecuritySettings, Settings, UpstreamKind};

/// Of the worker, the times that must be less than another one, with the reason.
const LESS: [(&str, &str, &str); 6] = [
    ("SAMPLER_POST_TIMEOUT", PROCESSING, READY),
    ("PROCESS_SCHEDULE_INTERVAL", PROCESSING, READY),
    (
        "CLEANUP_SCHEDULE_INTERVAL",
        "CLEANUP_SPANS_MONITOR_THRESHOLD",
        READY,
    ),
    (
        "SAMPLER_COMMIT_LOWER",
        "SAMPLER_COMMIT_UPPER",
        "sampling would pause and resume without end",
    ),
    ("SAMPLER_RETRY_LIMIT", SLACK, BILLED),
    ("SAMPLER_STOP_GRACE", SLACK, BILLED),
];
const PROCESSING: &str = "PROCESS_SPANS_MONITOR_THRESHOLD";
const SLACK: &str = "SAMPLER_MONTH_SLACK";
const READY: &str = "a worker that is well would not be ready";
const BILLED: &str =
    "usages could wait until the upstream has closed their month, and would not be billed";

impl Settings {
    /// Refuses settings that are valid alone, but together could not be honoured, would bill wrongly, or never be
    /// ready.
    pub(crate) fn check(&self, program: Of, reader: &mut Reader) {
        if self.program.metrics_port == Some(self.program.port) {
            reader.reject("SAMPLER_METRICS_PORT", "a port other than PORT");
        }
        let (sampling, console) = (&self.sampling, &self.console);
        if sampling.dimension.is_none() && sampling.dimension_overrides.is_some() {
            let expected = "a granularity, because SAMPLER_DIMENSION_OVERRIDES is set";
            reader.reject("SAMPLER_DIMENSION", expected);
        }
        let half = match (&console.client_id, &console.client_secret) {
            (Some(_), None) => Some("SAMPLER_CONSOLE_CLIENT_SECRET"),
            (None, Some(_)) => Some("SAMPLER_CONSOLE_CLIENT_ID"),
            _ => None,
        };
        if let Some(missing) = half {
            reader.reject(
                missing,
                "a value, because the other half of the client is set",
            );
        }
        self.security.check(reader);
        if program == Of::Worker || self.provisioning.url.is_some() {
            self.security.check_client(reader);
        }
        if program == Of::Worker {
            check_times(reader);
            self.check_upstream(reader);
        }
    }

    fn check_upstream(&self, reader: &mut Reader) {
        if let (missing, None) = self.destination() {
            reader.miss(missing);
        }
        let upstream = &self.upstream;
        if upstream.kind == UpstreamKind::Abacus {
            return;
        }
        let is_https = |url: &Url| url.scheme() == "https";
        let found_at = upstream.find_url.as_ref().and_then(FindUrl::host);
        let expected = match (&upstream.find_url, upstream.horizon) {
            (_, None) => return reader.miss("SAMPLER_UPSTREAM_HORIZON"),
            (None, Some(Horizon::For(_))) => {
                "an address, because SAMPLER_UPSTREAM_HORIZON is not forever: what may have been forgotten must be \
                 looked up before it is posted again, or it would count twice"
            }
            (None, _) if self.confirm.enabled => {
                "an address, because SAMPLER_CONFIRM looks usages up there"
            }
            _ if upstream.url.as_ref().is_some_and(is_https)
                && found_at.is_some_and(|url| !is_https(&url)) =>
            {
                "an https address, as SAMPLER_UPSTREAM_URL is: tokens could be read on the way"
            }
            _ => return,
        };
        reader.reject("SAMPLER_UPSTREAM_FIND_URL", expected);
    }
}

fn check_times(reader: &mut Reader) {
    for (shorter, longer, otherwise) in LESS {
        let [time, limit] = [shorter, longer].map(|name| reader.value(name, DURATION.parse));
        // Without slack, nothing can be in time for a month that has ended.
        let is_without = longer == SLACK && limit.is_some_and(|slack| slack.is_zero());
        if time >= limit && !is_without {
            let [shorter, longer] =
                [shorter, longer].map(|name| format!("{name} ({})", reader.shown(name)));
            let mistake = format!("{shorter} must be less than {longer}: otherwise {otherwise}");
            reader.mistakes.push(mistake);
        }
    }
}

impl SecuritySettings {
    /// Refuses tokens that could not be checked, and credentials that others could read. A program that is set to be
    /// secure but is not must not run: better no billing than billing that anyone can write to.
    fn check(&self, reader: &mut Reader) {
        if !self.secured && !self.is_healthcheck_secured() {
            return;
        }
        let (server, algorithm) = (self.token_server(), self.algorithm());
        if let Some((setting, server)) = &server
            && !is_private(server.address())
        {
            reader.reject(setting, "an address with https, because tokens are checked");
        }
        let length = shared_key_len(algorithm);
        match self.jwt_key.as_ref().map(ExposeSecret::expose_secret) {
            Some(key) => match Keys::configured(key, &self.policy()) {
                Err(error) => reader.reject("JWTKEY", &format!("a key for {algorithm:?}: {error}")),
                Ok(_) if key.len() < length => {
                    let expected = format!(
                        "a shared key of at least {length} bytes for {algorithm:?} (RFC 7518, section 3.2): a shorter \
                         one may be guessed"
                    );
                    reader.reject("JWTKEY", &expected);
                }
                Ok(_) => {}
            },
            None if server.is_none() => reader.reject(
                "JWTKEY",
                "a key, or AUTH_SERVER, API or SAMPLER_OIDC_ISSUER to fetch keys from: where SECURED or \
                 HEALTHCHECK_SECURED is true, tokens are checked",
            ),
            None if length > 0 => reader.reject(
                "JWTALGO",
                "RS256, RS384, RS512 or ES256 where JWTKEY is not set: fetched keys are never shared ones",
            ),
            None => {}
        }
    }

    /// For a program that calls others: refuses `SECURED=true` where it could not get a token.
    fn check_client(&self, reader: &mut Reader) {
        let expected = "a value, because SECURED is true and other systems are called with a token";
        for (name, is_set) in [
            ("CLIENT_ID", self.client_id.is_some()),
            ("CLIENT_SECRET", self.client_secret.is_some()),
            ("AUTH_SERVER", self.token_server().is_some()),
        ] {
            if self.secured && !is_set {
                reader.reject(name, expected);
            }
        }
    }
}
