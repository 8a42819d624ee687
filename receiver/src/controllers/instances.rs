//! Which instances of both programs run.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::{IntoResponse, Response};
use sampler_domain::Timestamp;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{InstanceProgram, SeenInstance};
use serde::Serialize;
use utoipa::ToSchema;

use super::answer;
use crate::Receiver;
use crate::openapi::{problem_answers, types};
use crate::reading::{List, Parameters};

/// `GET /v1/instances`.
#[utoipa::path(
    get, path = "/v1/instances", operation_id = "list_instances", tag = "Operating",
    summary = "The instances that run, and the state of each",
    description = "Receivers come first, then workers, those that have run longest first. An instance \
        that has ended is not listed. One that was not seen for 20 s is listed as `stale` for an hour.",
    responses((status = 200, description = "At most 1,000 instances.", body = List<ShownInstance>), problem_answers::OfReading),
)]
pub async fn list(State(receiver): State<Arc<Receiver>>, grant: Grant, uri: Uri) -> Response {
    let outcome = receiver.instances(&grant, &uri).await;
    answer(&receiver, "instances", &grant, outcome)
}

impl Receiver {
    async fn instances(&self, grant: &Grant, uri: &Uri) -> Result<impl IntoResponse, Problem> {
        grant.require_read_everything()?;
        Parameters::of(uri).finish()?;
        let _permit = self.admit_reading(grant).await?;
        let seen = self.parts.instances.instances().await;
        let seen = seen.map_err(|failure| self.not_read(&failure))?;
        let items = seen.into_iter().map(ShownInstance::from).collect();
        Ok(List::new(items, None).into_response())
    }
}

/// The state of an instance.
#[derive(Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = InstanceState)]
enum Condition {
    /// All its health probes pass.
    Up,
    /// Some of its health probes fail.
    Unhealthy,
    /// It was asked to stop, and finishes what it has begun.
    Stopping,
    /// It was not seen for 20 s: it was killed, or cannot reach the database.
    Stale,
}

/// An instance, as it is shown.
#[derive(Serialize, ToSchema)]
#[schema(as = Instance)]
struct ShownInstance {
    #[schema(value_type = String, example = "worker")]
    #[serde(serialize_with = "as_text")]
    program: InstanceProgram,
    /// The name of this run.
    instance: String,
    /// The number of the instance on its platform (`CF_INSTANCE_INDEX`), where that has numbers.
    #[schema(required)]
    index: Option<String>,
    /// Null of a release that does not report it.
    #[schema(required)]
    version: Option<String>,
    /// By the clock of the instance.
    #[schema(value_type = Option<types::Moment>, required)]
    started_at: Option<Timestamp>,
    /// By the clock of the database.
    #[schema(value_type = types::Moment)]
    seen_at: Timestamp,
    state: Condition,
    /// The names of the health probes that fail.
    failing: Vec<String>,
    /// The names of the health warnings that stand.
    warnings: Vec<String>,
    /// Of a worker: how many of the 64 partitions it owns.
    #[schema(required)]
    partitions: Option<u32>,
    /// Of a worker: why it pauses sampling. `operator`, `replication-lag`, `commit-time`; empty while
    /// it samples.
    paused_by: Vec<String>,
    /// Of a receiver: how far into the past it takes events, ms.
    #[schema(required)]
    slack: Option<i64>,
}

impl From<SeenInstance> for ShownInstance {
    fn from(seen: SeenInstance) -> Self {
        let state = state_of(&seen);
        let instance = seen.instance;
        Self {
            program: instance.program,
            instance: instance.name,
            index: instance.index,
            version: instance.version,
            started_at: instance.started_at,
            seen_at: seen.seen_at,
            state,
            failing: instance.failing,
            warnings: instance.warnings,
            partitions: instance.partitions,
            paused_by: instance.paused_by,
            slack: instance.slack,
        }
    }
}

fn state_of(seen: &SeenInstance) -> Condition {
    if seen.is_stale() {
        Condition::Stale
    } else if seen.instance.is_stopping {
        Condition::Stopping
    } else if !seen.instance.failing.is_empty() {
        Condition::Unhealthy
    } else {
        Condition::Up
    }
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes by reference"
)]
fn as_text<S: serde::Serializer>(
    program: &InstanceProgram,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(program.as_str())
}
