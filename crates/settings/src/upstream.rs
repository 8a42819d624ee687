//! Which system takes the usages, and what it promises where it is not Abacus.

use std::time::Duration;

use sampler_domain::{Contract, Memory};
use sampler_upstream::FindUrl;
use secrecy::SecretString;
use url::Url;

use crate::reader::Reader;
use crate::table::settings;
use crate::value::{duration, texts, values, web_address};
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

/// An address whose path and query may hold a key.
#[derive(Clone, Debug)]
pub struct UpstreamUrl(pub Url);

/// A token without spaces: one with spaces would not be sent.
#[derive(Clone, Debug)]
pub struct UpstreamToken(pub SecretString);

/// How long an upstream recognises a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    Forever,
    For(Duration),
}

values! {
    UpstreamKind: "abacus or cloudevents", |name| match name {
        "abacus" => Some(UpstreamKind::Abacus),
        "cloudevents" => Some(UpstreamKind::CloudEvents),
        _ => None,
    };
    UpstreamUrl, secret: "an http or https address with a host, without credentials",
        |text| web_address(text).map(UpstreamUrl);
    UpstreamToken, secret: "visible ASCII without spaces",
        |text: &str| is_visible(text).then(|| UpstreamToken(text.into()));
    Horizon: "forever, or a duration up to ten years (milliseconds, or a number with ms, s, m, h or d)",
        |text| match text {
            "forever" => Some(Horizon::Forever),
            text => duration(text).filter(|it| *it <= HORIZON_MAX).map(Horizon::For),
        };
}

texts! {
    EventSource: "a URI reference", is_reference;
    EventType: "text without control characters",
        |text: &str| !text.trim().is_empty() && !text.chars().any(char::is_control);
}

fn is_reference(text: &str) -> bool {
    let base = Url::parse("http://sampler.invalid/").expect("a plain address");
    let is_plain = !text.contains(['<', '>', '"', '{', '}', '|', '\\', '^', '`']);
    is_visible(text) && is_plain && base.join(text).is_ok()
}

fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl WorkerSettings {
    /// The address that takes the usages, with the name of its setting.
    pub fn destination(&self) -> (&'static str, Option<&Url>) {
        match self.upstream.kind {
            UpstreamKind::Abacus => ("COLLECTOR_URL", self.delivery.collector_url.as_ref()),
            UpstreamKind::CloudEvents => {
                let url = self.upstream.url.as_ref().map(|url| &url.0);
                ("SAMPLER_UPSTREAM_URL", url)
            }
        }
    }

    /// How long the upstream recognises a repeat.
    pub fn contract(&self) -> Contract {
        match self.upstream.horizon {
            Some(Horizon::For(horizon)) => Contract::Forgets(Memory {
                horizon: millis(horizon),
                settles: millis(self.upstream.settles),
                post_timeout: millis(self.delivery.timeout),
            }),
            Some(Horizon::Forever) | None => Contract::Forever,
        }
    }
}

impl UpstreamSettings {
    /// Refuses what is missing or contradictory for a receiver of CloudEvents.
    pub(crate) fn check(&self, confirms: bool, reader: &mut Reader) {
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
