//! The indexes on spans, by name.
//!
//! Each unique one begins with what a sharded collection is divided by, `processing.key`: MongoDB
//! keeps no other exact across shards. It has the 16 bytes of the key in place of six ids of about
//! 36 bytes each. A span of the original has no key before it is taken over. Until then it is not in the
//! first of them, and in those of ids as if all such spans had one target.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::options::IndexOptions;

/// One open span of a target; the ends of its spans.
pub(crate) const SPAN: &str = "unique_span";
/// One span of each start id of a target.
pub(crate) const START: &str = "unique_start";
/// One span of each stop id of a target.
pub(crate) const STOP: &str = "unique_stop";
/// Spans by when they are due.
pub(crate) const DUE: &str = "search_due";
/// Spans whose usage failed and is tried again, and suspended ones.
pub(crate) const FAILED: &str = "search_failed";
/// Suspended spans by cause; the one that has been suspended for longest comes first.
pub(crate) const SUSPENDED: &str = "search_suspended";
/// Complete spans, for the clean-up.
pub(crate) const COMPLETE: &str = "search_complete";

/// The spans of an organization, by their starts.
pub(crate) const LIST_ORGANIZATION: &str = "list_organization";
/// The spans of a resource, by their starts.
pub(crate) const LIST_RESOURCE: &str = "list_resource";
/// The spans of an instance, by a hash of 8 bytes.
pub(crate) const LIST_INSTANCE: &str = "list_instance";

/// All suspended spans, and all of which something is excluded, by their starts.
pub(crate) const LIST_SUSPENDED: &str = "list_suspended";
pub(crate) const LIST_EXCLUDED: &str = "list_excluded";

/// The entries of a span, in the order in which they were accepted.
pub(crate) const OF_SPAN: &str = "of_span";
/// The usages of an organization, of a resource and of an instance, by their timestamps.
pub(crate) const SUM_ORGANIZATION: &str = "sum_organization";
pub(crate) const SUM_RESOURCE: &str = "sum_resource";
pub(crate) const SUM_INSTANCE: &str = "sum_instance";

/// Watches that wait for a worker, by when they are due.
pub(crate) const WATCH_DUE: &str = "watch_due";
/// Watches in the order of their list, and those of what is missing.
pub(crate) const WATCH_LIST: &str = "watch_list";
pub(crate) const WATCH_MISSING: &str = "watch_missing";
/// The entries that expire, for the server to remove.
pub(crate) const EXPIRY: &str = "expiry";

/// The workers that were not seen for long, for the server to remove.
pub(crate) const SEEN: &str = "seen";

/// The audit trail by time, by the person or client, and by the span.
pub(crate) const AUDIT: &str = "by_at";
pub(crate) const AUDIT_WHO: &str = "by_who";
pub(crate) const AUDIT_SPAN: &str = "by_span";

#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) name: &'static str,
    pub(crate) keys: Document,
    pub(crate) options: IndexOptions,
}

pub(crate) fn indexes() -> [Index; 12] {
    let exists = doc! { "$exists": true };
    let is_suspended = doc! { "processing.failure.cause": &exists };
    [
        // A second open span of the target has the same end, null, and the same correlation id.
        unique(
            SPAN,
            doc! { "processing.key": 1, "end": 1, "target.correlation_id": 1 },
            doc! { "processing.key": &exists },
        ),
        unique(
            START,
            doc! { "processing.key": 1, "start_dedup_id": 1 },
            doc! { "start_dedup_id": &exists },
        ),
        unique(
            STOP,
            doc! { "processing.key": 1, "end_dedup_id": 1 },
            doc! { "end_dedup_id": &exists },
        ),
        // With `complete`, which is the same in all of them, the index alone says how many are due.
        partial(
            DUE,
            doc! { "processing.partition": 1, "processing.due_at": 1, "processing.complete": 1 },
            doc! { "processing.complete": false },
        ),
        // Empty as a rule, as all with what failed.
        partial(
            FAILED,
            doc! { "processing.due_at": 1 },
            doc! { "processing.failure.attempts": { "$gt": 0 } },
        ),
        // A cause is searched in all partitions at once.
        partial(
            SUSPENDED,
            doc! { "processing.failure.cause": 1, "processing.failure.suspended_at": 1 },
            is_suspended.clone(),
        ),
        partial(
            COMPLETE,
            doc! { "processing.partition": 1, "processing.last_interval.end": 1 },
            doc! { "processing.complete": true },
        ),
        // None of their keys ever changes, so they cost starts alone. An instance has few spans, so the
        // server sorts them.
        plain(
            LIST_INSTANCE,
            doc! { "target.resource_instance_id": "hashed" },
        ),
        plain(
            LIST_ORGANIZATION,
            doc! { "target.organization_id": 1, "start": 1, "_id": 1 },
        ),
        plain(
            LIST_RESOURCE,
            doc! { "target.resource_id": 1, "start": 1, "_id": 1 },
        ),
        partial(LIST_SUSPENDED, doc! { "start": 1, "_id": 1 }, is_suspended),
        partial(
            LIST_EXCLUDED,
            doc! { "start": 1, "_id": 1 },
            doc! { "processing.excluded": exists },
        ),
    ]
}

/// The indexes of the ledger, beside `_id`, which is the id of the usage. Each makes every usage
/// dearer.
pub(crate) fn ledger_indexes() -> [Index; 2] {
    let of_span = doc! { "span": 1, "accepted_at": 1, "_id": 1 };
    [plain(OF_SPAN, of_span), expiry()]
}

/// What the server removes once its time has come.
fn expiry() -> Index {
    let mut expiry = plain(EXPIRY, doc! { "expires_at": 1 });
    expiry.options.expire_after = Some(Duration::ZERO);
    expiry
}

/// The indexes of watches. Where usages are not confirmed, they hold nothing and cost nothing.
pub(crate) fn watch_indexes() -> [Index; 4] {
    let list = doc! { "accepted_at": 1, "_id": 1 };
    [
        partial(
            WATCH_DUE,
            doc! { "partition": 1, "due_at": 1 },
            doc! { "asked": true },
        ),
        plain(WATCH_LIST, list.clone()),
        partial(
            WATCH_MISSING,
            list,
            doc! { "missing.since": { "$exists": true } },
        ),
        expiry(),
    ]
}

/// The index for sums that are narrowed by this field of the target. The first such sum makes it.
pub(crate) fn sum_index(field: &str) -> Index {
    let name = match field {
        "organization_id" => SUM_ORGANIZATION,
        "resource_id" => SUM_RESOURCE,
        _ => SUM_INSTANCE,
    };
    plain(
        name,
        doc! { format!("target.{field}"): 1, "dimension": 1, "timestamp": 1 },
    )
}

/// The index of workers: one that was killed has left its document behind, and the server removes that after a day.
pub(crate) fn worker_index() -> Index {
    let mut seen = plain(SEEN, doc! { "seen_at": 1 });
    seen.options.expire_after = Some(Duration::from_hours(24));
    seen
}

/// The indexes of the audit trail, in the order of its lists.
pub(crate) fn audit_indexes() -> [Index; 3] {
    [
        plain(AUDIT, doc! { "at": 1, "_id": 1 }),
        plain(AUDIT_WHO, doc! { "who": 1, "at": 1, "_id": 1 }),
        plain(AUDIT_SPAN, doc! { "span": 1, "at": 1, "_id": 1 }),
    ]
}

fn plain(name: &'static str, keys: Document) -> Index {
    let options = IndexOptions::default();
    Index {
        name,
        keys,
        options,
    }
}

fn partial(name: &'static str, keys: Document, filter: Document) -> Index {
    let mut index = plain(name, keys);
    index.options.partial_filter_expression = Some(filter);
    index
}

fn unique(name: &'static str, keys: Document, filter: Document) -> Index {
    let mut index = partial(name, keys, filter);
    index.options.unique = Some(true);
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MongoDB's rule for a sharded collection: a unique index begins with the whole shard key.
    #[test]
    fn each_unique_index_satisfies_the_rule_for_sharded_collections() {
        let is_unique = |index: &Index| index.options.unique == Some(true);
        let mut unique = 0;
        for index in indexes().iter().filter(|index| is_unique(index)) {
            let first = index.keys.keys().next();
            assert_eq!(first.map(String::as_str), Some("processing.key"));
            assert_eq!(index.options.sparse, None, "{}", index.name);
            unique += 1;
        }
        assert_eq!(unique, 3);
    }
}
