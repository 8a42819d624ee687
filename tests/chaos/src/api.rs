//! The API of the receivers, as operators use it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use reqwest::header::{ETAG, IF_MATCH, LINK};
use reqwest::{Client, RequestBuilder, Response};
use sampler_testkit::now_millis;
use sampler_testkit::rng::Rng;
use serde_json::{Value, json};

use crate::fleet::Addresses;
use crate::history::{Act, ActKind, Answer, History, Record};
use crate::sender::{lost, status_of};

/// How long an operator waits for an answer: longer than a receiver does for the database, and not so
/// long that a run ends meanwhile.
const REQUEST_LIMIT: Duration = Duration::from_secs(12);
/// How often a page is read again that was not answered.
const ATTEMPTS: usize = 20;
/// The pause before that.
const PAUSE: Duration = Duration::from_millis(500);

/// What was read.
pub(crate) struct Found {
    pub(crate) body: Value,
    pub(crate) tag: String,
    next: Option<String>,
}

/// What an operator asks for.
pub(crate) struct Asked<'a> {
    pub(crate) kind: ActKind,
    /// The path of the subject.
    pub(crate) subject: &'a str,
    pub(crate) usage: Option<&'a str>,
    pub(crate) reason: String,
    /// The tag of the subject as it was read.
    pub(crate) tag: Option<&'a str>,
}

/// Sends requests to one receiver or another, and notes them.
#[derive(Debug)]
pub(crate) struct Api {
    client: Client,
    receivers: Arc<Addresses>,
    history: Arc<History>,
}

impl Api {
    pub(crate) fn new(receivers: Arc<Addresses>, history: Arc<History>) -> Result<Self> {
        let client = Client::builder().timeout(REQUEST_LIMIT).no_proxy();
        Ok(Self {
            client: client.build().context("an HTTP client")?,
            receivers,
            history,
        })
    }

    fn url(&self, path: &str, rng: &mut Rng) -> String {
        let receiver = rng.below(self.receivers.count());
        format!("{}{path}", self.receivers.get(receiver))
    }

    /// Reads once; none where that failed.
    pub(crate) async fn read(&self, path: &str, rng: &mut Rng) -> Option<Found> {
        let request = self.client.get(self.url(path, rng));
        let asked = Asked {
            kind: ActKind::Read,
            subject: path,
            usage: None,
            reason: String::new(),
            tag: None,
        };
        let (answer, found) = self.request(request, &asked).await;
        answer.has_status(200).then_some(found?)
    }

    /// Asks for an act; says what came back.
    pub(crate) async fn ask(&self, asked: &Asked<'_>, rng: &mut Rng) -> Answer {
        let verb = match asked.kind {
            ActKind::Skip => "/skip",
            ActKind::Resume | ActKind::ResumeCause => "/resume",
            ActKind::Resend => "/resend",
            ActKind::Read => "",
        };
        let mut body = json!({ "reason": asked.reason });
        if let (Some(usage), ActKind::Skip) = (asked.usage, asked.kind) {
            body["usage_id"] = json!(usage);
        }
        let url = self.url(&format!("{}{verb}", asked.subject), rng);
        let mut request = self.client.post(url).json(&body);
        if let Some(tag) = asked.tag {
            request = request.header(IF_MATCH, tag);
        }
        self.request(request, asked).await.0
    }

    async fn request(&self, request: RequestBuilder, asked: &Asked<'_>) -> (Answer, Option<Found>) {
        let (at, began) = (now_millis(), Instant::now());
        let (answer, found) = match request.send().await {
            Ok(response) => received(response).await,
            Err(error) => (lost(error), None),
        };
        if asked.kind != ActKind::Read || !answer.has_status(200) {
            self.history.note(&Record::Act(Act {
                kind: asked.kind,
                at,
                took: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
                subject: asked.subject.to_owned(),
                usage: asked.usage.map(str::to_owned),
                reason: asked.reason.clone(),
                answer: answer.clone(),
            }));
        }
        (answer, found)
    }

    /// The items of all pages of a list.
    pub(crate) async fn all(&self, path: &str, rng: &mut Rng) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut next = Some(path.to_owned());
        while let Some(path) = next {
            let mut found = None;
            for _ in 0..ATTEMPTS {
                found = self.read(&path, rng).await;
                if found.is_some() {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
            let Some(mut page) = found else {
                bail!("no answer to GET {path}");
            };
            if let Value::Array(list) = page.body["items"].take() {
                items.extend(list);
            }
            next = page.next;
        }
        Ok(items)
    }
}

async fn received(response: Response) -> (Answer, Option<Found>) {
    let header = |name| {
        let value = response.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let tag = header(ETAG).unwrap_or_default();
    let next = header(LINK).and_then(|link| next_of(&link));
    let (mut answer, status) = (status_of(&response), response.status());
    // An answer that breaks off says nothing to one who reads.
    let body: Value = response.json().await.unwrap_or_default();
    if let Answer::Status { problem, .. } = &mut answer {
        *problem = body["type"].as_str().map(str::to_owned);
    }
    let is_read = status.is_success() && !body.is_null();
    (answer, is_read.then_some(Found { body, tag, next }))
}

/// The path of the next page, from a `Link`.
fn next_of(link: &str) -> Option<String> {
    let (address, relation) = link.split_once(';')?;
    if !relation.contains("rel=\"next\"") {
        return None;
    }
    let address = address.trim().trim_start_matches('<').trim_end_matches('>');
    Some(address.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_is_in_the_link() {
        let link = "</v1/spans?resource_id=a&cursor=b>; rel=\"next\"";
        assert_eq!(next_of(link).unwrap(), "/v1/spans?resource_id=a&cursor=b");
        assert_eq!(next_of("</v1/spans>; rel=\"prev\""), None);
    }
}
