//! What counting the backlog costs with very many spans.

use bson::Document;
use mongodb::Collection;
use sampler_store::{BacklogQuery, Operating};
use sampler_store_mongo::MongoStore;
use sampler_store_testing::support::at;

use crate::explain::{IDLE, NEXT_YEAR};
use crate::profile::{cost, examined};

/// Idle spans cost nothing. When they fall due, all at once, the index alone is read.
pub(crate) async fn a_count_reads_the_index_of_what_is_due(
    store: &MongoStore,
    spans: &Collection<Document>,
) {
    let at_the_time = |now| BacklogQuery { now, closing: None };
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
    assert!(documents <= 64, "{keys} keys, {documents} documents");
    let idle = u64::try_from(IDLE).unwrap();
    // A slow machine counts some of them.
    let is_counted = counted.due == idle || (counted.at_least && counted.due < idle);
    assert!(is_counted, "{counted:?}");
    assert_eq!(counted.oldest, Some(at(NEXT_YEAR)));
}
