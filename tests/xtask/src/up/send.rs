//! Sending events: many at once, but those of one target one after another.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::stream::{self, StreamExt};
use reqwest::header::RETRY_AFTER;
use reqwest::{Client, StatusCode};
use sampler_testkit::abacus::StandInAbacus;
use sampler_testkit::now_millis;
use serde_json::Value;

use super::attribution::{Row, interval_of};
use super::progress::Progress;
use super::system::System;
use crate::replay::{Event, Kind, Queue};

/// How many targets are sent for at once.
const IN_FLIGHT: usize = 64;
/// How often an event is sent before it counts as refused.
const ATTEMPTS: usize = 100;
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// The longest wait between two attempts, whatever the receiver asks for.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a late stop is held back for sampling to overtake it.
const OVERTAKE_LIMIT: Duration = Duration::from_secs(30);

/// What came of the events.
#[derive(Debug, Default)]
pub(super) struct Sent {
    /// The spans that were started, in the order of the file.
    pub(super) rows: Vec<Row>,
    /// Events that were not taken, and why.
    pub(super) refused: Vec<String>,
}

/// Sends all events.
pub(super) async fn send_all(
    system: &System,
    queues: Vec<Queue>,
    progress: &Progress,
) -> Result<Sent> {
    let client = Client::builder()
        .timeout(ANSWER_LIMIT)
        .pool_max_idle_per_host(IN_FLIGHT);
    let client = client.build().context("making an HTTP client")?;
    let base_url = system.receiver.base_url();
    let sender = Sender {
        client,
        base_url,
        abacus: &system.abacus,
        progress,
    };
    let sending = queues.into_iter().map(|queue| sender.send_queue(queue));
    let results: Vec<Sent> = stream::iter(sending).buffered(IN_FLIGHT).collect().await;
    let mut all = Sent::default();
    for sent in results {
        all.rows.extend(sent.rows);
        all.refused.extend(sent.refused);
    }
    Ok(all)
}

struct Sender<'a> {
    client: Client,
    base_url: String,
    abacus: &'a StandInAbacus,
    progress: &'a Progress,
}

impl Sender<'_> {
    async fn send_queue(&self, queue: Queue) -> Sent {
        let mut sent = Sent::default();
        for event in queue {
            if event.after_sampled {
                self.wait_until_overtaken(&event).await;
            }
            let sent_at = now_millis();
            match self.send(&event).await {
                Ok(()) => sent.note(&event, sent_at),
                Err(error) => {
                    let Event {
                        kind,
                        timestamp,
                        target,
                        ..
                    } = &event;
                    let target = target.0.join("/");
                    let line = format!("{kind:?} of {target} at {timestamp}: {error:#}");
                    sent.refused.push(line);
                }
            }
            self.progress.event();
        }
        sent
    }

    /// Waits until a usage counts that reaches beyond the event.
    async fn wait_until_overtaken(&self, event: &Event) {
        let begin = Instant::now();
        let reaches_beyond = || {
            self.abacus.counted().iter().any(|counted| {
                counted.usage.target() == event.target.0.each_ref().map(String::as_str)
                    && interval_of(&counted.usage).1 > event.timestamp
            })
        };
        while !reaches_beyond() {
            if begin.elapsed() > OVERTAKE_LIMIT {
                eprintln!("a late stop is sent in time: sampling does not overtake it");
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends an event until it is taken or refused for good.
    async fn send(&self, event: &Event) -> Result<()> {
        let body = event.body();
        let mut outcome = Ok(());
        for _ in 0..ATTEMPTS {
            let pause = match self.post(&event.kind, &body).await? {
                Answer::Taken => return Ok(()),
                Answer::Refused(reason) => anyhow::bail!(reason),
                Answer::Later(reason, pause) => {
                    outcome = Err(anyhow::Error::msg(reason));
                    pause
                }
            };
            tokio::time::sleep(pause).await;
        }
        outcome.with_context(|| format!("not taken after {ATTEMPTS} attempts"))
    }

    async fn post(&self, kind: &Kind, body: &Value) -> Result<Answer> {
        let url = format!("{}{}", self.base_url, kind.path());
        let response = match self.client.post(url).json(body).send().await {
            Ok(response) => response,
            // Events carry ids, or at least moments: a repeat is recognised.
            Err(error) => return Ok(Answer::Later(error.to_string(), pause(None))),
        };
        let status = response.status();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let seconds = retry_after.and_then(|text| text.parse().ok());
        let text = response.text().await.unwrap_or_default();
        Ok(match status {
            StatusCode::CREATED => Answer::Taken,
            StatusCode::SERVICE_UNAVAILABLE => Answer::Later(status.to_string(), pause(seconds)),
            _ => Answer::Refused(format!("{status} {text}")),
        })
    }
}

enum Answer {
    Taken,
    Refused(String),
    Later(String, Duration),
}

fn pause(seconds: Option<u64>) -> Duration {
    let pause = seconds.map_or(Duration::from_millis(100), Duration::from_secs);
    pause.min(PAUSE_MAX)
}

impl Sent {
    /// Notes an event that was taken.
    fn note(&mut self, event: &Event, sent_at: i64) {
        if let Some(target) = event.ended() {
            let is_ended = |row: &&mut Row| row.end.is_none() && row.target == *target;
            if let Some(row) = self.rows.iter_mut().rev().find(is_ended) {
                row.end = Some(event.timestamp);
            }
        }
        if event.kind != Kind::Stop {
            self.rows.push(Row::started(event, sent_at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_as_asked_within_limits() {
        assert_eq!(pause(Some(2)), Duration::from_secs(2));
        assert_eq!(pause(Some(1000)), PAUSE_MAX);
        assert!(pause(None) > Duration::ZERO);
    }
}
