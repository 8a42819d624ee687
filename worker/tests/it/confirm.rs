//! Usages that Abacus has accepted are followed up until they count or were set aside.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sampler_domain::{Acceptance, Change, Changed, Entry, EntryState, Interval, Planned, Question};
use sampler_settings::worker::ConfirmSettings;
use sampler_store::{Confirmation, Ledger, Unconfirmed, Work};
use sampler_upstream::LookupAnswer;
use sampler_worker::Options;
use tokio::time::Instant;

use crate::world::{DAY, HOUR, MINUTE, NOON, Running, World, options, run_with};

/// Asks after a minute, each minute, for two hours.
pub(crate) fn confirming(name: &str) -> Options {
    let mut options = options(name);
    options.settings.confirm = ConfirmSettings {
        enabled: true,
        timeout: Duration::from_hours(2),
    };
    options
}

fn run(world: &World, name: &str) -> Running {
    run_with(world.parts(), confirming(name))
}

fn aside(error: &str) -> LookupAnswer {
    LookupAnswer::SetAside {
        error: error.to_owned(),
    }
}

fn failed(after: Option<u64>) -> LookupAnswer {
    LookupAnswer::Failed {
        after: after.map(Duration::from_secs),
        error: "Abacus answered 503".to_owned(),
    }
}

fn count(world: &World, state: EntryState) -> usize {
    let entries = world.entries();
    entries.iter().filter(|entry| entry.state == state).count()
}

/// How often each usage was asked for.
fn questions(world: &World) -> BTreeMap<String, usize> {
    let mut questions = BTreeMap::new();
    for (_, usage) in world.abacus.asked.lock().unwrap().iter() {
        *questions.entry(usage.clone()).or_default() += 1;
    }
    questions
}

/// A switch that scripts can read.
fn switch() -> (Arc<AtomicBool>, impl Fn() -> bool + Send + Sync + 'static) {
    let switch = Arc::new(AtomicBool::new(false));
    let read = Arc::clone(&switch);
    (switch, move || read.load(Ordering::Relaxed))
}

#[tokio::test(start_paused = true)]
async fn a_usage_is_asked_for_until_abacus_knows_it() {
    let world = World::new();
    let (is_known, known) = switch();
    world.abacus.know(move |_| {
        if known() {
            LookupAnswer::Counts
        } else {
            LookupAnswer::NotFound
        }
    });
    world.start("i", -3 * HOUR).await;
    let worker = run(&world, "w");
    world.pass(10 * MINUTE).await;
    assert_eq!(count(&world, EntryState::Accepted), 3);
    for (usage, times) in questions(&world) {
        assert!((8..=10).contains(&times), "{usage} {times} times");
    }
    let before = world.clock_now();
    is_known.store(true, Ordering::Relaxed);
    let done = || count(&world, EntryState::Counted) == 3;
    world.until("all count", done).await;
    for entry in world.entries() {
        assert_eq!(entry.question, None);
        assert_eq!(entry.as_of(before), Some(EntryState::Accepted));
        let counted_at = entry.counted_at.unwrap();
        assert!(counted_at.since(before) <= MINUTE + 10_000, "{counted_at}");
        assert_eq!(entry.as_of(counted_at), Some(EntryState::Counted));
    }
    let asked = world.abacus.asked_count();
    world.pass(30 * MINUTE).await;
    assert_eq!(world.abacus.asked_count(), asked, "nothing is asked again");
    worker.stop().await;
    assert_eq!(world.causes(), []);
    world.assert_ledger();
}

/// The span continues, and its totals stay.
#[tokio::test(start_paused = true)]
async fn a_usage_that_was_put_aside_is_kept_with_its_cause() {
    let world = World::new();
    let first = Mutex::new(BTreeSet::new());
    world.abacus.know(move |usage| {
        let mut first = first.lock().unwrap();
        if first.len() < 2 {
            first.insert(usage.to_owned());
        }
        let is_first = first.contains(usage);
        if is_first {
            aside("the month is closed")
        } else {
            LookupAnswer::Counts
        }
    });
    world.start("i", -4 * HOUR).await;
    let worker = run(&world, "w");
    let done = || count(&world, EntryState::Counted) == 2;
    world.until("two count", done).await;
    world.pass(61 * MINUTE).await;
    assert_eq!(count(&world, EntryState::SetAside), 2);
    for entry in world.entries() {
        if entry.state == EntryState::SetAside {
            assert_eq!(entry.error.as_deref(), Some("the month is closed"));
            assert!(entry.set_aside_at > entry.accepted_at);
            assert!(!entry.is_billed());
        }
    }
    let causes = world.causes();
    assert_eq!(causes.len(), 1, "it stays, though no span is suspended");
    assert_eq!(causes[0].cause.error, "the month is closed");
    assert_eq!(causes[0].cause.status, None);
    assert_eq!(causes[0].cause.plan_id.as_str(), "plan");
    let set_aside = world
        .store
        .with(|table| table.count_set_aside(causes[0].id));
    assert_eq!(set_aside, 2);
    let span = world.kept("i").span;
    assert_eq!(span.processing.suspended, None);
    assert_eq!(span.processing.totals.billed, 5 * HOUR);
    worker.stop().await;
    world.assert_ledger();
}

#[tokio::test(start_paused = true)]
async fn a_usage_that_is_not_known_in_time_stays_accepted() {
    let world = World::new();
    world.abacus.know(|usage| match usage.as_bytes()[0] % 2 {
        0 => LookupAnswer::NotFound,
        _ => LookupAnswer::Mismatch {
            error: "the answer is the document of another usage".to_owned(),
        },
    });
    for number in 0..8 {
        world.start(&format!("{number}"), -HOUR).await;
        world.stop(&format!("{number}"), 0).await;
    }
    let worker = run(&world, "w");
    world.pass(HOUR + 50 * MINUTE).await;
    assert!(world.entries().iter().all(|entry| entry.question.is_some()));
    assert!(world.stored().iter().all(|kept| kept.expires_at.is_none()));
    world.pass(15 * MINUTE).await;
    let asked = world.abacus.asked_count();
    world.pass(HOUR).await;
    assert_eq!(world.abacus.asked_count(), asked);
    worker.stop().await;
    for kept in world.stored() {
        let entry = kept.entry;
        assert_eq!((entry.state, entry.question), (EntryState::Accepted, None));
        let lifetime = kept.lifetime;
        assert_eq!(
            kept.expires_at,
            entry.accepted_at.map(|at| at.plus(lifetime))
        );
    }
    world.assert_ledger();
}

/// What nobody answers says nothing about a usage.
#[tokio::test(start_paused = true)]
async fn while_abacus_is_away_nothing_is_given_up_and_little_is_asked() {
    let world = World::new();
    let (is_back, back) = switch();
    world.abacus.know(move |_| {
        if back() {
            LookupAnswer::Counts
        } else {
            failed(None)
        }
    });
    for number in 0..40 {
        world.start(&format!("{number}"), -HOUR).await;
    }
    let worker = run(&world, "w");
    world.pass(3 * HOUR).await;
    assert_eq!(count(&world, EntryState::SetAside), 0);
    let all = world.entries();
    assert!(all.iter().all(|entry| entry.question.is_some()));
    let rate = world.abacus.asked_count() / (3 * 60);
    assert!(rate <= 100, "{rate} questions in a minute");
    is_back.store(true, Ordering::Relaxed);
    let done = || count(&world, EntryState::Counted) == world.entries().len();
    world.until("all count", done).await;
    worker.stop().await;
    world.assert_ledger();
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_respected_for_questions_alone() {
    for answer in [
        LookupAnswer::Wait {
            after: Duration::from_mins(20),
        },
        failed(Some(20 * 60)),
    ] {
        let world = World::new();
        world.abacus.know(move |_| answer.clone());
        for number in 0..40 {
            world.start(&format!("{number}"), -HOUR).await;
        }
        let worker = run(&world, "w");
        world
            .until("something is asked", || world.abacus.asked_count() > 0)
            .await;
        world.pass(19 * MINUTE).await;
        let asked = world.abacus.asked_count();
        assert!(asked <= 16, "{asked} questions");
        world.abacus.know(|_| LookupAnswer::Counts);
        world.start("new", -HOUR).await;
        world
            .until("posts go on", || world.abacus.sum("new") == HOUR)
            .await;
        let done = || count(&world, EntryState::Counted) == world.entries().len();
        world.until("all count", done).await;
        worker.stop().await;
    }
}

/// The upstream has lost a usage, and its worker died before the span noted that it was accepted. The time
/// for its confirmation is over.
async fn lost_and_still_planned() -> World {
    let world = World::new();
    world.abacus.find_by_id();
    world.abacus.know(|_| LookupAnswer::NotFound);
    world.start("i", -2 * HOUR).await;
    world.stop("i", -90 * MINUTE).await;
    let span = world.kept("i").span;
    let interval = Interval {
        start: NOON.plus(-2 * HOUR),
        end: NOON.plus(-HOUR),
    };
    let plan = Change::Plan {
        planned: Planned::new(&span, interval, NOON),
        due_at: NOON.plus(HOUR),
    };
    let planned = world.store.change(&span, &plan, NOON).await.unwrap();
    assert_eq!(planned, Changed::Made);
    let acceptance = Acceptance {
        at: NOON,
        status: Some(202),
        location: None,
    };
    let entry = Entry::of_accepted(&world.kept("i").span, acceptance).unwrap();
    let entry = Entry {
        question: Some(Question {
            at: NOON,
            until: NOON,
            is_missing: false,
        }),
        ..entry
    };
    world.store.write_entry(entry, DAY).await.unwrap();
    world
}

/// Another worker posts it once more, and it counts: a late stop takes it back.
#[tokio::test(start_paused = true)]
async fn what_is_not_there_and_still_planned_is_not_set_aside() {
    let world = lost_and_still_planned().await;
    let worker = run(&world, "w");
    let is_asked = || world.abacus.asked_count() > 2;
    world.until("it is asked for", is_asked).await;
    assert_eq!(count(&world, EntryState::Accepted), 1);
    let counts = world.abacus.usage_windows();
    world.abacus.know(move |usage| match counts(usage) {
        Some(_) => LookupAnswer::Counts,
        None => LookupAnswer::NotFound,
    });
    let done = || world.is_complete("i") && count(&world, EntryState::Counted) == 2;
    world.until("all count", done).await;
    worker.stop().await;
    assert_eq!(world.abacus.sum("i"), 30 * MINUTE);
    world.assert_ledger();
}

/// The second post can be found half an hour after it: until then nothing says that it does not count.
#[tokio::test(start_paused = true)]
async fn what_was_posted_once_more_is_looked_up_until_that_post_has_settled() {
    let world = lost_and_still_planned().await;
    let counts = world.abacus.usage_windows();
    let mut seen: BTreeMap<String, Instant> = BTreeMap::new();
    world.abacus.know(move |usage| {
        if counts(usage).is_none() {
            return LookupAnswer::NotFound;
        }
        let since = seen.entry(usage.to_owned()).or_insert_with(Instant::now);
        if since.elapsed() < Duration::from_mins(30) {
            LookupAnswer::NotFound
        } else {
            LookupAnswer::Counts
        }
    });
    let worker = run(&world, "w");
    world.until_complete("i").await;
    assert_eq!(count(&world, EntryState::SetAside), 0);
    let done = || count(&world, EntryState::Counted) == 2;
    world.until("all count", done).await;
    worker.stop().await;
    assert_eq!(world.abacus.sum("i"), 30 * MINUTE);
    world.assert_ledger();
}

/// A worker died after the span was told. The upstream finds the usage after all: an operator's resend does so,
/// too, and corrects the span. To believe it now would leave the span wrong for good.
#[tokio::test(start_paused = true)]
async fn what_was_lost_when_a_worker_died_is_set_aside_and_can_be_sent_again() {
    let world = World::new();
    world.abacus.find_by_id();
    world.abacus.know(|_| LookupAnswer::NotFound);
    world.start("i", -HOUR).await;
    let worker = run(&world, "w");
    let is_billed = || count(&world, EntryState::Accepted) == 1;
    world.until("it is accepted", is_billed).await;
    worker.stop().await;
    let entry = world.entries().remove(0);
    let read = Unconfirmed::of(&entry).unwrap();
    let lost = Confirmation::Missing {
        at: world.clock_now(),
    };
    assert_eq!(world.store.confirm(&[(read, lost)]).await.unwrap(), 1);
    let asked = world.abacus.asked_count();
    world.abacus.know(|_| LookupAnswer::Counts);
    let worker = run(&world, "w");
    let is_aside = || count(&world, EntryState::SetAside) == 1;
    world.until("it is set aside", is_aside).await;
    assert_eq!(world.abacus.asked_count(), asked);
    assert!(world.kept("i").span.knows_uncounted(entry.interval));
    worker.stop().await;
    world.assert_ledger();
}

/// A thousand usages of another month wait: those of the month that closes come first.
#[tokio::test(start_paused = true)]
async fn the_month_that_closes_comes_first() {
    let world = World::new();
    let (is_there, there) = switch();
    world.abacus.know(move |_| {
        if there() {
            LookupAnswer::Counts
        } else {
            failed(Some(60))
        }
    });
    let mut options = confirming("w");
    options.settings.month.month_slack = Duration::from_hours(20 * 24);
    // The present is the 10th of March. Usages of January wait longest, those of February close.
    for number in 0..30 {
        let (january, february) = (format!("1 {number}"), format!("2 {number}"));
        world.start(&january, -49 * DAY).await;
        world.stop(&january, -49 * DAY + 8 * HOUR).await;
        world.start(&february, -13 * DAY).await;
        world.stop(&february, -13 * DAY + 2 * HOUR).await;
    }
    let worker = run_with(world.parts(), options);
    world
        .until("all are posted", || world.entries().len() == 30 * 10)
        .await;
    world.pass(5 * MINUTE).await;
    world.abacus.asked.lock().unwrap().clear();
    *world.abacus.latency.lock().unwrap() = Duration::from_millis(10);
    is_there.store(true, Ordering::Relaxed);
    let done = || count(&world, EntryState::Counted) == 300;
    world.until("all count", done).await;
    worker.stop().await;
    let closing: BTreeSet<String> = world
        .entries()
        .into_iter()
        .filter(|entry| entry.interval.start >= NOON.plus(-30 * DAY))
        .map(|entry| entry.usage_guid)
        .collect();
    assert_eq!(closing.len(), 60);
    let mut last: BTreeMap<bool, (Instant, Instant)> = BTreeMap::new();
    for (at, usage) in world.abacus.asked.lock().unwrap().iter() {
        let span = last.entry(closing.contains(usage)).or_insert((*at, *at));
        span.1 = *at;
    }
    assert!(last[&true].1 <= last[&false].0, "{last:?}");
}

/// The entry of a complete span waits for its confirmation, also where its span is gone.
#[tokio::test(start_paused = true)]
async fn no_entry_expires_before_it_is_confirmed() {
    let world = World::new();
    let (is_known, known) = switch();
    world.abacus.know(move |_| {
        if known() {
            LookupAnswer::Counts
        } else {
            failed(None)
        }
    });
    world.start("i", -2 * HOUR).await;
    world.stop("i", -HOUR).await;
    let mut options = confirming("w");
    options.settings.cleanup.retention = Duration::from_hours(2);
    options.settings.ledger.retention.hour = Duration::from_hours(1);
    let worker = run_with(world.parts(), options);
    world
        .until("the span is removed", || world.store.all().is_empty())
        .await;
    world.pass(3 * HOUR).await;
    let now = world.clock_now();
    let removed = world.store.with(|table| table.remove_expired(now));
    assert_eq!(removed, []);
    is_known.store(true, Ordering::Relaxed);
    let done = || count(&world, EntryState::Counted) == 1;
    world.until("it counts", done).await;
    worker.stop().await;
    let kept = world.stored().remove(0);
    let counted_at = kept.entry.counted_at.unwrap();
    assert_eq!(kept.expires_at, Some(counted_at.plus(HOUR)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_where_it_is_off_or_there_is_no_location() {
    let world = World::new();
    world.start("a", -HOUR).await;
    let worker = run(&world, "w");
    world
        .until("it is posted", || world.abacus.sum("a") == HOUR)
        .await;
    worker.stop().await;
    world.abacus.know(|_| LookupAnswer::Counts);
    world.start("b", -HOUR).await;
    let worker = world.run("off");
    world
        .until("it is posted", || world.abacus.sum("b") == HOUR)
        .await;
    world.pass(HOUR).await;
    worker.stop().await;
    assert_eq!(world.abacus.asked_count(), 0);
    assert!(world.entries().iter().all(|entry| entry.question.is_none()));
}

/// Otherwise the entries that were to be confirmed would never expire.
#[tokio::test(start_paused = true)]
async fn what_was_to_be_confirmed_is_released_once_it_is_off() {
    let world = World::new();
    world.abacus.know(|_| LookupAnswer::NotFound);
    for number in 0..150 {
        world.start(&format!("{number}"), -HOUR).await;
        world.stop(&format!("{number}"), 0).await;
    }
    let worker = run(&world, "w");
    world
        .until("all are posted", || world.entries().len() == 150)
        .await;
    worker.stop().await;
    let asked = world.abacus.asked_count();
    let worker = world.run("off");
    world.pass(HOUR).await;
    assert!(world.entries().iter().all(|entry| entry.question.is_some()));
    world.pass(HOUR + 15 * MINUTE).await;
    worker.stop().await;
    assert_eq!(world.abacus.asked_count(), asked);
    for kept in world.stored() {
        assert_eq!(kept.entry.question, None);
        assert!(kept.expires_at.is_some());
    }
}
