//! What counting the backlog costs, and how exact it is with very many spans.

use bson::{Bson, Document, doc};
use mongodb::Collection;
use sampler_domain::{Granularities, Granularity};
use sampler_store::{BacklogQuery, Operating};
use sampler_store_testing::support::at;

use crate::explain::{examined, fill};
use crate::support::store_and_spans;

const HOUR: i64 = 3_600_000;
const SPANS: u32 = 1_000_000;

/// Makes all spans due that [`fill`] has made: open, and sampled to an hour or two ago.
async fn make_all_due(spans: &Collection<Document>) {
    let now = at(0).as_millis();
    // The partition is the number modulo 64: what it is sampled to must not follow from that.
    let hours = doc! { "$add": [1, { "$mod": [{ "$floor": { "$divide": [{ "$toInt": "$_id" }, 64] } }, 2] }] };
    let sampled_to = doc! { "$subtract": [Bson::Int64(now), { "$multiply": [hours, HOUR] }] };
    let pipeline = vec![
        doc! { "$set": {
            "end": Bson::Null,
            "processing.complete": false,
            "processing.last_interval.end": sampled_to,
            "processing.due_at": Bson::Int64(now - HOUR),
        } },
        doc! { "$out": "spans" },
    ];
    spans.aggregate(pipeline).await.unwrap();
}

/// Keys and documents that were examined since this was asked last.
async fn cost(spans: &Collection<Document>) -> (i64, i64) {
    let commands = examined(spans).await.into_iter();
    commands.fold((0, 0), |(keys, documents), command| {
        (keys + command.0, documents + command.1)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_idle_spans_cost_nothing_and_a_million_due_ones_little() {
    let (store, spans) = store_and_spans("backlog_million").await;
    fill(&store, &spans).await;
    let query = BacklogQuery {
        now: at(0),
        closing: None,
        granularities: Granularities::all(Granularity::Hour),
    };
    examined(&spans).await;
    assert_eq!(store.count_backlog(&query).await.unwrap().due, 0);
    let (keys, documents) = cost(&spans).await;
    assert!(
        keys <= 300 && documents == 0,
        "{keys} keys, {documents} documents"
    );

    spans.drop_indexes().await.unwrap();
    make_all_due(&spans).await;
    store.migrate().await.unwrap();
    examined(&spans).await;
    let began = std::time::Instant::now();
    let counted = store.count_backlog(&query).await.unwrap();
    println!("counted in {} ms", began.elapsed().as_millis());
    let (keys, documents) = cost(&spans).await;
    // Of one partition, which holds some 15,600.
    assert!(
        keys <= 20_000 && documents <= 20_000,
        "{keys} keys, {documents} documents"
    );
    let share = counted.due as f64 / f64::from(SPANS);
    assert!((0.98..1.02).contains(&share), "{}", counted.due);
    assert_eq!(counted.oldest, Some(at(-HOUR)));
    let hours = |number: f64| number / HOUR as f64;
    let sampled = hours(counted.span_millis as f64) / counted.due as f64;
    assert!((1.4..1.6).contains(&sampled), "{sampled}");
    let intervals = counted.intervals as f64 / counted.due as f64;
    assert!((1.4..1.6).contains(&intervals), "{intervals}");
}
