//! The audit trail.

use sampler_domain::ClientId;
use sampler_store::{ActOutcome, AuditPosition, AuditQuery, AuditRecord};
use serde_json::json;
use uuid::Uuid;

use crate::support::{Shared, Store, at};

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

/// Acts of this client on this span, up to a hundred.
fn query(who: Option<&str>, span: Option<&str>) -> AuditQuery {
    AuditQuery {
        who: who.and_then(ClientId::new),
        span: span.map(str::to_owned),
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

pub async fn an_act_is_kept_as_it_was_asked_for_and_how_it_ended(store: &Shared) {
    let store = &**store;
    let mut kept = record(1, Some("operator"), Some("1"), 0);
    let mut anybody = record(2, None, None, 1);
    keep(store, &kept).await;
    keep(store, &anybody).await;
    let all = async || store.audit(&query(None, None)).await.unwrap().records;
    assert_eq!(all().await, [anybody.clone(), kept.clone()]);
    let end = async |id, outcome| store.record_outcome(id, outcome).await.unwrap();
    end(kept.id, ActOutcome::Done).await;
    // A record that is written again after a lost answer changes nothing.
    keep(store, &kept).await;
    end(Uuid::from_u128(9), ActOutcome::Refused).await;
    kept.outcome = ActOutcome::Done;
    for outcome in ActOutcome::ALL {
        end(anybody.id, outcome).await;
        anybody.outcome = outcome;
        assert_eq!(all().await, [anybody.clone(), kept.clone()]);
    }
}

pub async fn the_trail_holds_what_its_query_asks_for(store: &Shared) {
    let store = &**store;
    for (number, who, span, millis) in [
        (1, Some("a"), Some("1"), 1),
        (2, Some("b"), Some("1"), 2),
        (3, Some("a"), Some("2"), 3),
        (4, None, None, 3),
        (5, Some("a"), None, 4),
    ] {
        keep(store, &record(number, who, span, millis)).await;
    }
    let between = |who, from, to: Option<i64>| AuditQuery {
        from: Some(at(from)),
        to: to.map(at),
        ..query(who, None)
    };
    for (query, expected) in [
        (query(None, None), &[5, 4, 3, 2, 1][..]),
        (query(Some("a"), None), &[5, 3, 1]),
        (query(None, Some("1")), &[2, 1]),
        (query(Some("a"), Some("1")), &[1]),
        (query(Some("A"), None), &[]),
        (between(None, 2, Some(4)), &[4, 3, 2]),
        (between(Some("a"), 4, None), &[5]),
    ] {
        let all = (expected.to_vec(), None);
        assert_eq!(listed(store, &query).await, all, "{query:?}");
    }
}

pub async fn the_trail_goes_on_while_acts_come(store: &Shared) {
    let store = &**store;
    let of_both = |number: u128, millis| record(number, Some("a"), Some("1"), millis);
    // Two of them at a moment.
    for (number, millis) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)] {
        keep(store, &of_both(number, millis)).await;
    }
    for (number, all) in [
        (6, query(None, None)),
        (7, query(Some("a"), None)),
        (8, query(None, Some("1"))),
    ] {
        let mut query = AuditQuery {
            to: Some(at(3)),
            limit: 2,
            ..all
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
