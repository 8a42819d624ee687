//! The backlog: spans that wait for the workers.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use sampler_domain::{Granularity, Timestamp, plain};
use sampler_service::security::Grant;
use sampler_settings::millis;
use sampler_steering::{FOLLOW_INTERVAL, MonthClose, count_pause};
use sampler_store::{Backlog, BacklogQuery, Published, StoreError};
use serde::Serialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use utoipa::ToSchema;

use super::answer;
use crate::Receiver;
use crate::openapi::params::IfNoneMatchParams;
use crate::openapi::{refusals, types};
use crate::reading::{Parameters, Single};

/// How late a count may come before it counts as missing, ms.
const LATE: i64 = 1_000;

/// If no worker has counted for this long, a receiver counts, for its metrics. In ms.
const NOBODY_COUNTS: i64 = 30_000;

/// The interval of the checks whether a worker counts.
const LOOK: Duration = Duration::from_secs(10);

/// How often the lag is asked for.
const LAG_LOOK: Duration = Duration::from_secs(5);

/// `GET /v1/backlog`.
#[utoipa::path(
    get, path = "/v1/backlog", operation_id = "get_backlog", tag = "Operating",
    summary = "The backlog",
    params(IfNoneMatchParams),
    responses(
        (status = 200, description = "The backlog, counted a few seconds ago.", body = ShownBacklog,
            headers(("ETag" = String, description = "The entity tag of the answer."))),
        (status = 304, description = "It has not changed."),
        refusals::OfReading,
    ),
)]
pub async fn get(
    State(receiver): State<Arc<Receiver>>,
    grant: Grant,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let shown = async {
        grant.require_read_everything()?;
        Parameters::of(&uri).finish()?;
        let _permit = receiver.admit_reading(&grant).await?;
        let backlog = receiver.backlog().await;
        let backlog = backlog.map_err(|failure| receiver.not_read(&failure))?;
        let now = receiver.parts.clock.now();
        let shown = ShownBacklog::of(&backlog, now, receiver.month());
        Ok(Single::new(&shown, &headers))
    };
    answer(&receiver, "backlog", &grant, shown.await)
}

impl Receiver {
    /// When months close.
    pub fn month(&self) -> MonthClose {
        MonthClose {
            slack: millis(self.options.month_slack),
            grace: self.options.policy.stop_grace,
        }
    }

    /// The last count. If that is old, because no worker counts, the backlog is counted now.
    async fn backlog(&self) -> Result<Backlog, StoreError> {
        let published = self.parts.backlogs.published().await?;
        match published {
            Some(published) if overdue(&published) <= LATE => Ok(published.value),
            _ => self.count_backlog().await,
        }
    }

    async fn count_backlog(&self) -> Result<Backlog, StoreError> {
        let began = Instant::now();
        let now = self.parts.clock.now();
        let query = BacklogQuery {
            now,
            closing: self.month().closing(now),
            granularities: self.options.policy.granularities.clone(),
        };
        let mut backlog = self.parts.backlogs.count(&query).await?;
        backlog.cost = millis(began.elapsed());
        self.parts.backlogs.publish(&backlog).await?;
        Ok(backlog)
    }

    /// Follows the control, and counts the backlog if no worker does.
    pub async fn stay_steered(&self, stop: &CancellationToken) {
        let counting = async {
            while !stop.is_cancelled() {
                stop.run_until_cancelled(tokio::time::sleep(LOOK)).await;
                if !stop.is_cancelled() {
                    self.count_where_nobody_does().await;
                }
            }
        };
        let watching = async {
            while !stop.is_cancelled() {
                self.watch_lag().await;
                stop.run_until_cancelled(tokio::time::sleep(LAG_LOOK)).await;
            }
        };
        tokio::join!(
            self.steering.follow(FOLLOW_INTERVAL, stop),
            counting,
            watching
        );
    }

    /// Admits fewer new starts while a majority of the database is far behind. Sampling has paused
    /// long before that.
    pub async fn watch_lag(&self) {
        match self.parts.replication.commit_lag().await {
            Ok(lag) => {
                let lag = lag.map(|millis| millis as f64 / 1_000.0);
                self.steering.note_lag(lag, self.options.distress.lag());
            }
            Err(failure) if self.steering.may_report("distress.lag_unknown") => {
                let error = anyhow::Error::from(failure);
                warn!(
                    code = "distress.lag_unknown",
                    error = format!("{error:#}"),
                    "the database did not say how far its majority is behind"
                );
            }
            Err(_) => {}
        }
    }

    async fn count_where_nobody_does(&self) {
        let is_recent = |published: &Published<Backlog>| overdue(published) <= NOBODY_COUNTS;
        if self.steering.backlog().as_ref().is_some_and(is_recent) {
            return;
        }
        if let Err(failure) = self.count_backlog().await
            && self.steering.may_report("backlog.not_counted")
        {
            let error = anyhow::Error::from(failure);
            warn!(
                code = "backlog.not_counted",
                error = format!("{error:#}"),
                "the backlog could not be counted"
            );
        }
    }
}

/// How long ago the next count was to come, ms.
fn overdue(published: &Published<Backlog>) -> i64 {
    let cost = Duration::from_millis(published.value.cost.unsigned_abs());
    published
        .age
        .saturating_sub(millis(count_pause(cost) + cost))
}

/// The backlog, as the API shows it.
#[derive(Serialize, ToSchema)]
#[schema(as = Backlog)]
struct ShownBacklog {
    due: u64,
    #[schema(value_type = Option<types::Moment>, required)]
    oldest: Option<Timestamp>,
    #[serde(serialize_with = "plain")]
    span_seconds: f64,
    suspended: u64,
    #[serde(serialize_with = "plain")]
    rate: f64,
    #[schema(required)]
    closing: Option<ShownClosing>,
}

/// The backlog of the month that closes.
#[derive(Serialize, ToSchema)]
#[schema(as = Closing)]
struct ShownClosing {
    #[schema(example = "2026-10")]
    month: String,
    left: u64,
    #[schema(value_type = types::Moment)]
    closes_at: Timestamp,
    #[schema(value_type = Option<types::Moment>, required)]
    done_at: Option<Timestamp>,
}

impl ShownBacklog {
    fn of(backlog: &Backlog, now: Timestamp, month: MonthClose) -> Self {
        let running = month.closing(now).map(|closing| closing.end);
        let closing = backlog.closing.filter(|left| Some(left.end) == running);
        Self {
            due: backlog.due,
            oldest: backlog.oldest,
            span_seconds: backlog.span_millis as f64 / 1_000.0,
            suspended: backlog.suspended,
            rate: rounded(backlog.rate),
            closing: closing.map(|left| ShownClosing {
                month: Granularity::month_name(left.start),
                left: left.spans,
                closes_at: month.closes_at(left.end),
                done_at: done_at(now, left.intervals, backlog.rate),
            }),
        }
    }
}

/// When so many intervals are done at this rate; `None` where nothing moves.
fn done_at(now: Timestamp, intervals: u64, rate: f64) -> Option<Timestamp> {
    if intervals == 0 {
        return Some(now);
    }
    if rate <= 0.0 {
        return None;
    }
    let wait = (intervals as f64 / rate * 1_000.0).min(Timestamp::MAX.as_millis() as f64);
    #[expect(clippy::cast_possible_truncation, reason = "held at the end of time")]
    Some(now.plus(wait as i64))
}

/// To a hundredth: a rate has no more digits that mean anything.
fn rounded(rate: f64) -> f64 {
    (rate * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_follows_from_the_rate() {
        let now = Timestamp::clamped(1_000);
        assert_eq!(done_at(now, 0, 0.0), Some(now));
        assert_eq!(done_at(now, 1, 0.0), None);
        assert_eq!(done_at(now, 10, 4.0), Some(Timestamp::clamped(3_500)));
        assert_eq!(done_at(now, u64::MAX, 1e-9), Some(Timestamp::MAX));
    }
}
