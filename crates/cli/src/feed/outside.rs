//! Everything outside of a feed: the platform, the receiver and the clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sampler_verify::moment::Millis;
use serde_json::Value;

use super::platform::Platform;
use super::state::{Mark, Refusal, Refused, Tracked};
use super::usage_event::{Record, UsageEvent};
use crate::api::Api;
use crate::event::SpanSeen;
use crate::events::{self, FileEvent, Sender};
use crate::failure::Failure;
use crate::moment;
use crate::output::{Progress, warn};

/// How many events are sent at once.
const BATCH: usize = 500;

/// A part of a record.
#[derive(Clone, Debug)]
pub(super) struct EventPage {
    pub(super) events: Vec<UsageEvent>,
    pub(super) is_last: bool,
}

/// What runs at a time, as the platform lists it.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    /// By GUID. `last` is when each was made.
    pub(super) running: BTreeMap<String, Tracked>,
    /// What is listed, but nobody says where it belongs: it is neither started nor stopped.
    pub(super) unplaced: BTreeSet<String>,
    pub(super) organizations: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub(super) struct TaskState {
    pub(super) has_ended: bool,
    pub(super) updated_at: Millis,
}

/// The tests have another one, with faults.
pub(super) trait Outside {
    /// In ms.
    fn now(&self) -> Millis;

    /// The events after a mark, or from the beginning of the record. None: the mark is gone, pruned or purged.
    async fn events(
        &self,
        record: Record,
        mark: Option<&Mark>,
    ) -> Result<Option<EventPage>, Failure>;

    async fn running(&self, record: Record) -> Result<Listed, Failure>;

    async fn tasks(&self, guids: &[String]) -> Result<HashMap<String, TaskState>, Failure>;

    /// The open spans of these organizations at the receiver.
    async fn open_spans(&self, organizations: &BTreeSet<String>) -> Result<Vec<SpanSeen>, Failure>;

    /// Sends events until each is kept or refused for good.
    async fn post(&self, bodies: &[&Value]) -> Result<Refused, Failure>;
}

/// The platform and the receiver.
pub(super) struct Live {
    pub(super) platform: Platform,
    pub(super) api: Api,
}

impl Live {
    fn unanswered(&self, failure: impl Into<Failure>) -> Failure {
        let (base, failure) = (self.api.base(), failure.into());
        Failure::Unanswered(format!("Sampler at {base}: {failure}"))
    }
}

impl Outside for Live {
    fn now(&self) -> Millis {
        moment::now()
    }

    async fn events(
        &self,
        record: Record,
        mark: Option<&Mark>,
    ) -> Result<Option<EventPage>, Failure> {
        self.platform.events(record, mark).await
    }

    async fn running(&self, record: Record) -> Result<Listed, Failure> {
        self.platform.running(record).await
    }

    async fn tasks(&self, guids: &[String]) -> Result<HashMap<String, TaskState>, Failure> {
        self.platform.tasks(guids).await
    }

    async fn open_spans(&self, organizations: &BTreeSet<String>) -> Result<Vec<SpanSeen>, Failure> {
        let mut spans: Vec<SpanSeen> = Vec::new();
        for id in organizations {
            // Not by state: what is suspended may be open, too.
            let now = self.now().to_string();
            let query = vec![("organization_id", id.clone()), ("from", now)];
            let take = |page: Vec<SpanSeen>| {
                spans.extend(page.into_iter().filter(|span| span.end.is_none()));
            };
            let read = self.api.each_page(&["v1", "spans"], query, take).await;
            read.map_err(|error| self.unanswered(error))?;
        }
        Ok(spans)
    }

    async fn post(&self, bodies: &[&Value]) -> Result<Refused, Failure> {
        let mut refused = Refused::new();
        // A report names more refusals than a batch has events.
        for part in bodies.chunks(BATCH) {
            let events = (0..).zip(part).map(|(line, body)| FileEvent {
                line,
                is_cloud_event: false,
                body: body.to_string(),
            });
            let mut sender = Sender::new(&self.api, BATCH, Progress::hidden());
            let sent = sender.send_events(events).await;
            sent.map_err(|failure| self.unanswered(failure))?;
            let refusals = sender.finish().refusals.into_iter();
            refused.extend(refusals.filter_map(|refusal| refused_of(part, refusal)));
        }
        Ok(refused)
    }
}

/// The id of an event that is refused for good, and why.
fn refused_of(
    bodies: &[&Value],
    events::Refusal {
        line,
        status,
        problem,
    }: events::Refusal,
) -> Option<(String, Refusal)> {
    let detail = &problem.detail;
    warn(&format!("an event is refused with {status}: {detail}"));
    let body = bodies.get(usize::try_from(line).ok()?)?;
    Some((body["id"].as_str()?.to_owned(), Refusal { status, problem }))
}
