//! What never counted upstream is not taken back: no window of a span counts less than nothing, and what
//! is sent again later is followed by what was taken back of it.

mod unanswered;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sampler_domain::{Changed, Entry, EntryState, Granularity, Timestamp};
use sampler_store::{EntryKey, Ledger, Work};
use sampler_upstream::LookupAnswer;
use uuid::Uuid;

use crate::abacus::{duration, refusal};
use crate::confirm::confirming;
use crate::skip::skip;
use crate::world::{HOUR, MINUTE, NOON, Running, World, run_with};

/// The usages that Abacus refuses or sets aside: those whose window begins so late after noon.
type Windows = Arc<Mutex<BTreeSet<i64>>>;

fn window_of(millis: Timestamp) -> i64 {
    Granularity::Hour.window_of(millis).since(NOON)
}

/// Abacus refuses each usage forwards of these windows.
fn refuse(world: &World, windows: &Windows) {
    let windows = Arc::clone(windows);
    world.abacus.answer(move |usage| {
        let is_refused = windows.lock().unwrap().contains(&window_of(usage.end));
        (is_refused && duration(usage) > 0).then(|| refusal("Abacus answered 400: it is malformed"))
    });
}

fn windows(all: impl IntoIterator<Item = i64>) -> Windows {
    Arc::new(Mutex::new(all.into_iter().collect()))
}

/// What counts in each window by now, ms. What was set aside does not.
fn counting(world: &World) -> BTreeMap<i64, i64> {
    let counted = world.abacus.counted.lock().unwrap().clone();
    let mut windows = BTreeMap::new();
    let is_aside = |entry: &Entry| entry.state == EntryState::SetAside;
    let aside = world.entries().into_iter().filter(is_aside);
    let aside: BTreeSet<String> = aside.map(|entry| entry.usage_guid).collect();
    for usage in counted.values() {
        if !aside.contains(&usage.dedup_id) {
            *windows.entry(window_of(usage.end)).or_default() += duration(usage);
        }
    }
    windows
}

/// A span that began four hours before noon, of which the usage of the second hour was skipped.
async fn skipped(world: &World) -> Entry {
    refuse(world, &windows([-3 * HOUR]));
    world.start("a", -4 * HOUR).await;
    suspend_and_skip(world).await;
    let worker = world.run("w");
    let is_sampled = || world.kept("a").span.sampled_to() == NOON;
    world.until("it is sampled on", is_sampled).await;
    worker.stop().await;
    let skipped = |entry: &Entry| entry.state == EntryState::Skipped;
    world.entries().into_iter().find(skipped).unwrap()
}

async fn suspend_and_skip(world: &World) {
    let worker = world.run("w");
    world.until_suspended("a").await;
    worker.stop().await;
    let span = world.kept("a").span;
    assert_eq!(skip(world, &span).await, Changed::Made);
}

async fn complete(world: &World) {
    let worker = world.run("w");
    world.until_complete("a").await;
    worker.stop().await;
}

/// The totals add up, and say what Abacus counts.
fn assert_proof(world: &World, used: i64, skipped: i64) {
    let span = world.kept("a").span;
    let totals = &span.processing.totals;
    assert_eq!(span.end.unwrap().since(span.start), used);
    assert_eq!((totals.billed, totals.skipped), (used - skipped, skipped));
    assert_eq!(span.difference(), 0);
    assert_eq!(world.abacus.sum("a"), used - skipped);
    let counting = counting(world);
    assert!(counting.values().all(|it| *it >= 0), "{counting:?}");
}

async fn send_again(world: &World, entry: &Entry) {
    assert!(world.send_again(entry, 7, None).await);
}

/// The durations of a window in the order in which they were posted.
fn posted(world: &World, window: i64) -> Vec<i64> {
    let posts = world.abacus.posts.lock().unwrap().clone();
    let usages = posts.iter().map(|(_, body)| {
        let usage: serde_json::Value = serde_json::from_str(body).unwrap();
        let end = Timestamp::clamped(usage["end"].as_i64().unwrap());
        let measures = usage["measured_usage"].as_array().unwrap();
        let duration = measures.last().unwrap()["quantity"].as_i64().unwrap();
        (window_of(end), duration)
    });
    let of_window = usages.filter(|(of, _)| *of == window);
    of_window.map(|(_, duration)| duration).collect()
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_within_and_behind_a_skipped_usage_takes_back_what_counts() {
    for (end, used, left) in [
        (-7 * HOUR / 2, HOUR / 2, 0),
        (-5 * HOUR / 2, 3 * HOUR / 2, HOUR / 2),
        (-3 * HOUR / 2, 5 * HOUR / 2, HOUR),
    ] {
        let world = World::new();
        let skipped = skipped(&world).await;
        world.stop("a", end).await;
        complete(&world).await;
        assert_proof(&world, used, left);
        let withheld: Vec<Entry> = world
            .entries()
            .into_iter()
            .filter(|it| it.withheld)
            .collect();
        let expected = (left < HOUR).then_some((EntryState::Skipped, left - HOUR));
        let shown = withheld
            .first()
            .map(|it| (it.state, it.interval.duration()));
        assert_eq!((shown, withheld.len() < 2), (expected, true));
        // Sent again, it is followed by what was taken back of it.
        send_again(&world, &skipped).await;
        world.abacus.answer(|_| None);
        let worker = world.run("w");
        world.until_settled().await;
        worker.stop().await;
        assert_proof(&world, used, 0);
        let after = posted(&world, -3 * HOUR);
        let refused = after.iter().filter(|it| **it == HOUR).count() - 1;
        let mut sent = after[refused..].to_vec();
        sent.retain(|it| *it != 0);
        let expected: Vec<i64> = [HOUR]
            .into_iter()
            .chain((left < HOUR).then_some(left - HOUR))
            .collect();
        assert_eq!(sent, expected);
        assert!(world.entries().iter().all(|it| !it.withheld));
        world.assert_ledger();
    }
}

/// What takes back a usage was skipped by itself; since then Abacus has set the usage aside.
async fn taken_back_and_set_aside(world: &World) -> (Running, Entry) {
    let (aside, counted) = (windows([]), world.abacus.usage_windows());
    let is_aside = Arc::clone(&aside);
    world.abacus.know(move |guid| {
        let window = counted(guid).map(window_of);
        if window.is_some_and(|it| is_aside.lock().unwrap().contains(&it)) {
            return LookupAnswer::SetAside {
                error: "the month is closed".to_owned(),
            };
        }
        LookupAnswer::NotFound
    });
    world.abacus.answer(|usage| {
        (duration(usage) < 0).then(|| refusal("Abacus answered 400: it is malformed"))
    });
    world.start("a", -2 * HOUR).await;
    let worker = run_with(world.parts(), confirming("w"));
    let is_sampled = || world.kept("a").span.sampled_to() == NOON;
    world.until("it is sampled", is_sampled).await;
    world.stop("a", -HOUR / 2).await;
    world.until_suspended("a").await;
    let span = world.kept("a").span;
    assert_eq!(skip(world, &span).await, Changed::Made);
    world.until_complete("a").await;
    aside.lock().unwrap().insert(-HOUR);
    let of = |state: EntryState| world.entries().into_iter().find(|it| it.state == state);
    world
        .until("the ledger knows it", || of(EntryState::SetAside).is_some())
        .await;
    aside.lock().unwrap().clear();
    world.abacus.answer(|_| None);
    let back = of(EntryState::Skipped).unwrap();
    assert_eq!(
        (back.interval.duration(), back.withheld),
        (-HOUR / 2, false)
    );
    (worker, back)
}

#[tokio::test(start_paused = true)]
async fn what_takes_back_a_usage_that_does_not_count_waits_for_it() {
    let world = World::new();
    let (worker, back) = taken_back_and_set_aside(&world).await;
    send_again(&world, &back).await;
    world.pass(10 * MINUTE).await;
    let before = counting(&world);
    assert!(before.values().all(|it| *it >= 0), "{before:?}");
    let is_aside = |it: &Entry| it.state == EntryState::SetAside;
    let aside = world.entries().into_iter().find(is_aside);
    send_again(&world, &aside.unwrap()).await;
    world.until_settled().await;
    worker.stop().await;
    assert_eq!(counting(&world)[&-HOUR], HOUR / 2);
}

/// What Abacus has is noted at once, whatever it takes back.
#[tokio::test(start_paused = true)]
async fn what_abacus_has_accepted_waits_for_nothing() {
    let world = World::new();
    let (worker, back) = taken_back_and_set_aside(&world).await;
    let accepted = Some(world.acceptance());
    assert!(world.send_again(&back, 8, accepted).await);
    let is_accepted = || world.entry(&back.usage_guid).is_billed();
    world.until("the ledger says so", is_accepted).await;
    worker.stop().await;
    assert_eq!(world.kept("a").span.processing.totals.skipped, 0);
}

/// Resends that take their time hold up no operator's resume, and no probe.
#[tokio::test(start_paused = true)]
async fn a_cause_is_resumed_while_usages_are_sent_again() {
    let world = World::new();
    let skipped = skipped(&world).await;
    world.abacus.answer(|usage| {
        (usage.target.resource_instance_id.as_str() == "b")
            .then(|| refusal("Abacus answered 400: it is malformed"))
    });
    world.start("b", -HOUR).await;
    let worker = world.run("w");
    world.until_suspended("b").await;
    *world.abacus.latency.lock().unwrap() = Duration::from_secs(10);
    world.abacus.answer(|_| None);
    for number in 0..100 {
        let another = Entry {
            usage_guid: format!("another {number}"),
            version: 1,
            ..skipped.clone()
        };
        world
            .store
            .write_entry(another.clone(), HOUR)
            .await
            .unwrap();
        send_again(&world, &another).await;
    }
    for cause in world.causes() {
        world.store.with(|table| table.resume_by_operator(cause.id));
    }
    let before = world.clock_now();
    let is_resumed = || world.kept("b").span.processing.suspended.is_none();
    world.until("it is resumed", is_resumed).await;
    assert!(world.clock_now().since(before) < MINUTE);
    worker.stop().await;
}

/// A worker dies once the span knows that the first of two usages counts. What was withheld of it is not
/// forgotten when the second one is sent again.
#[tokio::test(start_paused = true)]
async fn what_was_withheld_of_one_usage_is_not_forgotten_for_another() {
    let world = World::new();
    let first = skipped(&world).await;
    refuse(&world, &windows([0]));
    suspend_and_skip(&world).await;
    let worker = world.run("w");
    let is_skipped = || world.kept("a").span.processing.totals.skipped == 2 * HOUR;
    world.until("both are skipped", is_skipped).await;
    worker.stop().await;
    world.stop("a", -5 * HOUR / 2).await;
    complete(&world).await;
    let is_second = |entry: &Entry| {
        entry.state == EntryState::Skipped && !entry.withheld && entry.interval.start == NOON
    };
    let second = world.entries().into_iter().find(is_second).unwrap();
    world.abacus.answer(|_| None);
    send_again(&world, &first).await;
    let marked = world.entry(&first.usage_guid);
    let usage = sampler_domain::Usage::of_entry(&marked);
    sampler_upstream::Upstream::post(&*world.abacus, &usage, world.clock_now()).await;
    let accepted = world
        .store
        .accept_resent(&marked, &world.acceptance())
        .await;
    assert!(accepted.unwrap());
    let change = sampler_domain::Change::Resent {
        resent: sampler_domain::Resent {
            usage_guid: first.usage_guid.clone(),
            act: Uuid::from_u128(7),
        },
        interval: first.interval,
        reason: marked.marked_from().unwrap(),
    };
    let span = world.kept("a").span;
    let changed = world.store.change(&span, &change, world.clock_now()).await;
    assert_eq!(changed.unwrap(), Changed::Made);
    let (key, later) = (EntryKey::of(&first), world.clock_now().plus(10 * MINUTE));
    let act = Uuid::from_u128(7);
    world.store.postpone_resend(&key, act, later).await.unwrap();
    assert!(world.send_again(&second, 8, None).await);
    let worker = world.run("w");
    world.until_settled().await;
    worker.stop().await;
    assert_proof(&world, 3 * HOUR / 2, 0);
    assert!(world.entries().iter().all(|it| !it.withheld));
}
