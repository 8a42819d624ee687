//! The acts of operators on spans.

use sampler_domain::{Change, Changed, SKIP_DELAY, Skip, Span};
use uuid::Uuid;

use crate::support::{Changing, Shared, Store, at, done, kept, last_refusal, plan_to, started};

/// A span that is suspended.
async fn suspended(store: &dyn Store, name: &str) -> Span {
    let span = started(store, name, name, 0).await;
    let plan = plan_to(&span, 1_000);
    let span = done(store.plan(&span, plan, at(1), at(1_000)).await);
    done(store.failed(&span, last_refusal("no mapping", 2)).await)
}

fn resume(span: &Span) -> Change {
    let suspension = span.processing.suspended.expect("it is suspended");
    let due_at = suspension.since;
    Change::Resume { suspension, due_at }
}

fn skip(span: &Span, act: Uuid) -> Change {
    let suspension = span.processing.suspended.expect("it is suspended");
    let planned = span.processing.planned.as_ref();
    let not_before = suspension.since.plus(SKIP_DELAY);
    Change::RequestSkip {
        skip: Skip {
            usage_guid: planned.expect("it is planned").usage_guid.clone(),
            at: at(3),
            not_before,
            act,
        },
        suspension,
        due_at: not_before,
    }
}

/// The answer to an act may be lost. It is asked for again, with its id, when a worker has changed the
/// span already.
pub async fn an_act_that_was_done_is_told_as_done_whatever_came_since(store: &Shared) {
    let store = &**store;
    for name in ["resume", "skip"] {
        let [act, another] = [1, 2].map(|number| Uuid::from_u64_pair(number, name.len() as u64));
        let read = suspended(store, name).await;
        let change = |act| match name {
            "resume" => resume(&read),
            _ => skip(&read, act),
        };
        let ask = async |act| {
            let change = change(act);
            store
                .change_by_operator(act, &read, &change, at(3))
                .await
                .unwrap()
        };
        assert_eq!(ask(act).await, Changed::Made, "{name}");
        let done_once = kept(store, name).await;
        // The span stays as it is, also for an act that has seen it as the first one has.
        for _ in 0..2 {
            assert_eq!(ask(act).await, Changed::Made, "{name}");
            assert_eq!(ask(another).await, Changed::Rejected, "{name}");
            assert_eq!(kept(store, name).await, done_once);
        }
        // Abacus refuses it again, and it is suspended again.
        let again = last_refusal("no mapping", 9);
        let since = done(store.failed(&done_once, again).await);
        assert_eq!(ask(act).await, Changed::Made, "{name}");
        assert_eq!(ask(another).await, Changed::Rejected, "{name}");
        assert_eq!(kept(store, name).await, since);
        // Another operator acts on that.
        let third = Uuid::from_u64_pair(3, name.len() as u64);
        let resume = resume(&since);
        assert_eq!(
            store
                .change_by_operator(third, &since, &resume, at(10))
                .await
                .unwrap(),
            Changed::Made
        );
        assert_eq!(ask(act).await, Changed::Made, "{name}");
        assert_eq!(ask(another).await, Changed::Rejected, "{name}");
    }
}
