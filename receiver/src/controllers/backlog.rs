//! The backlog: spans that wait for the workers.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use sampler_api as api;
use sampler_domain::{Granularity, Timestamp};
use sampler_service::security::Grant;
use sampler_steering::MonthClose;
use sampler_store::Backlog;

use super::answer;
use crate::Receiver;
use crate::openapi::problem_answers;
use crate::reading::{Parameters, Single};

#[utoipa::path(
    get, path = "/v1/backlog", operation_id = "get_backlog", tag = "Operating",
    summary = "The backlog",
    responses(
        (status = 200, description = "The backlog, counted a few seconds ago.", body = api::Backlog,
            headers(("ETag" = String, description = "The entity tag of the answer."))),
        problem_answers::OfReading,
    ),
)]
pub async fn get(State(receiver): State<Arc<Receiver>>, grant: Grant, uri: Uri) -> Response {
    let shown = async {
        grant.require_read_everything()?;
        Parameters::of(&uri).finish()?;
        let _permit = receiver.admit_reading(&grant).await?;
        let backlog = receiver
            .backlog()
            .await
            .map_err(|failure| receiver.not_read(&failure))?;
        let now = receiver.parts.clock.now();
        Ok(Single::new(&shown(&backlog, now, receiver.month())))
    };
    answer("backlog", &grant, shown.await)
}

fn shown(backlog: &Backlog, now: Timestamp, month: MonthClose) -> api::Backlog {
    let running = month.closing(now).map(|closing| closing.end);
    let closing = backlog.closing.filter(|left| Some(left.end) == running);
    api::Backlog {
        due: backlog.due,
        oldest: backlog.oldest,
        span_seconds: backlog.span_millis as f64 / 1_000.0,
        suspended: backlog.suspended,
        rate: rounded(backlog.rate),
        closing: closing.map(|left| api::Closing {
            month: Granularity::month_name(left.start),
            left: left.spans,
            closes_at: month.closes_at(left.end),
            done_at: done_at(now, left.intervals, backlog.rate),
        }),
    }
}

/// When this many intervals are done at this rate; `None` where nothing moves.
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

/// To a hundredth: further digits of a rate mean nothing.
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
