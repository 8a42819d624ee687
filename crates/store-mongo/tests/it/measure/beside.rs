//! What starts, changes and stops cost the server, beside the statements of an earlier release.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use sampler_domain::{Change, Next, Planned, Span};
use sampler_store::contract::support::at;
use sampler_store::{Events, NewSpan, NewStop};
use sampler_testkit::mongod::{Options, ReplicaSet};

use super::{BATCH, HOUR, SPANS, World, change, plan, spent, start, stop, world};
use crate::before::Before;

/// Processor time of the server for each kind of command, by turns with that of another kind.
#[derive(Debug, Default)]
struct Costs(BTreeMap<&'static str, (u64, usize)>);

impl Costs {
    /// Does something with a batch, and counts what it cost.
    async fn count<F: Future>(&mut self, pid: i32, what: &'static str, act: F) {
        let before = spent(pid);
        act.await;
        let (micros, items) = self.0.entry(what).or_default();
        *micros += spent(pid) - before;
        *items += usize::try_from(BATCH).expect("few");
    }

    fn print(&self) {
        for (what, (micros, items)) in &self.0 {
            println!("{what}: {:.1} µs", *micros as f64 / *items as f64);
        }
    }
}

/// Starts, changes and stops as an earlier release made them, and as they are made now, batch by
/// batch in turn: what else the machine does has the same share in both.
#[tokio::test]
#[ignore = "it measures, and takes its time"]
async fn measure_beside_what_it_cost_before() {
    let set = ReplicaSet::start(Options {
        test_commands: false,
        cache_gb: 2.0,
        ..Options::single()
    });
    let set = set.await.unwrap();
    let world = world(&set).await;
    let (store, pid) = (&world.store, world.pid);
    let before = Before::new(world.client.database("before")).await;
    let mut costs = Costs::default();
    let mut spans: Vec<NewSpan> = Vec::new();
    for (round, [search, insert, start_now, insert_now, stop_before, stop_now]) in [
        [
            "1 search, before",
            "1 insert, before",
            "1 start, now",
            "1 insert, now",
            "1 stop, before",
            "1 stop, now",
        ],
        [
            "2 search, before",
            "2 insert, before",
            "2 start, now",
            "2 insert, now",
            "2 stop, before",
            "2 stop, now",
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let round = round as u64;
        for batch in 0..SPANS / BATCH {
            let numbers = || batch * BATCH..(batch + 1) * BATCH;
            let mut starts: Vec<NewSpan> = numbers().map(|number| start(number, round)).collect();
            costs.count(pid, search, before.search(&starts)).await;
            costs.count(pid, insert, before.insert(&starts)).await;
            // Every other batch without a search.
            let is_insert_alone = batch % 2 == 1;
            for new in &mut starts {
                new.may_overlap = is_insert_alone;
            }
            let what = if is_insert_alone {
                insert_now
            } else {
                start_now
            };
            let all = join_all(starts.iter().map(|new| store.start(new.clone())));
            costs.count(pid, what, all).await;
            if round == 0 {
                spans.extend(starts);
            }
        }
        if round == 0 {
            changes_beside(&world, &before, &spans, &mut costs).await;
        }
        for batch in 0..SPANS / BATCH {
            let numbers = batch * BATCH..(batch + 1) * BATCH;
            let stops: Vec<NewStop> = numbers.map(|number| stop(number, round)).collect();
            costs.count(pid, stop_before, before.stop(&stops)).await;
            let all = join_all(stops.into_iter().map(|new| store.stop(new)));
            costs.count(pid, stop_now, all).await;
        }
        world.room("now").await;
        world.room_of("before", "before").await;
    }
    costs.print();
}

/// A plan and an execution for each span.
async fn changes_beside(world: &World, before: &Before, spans: &[NewSpan], costs: &mut Costs) {
    let (store, pid) = (&world.store, world.pid);
    for batch in spans.chunks(usize::try_from(BATCH).expect("few")) {
        let planned = |new: &NewSpan| {
            let span = new.span.clone();
            let Change::Plan { planned, .. } = plan(&span) else {
                unreachable!("it is a plan")
            };
            (span, planned)
        };
        let planned: Vec<(Span, Planned)> = batch.iter().map(planned).collect();
        costs
            .count(pid, "plan, before", before.plan(&planned))
            .await;
        let all = planned
            .iter()
            .map(|(span, _)| change(store, span, plan(span)));
        costs.count(pid, "plan, now", join_all(all)).await;
        costs
            .count(pid, "execution, before", before.executed(&planned))
            .await;
        let all = planned.iter().map(async |(span, _)| {
            let executed = Change::Executed {
                next: Next::Wait,
                due_at: at(HOUR),
            };
            change(store, &span.after(&plan(span)), executed).await;
        });
        costs.count(pid, "execution, now", join_all(all)).await;
    }
}
