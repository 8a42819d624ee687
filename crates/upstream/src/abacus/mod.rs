//! Abacus: the collector, which takes usages and recognises a repeat for ever, and the documents that it
//! has of them.

pub mod document;

use async_trait::async_trait;

use reqwest::header::{CONTENT_TYPE, LOCATION};
use sampler_domain::{Timestamp, Usage};
use sampler_service::oauth::TlsError;
use url::Url;

use crate::answer::ABACUS;
use crate::http::{ClientOptions, UpstreamClient, header, join, read_posted};
use crate::port::{LookupResult, Posted, Promises, Sought, Upstream};
use document::HttpConfirmer;

/// The longest `Location` that is kept, in bytes. Abacus's own have a few hundred.
const LOCATION_LEN_MAX: usize = 2_048;

/// Abacus, which takes usages and reports the outcome.
#[derive(Clone, Debug)]
pub struct Abacus {
    pub collector: HttpCollector,
    pub documents: HttpConfirmer,
}

#[async_trait]
impl Upstream for Abacus {
    fn promises(&self) -> Promises {
        Promises::ABACUS
    }

    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted {
        self.collector.post(usage, now).await
    }

    async fn look_up(&self, sought: Sought<'_>, now: Timestamp) -> LookupResult {
        let (location, usage_guid) = (sought.location, sought.usage_guid);
        self.documents.ask(location, usage_guid, now).await
    }
}

#[derive(Clone, Debug)]
pub struct HttpCollector {
    client: UpstreamClient,
    url: Url,
}

impl HttpCollector {
    /// Prepares a client; connections are made when they are needed, and kept.
    pub fn new(options: &ClientOptions) -> Result<Self, TlsError> {
        let url = join(&options.url, &["v1", "metering", "collected", "usage"]);
        Ok(Self {
            client: UpstreamClient::new(options)?,
            url,
        })
    }

    pub async fn post(&self, usage: &Usage, now: Timestamp) -> Posted {
        let body = serde_json::to_vec(usage).expect("ids, numbers and JSON values serialise");
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let response = match self.client.send_in_time(request).await {
            Ok(response) => response,
            Err(error) => return error.into_posted(),
        };
        let location = header(&response, &LOCATION).and_then(|text| self.location(text));
        let mut posted = read_posted(response, &ABACUS, now).await;
        posted.details.location = location;
        posted
    }

    /// A `Location` as an absolute address, if it can be one.
    fn location(&self, text: &str) -> Option<String> {
        let location = self.url.join(text).ok()?;
        let location = String::from(location);
        (location.len() <= LOCATION_LEN_MAX).then_some(location)
    }
}
