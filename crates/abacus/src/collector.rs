//! The collector, which takes usages.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Response;
use reqwest::header::{CONNECTION, CONTENT_TYPE, DATE, HeaderName, LOCATION, RETRY_AFTER};
use sampler_domain::{Timestamp, Usage};
use url::Url;

use crate::answer::{Answer, AnswerParts, interpret, parse_date};
use crate::error_name::ErrorName;
use crate::http::{AbacusClient, AbacusOptions, ClientError, join};

/// How many bytes of the body of an answer are read.
const BODY_LEN_MAX: usize = 8 * 1024;

/// The longest `Location` that is kept, in bytes. Abacus's own have a few hundred.
const LOCATION_LEN_MAX: usize = 2_048;

/// How long a probe waits for an answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerDate {
    NoAnswer,
    /// The answer has no valid date.
    Undated,
    /// The answer has this date, to the second.
    At(Timestamp),
}

/// The result of posting a usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// The meaning of the answer for the usage.
    pub answer: Answer,
    pub dated: AnswerDate,
    /// The rest of the answer, for the ledger.
    pub details: Details,
}

/// The other parts of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub status: Option<u16>,
    /// The `Location` that Abacus gave the usage.
    pub location: Option<String>,
    /// The name of the error in its body.
    pub error_name: Option<String>,
    /// Nothing was sent: there was no connection.
    pub unsent: bool,
}

/// Takes usages. Posting the same usage again is always safe: Abacus recognises it.
#[async_trait]
pub trait Collector: Send + Sync + 'static {
    /// Posts a usage; returns within a time limit, whatever Abacus does. `now` stands in for the date
    /// of an answer that has none, where a `Retry-After` is a date.
    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted;

    /// Asks for the time only, within a time limit.
    ///
    /// # Errors
    /// If there is no answer: the reason, for the operator.
    async fn probe(&self) -> Result<AnswerDate, String>;
}

/// The collector over HTTP.
#[derive(Clone, Debug)]
pub struct HttpCollector {
    client: AbacusClient,
    base: Url,
    url: Url,
    probe_timeout: Duration,
    accept_conflict: bool,
}

impl HttpCollector {
    /// Prepares a client; connections are made when they are needed, and kept.
    ///
    /// # Errors
    /// If the client cannot be set up.
    pub fn new(options: &AbacusOptions) -> Result<Self, ClientError> {
        let url = join(&options.url, &["v1", "metering", "collected", "usage"]);
        Ok(Self {
            client: AbacusClient::new(options)?,
            base: options.url.clone(),
            url,
            probe_timeout: options.timeout.min(PROBE_TIMEOUT),
            accept_conflict: false,
        })
    }

    /// Whether 409 counts as accepted: for gateways that answer repeats with it.
    #[must_use]
    pub fn accept_conflict(mut self, accept: bool) -> Self {
        self.accept_conflict = accept;
        self
    }
}

#[async_trait]
impl Collector for HttpCollector {
    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted {
        let body = serde_json::to_vec(usage).expect("ids, numbers and JSON values serialise");
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        match self.client.send(request).await {
            Ok(response) => {
                let dated = dated(&response);
                let now = match dated {
                    AnswerDate::At(date) => date,
                    AnswerDate::NoAnswer | AnswerDate::Undated => now,
                };
                self.read(response, now, dated).await
            }
            Err(error) => Posted {
                answer: Answer::TryAgain {
                    after: None,
                    error: error.text,
                },
                dated: AnswerDate::NoAnswer,
                details: Details {
                    unsent: error.unsent,
                    ..Details::default()
                },
            },
        }
    }

    /// Any answer has a date, so no token is needed. The connection is closed afterwards, so that the
    /// next probe may reach another gateway: the clock of one may be wrong.
    async fn probe(&self) -> Result<AnswerDate, String> {
        let request = self
            .client
            .get(self.base.clone())
            .timeout(self.probe_timeout)
            .header(CONNECTION, "close");
        let response = request
            .send()
            .await
            .map_err(sampler_oauth::http::describe)?;
        Ok(dated(&response))
    }
}

impl HttpCollector {
    /// Reads an answer, so that the connection can be used again.
    async fn read(&self, response: Response, now: Timestamp, dated: AnswerDate) -> Posted {
        let retry_after = header(&response, &RETRY_AFTER).map(str::to_owned);
        let status = response.status().as_u16();
        let location = header(&response, &LOCATION).and_then(|text| self.location(text));
        let name = ErrorName::of_body(&read_start(response).await);
        let parts = AnswerParts {
            status,
            retry_after: retry_after.as_deref(),
            name: name.as_ref(),
        };
        let answer = interpret(parts, now, self.accept_conflict);
        let error_name = name.as_ref().map(ToString::to_string);
        Posted {
            answer,
            dated,
            details: Details {
                status: Some(status),
                location,
                error_name,
                unsent: false,
            },
        }
    }

    /// A `Location` as an absolute address, if it can be one.
    fn location(&self, text: &str) -> Option<String> {
        let location = self.url.join(text).ok()?;
        let location = String::from(location);
        (location.len() <= LOCATION_LEN_MAX).then_some(location)
    }
}

fn dated(response: &Response) -> AnswerDate {
    let date = header(response, &DATE).and_then(parse_date);
    date.map_or(AnswerDate::Undated, AnswerDate::At)
}

fn header<'a>(response: &'a Response, name: &HeaderName) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// The start of the body. The status alone decides, so a body that breaks off does not matter.
async fn read_start(mut response: Response) -> Vec<u8> {
    let mut start = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = BODY_LEN_MAX - start.len();
        start.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if start.len() == BODY_LEN_MAX {
            break;
        }
    }
    start
}
