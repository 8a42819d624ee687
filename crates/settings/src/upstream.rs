//! Which system takes the usages, and what it promises where it is not Abacus.

use std::time::Duration;

use sampler_domain::{Contract, Memory};
use sampler_upstream::{EventAttributes, FindUrl};
use secrecy::SecretString;
use url::Url;

use crate::reader::Reader;
use crate::table::settings;
use crate::value::{duration, text, value, web_address};
use crate::{WorkerSettings, millis};

/// The longest horizon: ten years.
const HORIZON_MAX: Duration = Duration::from_hours(3_660 * 24);

settings! {
    /// The system that takes the usages. All but the first setting are for `cloudevents` alone.
    pub struct UpstreamSettings {
        /// What takes the usages: Abacus, or whatever takes CloudEvents over HTTP, such as OpenMeter.
        kind: UpstreamKind = "SAMPLER_UPSTREAM", "abacus";
        /// The address to which each usage is posted, exactly as it is written. Its path and query may hold a key, so it
        /// is never printed.
        url: Option<UpstreamUrl> = "SAMPLER_UPSTREAM_URL";
        /// The attribute source of each event: a URI reference. The upstream recognises a repeat by it and the id: if it
        /// changes, usages that are in flight or not confirmed may count twice.
        source: String as EventSource = "SAMPLER_UPSTREAM_SOURCE", "sampler";
        /// The attribute type of each event.
        event_type: String as EventType = "SAMPLER_UPSTREAM_TYPE", "sampler.usage";
        /// The token of posts and lookups. Without it, and with SECURED=true, it is a token of this program's own
        /// client.
        token: Option<UpstreamToken> = "SAMPLER_UPSTREAM_TOKEN";
        /// How long the upstream recognises a repeat: a duration (such as 24h), or forever. If it is too long, usages may
        /// count twice. It may be shorter than what the upstream promises, never longer.
        horizon: Option<Horizon> = "SAMPLER_UPSTREAM_HORIZON";
        /// The address at which a usage is found, with {id} in it, and {source} where that is of use. It is needed where
        /// the horizon is not forever, and with SAMPLER_CONFIRM.
        find_url: Option<FindUrl> = "SAMPLER_UPSTREAM_FIND_URL";
        /// How long after a post a usage may still not be found.
        settles: Duration = "SAMPLER_UPSTREAM_SETTLES", "1m", in "0ms" to "1d";
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    Abacus,
    CloudEvents,
}

value!(UpstreamKind, "abacus or cloudevents", |name| match name {
    "abacus" => Some(UpstreamKind::Abacus),
    "cloudevents" => Some(UpstreamKind::CloudEvents),
    _ => None,
});

/// An address whose path and query may hold a key.
#[derive(Clone, Debug)]
pub struct UpstreamUrl(Url);

value!(
    secret UpstreamUrl,
    "an http or https address with a host, without credentials",
    |text| web_address(text).map(UpstreamUrl)
);

#[derive(Clone, Debug)]
pub struct UpstreamToken(SecretString);

// A token with spaces would not be sent.
value!(secret UpstreamToken, "visible ASCII without spaces", |text: &str| {
    is_visible(text).then(|| UpstreamToken(text.into()))
});

text!(EventSource, "a URI reference", |text: &str| {
    let base = Url::parse("http://sampler.invalid/").expect("a plain address");
    let is_plain = !text.contains(['<', '>', '"', '{', '}', '|', '\\', '^', '`']);
    is_visible(text) && is_plain && base.join(text).is_ok()
});

text!(
    EventType,
    "text without control characters",
    |text: &str| { !text.trim().is_empty() && !text.chars().any(char::is_control) }
);

/// How long an upstream recognises a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    Forever,
    For(Duration),
}

value!(
    Horizon,
    "forever, or a duration up to ten years (milliseconds, or a number with ms, s, m, h or d)",
    |text| match text {
        "forever" => Some(Horizon::Forever),
        text => duration(text)
            .filter(|it| *it <= HORIZON_MAX)
            .map(Horizon::For),
    }
);

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What takes the usages.
#[derive(Clone, Debug)]
pub enum Destination {
    /// Abacus's collector at this address.
    Abacus(Url),
    /// A receiver of CloudEvents.
    CloudEvents(Box<CloudEventsSettings>),
}

/// A receiver of CloudEvents.
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

impl Destination {
    /// Its address.
    pub fn url(&self) -> &Url {
        match self {
            Self::Abacus(url) => url,
            Self::CloudEvents(upstream) => &upstream.url,
        }
    }

    /// The setting of its address.
    pub fn setting(&self) -> &'static str {
        match self {
            Self::Abacus(_) => "COLLECTOR_URL",
            Self::CloudEvents(_) => "SAMPLER_UPSTREAM_URL",
        }
    }

    /// Whether it has a token of its own, in place of those of this program's client.
    pub fn has_token(&self) -> bool {
        matches!(self, Self::CloudEvents(upstream) if upstream.token.is_some())
    }
}

impl WorkerSettings {
    /// What takes the usages; none where settings for it are missing.
    pub fn destination(&self) -> Option<Destination> {
        match self.upstream.kind {
            UpstreamKind::Abacus => self.delivery.collector_url.clone().map(Destination::Abacus),
            UpstreamKind::CloudEvents => {
                let settings = self.upstream.cloud_events(self.delivery.timeout)?;
                Some(Destination::CloudEvents(Box::new(settings)))
            }
        }
    }

    pub(crate) fn check_destination(&self, reader: &mut Reader) {
        match self.upstream.kind {
            UpstreamKind::Abacus if self.delivery.collector_url.is_none() => {
                reader.miss("COLLECTOR_URL");
            }
            UpstreamKind::Abacus => {}
            UpstreamKind::CloudEvents => self.upstream.check(self.confirm.enabled, reader),
        }
    }
}

impl UpstreamSettings {
    fn cloud_events(&self, post_timeout: Duration) -> Option<CloudEventsSettings> {
        let contract = match self.horizon? {
            Horizon::Forever => Contract::Forever,
            Horizon::For(horizon) => Contract::Forgets(Memory {
                horizon: millis(horizon),
                settles: millis(self.settles),
                post_timeout: millis(post_timeout),
            }),
        };
        Some(CloudEventsSettings {
            url: self.url.as_ref()?.0.clone(),
            attributes: EventAttributes::new(&self.source, &self.event_type),
            token: self.token.as_ref().map(|token| token.0.clone()),
            contract,
            find_url: self.find_url.clone(),
            settles: self.settles,
        })
    }

    /// Refuses what is missing or contradictory for a receiver of CloudEvents.
    fn check(&self, confirms: bool, reader: &mut Reader) {
        if self.url.is_none() {
            reader.miss("SAMPLER_UPSTREAM_URL");
        }
        if self.horizon.is_none() {
            reader.miss("SAMPLER_UPSTREAM_HORIZON");
        }
        let find = "SAMPLER_UPSTREAM_FIND_URL";
        let forgets = matches!(self.horizon, Some(Horizon::For(_)));
        let Some(find_url) = &self.find_url else {
            if forgets {
                reader.reject(
                    find,
                    "an address, because SAMPLER_UPSTREAM_HORIZON is not forever: what may have been forgotten must be \
                     looked up before it is posted again, or it would count twice",
                );
            } else if confirms {
                reader.reject(
                    find,
                    "an address, because SAMPLER_CONFIRM looks usages up there",
                );
            }
            return;
        };
        let is_https = |url: &Url| url.scheme() == "https";
        let is_posted_safely = self.url.as_ref().is_some_and(|url| is_https(&url.0));
        if is_posted_safely && find_url.host().is_some_and(|url| !is_https(&url)) {
            reader.reject(
                find,
                "an https address, as SAMPLER_UPSTREAM_URL is: tokens could be read on the way",
            );
        }
    }
}
