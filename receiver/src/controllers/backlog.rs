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
