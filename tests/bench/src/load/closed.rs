//! The closed loop.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use futures_util::future::join_all;

use super::{Outcome, Record, Sender, Span, Timing, observe};
use crate::event::{Event, Feed};
use crate::process::WatchedProcesses;

/// Has each sender send one batch after the other. Ends early when there is nothing left to send.
pub(crate) async fn run<S: Sender>(
    senders: Vec<S>,
    feed: Arc<Feed>,
    timing: Timing,
    watch: WatchedProcesses,
) -> Result<Outcome> {
    let span = Span::beginning_now(timing);
    let start = |sender| tokio::spawn(drive(sender, Arc::clone(&feed), span));
    let tasks = senders.into_iter().map(start).collect();
    observe(tasks, watch, span).await
}

/// Has everything sent, and measures nothing.
pub(crate) async fn fill<S: Sender>(senders: Vec<S>, feed: Arc<Feed>) -> Result<()> {
    let span = Span::beginning_now(Timing::millis(0, 600_000));
    let start = |sender| tokio::spawn(drive(sender, Arc::clone(&feed), span));
    for record in join_all(senders.into_iter().map(start)).await {
        if let Some(error) = record.context("a sender has ended early")?.refused {
            return Err(error.context("an event was not kept"));
        }
    }
    Ok(())
}

async fn drive<S: Sender>(mut sender: S, feed: Arc<Feed>, span: Span) -> Record {
    let mut record = Record::default();
    let mut events: Vec<Event> = Vec::with_capacity(sender.batch());
    loop {
        events.clear();
        while events.len() < sender.batch()
            && let Some(event) = feed.next()
        {
            events.push(event);
        }
        let sent_at = Instant::now();
        if events.is_empty() || sent_at >= span.until {
            return record;
        }
        if let Err(error) = sender.send(&events).await {
            record.refused = Some(error);
            return record;
        }
        let answered_at = Instant::now();
        if span.holds(answered_at) {
            record.note(events.len() as u64, answered_at - sent_at);
        }
    }
}
