//! The collector, which takes usages.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use async_trait::async_trait;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, DATE, RETRY_AFTER};
use sampler_domain::{Timestamp, Usage};
use tracing::{info, warn};
use url::Url;

use crate::answer::{Answer, answer_of, clock_ahead};
use crate::http::{AbacusOptions, Caller, ClientError, join};

/// What is kept of the body of an answer, in bytes.
const BODY_LEN_MAX: usize = 512;

/// A clock that is ahead by less is not worth a line in the log, ms.
const AHEAD_TOLERATED: i64 = 5_000;

/// Where usages go. Posting the same usage again is always safe: Abacus recognises it.
#[async_trait]
pub trait Collector: Send + Sync + 'static {
    /// Posts a usage; answers within a time limit, whatever the other side does.
    async fn post(&self, usage: &Usage, now: Timestamp) -> Answer;

    /// How far our clock is ahead of Abacus's, in ms, as far as is known. Abacus puts aside what
    /// lies after its own today, so nobody may take a moment for past before it does.
    fn clock_ahead(&self) -> i64 {
        0
    }
}

/// The collector over HTTP.
#[derive(Clone, Debug)]
pub struct HttpCollector {
    caller: Caller,
    url: Url,
    ahead: Arc<AtomicI64>,
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
            url,
            ahead: Arc::default(),
        })
    }
}

#[async_trait]
impl Collector for HttpCollector {
    async fn post(&self, usage: &Usage, now: Timestamp) -> Answer {
        let body = serde_json::to_vec(usage).expect("ids, numbers and JSON values serialise");
        let request = self
            .caller
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        match self.caller.send(request).await {
            Ok(response) => {
                self.compare_clocks(&response, now);
                read(response, now).await
            }
            Err(error) => Answer::TryAgain { after: None, error },
        }
    }

    fn clock_ahead(&self) -> i64 {
        self.ahead.load(Ordering::Relaxed)
    }
}

impl HttpCollector {
    /// Takes note of how far our clock is ahead; says so when it begins or ends to matter.
    fn compare_clocks(&self, response: &Response, sent_at: Timestamp) {
        let date = response
            .headers()
            .get(DATE)
            .and_then(|value| value.to_str().ok());
        let Some(ahead) = date.and_then(|date| clock_ahead(sent_at, date)) else {
            return;
        };
        let before = self.ahead.swap(ahead, Ordering::Relaxed);
        if ahead >= AHEAD_TOLERATED && before < AHEAD_TOLERATED {
            warn!(
                ahead_ms = ahead,
                "the clock of this machine is ahead of Abacus's"
            );
        } else if ahead < AHEAD_TOLERATED && before >= AHEAD_TOLERATED {
            info!("the clock of this machine is no longer ahead of Abacus's");
        }
    }
}

/// Reads an answer to its end, so that the connection can be used again.
async fn read(response: Response, now: Timestamp) -> Answer {
    let status = response.status().as_u16();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    let retry_after = retry_after.map(str::to_owned);
    let body = read_start(response).await;
    answer_of(status, retry_after.as_deref(), &body, now)
}

/// The start of the body. The status alone decides, so a body that breaks off does not matter.
async fn read_start(mut response: Response) -> String {
    let mut start = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = BODY_LEN_MAX - start.len();
        start.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if start.len() == BODY_LEN_MAX {
            break;
        }
    }
    String::from_utf8_lossy(&start).into_owned()
}
