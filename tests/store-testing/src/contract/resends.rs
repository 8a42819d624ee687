//! Usages that are sent again: the mark on an entry, and the totals of its span.

use std::sync::Arc;

use sampler_domain::{
    Acceptance, Change, Changed, Entry, EntryState, Interval, LastError, Next, Resend, Skip, Span,
    Timestamp, UncountedReason,
};
use sampler_store::EntryKey;
use uuid::Uuid;

use crate::support::{
    self, Changing, Shared, Store, at, done, failure, finished, kept, last_refusal, must_plan,
    must_stop, plan_to, refusal, started,
};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// A span whose first hour was given up, and the entry of that.
async fn skipped(store: &dyn Store, name: &str) -> (Span, Entry) {
    let span = started(store, name, name, -HOUR).await;
    let span = must_plan(store, &span, 0).await;
    let span = done(store.failed(&span, last_refusal("none", 0)).await);
    let planned = span.processing.planned.clone().expect("it is planned");
    let skip = Skip {
        usage_guid: planned.usage_guid,
        at: at(1),
        not_before: at(1),
        act: Uuid::from_u128(1),
    };
    let change = Change::RequestSkip {
        skip: skip.clone(),
        suspension: span.processing.suspended.expect("it is suspended"),
        due_at: at(1),
    };
    let span = made(store, &span, &change).await;
    let entry = Entry::of_skipped(&span, skip.at).expect("it is planned");
    assert_eq!(
        store.write_entry(entry.clone(), DAY).await.unwrap(),
        EntryState::Skipped
    );
    let change = Change::Skipped {
        next: Next::Wait,
        due_at: at(HOUR),
    };
    (made(store, &span, &change).await, entry)
}

async fn made(store: &dyn Store, span: &Span, change: &Change) -> Span {
    assert_eq!(
        store.change(span, change, at(0)).await.unwrap(),
        Changed::Made
    );
    span.after(change)
}

fn resend(act: u128) -> Resend {
    support::resend(act, EntryState::Skipped, 5)
}

fn acceptance(millis: i64) -> Acceptance {
    support::acceptance(millis, Some("https://abacus/usage/$1"))
}

async fn mark(store: &dyn Store, entry: &Entry, resend: &Resend) -> bool {
    store
        .mark_resend(&EntryKey::of(entry), resend)
        .await
        .unwrap()
}

async fn claim(store: &dyn Store, entry: &Entry, read: &Resend, due_at: i64) -> bool {
    let key = EntryKey::of(entry);
    store.claim_resend(&key, read, at(due_at)).await.unwrap()
}

async fn due(store: &dyn Store, millis: i64) -> Vec<Entry> {
    store.due_resends(at(millis), 10).await.unwrap()
}

async fn found(store: &dyn Store, entry: &Entry) -> Entry {
    store
        .usage(&entry.usage_guid)
        .await
        .unwrap()
        .expect("it is there")
}

async fn accept(store: &dyn Store, entry: &Entry, acceptance: &Acceptance) -> bool {
    store.accept_resent(entry, acceptance).await.unwrap()
}

pub async fn a_usage_that_was_given_up_is_marked_once_and_sent_again(store: &Shared) {
    let store = &**store;
    let (_, entry) = skipped(store, "a").await;
    assert_eq!(found(store, &entry).await, entry);
    assert_eq!(store.usage("another").await.ok(), Some(None));
    assert_eq!(due(store, 10).await, []);
    assert!(mark(store, &entry, &resend(7)).await);
    assert!(!mark(store, &entry, &resend(8)).await, "it is marked");
    let marked = Entry {
        resend: Some(resend(7)),
        ..entry.clone()
    };
    assert_eq!(due(store, 4).await, []);
    assert_eq!(due(store, 5).await, std::slice::from_ref(&marked));
    let (key, act) = (EntryKey::of(&entry), Uuid::from_u128(7));
    let other = Uuid::from_u128(8);
    for (act, millis) in [(other, 90), (act, 50)] {
        store.postpone_resend(&key, act, at(millis)).await.unwrap();
    }
    assert_eq!(due(store, 49).await, []);
    assert_eq!(due(store, 50).await.len(), 1);
    assert!(
        !accept(store, &entry, &acceptance(60)).await,
        "it has no mark"
    );
    assert!(accept(store, &marked, &acceptance(60)).await);
    assert!(!accept(store, &marked, &acceptance(70)).await, "once");
    let accepted = found(store, &entry).await;
    assert_eq!(accepted.state, EntryState::Accepted);
    assert_eq!(accepted.accepted_at, Some(at(60)));
    assert_eq!(accepted.skipped_at, entry.skipped_at);
    assert_eq!((accepted.status, &accepted.error), (Some(202), &None));
    assert_eq!(accepted.location, acceptance(60).location);
    // The mark leads whoever comes next to the totals.
    assert_eq!(due(store, 50).await, std::slice::from_ref(&accepted));
    for (act, is_marked) in [(other, true), (act, false)] {
        store.end_resend(&key, act, None).await.unwrap();
        let has = store.has_resend(&key, Uuid::from_u128(7)).await;
        assert_eq!(has.unwrap(), is_marked);
    }
    assert_eq!(due(store, 99).await, []);
    let ended = Entry {
        resend: None,
        ..accepted
    };
    assert_eq!(found(store, &entry).await, ended);
    assert!(!mark(store, &entry, &resend(9)).await, "Abacus has it");
}

/// Of several workers that have read the same mark one alone sends the usage.
pub async fn a_mark_is_claimed_once_as_it_was_read(store: &Shared) {
    let (_, entry) = skipped(&**store, "a").await;
    assert!(mark(&**store, &entry, &resend(7)).await);
    let claims = (0..4).map(|worker| {
        let (store, entry) = (Arc::clone(store), entry.clone());
        tokio::spawn(async move { claim(&*store, &entry, &resend(7), 100 + worker).await })
    });
    let mut made = 0;
    for claimed in claims.collect::<Vec<_>>() {
        made += u8::from(claimed.await.expect("a claim does not panic"));
    }
    assert_eq!(made, 1);
    let store = &**store;
    assert_eq!(due(store, 99).await, []);
    // Whoever comes once it is due again claims it as it is by then.
    let claimed = due(store, 103).await;
    let read = claimed[0].resend.clone().expect("it is marked");
    assert!((at(100)..=at(103)).contains(&read.due_at));
    assert_eq!((read.act, read.at), (resend(7).act, resend(7).at));
    assert!(!claim(store, &entry, &resend(7), 300).await, "it was moved");
    assert!(claim(store, &entry, &read, 300).await);
    assert_eq!(due(store, 299).await, []);
    let accepted = accept(store, &claimed[0], &acceptance(310)).await;
    assert!(accepted, "the claim leaves the mark and the state");
}

pub async fn what_is_accepted_or_has_another_mark_is_not_claimed(store: &Shared) {
    let store = &**store;
    let (_, entry) = skipped(store, "a").await;
    assert!(!claim(store, &entry, &resend(7), 90).await, "no mark");
    assert!(mark(store, &entry, &resend(7)).await);
    assert!(!claim(store, &entry, &resend(8), 90).await, "another mark");
    let (_, other) = skipped(store, "b").await;
    assert!(!claim(store, &other, &resend(7), 90).await, "another entry");
    let answered = Resend {
        acceptance: Some(acceptance(60)),
        ..resend(9)
    };
    assert!(mark(store, &entry, &answered).await, "the mark gets it");
    let marked = found(store, &entry).await;
    let read = marked.resend.clone().expect("it is marked");
    assert!(
        !claim(store, &entry, &read, 90).await,
        "nothing is to be sent"
    );
    assert!(!claim(store, &entry, &resend(7), 90).await);
    assert_eq!(found(store, &entry).await, marked, "nothing was changed");
}

pub async fn what_was_set_aside_is_accepted_again_and_stays_marked(store: &Shared) {
    let store = &**store;
    let (_, skipped) = skipped(store, "a").await;
    let aside = Entry {
        usage_guid: "set aside".to_owned(),
        state: EntryState::SetAside,
        accepted_at: Some(at(1)),
        set_aside_at: Some(at(2)),
        skipped_at: None,
        error: Some("no such plan".to_owned()),
        ..skipped
    };
    assert_eq!(
        store.write_entry(aside.clone(), DAY).await.unwrap(),
        EntryState::SetAside
    );
    assert!(
        !mark(store, &aside, &resend(7)).await,
        "it is in another state"
    );
    let resend = Resend {
        from: EntryState::SetAside,
        ..resend(7)
    };
    assert!(mark(store, &aside, &resend).await);
    let marked = found(store, &aside).await;
    let answer = Acceptance {
        location: None,
        ..acceptance(60)
    };
    assert!(accept(store, &marked, &answer).await);
    let accepted = found(store, &aside).await;
    assert_eq!(accepted.accepted_at, Some(at(1)));
    assert_eq!(accepted.resent_at, Some(at(60)));
    // The mark leads whoever comes next to the span.
    assert_eq!(accepted.resend.as_ref(), Some(&resend));
    assert_eq!(accepted.location, None);
    assert_eq!(accepted, marked.resent(&answer));
    let states = [1, 2, 59, 60].map(|millis| accepted.as_of(at(millis)));
    let expected = [
        EntryState::Accepted,
        EntryState::SetAside,
        EntryState::SetAside,
        EntryState::Accepted,
    ];
    assert_eq!(states, expected.map(Some));
}

pub async fn a_refused_resend_ends_and_tells_why(store: &Shared) {
    let store = &**store;
    let (_, entry) = skipped(store, "a").await;
    assert!(mark(store, &entry, &resend(7)).await);
    let refusal = LastError {
        at: at(9),
        status: Some(422),
        error: "$no".to_owned(),
    };
    let key = EntryKey::of(&entry);
    for act in [8, 7] {
        store
            .end_resend(&key, Uuid::from_u128(act), Some(&refusal))
            .await
            .unwrap();
    }
    let expected = Entry {
        status: Some(422),
        error: Some("$no".to_owned()),
        ..entry.clone()
    };
    assert_eq!(found(store, &entry).await, expected);
    assert!(
        mark(store, &entry, &resend(9)).await,
        "it can be asked for again"
    );
}

/// A worker learns that Abacus has the usage, while an operator's resend is being refused.
pub async fn an_acceptance_is_added_to_a_mark_and_outlasts_a_refusal(store: &Shared) {
    let store = &**store;
    let (_, entry) = skipped(store, "a").await;
    let learnt = Resend {
        acceptance: Some(acceptance(8)),
        due_at: at(8),
        ..resend(9)
    };
    assert!(mark(store, &entry, &resend(7)).await);
    assert!(mark(store, &entry, &learnt).await);
    assert!(!mark(store, &entry, &learnt).await, "it has one");
    let mark = found(store, &entry).await.resend.expect("it is marked");
    let expected = Resend {
        due_at: at(8),
        acceptance: Some(acceptance(8)),
        ..resend(7)
    };
    assert_eq!(mark, expected);
    let refusal = LastError {
        at: at(9),
        status: Some(422),
        error: "no".to_owned(),
    };
    let (key, act) = (EntryKey::of(&entry), Uuid::from_u128(7));
    for (refusal, is_marked) in [(Some(&refusal), true), (None, false)] {
        store.end_resend(&key, act, refusal).await.unwrap();
        assert_eq!(store.has_resend(&key, act).await.unwrap(), is_marked);
    }
    assert_eq!(found(store, &entry).await.error, entry.error);
    // Another worker's post was accepted before this one hears of the refusal.
    assert!(self::mark(store, &entry, &resend(7)).await);
    let marked = found(store, &entry).await;
    assert!(accept(store, &marked, &acceptance(60)).await);
    store.end_resend(&key, act, Some(&refusal)).await.unwrap();
    assert!(found(store, &entry).await.resend.is_some());
    // Where there is no mark, it is one of its own.
    let (_, other) = skipped(store, "b").await;
    let marked = store.mark_resend(&EntryKey::of(&other), &learnt).await;
    assert_eq!(marked.ok(), Some(true));
    assert_eq!(found(store, &other).await.resend, Some(learnt));
}

/// Once it was sent, it is a usage like any other.
pub async fn what_was_withheld_is_found_by_the_usage_that_it_takes_back(store: &Shared) {
    let store = &**store;
    let (span, entry) = skipped(store, "a").await;
    must_stop(store, None, "a", -HOUR / 4).await;
    let span = Span {
        end: Some(at(-HOUR / 4)),
        ..span
    };
    let planned = plan_to(&span, -HOUR / 4);
    assert_eq!(
        planned.withheld.map(UncountedReason::state),
        Some(entry.state)
    );
    let span = done(store.plan(&span, planned, at(0), at(0)).await);
    assert_eq!(kept(store, "a").await, span);
    assert!(span.plans_to_withhold(entry.interval));
    let withheld = Entry::of_withheld(&span, at(3)).expect("it is planned");
    assert_eq!(
        store.write_entry(withheld.clone(), DAY).await.unwrap(),
        EntryState::Skipped
    );
    let of = async |entry: &Entry| store.withheld_of(entry).await.unwrap();
    assert_eq!(of(&entry).await, std::slice::from_ref(&withheld));
    let another = Entry {
        interval: Interval {
            start: at(-HOUR),
            end: at(-1),
        },
        ..entry.clone()
    };
    assert_eq!(of(&another).await, []);
    for (entry, takes_back) in [(&withheld, true), (&entry, false)] {
        let found = store.takes_back_uncounted(entry).await;
        assert_eq!(found.unwrap(), takes_back);
    }
    assert!(mark(store, &entry, &resend(6)).await);
    let marked = found(store, &entry).await;
    assert!(accept(store, &marked, &acceptance(60)).await);
    assert!(
        !store.takes_back_uncounted(&withheld).await.unwrap(),
        "it counts"
    );
    let mark_of_it = resend(7).of_withheld(&withheld);
    assert!(mark(store, &withheld, &mark_of_it).await);
    let marked = found(store, &withheld).await;
    assert_eq!((marked.withheld, &marked.resend), (true, &Some(mark_of_it)));
    assert!(accept(store, &marked, &acceptance(70)).await);
    assert!(!found(store, &withheld).await.withheld);
    assert_eq!(of(&entry).await, []);
}

/// By a shorter granularity than it was sampled by, one usage is taken back in many pieces.
pub async fn all_that_was_withheld_of_a_usage_is_found(store: &Shared) {
    const PIECES: i64 = 600;
    let store = &**store;
    let (span, entry) = skipped(store, "a").await;
    for number in 0..PIECES {
        let piece = Entry {
            usage_guid: format!("piece {number}"),
            version: span.processing.version + number,
            interval: Interval {
                start: at(-number),
                end: at(-number - 1),
            },
            withheld: true,
            ..entry.clone()
        };
        assert_eq!(
            store.write_entry(piece, DAY).await.unwrap(),
            EntryState::Skipped
        );
    }
    let found = store.withheld_of(&entry).await.unwrap();
    let starts = found.iter().map(|it| it.interval.start);
    let expected: Vec<Timestamp> = (0..PIECES).map(|number| at(-number)).collect();
    assert_eq!(starts.collect::<Vec<Timestamp>>(), expected);
}

/// The entry that is marked goes no sooner than its lifetime after that; the in-between is not lost.
pub async fn an_entry_that_is_sent_again_outlives_its_expiry(store: &Shared) {
    let store = &**store;
    let (span, entry) = skipped(store, "a").await;
    must_stop(store, None, "a", 0).await;
    let span = Span {
        end: Some(at(0)),
        ..span
    };
    let span = made(store, &span, &Change::Complete).await;
    let finished = [finished(&span)];
    store.expire(&finished).await.unwrap();
    // Long after what a test runs for.
    let later = Resend {
        at: Timestamp::clamped(4_000_000_000_000),
        ..resend(7)
    };
    assert!(mark(store, &entry, &later).await);
    store.expire(&finished).await.unwrap();
    assert_eq!(store.remove(&finished).await.ok(), Some(1));
    let marked = found(store, &entry).await;
    assert!(accept(store, &marked, &acceptance(60)).await);
    assert_eq!(found(store, &entry).await.state, EntryState::Accepted);
}

/// It is listed, and not in the ledger: before the refusal that suspends its span, and once that resumed.
pub async fn a_refused_usage_is_known_by_its_id_while_it_is_planned(store: &Shared) {
    let store: &dyn Store = store.as_ref();
    let is_refused = async |span: &Span| {
        let planned = span.processing.planned.as_ref().expect("it is planned");
        let is_refused = store.is_refused(&planned.usage_guid).await;
        is_refused.unwrap()
    };
    let span = started(store, "a", "i", 0).await;
    let planned = plan_to(&span, 60);
    let guid = planned.usage_guid.clone();
    let span = done(store.plan(&span, planned, at(60), at(60)).await);
    assert!(!is_refused(&span).await, "it is planned");
    let unanswered = failure("no answer", at(61));
    let span = done(store.failed(&span, unanswered).await);
    assert!(!is_refused(&span).await, "nobody has refused it");
    let span = done(store.failed(&span, refusal("no mapping", 62, at(63))).await);
    assert_eq!(span.processing.suspended, None);
    assert!(is_refused(&span).await);
    let span = done(store.failed(&span, last_refusal("no mapping", 63)).await);
    assert!(span.processing.suspended.is_some());
    assert!(is_refused(&span).await);
    let due_at = at(64);
    let suspension = span.processing.suspended.expect("it is suspended");
    let span = made(store, &span, &Change::Resume { suspension, due_at }).await;
    assert!(is_refused(&span).await, "until it has another answer");
    done(store.executed(&span, Next::Wait, at(120), at(120)).await);
    assert!(!store.is_refused(&guid).await.unwrap(), "it is accepted");
}
