//! What contradicts each other, and what a value must be that only reads as a text. All mistakes are named at once.

use sampler_service::oauth::Keys;
use sampler_service::oauth::discovery::is_private;
use sampler_service::oauth::verify::shared_key_len;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::table::{Of, Reader};
use crate::{Horizon, SecuritySettings, Settings, UpstreamKind};

/// The levels of the log. It would take a mistyped one for the name of a module, and write nothing.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// The longest name of a MongoDB collection that leaves room for the database's, in bytes.
const COLLECTION_NAME_MAX: usize = 128;

/// The least length of a key of the console's cookies, in bytes.
const CONSOLE_KEY_MIN: usize = 32;

impl Settings {
    /// Refuses settings that are valid alone, but together could not be honoured, would bill wrongly, or never be
    /// ready.
    pub(crate) fn check(&self, program: Of, reader: &mut Reader) {
        self.check_texts(reader);
        if self.http.metrics_port == Some(self.http.port) {
            reader.reject("SAMPLER_METRICS_PORT", "a port other than PORT");
        }
        if self.sampling.dimension.is_none() && self.sampling.dimension_overrides.is_some() {
            reader.complain(
                "SAMPLER_DIMENSION_OVERRIDES is set without SAMPLER_DIMENSION: both are needed, or none",
            );
        }
        if self.console.client_id.is_some() != self.console.client_secret.is_some() {
            reader.complain(
                "SAMPLER_CONSOLE_CLIENT_ID and SAMPLER_CONSOLE_CLIENT_SECRET are set together, or not at all",
            );
        }
        self.security.check(reader);
        if program == Of::Worker || self.provisioning.url.is_some() {
            self.security.check_client(reader);
        }
        if program == Of::Worker {
            self.check_times(reader);
            self.check_upstream(reader);
        }
    }

    fn check_texts(&self, reader: &mut Reader) {
        let source = &self.upstream.source;
        let event_type = &self.upstream.event_type;
        let console_keys = self.console.key.as_ref().map(ExposeSecret::expose_secret);
        let mut console_keys = console_keys.into_iter().flat_map(|keys| keys.split(','));
        let is_visible = |token: &SecretString| {
            let token = token.expose_secret();
            token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        for (name, is_fine, expected) in [
            (
                "LOG_LEVEL",
                is_level(&self.log.level),
                "off, error, warn, info, debug or trace, also as in info,sampler_store=debug",
            ),
            (
                "SPANS_COLLECTION_NAME",
                is_collection(&self.database.collection),
                "a name of a collection: at most 128 bytes, without $, not beginning with system. and neither \
                 beginning nor ending with a dot",
            ),
            (
                "SAMPLER_CONSOLE_KEY",
                console_keys.all(|key| key.trim().len() >= CONSOLE_KEY_MIN),
                "one or more keys of at least 32 bytes, with commas between",
            ),
            (
                "SAMPLER_UPSTREAM_SOURCE",
                is_reference(source),
                "a URI reference",
            ),
            (
                "SAMPLER_UPSTREAM_TYPE",
                !event_type.trim().is_empty() && !event_type.contains(char::is_control),
                "text without control characters",
            ),
            (
                "SAMPLER_UPSTREAM_TOKEN",
                self.upstream.token.as_ref().is_none_or(is_visible),
                "visible ASCII without spaces",
            ),
        ] {
            if !is_fine {
                reader.reject(name, expected);
            }
        }
    }

    fn check_times(&self, reader: &mut Reader) {
        let post = ("SAMPLER_POST_TIMEOUT", self.delivery.timeout);
        let pause = ("PROCESS_SCHEDULE_INTERVAL", self.processing.interval);
        let processing = ("PROCESS_SPANS_MONITOR_THRESHOLD", self.processing.threshold);
        let clean = ("CLEANUP_SCHEDULE_INTERVAL", self.cleanup.interval);
        let cleanup = ("CLEANUP_SPANS_MONITOR_THRESHOLD", self.cleanup.threshold);
        let lower = ("SAMPLER_COMMIT_LOWER", self.distress.commit_lower);
        let upper = ("SAMPLER_COMMIT_UPPER", self.distress.commit_upper);
        let retry = ("SAMPLER_RETRY_LIMIT", self.delivery.retry_limit);
        let grace = ("SAMPLER_STOP_GRACE", self.sampling.stop_grace);
        let slack = ("SAMPLER_MONTH_SLACK", self.month.month_slack);
        let ready = "otherwise a worker that is well would not be ready";
        let turns = "otherwise sampling would pause and resume without end";
        let billed = "otherwise usages could wait until the upstream has closed their month, and would not be billed";
        reader.less(post, processing, ready);
        reader.less(pause, processing, ready);
        reader.less(clean, cleanup, ready);
        reader.less(lower, upper, turns);
        if !self.month.month_slack.is_zero() {
            reader.less(retry, slack, billed);
            reader.less(grace, slack, billed);
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
        let is_posted_safely = upstream.url.as_ref().is_some_and(|url| is_https(&url.0));
        let expected = match (&upstream.find_url, upstream.horizon) {
            (_, None) => return reader.miss("SAMPLER_UPSTREAM_HORIZON"),
            (None, Some(Horizon::For(_))) => {
                "an address, because SAMPLER_UPSTREAM_HORIZON is not forever: what may have been forgotten must be \
                 looked up before it is posted again, or it would count twice"
            }
            (None, _) if self.confirm.enabled => {
                "an address, because SAMPLER_CONFIRM looks usages up there"
            }
            (Some(found), _)
                if is_posted_safely && found.host().is_some_and(|url| !is_https(&url)) =>
            {
                "an https address, as SAMPLER_UPSTREAM_URL is: tokens could be read on the way"
            }
            _ => return,
        };
        reader.reject("SAMPLER_UPSTREAM_FIND_URL", expected);
    }
}

impl SecuritySettings {
    /// Refuses tokens that could not be checked, and credentials that others could read. A program that is set to be
    /// secure but is not must not run: better no billing than billing that anyone can write to.
    fn check(&self, reader: &mut Reader) {
        let (server, algorithm) = (self.token_server(), self.algorithm());
        if let Some((setting, server)) = &server
            && self.secured
            && !is_private(server.address())
        {
            reader.reject(setting, "an address with https, because SECURED is true");
        }
        if !self.secured && !self.is_healthcheck_secured() {
            return;
        }
        if let Some(key) = &self.jwt_key {
            let length = shared_key_len(algorithm);
            if let Err(error) = Keys::configured(key.expose_secret(), &self.policy()) {
                reader.reject("JWTKEY", &format!("a key for {algorithm:?}: {error}"));
            } else if key.expose_secret().len() < length {
                let expected = format!(
                    "a shared key of at least {length} bytes for {algorithm:?} (RFC 7518, section 3.2): a shorter one \
                     may be guessed"
                );
                reader.reject("JWTKEY", &expected);
            }
        } else if server.is_none() {
            let expected = "a key, or AUTH_SERVER, API or SAMPLER_OIDC_ISSUER to fetch keys from: where SECURED or \
                            HEALTHCHECK_SECURED is true, tokens are checked";
            reader.reject("JWTKEY", expected);
        } else if shared_key_len(algorithm) > 0 {
            let expected = "RS256, RS384, RS512 or ES256 where JWTKEY is not set: fetched keys are never shared ones";
            reader.reject("JWTALGO", expected);
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

fn is_level(text: &str) -> bool {
    text.split(',').all(|directive| {
        let (module, level) = directive.split_once('=').unwrap_or(("all", directive));
        !module.is_empty() && LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))
    })
}

fn is_collection(name: &str) -> bool {
    let is_forbidden = name.starts_with("system.")
        || name.starts_with('.')
        || name.ends_with('.')
        || name.contains(|c: char| c.is_control() || c == '$');
    !is_forbidden && name.len() <= COLLECTION_NAME_MAX
}

fn is_reference(text: &str) -> bool {
    let base = Url::parse("http://sampler.invalid/").expect("a plain address");
    let is_plain = |c: char| c.is_ascii_graphic() && !r#"<>"{}|\^`"#.contains(c);
    text.chars().all(is_plain) && base.join(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_the_log_are_known_words() {
        let (one, several) = ("info,sampler_store=debug", "error,a::b=trace,c=off");
        for text in ["info", "WARN", "off", one, several] {
            assert!(is_level(text), "{text:?}");
        }
        let (name, other) = ("info,sampler_store", "info,a=loud");
        for text in ["inof", "warning", name, other, "info,,", "info,=info"] {
            assert!(!is_level(text), "{text:?}");
        }
    }

    #[test]
    fn collections_have_the_names_that_mongodb_takes() {
        for name in ["spans", "abacus-spans", "billing.spans"] {
            assert!(is_collection(name));
        }
        let long = "x".repeat(COLLECTION_NAME_MAX + 1);
        for name in ["system.spans", "a$b", ".spans", "spans.", "a\0b", &long] {
            assert!(!is_collection(name), "{name:?}");
        }
    }
}
