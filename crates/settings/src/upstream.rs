//! Which system takes the usages, and what it promises where it is not Abacus.

use std::time::Duration;

use sampler_domain::{Contract, Memory};
use sampler_service::settings::{Kind, Reader};
use sampler_upstream::{EventAttributes, FindUrl};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::{DAY, millis};

/// The longest horizon: ten years.
const HORIZON_MAX: u64 = 10 * 366 * 86_400_000;

sampler_service::settings! {
    /// The system that takes the usages. All but the first setting are for `cloudevents` alone.
    pub struct UpstreamSettings("upstream") {
        /// What takes the usages: Abacus, or whatever takes CloudEvents over HTTP, such as OpenMeter.
        kind: String = "SAMPLER_UPSTREAM", Kind::Choice(&["abacus", "cloudevents"]), or("abacus");
        /// The address to which each usage is posted, exactly as it is written. Its path and query may hold a
        /// key, so only its host is printed.
        url: Option<SecretString> = "SAMPLER_UPSTREAM_URL", Kind::Text, secret();
        /// The attribute source of each event: a URI reference. The upstream recognises a repeat by it and the
        /// id: if it changes, usages that are in flight or not confirmed may count twice.
        source: String = "SAMPLER_UPSTREAM_SOURCE", Kind::Text, or("sampler");
        /// The attribute type of each event.
        event_type: String = "SAMPLER_UPSTREAM_TYPE", Kind::Text, or("sampler.usage");
        /// The token of posts and lookups. Without it, and with SECURED=true, it is a token of this
        /// program's own client.
        token: Option<SecretString> = "SAMPLER_UPSTREAM_TOKEN", Kind::Text, secret();
        /// How long the upstream recognises a repeat: a duration (such as 24h), or forever. If it is too
        /// long, usages may count twice. It may be shorter than what the upstream promises, never longer.
        horizon: Option<String> = "SAMPLER_UPSTREAM_HORIZON", Kind::Text;
        /// The address at which a usage is found, with {id} in it, and {source} where that is of use. It
        /// is needed where the horizon is not forever, and with SAMPLER_CONFIRM.
        find_url: Option<SecretString> = "SAMPLER_UPSTREAM_FIND_URL", Kind::Text, secret();
        /// How long after a post a usage may still not be found.
        settles: Duration = "SAMPLER_UPSTREAM_SETTLES", Kind::Duration(Duration::ZERO, DAY), or("1m");
    }
}

/// A receiver of CloudEvents, as it is set.
#[derive(Clone, Debug)]
pub struct CloudEventsSettings {
    /// Where each usage is posted.
    pub url: Url,
    pub attributes: EventAttributes,
    /// The token of posts and lookups.
    pub token: Option<SecretString>,
    /// How long a repeat is recognised.
    pub contract: Contract,
    pub find_url: Option<FindUrl>,
    /// How long after a post a usage may still not be found.
    pub settles: Duration,
}

impl UpstreamSettings {
    /// Whether usages are not posted to Abacus.
    pub fn is_cloud_events(&self) -> bool {
        self.kind == "cloudevents"
    }

    /// The receiver of CloudEvents. `post_timeout` is how long one post may take, and `confirms` says that
    /// each accepted usage is looked up. None where something is missing or wrong, after a complaint about
    /// each.
    pub fn cloud_events(
        &self,
        post_timeout: Duration,
        confirms: bool,
        reader: &mut Reader,
    ) -> Option<CloudEventsSettings> {
        let url = self.read_url(reader);
        self.check_attributes(reader);
        let contract = self.read_contract(post_timeout, reader);
        let find_url = self.read_find_url(reader);
        self.check_token(url.as_ref(), find_url.as_ref(), reader);
        let (key, horizon_key) = ("upstream.find_url", "upstream.horizon");
        if self.find_url.is_none() {
            if matches!(contract, Some(Contract::Forgets(_))) {
                reader.complain(format!(
                    "{} must be set where {} is not forever: what may have been forgotten must be \
                     looked up before it is posted again, or it would count twice",
                    reader.described(key),
                    reader.described(horizon_key),
                ));
            }
            if confirms {
                reader.complain(format!(
                    "{} must be set with {}: that is where usages are looked up",
                    reader.described(key),
                    reader.described("confirm.enabled"),
                ));
            }
        }
        Some(CloudEventsSettings {
            url: url?,
            attributes: EventAttributes::new(&self.source, &self.event_type),
            token: self.token.clone(),
            contract: contract?,
            find_url,
            settles: self.settles,
        })
    }

    fn read_url(&self, reader: &mut Reader) -> Option<Url> {
        let text = self.url.as_ref().map(ExposeSecret::expose_secret);
        let url = text.and_then(web_address);
        if url.is_none() {
            reader.complain(format!(
                "{} {}: expected an http or https address with a host, without credentials",
                reader.described("upstream.url"),
                stated(text),
            ));
        }
        url
    }

    /// What the upstream promises about repeats.
    fn read_contract(&self, post_timeout: Duration, reader: &mut Reader) -> Option<Contract> {
        let text = self.horizon.as_deref();
        if text == Some("forever") {
            return Some(Contract::Forever);
        }
        let kind = Kind::Duration(Duration::ZERO, Duration::from_millis(HORIZON_MAX));
        let Some(horizon) = text.and_then(|text| kind.duration(text)) else {
            reader.complain(format!(
                "{} {}: expected forever, or a duration up to ten years (milliseconds, or a number with \
                 ms, s, m, h or d). How long does the upstream recognise a repeat?",
                reader.described("upstream.horizon"),
                stated(text),
            ));
            return None;
        };
        Some(Contract::Forgets(Memory {
            horizon: millis(horizon),
            settles: millis(self.settles),
            post_timeout: millis(post_timeout),
        }))
    }

    fn read_find_url(&self, reader: &mut Reader) -> Option<FindUrl> {
        match FindUrl::new(self.find_url.as_ref()?.expose_secret()) {
            Ok(url) => Some(url),
            Err(error) => {
                reader.complain(format!("{} {error}", reader.described("upstream.find_url")));
                None
            }
        }
    }

    /// A token with spaces would not be sent, and a token that is sent over https must not also be
    /// sent in the clear.
    fn check_token(&self, url: Option<&Url>, find_url: Option<&FindUrl>, reader: &mut Reader) {
        let token = self.token.as_ref().map(ExposeSecret::expose_secret);
        if token.is_some_and(|token| !is_visible(token)) {
            reader.complain(format!(
                "{} must be visible ASCII without spaces",
                reader.described("upstream.token")
            ));
        }
        let find_host = find_url.and_then(FindUrl::host);
        let is_https = url.is_some_and(|url| url.scheme() == "https");
        if is_https && find_host.is_some_and(|url| url.scheme() != "https") {
            reader.complain(format!(
                "{} must be an https address, as {} is: tokens could be read on the way",
                reader.described("upstream.find_url"),
                reader.described("upstream.url"),
            ));
        }
    }

    fn check_attributes(&self, reader: &mut Reader) {
        let base = Url::parse("http://sampler.invalid/").expect("a plain address");
        let is_reference = is_visible(&self.source)
            && !self
                .source
                .contains(['<', '>', '"', '{', '}', '|', '\\', '^', '`'])
            && base.join(&self.source).is_ok();
        if self.source.trim().is_empty() || !is_reference {
            reader.complain(format!(
                "{} must be a URI reference, and must not be empty",
                reader.described("upstream.source")
            ));
        }
        let is_plain = !self.event_type.chars().any(char::is_control);
        if self.event_type.trim().is_empty() || !is_plain {
            reader.complain(format!(
                "{} must not be empty, and must have no control characters",
                reader.described("upstream.event_type")
            ));
        }
    }
}

/// How a setting is wrong that was set or not. What was set is not repeated: it may hold a secret.
fn stated(text: Option<&str>) -> &'static str {
    match text {
        Some(_) => "is not valid",
        None => "is not set",
    }
}

/// An http or https address with a host, without credentials.
fn web_address(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    let has_credentials = !url.username().is_empty() || url.password().is_some();
    (is_web && !has_credentials).then_some(url)
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}
