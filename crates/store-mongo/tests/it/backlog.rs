//! What counting the backlog costs, and how exact it is with very many spans.

use bson::Document;
use mongodb::Collection;
use sampler_domain::{Granularities, Granularity};
use sampler_store::{BacklogQuery, Operating};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::at;

use crate::explain::{HOUR, IDLE, NEXT_YEAR};
use crate::profile::{cost, examined};

/// Idle spans cost nothing. When they fall due, all at once, those of one partition are read, and the
/// others are estimated from them.
pub(crate) async fn a_count_reads_a_part_of_what_is_due(
    store: &MongoStore,
    spans: &Collection<Document>,
) {
    let at_the_time = |now| BacklogQuery {
        now,
        closing: None,
        granularities: Granularities::all(Granularity::Hour),
    };
    examined(spans).await;
    let idle = store.count_backlog(&at_the_time(at(0))).await.unwrap();
    assert_eq!(idle.due, 0);
    let (keys, documents) = cost(&examined(spans).await);
    assert!(
        keys <= 300 && documents == 0,
        "{keys} keys, {documents} documents"
    );

    let began = std::time::Instant::now();
    let next_year = at_the_time(at(NEXT_YEAR));
    let counted = store.count_backlog(&next_year).await.unwrap();
    println!("counted in {} ms", began.elapsed().as_millis());
    let (keys, documents) = cost(&examined(spans).await);
    // Of one partition, which holds some 11,700.
    assert!(
        keys <= 20_000 && documents <= 20_000,
        "{keys} keys, {documents} documents"
    );
    let share = counted.due as f64 / f64::from(IDLE);
    assert!((0.98..1.02).contains(&share), "{}", counted.due);
    assert_eq!(counted.oldest, Some(at(NEXT_YEAR)));
    // A year, and half an hour on average.
    let hours = |number: f64| (number - NEXT_YEAR as f64) / HOUR as f64;
    let sampled = hours(counted.span_millis as f64 / counted.due as f64);
    assert!((0.4..0.6).contains(&sampled), "{sampled}");
    let intervals = hours(counted.intervals as f64 / counted.due as f64 * HOUR as f64);
    assert!((0.4..0.6).contains(&intervals), "{intervals}");
}
