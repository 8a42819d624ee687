//! Going through all spans.

use futures_util::StreamExt;
use sampler_domain::partition::{PARTITIONS, partition_of};
use sampler_domain::{Key, SpanId};

use crate::support::{Shared, Store, kept, must_start, must_stop, started, target};

/// The instances of a partition in the order of their keys, and the spans.
async fn keys_of(
    store: &dyn Store,
    partition: u32,
    from: Option<Key>,
    page: usize,
) -> Vec<(String, SpanId)> {
    let mut pages = store.spans_of(partition, from, page);
    let mut keys = Vec::new();
    while let Some(page) = pages.next().await {
        for key in page.unwrap() {
            assert_eq!(partition_of(&key.target), partition);
            keys.push((key.target.resource_instance_id.into(), key.id));
        }
    }
    keys
}

pub async fn all_spans_of_a_partition_are_gone_through_once(store: &Shared) {
    let store = &**store;
    let mut expected = Vec::new();
    for number in 0..40 {
        let name = format!("{number}");
        expected.push((name.clone(), started(store, &name, &name, 0).await.id));
    }
    // One instance has two spans.
    must_stop(store, None, "7", 1).await;
    must_start(store, Some("b"), "7", 1).await;
    expected.push(("7".to_owned(), kept(store, "b").await.id));
    expected.sort();
    for page in [1, 3, 100] {
        let mut seen = Vec::new();
        for partition in 0..PARTITIONS {
            let of_partition = keys_of(store, partition, None, page).await;
            let keys = of_partition.iter().map(|(name, _)| Key::of(&target(name)));
            assert!(keys.is_sorted(), "{of_partition:?}");
            seen.extend(of_partition);
        }
        seen.sort();
        assert_eq!(seen, expected);
    }
    let partition = partition_of(&target("7"));
    let all = keys_of(store, partition, None, 2).await;
    let first = Key::of(&target("7"));
    let from = keys_of(store, partition, Some(first), 2).await;
    let is_behind = |key: &&(String, SpanId)| Key::of(&target(&key.0)) >= first;
    let behind: Vec<_> = all.iter().filter(is_behind).cloned().collect();
    assert_eq!(from.len(), behind.len());
    assert!(from.iter().all(|key| behind.contains(key)));
}
