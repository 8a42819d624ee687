//! Every search goes by an index: a server may forbid scans of a collection (`notablescan`).

use sampler_domain::{Cause, ClosingMonth, Control};
use sampler_store::{
    AuditQuery, Backlog, BacklogQuery, CauseQuery, Causes, Operating, Reading, Work,
};
use sampler_store_testing::support::{at, due, must_start, must_stop, target};

use crate::original::policy;
use crate::profile::{Command, commands};
use crate::support::{database_of, store_and_spans};

const DAY: i64 = 24 * 3_600_000;

#[tokio::test(flavor = "multi_thread")]
async fn no_search_scans_a_collection() {
    let (store, spans) = store_and_spans("scans").await;
    let database = database_of(&spans);
    commands(&database).await;
    let cause = Cause {
        status: Some(400),
        error: "no plan".to_owned(),
        resource_id: target("a").resource_id,
        plan_id: target("a").plan_id,
    };
    // What is there the first time is searched the second time.
    for name in ["a", "b"] {
        must_start(&store, Some(name), name, -DAY).await;
        must_stop(&store, None, name, 0).await;
        due(&store, 0).await;
        store.completed_before(at(0), 10).await.unwrap();
        store.has_format().await.unwrap();
        store.take_over(&policy(), at(0)).await.unwrap();
        store.heartbeat(name).await.unwrap();
        store.report_rate(name, 1.0).await.unwrap();
        store.limit_event_age(DAY).await.unwrap();
        store.events_taken_since().await.unwrap();
        let version = store.control().await.unwrap().version;
        let control = Control::default();
        assert!(store.set_control(&control, version).await.unwrap());
        store.controller().await.unwrap();
        let query = BacklogQuery {
            now: at(0),
            closing: ClosingMonth::at(at(0), 40 * DAY, 0),
        };
        store.count_backlog(&query).await.unwrap();
        store.publish_backlog(&Backlog::default()).await.unwrap();
        store.published_backlog().await.unwrap();
        store.register(&cause, at(0), at(0)).await.unwrap();
        store.register_missing(at(0), at(0)).await.unwrap();
        store.due_causes(at(0), 10).await.unwrap();
        store
            .claim_probe(&store.due_causes(at(0), 1).await.unwrap()[0], at(0))
            .await
            .unwrap();
        let asked = CauseQuery {
            of_each: 10,
            limit: 10,
            ..CauseQuery::default()
        };
        store.causes(&asked).await.unwrap();
        store.cause(cause.id()).await.unwrap();
        let audit = AuditQuery {
            limit: 10,
            ..AuditQuery::default()
        };
        store.audit(&audit).await.unwrap();
    }
    store.leave("a").await.unwrap();
    let examined = commands(&database).await;
    assert!(examined.len() > 40, "{}", examined.len());
    let is_scan = |command: &&Command| command.plan.contains("COLLSCAN");
    let found: Vec<_> = examined.iter().filter(is_scan).collect();
    assert!(found.is_empty(), "{found:?}");
}
