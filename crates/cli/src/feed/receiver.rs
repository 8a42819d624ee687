//! What a feed asks, of the platform and of the receiver, until there is an answer.

use std::collections::{BTreeSet, HashMap};

use sampler_api::Problem;
use sampler_verify::moment::Millis;
use serde_json::{Value, json};

use super::follow::Outside;
use super::gap::Span;
use super::lists::{EventPage, Listed, TaskState, Unread};
use super::platform::{Platform, Trouble, is_certificate, may_pass};
use super::state::{Mark, Refusal, Refused};
use super::usage_event::Record;
use crate::api::{Api, ApiError};
use crate::clock;
use crate::events::{FileEvent, Sender};
use crate::failure::Failure;
use crate::output::warn;

/// How many events are sent at once.
const BATCH: usize = 500;
/// The name of a problem: the target has an open span already.
const OPEN_SPAN: &str = "open-span";

/// The platform and the receiver.
pub(super) struct Live {
    pub(super) platform: Platform,
    pub(super) api: Api,
}

impl Live {
    /// Sends events. Returns what is refused for good.
    async fn post_batch(&self, bodies: &[&Value]) -> Result<Refused, Failure> {
        let events = (0..).zip(bodies).map(|(line, body)| FileEvent {
            line,
            is_cloud_event: false,
            body: body.to_string(),
        });
        let attempt = async || {
            let mut sender = Sender::new(&self.api, BATCH, bodies.len() as u64).quiet();
            let Err(failure) = sender.send_events(events.clone()).await else {
                return Ok(sender.finish());
            };
            let may_pass = match &failure {
                Failure::Api(error) | Failure::RefusedMidway(error) => may_be_answered(error),
                _ => false,
            };
            Err(self.trouble(may_pass, failure))
        };
        let report = self.platform.patience.until_answered(attempt).await?;
        let refused = report.refusals.into_iter().filter_map(|refusal| {
            let (status, problem) = (refusal.status, refusal.problem);
            warn(&format!(
                "an event is refused with {status}: {}",
                problem.detail
            ));
            let body = bodies.get(usize::try_from(refusal.line).ok()?)?;
            let refusal = Refusal {
                is_open: problem.name() == OPEN_SPAN,
                status,
                problem: json!(problem),
            };
            Some((body["id"].as_str()?.to_owned(), refusal))
        });
        Ok(refused.collect())
    }

    fn trouble(&self, may_pass: bool, failure: impl Into<Failure>) -> Trouble {
        let (base, failure) = (self.api.base(), failure.into());
        Trouble {
            failure: Failure::Unanswered(format!("Sampler at {base}: {failure}")),
            may_pass,
            asked: None,
        }
    }
}

impl Outside for Live {
    fn now(&self) -> Millis {
        clock::now()
    }

    async fn events(&self, record: Record, mark: Option<&Mark>) -> Result<EventPage, Unread> {
        self.platform.events(record, mark).await
    }

    async fn running(&self, record: Record) -> Result<Listed, Failure> {
        self.platform.running(record).await
    }

    async fn tasks(&self, guids: &[String]) -> Result<HashMap<String, TaskState>, Failure> {
        self.platform.tasks(guids).await
    }

    async fn open_spans(
        &self,
        field: &'static str,
        ids: &BTreeSet<String>,
    ) -> Result<Vec<Span>, Failure> {
        let mut spans = Vec::new();
        for id in ids {
            // Not by state: what is suspended may be open, too.
            let query = vec![(field, id.clone()), ("from", self.now().to_string())];
            let attempt = async || {
                let found = self.api.items(&["v1", "spans"], &query, usize::MAX).await;
                found.map_err(|error| self.trouble(may_be_answered(&error), error))
            };
            let (found, _) = self.platform.patience.until_answered(attempt).await?;
            let found: Vec<Span> = found;
            spans.extend(found.into_iter().filter(|span| span.end.is_none()));
        }
        Ok(spans)
    }

    async fn post(&self, bodies: &[&Value]) -> Result<Refused, Failure> {
        let mut refused = Refused::new();
        for part in bodies.chunks(BATCH) {
            refused.extend(self.post_batch(part).await?);
        }
        Ok(refused)
    }
}

/// Whether the receiver may answer otherwise later.
fn may_be_answered(error: &ApiError) -> bool {
    let has_stopped = error.problem().is_some_and(Problem::has_stopped);
    match error.status() {
        Some(status) => has_stopped || may_pass(status),
        None => !is_certificate(&error.to_string()),
    }
}
