//! Which instances of both programs run.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use sampler_api as api;
use sampler_api::InstanceState;
use sampler_service::security::Grant;
use sampler_store::SeenInstance;

use super::answer;
use crate::Receiver;
use crate::openapi::problem_answers;
use crate::reading::{Paged, Parameters};

#[utoipa::path(
    get, path = "/v1/instances", operation_id = "list_instances", tag = "Operating",
    summary = "The instances that run, and the state of each",
    description = "Receivers come first, then workers, those that have run longest first. An instance \
        that has ended is not listed. One that was not seen for 20 s is listed as `stale` for an hour.",
    responses((status = 200, description = "At most 1,000 instances.", body = api::List<api::Instance>), problem_answers::OfReading),
)]
pub async fn list(State(receiver): State<Arc<Receiver>>, grant: Grant, uri: Uri) -> Response {
    let listed = async {
        grant.require_read_everything()?;
        Parameters::of(&uri).finish()?;
        let seen = receiver.read_store(&grant, |store| async move { store.instances().await });
        let items = seen.await?.into_iter().map(shown).collect();
        Ok(Paged::new(items, None))
    };
    answer("instances", &grant, listed.await)
}

fn shown(seen: SeenInstance) -> api::Instance {
    let state = state_of(&seen);
    let instance = seen.instance;
    api::Instance {
        program: instance.program.name().to_owned(),
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
        upstream: instance.upstream,
        usages_today: instance.usages_today,
        slack: instance.slack,
        intake: instance.intake.map(|intake| api::Intake {
            kept: intake.kept,
            refused: intake.refused,
            last_at: intake.last_at,
        }),
    }
}

fn state_of(seen: &SeenInstance) -> InstanceState {
    if seen.is_stale() {
        InstanceState::Stale
    } else if seen.instance.is_stopping {
        InstanceState::Stopping
    } else if !seen.instance.failing.is_empty() {
        InstanceState::Unhealthy
    } else {
        InstanceState::Up
    }
}
