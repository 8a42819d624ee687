//! Midnight on the first of a month: all open spans are due at once.

use std::time::Duration;

use anyhow::{Context, Result};
use chrono::{DateTime, Datelike, NaiveDate};
use sampler_testkit::now_millis;

use super::worker::{USUAL_WORKERS, until_done};
use super::workers::{Job, Sampled, Upstream};
use crate::event::DAY;
use crate::mongo::Server;
use crate::programs::{Build, WorkerProgram};
use crate::report::{Section, of_midnight};
use crate::scale::Scale;

/// The longest that a month can be told to stay open behind its end. With that, it is still the
/// first of the month for the workers, except during the last days.
const MONTH_SLACK: (&str, u32) = ("27d", 27);

/// Runs until the last span is through.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Section> {
    let (sampled, day) = through(server, scale.midnight, WorkerProgram::Of(Build::Own)).await?;
    Ok(of_midnight(&sampled, day <= MONTH_SLACK.1))
}

/// The same for so many spans with any program; and which day of the month is today.
pub(crate) async fn through(
    server: &Server,
    count: u64,
    program: WorkerProgram,
) -> Result<(Sampled, u32)> {
    let (midnight, day) = first_of_month(now_millis()).context("the calendar")?;
    let spans = server.hidden().await?;
    let moments = |number: u64| {
        let within = i64::try_from(number % 27).unwrap_or(0) * DAY;
        (midnight - DAY - within, midnight)
    };
    spans.load_open(0..count, moments).await?;
    let job = Job {
        program,
        upstream: Upstream::Abacus,
        workers: USUAL_WORKERS,
        answer: Duration::ZERO,
        // With months, one interval of each span is due, whatever day it is today.
        settings: vec![
            ("SAMPLER_DIMENSION", "month"),
            ("SAMPLER_MONTH_SLACK", MONTH_SLACK.0),
        ],
        spans: count,
    };
    Ok((until_done(server, spans, job, count).await?, day))
}

/// The first moment of this month (UTC), and which day of it is today.
fn first_of_month(now: i64) -> Option<(i64, u32)> {
    let today = DateTime::from_timestamp_millis(now)?.date_naive();
    let first = NaiveDate::from_ymd_opt(today.year(), today.month(), 1)?;
    let first = first.and_hms_opt(0, 0, 0)?.and_utc();
    Some((first.timestamp_millis(), today.day()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_on_the_first() {
        let millis = |text: &str| {
            DateTime::parse_from_rfc3339(text)
                .unwrap()
                .timestamp_millis()
        };
        let found = first_of_month(millis("2024-02-29T23:59:59Z"));
        assert_eq!(found, Some((millis("2024-02-01T00:00:00Z"), 29)));
        let found = first_of_month(millis("2024-03-01T00:00:00Z"));
        assert_eq!(found, Some((millis("2024-03-01T00:00:00Z"), 1)));
    }
}
