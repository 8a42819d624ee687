//! Whatever is changed in whatever order: each store makes of a span what [`Span::after`] says.

use sampler_domain::{
    Change, Changed, Failure, Interval, Next, Resent, Skip, Span, Suspension, UncountedReason,
};
use uuid::Uuid;

use crate::support::{
    Shared, Store, at, failure, kept, last_refusal, must_stop, plan_to, refusal, started,
};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// Spans that are led through changes, and changes of each at the most.
const SPANS: usize = 48;
const CHANGES_MAX: u64 = 16;

/// What is done with a span: which change (or a stop), how long its interval is and when it is due,
/// and how many states ago the span was read.
type Deed = (u8, i64, usize);

pub async fn every_change_makes_what_after_says(store: &Shared) {
    // Not a crate for property tests: what this one depends on must not get into what ships.
    let mut state = 0;
    for number in 0..SPANS {
        let length = 1 + draw(&mut state) % CHANGES_MAX;
        let course = (0..length).map(|_| deed(&mut state)).collect();
        lead(&**store, &number.to_string(), course).await;
    }
}

fn deed(state: &mut u64) -> Deed {
    let kind = u8::try_from(draw(state) % 256).expect("below 256");
    let day = u64::try_from(DAY).expect("positive");
    let millis = i64::try_from(draw(state) % (2 * day)).expect("below two days");
    let age = usize::try_from(draw(state) % 3).expect("below 3");
    (kind, millis - DAY, age)
}

/// The next number of a fixed row (splitmix64).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = *state;
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Leads one span through a course, and compares it with what is expected after each deed.
async fn lead(store: &dyn Store, name: &str, course: Vec<Deed>) {
    let mut states = vec![started(store, name, name, -DAY).await];
    let mut due_at = at(-DAY);
    for (kind, millis, age) in course {
        let now = states.last().expect("it was started").clone();
        if kind % 8 == 7 && now.end.is_none() {
            must_stop(store, None, name, millis).await;
            due_at = due_at.min(at(millis));
            states.push(kept(store, name).await);
            continue;
        }
        let read = states[states.len().saturating_sub(age + 1)].clone();
        let change = change(&read, kind, millis);
        let expected = if change.is_allowed(&read, &now) {
            states.push(now.after(&change));
            due_at = change.due_at().unwrap_or(due_at);
            Changed::Made
        } else {
            Changed::Rejected
        };
        assert_eq!(
            store.change(&read, &change, at(0)).await.unwrap(),
            expected,
            "{change:?}"
        );
        let kept = kept(store, name).await;
        assert_eq!(Some(&kept), states.last(), "{change:?}");
        let listed = store.span(&kept.id.to_string(), None).await.unwrap();
        let kept_due_at = listed.expect("it is there").due_at;
        assert_eq!(kept_due_at, Some(due_at), "{change:?}");
    }
}

/// A change that a worker could decide on which has read this.
fn change(read: &Span, kind: u8, millis: i64) -> Change {
    let due_at = at(millis);
    let failure = match millis % 3 {
        0 => Failure {
            unanswered: millis % 2 == 0,
            ..failure("full", due_at)
        },
        1 => refusal("no mapping", millis, due_at),
        _ => last_refusal("no mapping", millis),
    };
    if let Some(suspension) = read.processing.suspended {
        match kind % 4 {
            0 => return Change::KeepSuspended { suspension },
            1 => return Change::Resume { suspension, due_at },
            2 => return skip(read, suspension, millis),
            _ => {}
        }
    }
    match kind % 16 {
        9 => return resent(read, millis),
        5 | 13 => return set_aside(read, millis),
        7 if read.processing.planned.is_some() => {
            return Change::NotFound {
                posts_end_by: due_at,
            };
        }
        _ => {}
    }
    match (&read.processing.planned, kind % 5) {
        (_, 0) => Change::Postpone { due_at },
        (None, 1) => Change::Complete,
        (None, _) => Change::Plan {
            planned: plan_to(read, millis),
            due_at,
        },
        (Some(_), 1) => Change::failed(read, failure),
        (Some(_), 2) if read.to_be_skipped().is_some() => Change::Skipped {
            next: Next::Planned(plan_to(&read.skipped(), millis)),
            due_at,
        },
        (Some(_), following) => Change::Executed {
            next: match following {
                2 => Next::Wait,
                3 => Next::Complete,
                _ => Next::Planned(plan_to(&read.executed(), millis)),
            },
            due_at,
        },
    }
}

/// Abacus has set aside the usage of the last interval, or of another one.
fn set_aside(read: &Span, millis: i64) -> Change {
    let last = read.processing.last;
    Change::SetAside {
        interval: if millis % 4 == 0 {
            interval_to(millis)
        } else {
            last
        },
    }
}

fn interval_to(millis: i64) -> Interval {
    Interval {
        start: at(0),
        end: at(millis),
    }
}

/// What did not count is billed after all: also of a span that is complete.
fn resent(read: &Span, millis: i64) -> Change {
    let number = millis.unsigned_abs();
    let known = &read.processing.uncounted;
    let index = usize::try_from(number).unwrap_or(0) % known.len().max(1);
    let reason = UncountedReason::Skipped { unanswered: false };
    let (interval, reason) = known
        .get(index)
        .map_or((interval_to(millis), reason), |it| (it.interval, it.reason));
    Change::Resent {
        resent: Resent {
            usage_guid: format!("usage {number}"),
            act: Uuid::from_u128(number.into()),
        },
        interval,
        reason,
    }
}

fn skip(read: &Span, suspension: Suspension, millis: i64) -> Change {
    let planned = read.processing.planned.as_ref();
    let usage_guid = planned.map(|planned| planned.usage_guid.clone());
    Change::RequestSkip {
        skip: Skip {
            usage_guid: usage_guid.expect("it was refused"),
            at: at(millis),
            not_before: at(millis),
            act: Uuid::from_u128(millis.unsigned_abs().into()),
        },
        suspension,
        due_at: at(millis),
    }
}
