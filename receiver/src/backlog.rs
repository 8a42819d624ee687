//! The backlog: spans that wait for the workers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sampler_api as api;
use sampler_domain::{Granularity, Timestamp};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_settings::millis;
use sampler_steering::MonthClose;
use sampler_store::{Backlog, BacklogQuery, Published, StoreError};

use crate::Receiver;
use crate::failures::Task;
use crate::parameters::Parameters;

/// The age at which a count that took no time is old, ms. A worker counts every 2 s.
const OLD: i64 = 3_000;

/// A worker waits 20 times as long as a count took.
const OLD_BY_COST: i64 = 21;

#[utoipa::path(
    get, path = "/v1/backlog", operation_id = "get_backlog", tag = "Operating",
    summary = "The backlog",
    responses((status = 200, description = "The backlog, counted a few seconds ago.", body = api::Backlog)),
)]
pub(crate) async fn get(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    parameters: Parameters,
) -> Result<Json<api::Backlog>, Problem> {
    grant.require_read_everything()?;
    parameters.finish()?;
    let _turn = receiver.admit_reading(&grant).await?;
    let backlog = receiver.backlog().await;
    let backlog = backlog.map_err(|failure| receiver.failed(Task::Read, &failure))?;
    let now = receiver.parts.clock.now();
    Ok(Json(shown(&backlog, now, receiver.month())))
}

impl Receiver {
    pub(crate) fn month(&self) -> MonthClose {
        MonthClose {
            month_slack: millis(self.settings.month.month_slack),
            stop_grace: self.policy.stop_grace,
        }
    }

    /// The last count. If that is old, because no worker counts, the backlog is counted now.
    async fn backlog(&self) -> Result<Backlog, StoreError> {
        let operating = &self.parts.operating;
        if let Some(published) = operating.published_backlog().await?
            && is_recent(&published)
        {
            return Ok(published.value);
        }
        let now = self.parts.clock.now();
        let closing = self.month().closing(now);
        operating
            .count_backlog(&BacklogQuery { now, closing })
            .await
    }
}

fn is_recent(published: &Published<Backlog>) -> bool {
    published.age <= OLD.saturating_add(published.value.cost.saturating_mul(OLD_BY_COST))
}

fn shown(backlog: &Backlog, now: Timestamp, month: MonthClose) -> api::Backlog {
    let running = month.closing(now).map(|closing| closing.end);
    let closing = backlog.closing.filter(|left| Some(left.end) == running);
    api::Backlog {
        due: backlog.due,
        oldest: backlog.oldest,
        at_least: backlog.at_least,
        suspended: backlog.suspended,
        rate: rounded(backlog.rate),
        closing: closing.map(|left| api::Closing {
            month: Granularity::month_name(left.start),
            left: left.spans,
            closes_at: month.closes_at(left.end),
        }),
    }
}

/// To a hundredth: further digits of a rate mean nothing.
fn rounded(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}
