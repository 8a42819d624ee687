//! Usages that Abacus has accepted are followed up.

use std::sync::Arc;

use sampler_domain::partition::partition_of;
use sampler_domain::{Cause, CauseId, Entry, EntryState, Interval, Question, Resend, Timestamp};
use sampler_store::{
    CauseQuery, Confirmation, EntryKey, SuspendedCause, Unconfirmed, UnconfirmedQuery,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::support::{
    Shared, Store, acceptance, at, everything, must_plan, question, resend, started,
};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// An accepted usage of the hour that begins `from` ms after the present, to be asked for so many ms
/// after it, and for a day.
async fn accepted(store: &dyn Store, name: &str, from: i64, ask_at: i64) -> Entry {
    let span = started(store, name, name, -DAY).await;
    let span = must_plan(store, &span, -HOUR).await;
    let acceptance = acceptance(7, Some(&format!("https://abacus/usage/{name}")));
    let interval = Interval {
        start: at(from),
        end: at(from + HOUR),
    };
    let entry = Entry {
        interval,
        question: Some(question(ask_at, DAY)),
        ..Entry::of_accepted(&span, acceptance).expect("it is planned")
    };
    let kept = store.write_entry(entry.clone(), DAY).await;
    assert_eq!(kept.ok(), Some(EntryState::Accepted));
    entry
}

fn query(now: i64) -> UnconfirmedQuery {
    UnconfirmedQuery {
        partitions: everything(),
        now: at(now),
        month: None,
        limit: 10,
    }
}

async fn unconfirmed(store: &dyn Store, query: UnconfirmedQuery) -> Vec<Unconfirmed> {
    store.unconfirmed(&query).await.unwrap()
}

/// The instances of the usages that are to be asked for, in their order.
async fn instances(store: &dyn Store, query: UnconfirmedQuery) -> Vec<String> {
    let found = unconfirmed(store, query).await;
    let instance = |it: Unconfirmed| it.target.resource_instance_id.as_str().to_owned();
    found.into_iter().map(instance).collect()
}

/// What came of asking for the usage of an entry, as it was written. Says whether it was noted.
async fn confirm(store: &dyn Store, read: &Entry, confirmation: Confirmation) -> bool {
    let read = Unconfirmed::of(read).expect("it is to be asked for");
    store.confirm(&[(read, confirmation)]).await.unwrap() == 1
}

async fn kept(store: &dyn Store, entry: &Entry) -> Entry {
    let entries = store.usages(&entry.span, &entry.target, None, 10).await;
    let mut entries = entries.unwrap().entries;
    entries.pop().expect("it is there")
}

async fn all_causes(store: &dyn Store) -> Vec<SuspendedCause> {
    let query = CauseQuery {
        resources: None,
        of_each: 10,
        limit: 10,
    };
    store.causes(&query).await.unwrap()
}

fn aside(entry: &Entry, error: &str) -> Cause {
    Cause {
        status: None,
        error: error.to_owned(),
        resource_id: entry.target.resource_id.clone(),
        plan_id: entry.target.plan_id.clone(),
    }
}

fn set_aside(at: Timestamp, error: &str, cause: CauseId) -> Confirmation {
    Confirmation::SetAside {
        at,
        error: error.to_owned(),
        cause,
    }
}

pub async fn the_oldest_month_is_asked_for_first(store: &Shared) {
    let store = &**store;
    // The present is the 10th of March.
    accepted(store, "march 1", -2 * HOUR, 1).await;
    accepted(store, "february 3", -20 * DAY, 3).await;
    let first = accepted(store, "february 2", -12 * DAY, 2).await;
    accepted(store, "march 0", -3 * HOUR, 0).await;
    accepted(store, "later", -20 * DAY, 4).await;
    let in_order = ["february 2", "february 3", "march 0", "march 1"];
    assert_eq!(instances(store, query(3)).await, in_order);
    let some = UnconfirmedQuery {
        limit: 3,
        ..query(3)
    };
    assert_eq!(instances(store, some).await, in_order[..3]);
    let march = UnconfirmedQuery {
        month: Some(at(-9 * DAY - 12 * HOUR)),
        ..query(3)
    };
    assert_eq!(instances(store, march).await, in_order[2..]);
    let partition = partition_of(&first.target);
    let partitions: Arc<[u32]> = [partition].into();
    let own = UnconfirmedQuery {
        partitions,
        ..query(3)
    };
    let own = unconfirmed(store, own).await;
    assert!(own.iter().all(|it| partition_of(&it.target) == partition));
    assert_eq!(own.first(), Unconfirmed::of(&first).as_ref());
}

pub async fn a_usage_that_counts_is_asked_for_no_more(store: &Shared) {
    let store = &**store;
    let entry = accepted(store, "a", -2 * HOUR, 0).await;
    let counted = || Confirmation::Counted { at: at(9) };
    assert!(confirm(store, &entry, counted()).await);
    assert!(!confirm(store, &entry, counted()).await);
    assert_eq!(instances(store, query(DAY)).await, [""; 0]);
    let expected = Entry {
        state: EntryState::Counted,
        counted_at: Some(at(9)),
        question: None,
        ..entry
    };
    assert_eq!(kept(store, &expected).await, expected);
    assert_eq!(expected.as_of(at(8)), Some(EntryState::Accepted));
    assert_eq!(expected.as_of(at(9)), Some(EntryState::Counted));
}

pub async fn a_usage_that_was_put_aside_keeps_why(store: &Shared) {
    let store = &**store;
    let entry = accepted(store, "a", -2 * HOUR, 0).await;
    let cause = aside(&entry, "$error");
    store.register(&cause, at(1), at(HOUR)).await.unwrap();
    let noted = set_aside(at(9), "$error", cause.id());
    assert!(confirm(store, &entry, noted.clone()).await);
    assert!(!confirm(store, &entry, noted).await);
    let expected = Entry {
        state: EntryState::SetAside,
        set_aside_at: Some(at(9)),
        error: Some("$error".to_owned()),
        question: None,
        ..entry
    };
    assert_eq!(kept(store, &expected).await, expected);
    assert!(!expected.is_billed());
    // The cause stays as long as there is such a usage, and is shown.
    let due = store.due_causes(at(DAY), 10).await.unwrap();
    assert!(!store.remove_cause(&due[0]).await.unwrap());
    let shown = all_causes(store).await;
    assert_eq!(shown.len(), 1);
    assert_eq!((shown[0].spans, shown[0].set_aside), (0, 1));
    assert_eq!(shown[0].kept.cause, cause);
}

pub async fn a_usage_that_is_not_known_yet_is_asked_for_again(store: &Shared) {
    let store = &**store;
    let entry = accepted(store, "a", -2 * HOUR, 0).await;
    let again = || Confirmation::AskAgain { at: at(5) };
    assert!(confirm(store, &entry, again()).await);
    assert!(
        !confirm(store, &entry, again()).await,
        "it has changed since"
    );
    assert_eq!(instances(store, query(4)).await, [""; 0]);
    let read = kept(store, &entry).await;
    let ask = question(5, DAY);
    assert_eq!(read.question, Some(ask));
    assert_eq!(unconfirmed(store, query(5)).await[0].ask, ask);
    assert!(confirm(store, &read, Confirmation::GivenUp).await);
    assert_eq!(instances(store, query(DAY)).await, [""; 0]);
    let expected = Entry {
        question: None,
        ..entry
    };
    assert_eq!(kept(store, &expected).await, expected);
}

/// A worker may die before its entry says that it was set aside.
pub async fn a_usage_that_is_lost_is_read_as_that(store: &Shared) {
    let store = &**store;
    let entry = accepted(store, "a", -2 * HOUR, 0).await;
    let lost = || Confirmation::Missing { at: at(5) };
    assert!(confirm(store, &entry, lost()).await);
    assert!(
        !confirm(store, &entry, lost()).await,
        "it has changed since"
    );
    let ask = Question {
        at: at(5),
        until: at(DAY),
        is_missing: true,
    };
    let expected = Entry {
        question: Some(ask),
        ..entry.clone()
    };
    assert_eq!(kept(store, &entry).await, expected);
    let again = Confirmation::AskAgain { at: at(6) };
    assert!(confirm(store, &expected, again).await);
    assert!(unconfirmed(store, query(6)).await[0].ask.is_missing);
}

pub async fn many_usages_are_noted_at_once(store: &Shared) {
    let store = &**store;
    let mut confirmed = Vec::new();
    for number in 0..9_i64 {
        let entry = accepted(store, &format!("{number}"), -2 * HOUR, number).await;
        let read = Unconfirmed::of(&entry).expect("it is to be asked for");
        confirmed.push((read, Confirmation::Counted { at: at(9) }));
    }
    // One has changed since it was read, and one is not there.
    confirmed[3].0.ask.at = at(-1);
    "nothing".clone_into(&mut confirmed[5].0.usage_guid);
    assert_eq!(store.confirm(&confirmed).await.ok(), Some(7));
    assert_eq!(instances(store, query(DAY)).await, ["3", "5"]);
    assert_eq!(store.confirm(&[]).await.ok(), Some(0));
}

pub async fn of_16_that_note_the_same_answer_one_does(store: &Shared) {
    let entry = accepted(&**store, "a", -2 * HOUR, 0).await;
    let mut tasks = JoinSet::new();
    for number in 0..16 {
        let (store, entry) = (Arc::clone(store), entry.clone());
        let counted = Confirmation::Counted { at: at(number) };
        tasks.spawn(async move { confirm(&*store, &entry, counted).await });
    }
    let noted = tasks.join_all().await;
    assert_eq!(noted.into_iter().filter(|it| *it).count(), 1);
}

/// What is not to be asked for is written as ever.
pub async fn a_usage_is_only_asked_for_where_its_entry_says_so(store: &Shared) {
    let store = &**store;
    let entry = accepted(store, "a", -2 * HOUR, 0).await;
    let plain = Entry {
        usage_guid: "plain".to_owned(),
        version: entry.version + 1,
        question: None,
        ..entry
    };
    let kept = store.write_entry(plain, DAY).await;
    assert_eq!(kept.ok(), Some(EntryState::Accepted));
    assert_eq!(unconfirmed(store, query(DAY)).await.len(), 1);
}

/// It was posted once more, and that post settles later.
pub async fn a_usage_that_is_written_again_is_asked_for_as_late_as_that(store: &Shared) {
    let store = &**store;
    let entry = accepted(store, "a", -2 * HOUR, 5).await;
    let again = |ask_at, until| Entry {
        accepted_at: Some(at(8)),
        question: Some(question(ask_at, until)),
        ..entry.clone()
    };
    for (ask_at, until, expected) in [
        (5, DAY, (5, DAY)),
        (4, DAY - 1, (5, DAY)),
        (6, DAY + 1, (6, DAY + 1)),
    ] {
        let written = store.write_entry(again(ask_at, until), DAY).await;
        assert_eq!(written.ok(), Some(EntryState::Accepted));
        let ask = question(expected.0, expected.1);
        let expected = Entry {
            question: Some(ask),
            ..entry.clone()
        };
        assert_eq!(kept(store, &entry).await, expected);
    }
    let counted = || Confirmation::Counted { at: at(9) };
    assert!(!confirm(store, &entry, counted()).await);
    assert!(confirm(store, &again(6, DAY + 1), counted()).await);
    let written = store.write_entry(again(7, 2 * DAY), DAY).await;
    assert_eq!(written.ok(), Some(EntryState::Counted));
    assert_eq!(kept(store, &entry).await.question, None);
}

/// Set aside in between, it would pass for one whose totals are right: nobody would correct them.
pub async fn a_usage_that_was_skipped_and_sent_is_asked_for_once_its_totals_are_right(
    store: &Shared,
) {
    let store = &**store;
    let span = started(store, "a", "a", -DAY).await;
    let span = must_plan(store, &span, -HOUR).await;
    let acceptance = acceptance(11, Some("https://abacus/usage/a"));
    let accepted = Entry::of_accepted(&span, acceptance.clone()).expect("it is planned");
    let skipped = Entry {
        state: EntryState::Skipped,
        accepted_at: None,
        skipped_at: Some(at(7)),
        status: None,
        location: None,
        ..accepted
    };
    let written = store.write_entry(skipped.clone(), DAY).await;
    assert_eq!(written.ok(), Some(EntryState::Skipped));
    let act = Uuid::from_u128(7);
    let resend = Resend {
        act,
        from: EntryState::Skipped,
        at: at(10),
        due_at: at(10),
        acceptance: None,
    };
    let key = EntryKey::of(&skipped);
    assert_eq!(store.mark_resend(&key, &resend).await.ok(), Some(true));
    let read = Entry {
        question: Some(question(20, DAY)),
        ..kept(store, &skipped).await
    };
    let noted = store.accept_resent(&read, &acceptance).await;
    assert_eq!(noted.ok(), Some(true));
    assert_eq!(instances(store, query(20)).await, [""; 0]);
    let marked = kept(store, &skipped).await;
    let aside = || set_aside(at(21), "no plan", aside(&marked, "no plan").id());
    assert!(!confirm(store, &marked, aside()).await, "it is marked");
    store.end_resend(&key, act, None).await.unwrap();
    assert_eq!(instances(store, query(20)).await, ["a"]);
    assert!(confirm(store, &marked, aside()).await);
}

pub async fn a_usage_that_was_sent_again_is_asked_for_again(store: &Shared) {
    let store = &**store;
    let entry = accepted(store, "a", -2 * HOUR, 0).await;
    let cause = aside(&entry, "no plan");
    store.register(&cause, at(1), at(HOUR)).await.unwrap();
    let noted = set_aside(at(9), "no plan", cause.id());
    assert!(confirm(store, &entry, noted).await);
    let resend = resend(7, EntryState::SetAside, 10);
    let marked = store.mark_resend(&EntryKey::of(&entry), &resend).await;
    assert_eq!(marked.ok(), Some(true));
    let ask = question(20, DAY);
    let read = Entry {
        question: Some(ask),
        ..kept(store, &entry).await
    };
    let acceptance = acceptance(11, Some("https://abacus/usage/again"));
    assert_eq!(
        store.accept_resent(&read, &acceptance).await.ok(),
        Some(true)
    );
    let found = unconfirmed(store, query(20)).await;
    assert_eq!(found, [], "the span does not know yet that it counts");
    let key = EntryKey::of(&entry);
    store.end_resend(&key, resend.act, None).await.unwrap();
    let found = unconfirmed(store, query(20)).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].location, "https://abacus/usage/again");
    assert_eq!(found[0].ask, ask);
    let shown = all_causes(store).await;
    assert_eq!(shown, [], "nothing is set aside any more");
    let counted = Confirmation::Counted { at: at(21) };
    assert!(confirm(store, &kept(store, &entry).await, counted).await);
    let last = kept(store, &entry).await;
    assert_eq!(last.state, EntryState::Counted);
    let states = [8, 9, 11, 21].map(|millis| last.as_of(at(millis)));
    let expected = [
        EntryState::Accepted,
        EntryState::SetAside,
        EntryState::Accepted,
        EntryState::Counted,
    ];
    assert_eq!(states, expected.map(Some));
}
