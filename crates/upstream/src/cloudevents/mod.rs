//! Whatever takes CloudEvents 1.0 over HTTP: OpenMeter, a broker, a gateway. Each usage is one event, in
//! structured mode, one event a request.
//!
//! Nothing in the standard says that a repeat is recognised, or that an event can be read again. So both
//! are set ([`Promises`]), and the worker asks before it posts what may have been forgotten.

mod answer;
mod decimal;
mod event;
mod find_url;
mod found;

use std::time::Duration;

use async_trait::async_trait;

use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use sampler_domain::{Contract, Timestamp, Usage};
use sampler_service::oauth::TlsError;
use sampler_service::oauth::http::{describe, read_body};
use secrecy::SecretString;
use url::Url;

pub use event::EventAttributes;
pub use find_url::{FindUrl, FindUrlError};

use crate::answer::CLOUD_EVENTS;
use crate::http::{ClientOptions, UpstreamClient, date, header, read_posted};
use crate::port::{LookupAnswer, LookupResult, Lookups, Posted, Promises, Sought, Upstream};
use answer::meaning;

/// The media type of an event. Nothing may follow it: OpenMeter compares it byte by byte.
const EVENT: HeaderValue = HeaderValue::from_static("application/cloudevents+json");

/// The longest answer to a lookup that is read, in bytes. An event has half a megabyte at the most; answers to
/// several lookups are in memory at a time.
const ANSWER_LEN_MAX: usize = 2 << 20;

/// A receiver of CloudEvents.
#[derive(Clone, Debug)]
pub struct CloudEvents {
    client: UpstreamClient,
    url: Url,
    attributes: EventAttributes,
    contract: Contract,
    find_url: Option<FindUrl>,
    settles: Duration,
}

impl CloudEvents {
    /// Prepares a client; connections are made when they are needed, and kept. The address is that of
    /// posts, exactly as it is.
    pub fn new(
        options: &ClientOptions,
        attributes: EventAttributes,
        contract: Contract,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            client: UpstreamClient::new(options)?,
            url: options.url.clone(),
            attributes,
            contract,
            find_url: None,
            settles: Duration::ZERO,
        })
    }

    /// Where usages are found, and how long after a post they may still not be.
    #[must_use]
    pub fn found_at(mut self, find_url: Option<FindUrl>, settles: Duration) -> Self {
        (self.find_url, self.settles) = (find_url, settles);
        self
    }

    /// Sends this token with posts and lookups, instead of one of the client's own.
    #[must_use]
    pub fn with_token(mut self, token: Option<&SecretString>) -> Self {
        if let Some(token) = token {
            self.client = self.client.with_token(token);
        }
        self
    }
}

#[async_trait]
impl Upstream for CloudEvents {
    fn promises(&self) -> Promises {
        Promises {
            contract: self.contract,
            lookups: match self.find_url {
                Some(_) => Lookups::ById {
                    settles: self.settles,
                },
                None => Lookups::Never,
            },
        }
    }

    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted {
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, EVENT)
            .body(self.attributes.event(usage));
        match self.client.send_in_time(request).await {
            Ok(response) => read_posted(response, &CLOUD_EVENTS, now).await,
            Err(error) => error.into_posted(),
        }
    }

    async fn look_up(&self, sought: Sought<'_>, now: Timestamp) -> LookupResult {
        let source = self.attributes.source();
        let url = self.find_url.as_ref();
        let Some(url) = url.and_then(|url| url.of(sought.usage_guid, source)) else {
            let error = "SAMPLER_UPSTREAM_FIND_URL is not set".to_owned();
            return LookupResult {
                answer: LookupAnswer::Mismatch { error },
                status: None,
            };
        };
        let response = match self.client.send_in_time(self.client.get(url)).await {
            Ok(response) => response,
            Err(error) => return error.into_looked_up(),
        };
        let status = response.status().as_u16();
        let now = date(&response).unwrap_or(now);
        let retry_after = header(&response, &RETRY_AFTER).map(str::to_owned);
        let answer = match read_body(response, ANSWER_LEN_MAX).await {
            Ok(Some(body)) => meaning(status, &body, (sought.usage_guid, source))
                .unwrap_or_else(|| answer::otherwise(status, retry_after.as_deref(), now)),
            Ok(None) => LookupAnswer::Mismatch {
                error: "the answer is too long".to_owned(),
            },
            Err(error) => LookupAnswer::Failed {
                after: None,
                error: describe(error),
            },
        };
        LookupResult {
            answer,
            status: Some(status),
        }
    }
}
