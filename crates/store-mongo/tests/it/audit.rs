//! The audit trail.

use sampler_domain::ClientId;
use sampler_store::{ActOutcome, AuditPosition, AuditQuery, AuditRecord, Operating, Reading};
use serde_json::json;
use uuid::Uuid;

use sampler_store_testing::support::{Store, at};

use crate::support::store_and_spans;

fn record(number: u128, who: Option<&str>, span: Option<&str>, millis: i64) -> AuditRecord {
    AuditRecord {
        id: Uuid::from_u128(number),
        at: at(millis),
        who: who.and_then(ClientId::new),
        act: "span.resume".to_owned(),
        subject: "/v1/spans/1".to_owned(),
        span: span.map(str::to_owned),
        reason: "The plan has its mapping \u{1f4b6}.".to_owned(),
        before: json!({ "state": "suspended", "$a.b": [1, 2.5, null, i64::MAX] }),
        after: json!(null),
        outcome: ActOutcome::Asked,
    }
}

fn query() -> AuditQuery {
    AuditQuery {
        limit: 100,
        ..AuditQuery::default()
    }
}

async fn keep(store: &dyn Store, record: &AuditRecord) {
    store.record_action(record).await.unwrap();
}

async fn listed(store: &dyn Store, query: &AuditQuery) -> (Vec<u128>, Option<AuditPosition>) {
    let page = store.audit(query).await.unwrap();
    let numbers = page.records.iter().map(|record| record.id.as_u128());
    (numbers.collect(), page.next)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_act_is_kept_as_it_was_asked_for_and_how_it_ended() {
    let (store, _) = store_and_spans("audit").await;
    let store = &store;
    let mut kept = record(1, Some("operator"), Some("1"), 0);
    keep(store, &kept).await;
    let mut anybody = record(2, None, None, 1);
    keep(store, &anybody).await;
    let all = store.audit(&query()).await.unwrap();
    assert_eq!(all.records, [anybody.clone(), kept.clone()]);
    // A record that is written again after a lost answer changes nothing.
    store
        .record_outcome(kept.id, ActOutcome::Done)
        .await
        .unwrap();
    keep(store, &kept).await;
    store
        .record_outcome(Uuid::from_u128(9), ActOutcome::Refused)
        .await
        .unwrap();
    for outcome in ActOutcome::ALL {
        store.record_outcome(anybody.id, outcome).await.unwrap();
        anybody.outcome = outcome;
        kept.outcome = ActOutcome::Done;
        let all = store.audit(&query()).await.unwrap();
        assert_eq!(all.records, [anybody.clone(), kept.clone()]);
        assert_eq!(all.next, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_holds_what_its_query_asks_for() {
    let (store, _) = store_and_spans("audit").await;
    let store = &store;
    for (number, who, span, millis) in [
        (1, Some("a"), Some("1"), 1),
        (2, Some("b"), Some("1"), 2),
        (3, Some("a"), Some("2"), 3),
        (4, None, None, 3),
        (5, Some("a"), None, 4),
    ] {
        keep(store, &record(number, who, span, millis)).await;
    }
    let who = |name: &str| ClientId::new(name);
    let of_a = AuditQuery {
        who: who("a"),
        ..query()
    };
    let of_first = AuditQuery {
        span: Some("1".to_owned()),
        ..query()
    };
    let both = AuditQuery {
        who: who("a"),
        ..of_first.clone()
    };
    let between = AuditQuery {
        from: Some(at(2)),
        to: Some(at(4)),
        ..query()
    };
    let nothing = AuditQuery {
        who: who("A"),
        ..query()
    };
    for (query, expected) in [
        (query(), &[5, 4, 3, 2, 1][..]),
        (of_a.clone(), &[5, 3, 1]),
        (of_first, &[2, 1]),
        (both, &[1]),
        (between, &[4, 3, 2]),
        (
            AuditQuery {
                from: Some(at(4)),
                ..of_a
            },
            &[5],
        ),
        (nothing, &[]),
    ] {
        assert_eq!(
            listed(store, &query).await,
            (expected.to_vec(), None),
            "{query:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trail_goes_on_while_acts_come() {
    let (store, _) = store_and_spans("audit").await;
    let store = &store;
    let of_both = |number: u128, millis| record(number, Some("a"), Some("1"), millis);
    // Two of them at a moment.
    for (number, millis) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        keep(store, &of_both(number, millis)).await;
    }
    let who = ClientId::new("a");
    let span = Some("1".to_owned());
    for (number, first) in [
        (6, query()),
        (7, AuditQuery { who, ..query() }),
        (8, AuditQuery { span, ..query() }),
    ] {
        let mut query = AuditQuery {
            to: Some(at(3)),
            limit: 2,
            ..first
        };
        let (one, next) = listed(store, &query).await;
        assert_eq!(one, [5, 4]);
        keep(store, &of_both(number, 3)).await;
        query.after = next;
        query.to = None;
        let (two, next) = listed(store, &query).await;
        assert_eq!(two, [3, 2]);
        query.after = next;
        assert_eq!(listed(store, &query).await, (vec![1], None));
    }
}
