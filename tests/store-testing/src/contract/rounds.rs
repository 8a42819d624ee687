//! Usages that Abacus sets aside and accepts again, more than once: what the ledger said stays.

use sampler_domain::{Cause, EARLIER_ROUNDS_MAX, Entry, EntryState, Resend, Round};
use sampler_store::{Confirmation, EntryKey, Unconfirmed};
use uuid::Uuid;

use crate::support::{Shared, Store, acceptance, at, must_plan, question, started};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

const LOCATION: Option<&str> = Some("https://abacus/usage/1");

/// Abacus is to be asked for it.
fn to_be_asked_for(entry: Entry) -> Entry {
    let question = Some(question(DAY, 2 * DAY));
    Entry { question, ..entry }
}

/// An entry of an instance's usage, accepted at 10.
async fn accepted(store: &dyn Store) -> Entry {
    let span = started(store, "a", "a", -DAY).await;
    let span = must_plan(store, &span, -HOUR).await;
    let entry = Entry::of_accepted(&span, acceptance(10, LOCATION)).expect("it is planned");
    to_be_asked_for(entry)
}

async fn written(store: &dyn Store, entry: &Entry) {
    let written = store.write_entry(entry.clone(), DAY).await;
    assert_eq!(written.ok(), Some(EntryState::Accepted));
}

async fn kept(store: &dyn Store, entry: &Entry) -> Entry {
    store
        .usage(&entry.usage_guid)
        .await
        .unwrap()
        .expect("it is there")
}

async fn confirm(store: &dyn Store, entry: &Entry, confirmation: Confirmation) {
    let read = kept(store, entry).await;
    let read = Unconfirmed::of(&read).expect("it is to be asked for");
    assert_eq!(store.confirm(&[(read, confirmation)]).await.unwrap(), 1);
}

async fn set_aside(store: &dyn Store, entry: &Entry, millis: i64) {
    let cause = Cause {
        status: None,
        error: "no plan".to_owned(),
        resource_id: entry.target.resource_id.clone(),
        plan_id: entry.target.plan_id.clone(),
    };
    store.register(&cause, at(0), at(HOUR)).await.unwrap();
    let confirmation = Confirmation::SetAside {
        at: at(millis),
        error: cause.error.clone(),
        cause: cause.id(),
    };
    confirm(store, entry, confirmation).await;
}

async fn send_again(store: &dyn Store, entry: &Entry, millis: i64) {
    let resend = Resend {
        act: Uuid::from_u128(7),
        from: EntryState::SetAside,
        at: at(millis - 1),
        due_at: at(millis - 1),
        acceptance: None,
    };
    let marked = store.mark_resend(&EntryKey::of(entry), &resend).await;
    assert_eq!(marked.ok(), Some(true));
    let read = to_be_asked_for(kept(store, entry).await);
    let accepted = store
        .accept_resent(&read, &acceptance(millis, LOCATION))
        .await;
    assert_eq!(accepted.ok(), Some(true));
    let key = EntryKey::of(entry);
    store.end_resend(&key, resend.act, None).await.unwrap();
}

pub async fn what_the_ledger_said_stays_when_a_usage_is_put_aside_again(store: &Shared) {
    let store = &**store;
    let entry = accepted(store).await;
    written(store, &entry).await;
    let mut answers = Vec::new();
    for millis in [10, 20, 30, 40, 50, 60, 70, 80] {
        let state = match millis {
            10 => EntryState::Accepted,
            80 => {
                let confirmation = Confirmation::Counted { at: at(millis) };
                confirm(store, &entry, confirmation).await;
                EntryState::Counted
            }
            20 | 40 | 60 => {
                set_aside(store, &entry, millis).await;
                EntryState::SetAside
            }
            _ => {
                send_again(store, &entry, millis).await;
                EntryState::Accepted
            }
        };
        answers.extend([millis, millis + 9].map(|as_of| (as_of, Some(state))));
        for (as_of, answer) in &answers {
            let now = kept(store, &entry).await.as_of(at(*as_of));
            assert_eq!(now, *answer, "as of {as_of}, asked at {millis}");
        }
    }
    let rounds = [(20, 30), (40, 50)].map(round);
    assert_eq!(kept(store, &entry).await.earlier_rounds, rounds);
}

fn round((set_aside, resent): (i64, i64)) -> Round {
    Round {
        set_aside_at: Some(at(set_aside)),
        resent_at: Some(at(resent)),
    }
}

pub async fn an_entry_keeps_its_last_rounds(store: &Shared) {
    let store = &**store;
    let first = 20..20 + i64::try_from(EARLIER_ROUNDS_MAX).expect("few");
    let entry = Entry {
        earlier_rounds: first.map(|millis| round((millis, millis))).collect(),
        set_aside_at: Some(at(500)),
        resent_at: Some(at(510)),
        ..accepted(store).await
    };
    written(store, &entry).await;
    assert_eq!(kept(store, &entry).await, entry);
    set_aside(store, &entry, 520).await;
    let after = kept(store, &entry).await;
    let mut expected = entry.earlier_rounds[1..].to_vec();
    expected.push(round((500, 510)));
    assert_eq!(after.earlier_rounds, expected);
    assert_eq!(after, entry.set_aside(at(520), "no plan"));
}
