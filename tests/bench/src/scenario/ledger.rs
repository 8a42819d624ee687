//! What the ledger costs: the worker with and without it, the bytes of an entry, and how long a page
//! of a span with many entries takes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use sampler_domain::{
    Entry, EntryState, Id, Interval, Measure, Measures, Quantity, SpanId, Target, Timestamp,
};
use sampler_store::Ledger as _;
use sampler_testkit::now_millis;
use serde_json::Value;

use super::least_disturbed;
use super::midnight::through;
use super::worker::rate_of;
use crate::data::{Ledger, Poll, Sampled, tenths, thousandths};
use crate::event::DAY;
use crate::histogram::Histogram;
use crate::mongo::{Server, Spans};
use crate::programs::WorkerProgram;
use crate::scale::Scale;

/// The entries of the span that is read, unless there are fewer in all; and those of each other one.
const OF_ONE: u64 = 10_000;
const OF_EACH: u64 = 100;
/// How many entries are written at a time.
const AT_ONCE: usize = 2_000;
/// Entries on a page, and how often all pages are read.
const PAGE: usize = 1_000;
const ROUNDS: usize = 5;
/// Longer than this takes.
const LIFETIME: i64 = 400 * DAY;

/// Runs everything.
pub(crate) async fn run(server: &Server, scale: &Scale) -> Result<Ledger> {
    let (mut rates, mut midnights) = (Vec::new(), Vec::new());
    for _ in 0..scale.rounds {
        let with = workers(server, scale, WorkerProgram::WithLedger).await?;
        let without = workers(server, scale, WorkerProgram::WithoutLedger).await?;
        rates.push([with, without]);
        midnights.push(midnight(server, scale.ledger_midnight).await?);
    }
    let [with, without] = middle(rates).context("no round of workers")?;
    let count = scale.ledger;
    eprintln!("  {count} entries");
    let spans = server.spans().await?;
    let begin = Instant::now();
    write(&spans, count).await?;
    let written_per_second = tenths(count as f64 / begin.elapsed().as_secs_f64());
    server.settle().await?;
    let sizes = spans.ledger_sizes().await?;
    let page = read(&spans, OF_ONE.min(count)).await?;
    spans.drop().await?;
    Ok(Ledger {
        with,
        without,
        midnight: middle(midnights),
        entries: count,
        written_per_second,
        bytes: [sizes.documents, sizes.storage, sizes.indexes]
            .map(|all| (all / count as f64).round()),
        of_span: OF_ONE.min(count),
        page,
    })
}

/// A midnight with the ledger, and without.
async fn midnight(server: &Server, count: u64) -> Result<[Sampled; 2]> {
    eprintln!("  a midnight of {count} spans, with and without");
    let (with, _) = through(server, count, WorkerProgram::WithLedger).await?;
    let (without, _) = through(server, count, WorkerProgram::WithoutLedger).await?;
    Ok([with, without])
}

/// The round whose ratio of the first to the second is in the middle: the machine's speed changes more
/// between rounds than within one.
fn middle(mut rounds: Vec<[Sampled; 2]>) -> Option<[Sampled; 2]> {
    let ratio = |[with, without]: &[Sampled; 2]| with.per_second / without.per_second;
    rounds.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let middle = rounds.len().checked_sub(1)? / 2;
    Some(rounds.swap_remove(middle))
}

async fn workers(server: &Server, scale: &Scale, program: WorkerProgram) -> Result<Sampled> {
    let most = scale.workers.iter().copied().max().unwrap_or(1);
    eprintln!("  {program:?}, {most} workers");
    let once = || async {
        let spans = server.spans().await?;
        let timing = scale.worker_timing;
        let rate = rate_of(server, &spans, program, (most, Duration::ZERO), timing).await?;
        spans.drop().await?;
        Ok(rate)
    };
    least_disturbed(scale.again, once, |rate: &Sampled| rate.others_share).await
}

/// Entries as the worker writes them: those of one span with many, and of many with some.
async fn write(spans: &Spans, count: u64) -> Result<()> {
    let target = target()?;
    let midnight = now_millis().div_euclid(DAY) * DAY;
    let writes = (0..count).map(|number| {
        let (span, place) = match number.checked_sub(OF_ONE) {
            None => (0, number),
            Some(number) => (1 + number / OF_EACH, number % OF_EACH),
        };
        let entry = entry(&target, span, place, midnight);
        async move {
            let recorded = spans.store.write_entry(entry?, LIFETIME).await;
            recorded.map(drop).context("writing an entry")
        }
    });
    stream::iter(writes)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

fn entry(target: &Target, span: u64, place: u64, midnight: i64) -> Result<Entry> {
    let version = i64::try_from(place)?;
    let minute = 60_000;
    let start = Timestamp::new(midnight - (version + 1) * minute)?;
    let end = Timestamp::new(midnight - version * minute)?;
    let memory = Measure::new("memory", Quantity::new(Value::from(512))?)?;
    // Ids of usages come in no order.
    let spread =
        u128::from(span * OF_ONE + place).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    let hex = format!("{spread:032x}");
    let guid = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-");
    Ok(Entry {
        location: Some(format!(
            "https://abacus-usage-collector.example.com/v1/metering/collected/usage/t/{midnight}/k/{guid}"
        )),
        usage_guid: guid,
        span: span_id(span),
        target: target.clone(),
        measures: Measures::from_store(vec![memory]),
        interval: Interval { start, end },
        version,
        planned_at: end,
        attempts: 1,
        refused_at: None,
        accepted_at: Some(Timestamp::new(midnight)?),
        counted_at: None,
        set_aside_at: None,
        resent_at: None,
        earlier_rounds: Vec::new(),
        skipped_at: None,
        state: EntryState::Accepted,
        status: Some(202),
        error: None,
        resend: None,
        ask_again: None,
    })
}

fn span_id(number: u64) -> SpanId {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&number.to_be_bytes());
    SpanId::ObjectId(bytes)
}

/// Ids as long as those of a Cloud Foundry.
fn target() -> Result<Target> {
    let id = |name: &str| Id::new(format!("{name}-0000-4000-8000-000000000000"));
    Ok(Target {
        organization_id: id("43a8d88a")?,
        space_id: id("78f79e6a")?,
        consumer_id: id("a1e7d724")?,
        resource_id: Id::new("postgres")?,
        plan_id: Id::new("large")?,
        resource_instance_id: id("982c6024")?,
    })
}

/// Reads the span with many entries page by page.
async fn read(spans: &Spans, expected: u64) -> Result<Poll> {
    let (target, span) = (target()?, span_id(0));
    let mut latencies = Histogram::default();
    for _ in 0..ROUNDS {
        let (mut after, mut found) = (None, 0);
        loop {
            let begin = Instant::now();
            let page = spans.store.entries(&span, &target, after, PAGE).await;
            let page = page.context("reading entries")?;
            latencies.record(begin.elapsed());
            found += page.entries.len() as u64;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        ensure!(found == expected, "{found} of {expected} entries were read");
    }
    Ok(Poll {
        p50_ms: thousandths(latencies.millis_at(0.5)),
        p99_ms: thousandths(latencies.millis_at(0.99)),
    })
}
