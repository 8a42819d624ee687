//! Whatever is changed in whatever order: each store makes of a span what [`Span::after`] says.

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sampler_domain::{Change, Changed, Failure, Next, Span};

use super::support::{Shared, Store, at, kept, plan_to, started, stop};
use crate::Stopped;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// Spans that are led through changes, and changes of each at the most.
const SPANS: usize = 24;
const CHANGES_MAX: usize = 16;

/// What is done with a span: which change (or a stop), how long its interval is and when it is due,
/// and how many states ago the span was read.
type Deed = (u8, i64, usize);

pub async fn every_change_makes_what_after_says(store: &Shared) {
    let mut runner = TestRunner::deterministic();
    let deed = (any::<u8>(), -DAY..DAY, 0..3_usize);
    let course = vec(deed, 1..CHANGES_MAX);
    for number in 0..SPANS {
        let course = course.new_tree(&mut runner).expect("a course");
        lead(&**store, &number.to_string(), course.current()).await;
    }
}

/// Leads one span through a course, and compares it with what is expected after each deed.
async fn lead(store: &dyn Store, name: &str, course: Vec<Deed>) {
    let mut states = vec![started(store, name, name, -DAY).await];
    for (kind, millis, age) in course {
        let now = states.last().expect("it was started").clone();
        if kind % 8 == 7 && now.end.is_none() {
            assert_eq!(stop(store, None, name, millis).await, Stopped::Ended);
            states.push(kept(store, name).await);
            continue;
        }
        let read = states[states.len().saturating_sub(age + 1)].clone();
        let change = change(&read, kind, millis);
        let expected = if read.admits_change_of(&now) {
            states.push(now.after(&change));
            Changed::Made
        } else {
            Changed::Lost
        };
        let changed = store.change(&read, &change, at(0)).await;
        assert_eq!(changed.expect("the store answers"), expected, "{change:?}");
        let kept = kept(store, name).await;
        assert_eq!(Some(&kept), states.last(), "{change:?}");
    }
}

/// A change that a worker could decide on which has read this.
fn change(read: &Span, kind: u8, millis: i64) -> Change {
    let due_at = at(millis);
    let failure = Failure {
        at: at(0),
        retry_at: due_at,
        error: "full".into(),
    };
    match (&read.processing.planned, kind % 5) {
        (_, 0) => Change::Postpone { due_at },
        (None, 1) => Change::Complete,
        (None, _) => Change::Plan {
            planned: plan_to(read, millis),
            due_at,
        },
        (Some(_), 1) => Change::Failed {
            failure,
            attempts: read.processing.attempts + 1,
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
