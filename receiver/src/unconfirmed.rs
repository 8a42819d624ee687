//! Usages that were accepted, and are watched until they count; and the operator's action on one that is
//! missing: a worker sends it again.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use sampler_api as api;
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{Watch, WatchQuery};
use serde_json::to_value;

use crate::acts::NewAuditRecord;
use crate::openapi::{OfTarget, PageParams};
use crate::parameters::Parameters;
use crate::reading::{Paged, restrict};
use crate::spans::IdPath;
use crate::{Receiver, problems};

/// The longest id of a usage that is searched for, in characters. Sampler's and the original's are UUIDs.
const ID_MAX: usize = 256;

#[utoipa::path(
    get, path = "/v1/unconfirmed", operation_id = "list_unconfirmed", tag = "Operating",
    summary = "Usages that the upstream has accepted, and that are not found to count",
    description = "Those that were accepted first come first. The list is empty where SAMPLER_CONFIRM is off.",
    params(
        OfTarget,
        ("missing" = Option<bool>, Query, description = "`true`: only those that do not count."),
        PageParams,
    ),
    responses((status = 200, description = "A page of usages.", body = api::List<api::Unconfirmed>)),
)]
pub(crate) async fn list(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    mut parameters: Parameters,
) -> Result<Paged<api::Unconfirmed>, Problem> {
    let mut query = WatchQuery {
        target: parameters.target(),
        resources: None,
        missing: parameters.only_true("missing"),
        after: parameters.cursor(),
        limit: parameters.limit(),
    };
    let next = parameters.finish()?;
    if !restrict(&mut query.resources, &query.target, &grant) {
        return Ok(Paged::whole(Vec::new()));
    }
    let page = receiver.read_store(
        &grant,
        |store| async move { store.unconfirmed(&query).await },
    );
    let page = page.await?;
    let items = page.watches.iter().map(shown).collect();
    Ok(Paged::new(items, &next, page.next.as_ref()))
}

#[utoipa::path(
    post, path = "/v1/unconfirmed/{usage}/resend", operation_id = "resend_usage", tag = "Operating",
    summary = "Send a usage again that does not count",
    description = "A worker sends the same bytes again. The upstream is asked for the usage from then on, as after the first time.",
    params(("usage" = String, Path, description = "The id of the usage.")),
    request_body(content = api::Reason, content_type = "application/json"),
    responses((status = 202, description = "A worker sends it.", body = api::Unconfirmed)),
)]
pub(crate) async fn resend(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    usage: IdPath,
    request: Request<Body>,
) -> Result<(StatusCode, Json<api::Unconfirmed>), Problem> {
    let read = |body: api::Reason, _: &mut _| (body.reason, ());
    let asked = receiver.admit_action(&grant, request, read).await?;
    let watch = receiver.missing(&grant, usage).await?;
    let shown = shown(&watch);
    let again = api::Unconfirmed {
        error: None,
        ..shown.clone()
    };
    let record = NewAuditRecord {
        kind: "usage.resend",
        subject: format!("/v1/unconfirmed/{}", watch.usage_guid),
        span: Some(watch.span.to_string()),
        reason: asked.reason,
        before: to_value(&shown).unwrap_or_default(),
        after: to_value(again).unwrap_or_default(),
    };
    let now = receiver.parts.clock.now();
    let marking = async {
        let operating = &receiver.parts.operating;
        let marked = operating.resend_missing(&watch.usage_guid, now).await;
        // A worker finds the mark within seconds. One that is there already stays as it is.
        marked.map(|is_new| is_new || watch.is_resent)
    };
    let resent = receiver.perform(&grant, record, marking, not_missing);
    resent.await?;
    Ok((StatusCode::ACCEPTED, Json(shown)))
}

impl Receiver {
    /// The usage of an address, if it does not count.
    async fn missing(&self, grant: &Grant, usage: IdPath) -> Result<Watch, Problem> {
        let id = usage.ok().map(|Path(id)| id);
        let id = id.filter(|id| id.chars().count() <= ID_MAX);
        let id = id.ok_or_else(no_such_usage)?;
        let watch = self.read_store(grant, |store| async move { store.watch(&id).await });
        let watch = watch.await?.ok_or_else(no_such_usage)?;
        if watch.missing.is_none() {
            return Err(not_missing());
        }
        Ok(watch)
    }
}

fn no_such_usage() -> Problem {
    let detail = "No usage of this id waits to be found: it counts, or SAMPLER_CONFIRM is off, or there never was \
                  one.";
    Problem::new(&problems::NO_SUCH_USAGE, detail)
}

fn not_missing() -> Problem {
    let detail = "Only a usage that is missing upstream can be sent again. Nothing was done.";
    Problem::new(&problems::NOT_RESENDABLE, detail)
}

fn shown(watch: &Watch) -> api::Unconfirmed {
    let missing = watch.missing.as_ref();
    api::Unconfirmed {
        usage: watch.usage_guid.clone(),
        span: watch.span.to_string(),
        target: watch.target.clone().into(),
        interval: watch.interval.into(),
        duration: watch.interval.duration(),
        error: missing.map(|it| it.error.clone()),
        since: missing.map_or(watch.accepted_at, |it| it.since),
    }
}
