//! The collector, which takes usages.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::Response;
use reqwest::header::{CONNECTION, CONTENT_TYPE, DATE, HeaderName, RETRY_AFTER};
use sampler_domain::{Timestamp, Usage};
use url::Url;

use crate::answer::{Answer, Parts, answer_of, date};
use crate::error_name::ErrorName;
use crate::http::{AbacusOptions, Caller, ClientError, join};

/// What is read of the body of an answer, in bytes.
const BODY_LEN_MAX: usize = 8 * 1024;

/// How long Abacus is waited for when it is only asked what time it is.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// What an answer says of the time on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dated {
    /// There was no answer.
    NoAnswer,
    /// There was an answer, without a date that can be read.
    Undated,
    /// It was written at this moment, to the second.
    At(Timestamp),
}

/// What came of posting a usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// What it means for the usage.
    pub answer: Answer,
    /// When it was answered, by the clock of the other side.
    pub dated: Dated,
}

/// Where usages go. Posting the same usage again is always safe: Abacus recognises it.
#[async_trait]
pub trait Collector: Send + Sync + 'static {
    /// Posts a usage; answers within a time limit, whatever the other side does. `now` is what a
    /// date in an answer is held against that has no date of its own.
    async fn post(&self, usage: &Usage, now: Timestamp) -> Posted;

    /// Asks for nothing but the time, within a time limit.
    ///
    /// # Errors
    /// Where there was no answer: why, in words for the operator.
    async fn probe(&self) -> Result<Dated, String>;
}

/// The collector over HTTP.
#[derive(Clone, Debug)]
pub struct HttpCollector {
    caller: Caller,
    base: Url,
    url: Url,
    probe_timeout: Duration,
    accept_conflict: bool,
}

impl HttpCollector {
    /// Prepares a client; connections are made when they are needed, and kept.
    ///
    /// # Errors
    /// Where the client cannot be set up.
    pub fn new(options: &AbacusOptions) -> Result<Self, ClientError> {
        let url = join(&options.url, &["v1", "metering", "collected", "usage"]);
        Ok(Self {
            caller: Caller::new(options)?,
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
            .caller
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        match self.caller.send(request).await {
            Ok(response) => {
                let dated = dated(&response);
                let now = match dated {
                    Dated::At(date) => date,
                    Dated::NoAnswer | Dated::Undated => now,
                };
                let answer = self.read(response, now).await;
                Posted { answer, dated }
            }
            Err(error) => Posted {
                answer: Answer::TryAgain { after: None, error },
                dated: Dated::NoAnswer,
            },
        }
    }

    /// Any answer will do, so no token is needed. The connection is closed afterwards: one that is
    /// kept would ask the same gateway again and again, and that one may be the one that is wrong.
    async fn probe(&self) -> Result<Dated, String> {
        let request = self
            .caller
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
    /// Reads an answer to its end, so that the connection can be used again.
    async fn read(&self, response: Response, now: Timestamp) -> Answer {
        let retry_after = header(&response, &RETRY_AFTER).map(str::to_owned);
        let status = response.status().as_u16();
        let name = ErrorName::of_body(&read_start(response).await);
        let parts = Parts {
            status,
            retry_after: retry_after.as_deref(),
            name: name.as_ref(),
        };
        answer_of(parts, now, self.accept_conflict)
    }
}

fn dated(response: &Response) -> Dated {
    let date = header(response, &DATE).and_then(date);
    date.map_or(Dated::Undated, Dated::At)
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
