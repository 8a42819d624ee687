//! What a feed asks the receiver, until it is answered.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use sampler_api::SnapshotReport;
use serde_json::{Value, json};

use super::{BATCH, Feed};
use crate::api::{ApiError, Position, Request};
use crate::events::{FileEvent, Sender, Why};
use crate::failure::Failure;
use crate::feed::hole::{Open, is_of_feed};
use crate::feed::platform::Trouble;
use crate::feed::rules::{Planned, Refused};
use crate::feed::usage_event::{Quantities, Record};
use crate::output::warn;

const SNAPSHOTS: [&str; 2] = ["v1", "snapshots"];
/// How long a comparison may take, and the longest answer in bytes: as for `snapshot diff`.
const SNAPSHOT_LIMIT: Duration = Duration::from_mins(30);
const SNAPSHOT_LEN_MAX: usize = 1 << 30;
/// The name of a problem: the target has an open span already.
const OPEN_SPAN: &str = "open-span";

impl Feed {
    /// Open spans that a feed has started: where its state is lost, nothing else names the resources of
    /// which no instance runs.
    pub(super) async fn left_open(
        &self,
        record: Record,
        organizations: &HashSet<String>,
    ) -> Result<Open, Failure> {
        let mut open = Open {
            resources: self.mapping.resources(record),
            spans: HashMap::new(),
        };
        for organization in organizations {
            let mut query = vec![("organization_id", organization.clone())];
            query.push(("state", "open".to_owned()));
            let mut position = Position::default();
            loop {
                let attempt = async || {
                    let page = self.api.spans(&query, &position).await;
                    page.map_err(|error| self.trouble(may_pass(&error), error))
                };
                let page = self.platform.patience.until_answered(attempt).await?;
                for span in &page.items {
                    let target = &span.target;
                    if is_of_feed(record, &target.consumer_id, &target.resource_instance_id) {
                        open.resources.insert(target.resource_id.clone());
                        let quantities = Quantities::of_span(&span.measured_usage);
                        let key = target.resource_instance_id.clone();
                        open.spans.insert(key, (span.start, quantities));
                    }
                }
                if !position.advance(page.items.len(), page.cursor)? {
                    break;
                }
            }
        }
        Ok(open)
    }

    pub(super) async fn compare(
        &self,
        snapshots: BTreeMap<String, String>,
    ) -> Result<Vec<SnapshotReport>, Failure> {
        let mut answers = Vec::new();
        for body in snapshots.into_values() {
            let request = Request::post(&SNAPSHOTS)
                .limit(SNAPSHOT_LIMIT)
                .answer_len_max(SNAPSHOT_LEN_MAX)
                .body("application/x-ndjson", body.into_bytes());
            let attempt = async || {
                self.api.call(&request).await.map_err(|error| {
                    // The receiver's clock may be behind, so that the snapshot is in its future.
                    let may_pass = may_pass(&error) || error.status() == Some(400);
                    self.trouble(may_pass, error)
                })
            };
            let answer = self.platform.patience.until_answered(attempt).await?;
            answers.push(answer.read(&SNAPSHOTS)?);
        }
        Ok(answers)
    }

    /// Sends events until each is kept or refused. Returns what is refused for good, and what is kept of
    /// that.
    pub(super) async fn post(
        &self,
        part: &[Planned],
        offset: usize,
    ) -> Result<(Vec<Refused>, Vec<Value>), Failure> {
        let events: Vec<FileEvent> = (0..)
            .zip(part)
            .map(|(line, event)| FileEvent {
                line,
                is_cloud_event: false,
                body: event.body.to_string(),
            })
            .collect();
        let attempt = async || {
            let mut sender = Sender::unjournaled(&self.api, BATCH, events.len() as u64).quiet();
            let Err(failure) = sender.send_events(events.iter().cloned()).await else {
                return Ok(sender.finish());
            };
            let may_pass = match &failure {
                Failure::Api(error) | Failure::RefusedMidway(error) => may_pass(error),
                Failure::Unsettled(..) => true,
                _ => false,
            };
            Err(self.trouble(may_pass, failure))
        };
        let report = self.platform.patience.until_answered(attempt).await??;
        let (mut refused, mut documents) = (Vec::new(), Vec::new());
        for refusal in report.refusals {
            let index = usize::try_from(refusal.line).unwrap_or(usize::MAX);
            let event = part.get(index).map(|event| &event.body);
            let status = refusal.status.unwrap_or_default();
            documents.push(json!({ "event": event, "status": status, "problem": refusal.problem }));
            warn(&format!(
                "an event is refused with {status}: {}",
                refusal.problem
            ));
            let is_open = matches!(&refusal.problem, Why::Problem(it) if it.name() == OPEN_SPAN);
            refused.push(Refused {
                index: offset + index,
                status,
                is_open,
            });
        }
        Ok((refused, documents))
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

/// Whether the receiver may answer otherwise later.
fn may_pass(error: &ApiError) -> bool {
    match error.status() {
        Some(status) => matches!(status, 408 | 429 | 500..),
        None => !error.to_string().contains("certificate"),
    }
}
