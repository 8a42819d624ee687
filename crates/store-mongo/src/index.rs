//! The indexes on spans, by name.
//!
//! Each unique one begins with what a sharded collection is divided by, `processing.key`: MongoDB
//! keeps no other exact across shards. It has the 16 bytes of the key in place of six ids of about
//! 36 bytes each. A span of the original has no key before it is taken over. Until then it is not in the
//! first of them, and in those of ids as if all such spans had one target.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::options::IndexOptions;
use sampler_domain::EntryState;

/// One open span of a target; the ends of its spans.
pub(crate) const SPAN: &str = "unique_span";
/// One span of each start id of a target.
pub(crate) const START: &str = "unique_start";
/// One span of each stop id of a target.
pub(crate) const STOP: &str = "unique_stop";
/// Spans by when they are due.
pub(crate) const DUE: &str = "search_due";
/// Spans whose usage failed and is tried again.
pub(crate) const FAILED: &str = "search_failed";
pub(crate) const LIST_SUSPENDED: &str = "list_suspended";
/// Suspended spans by cause; the one that has been suspended for longest comes first.
pub(crate) const SUSPENDED: &str = "search_suspended";
/// The usages that the upstream refuses, on the spans that have planned them.
pub(crate) const REFUSED: &str = "search_refused";
/// Complete spans, for the clean-up.
pub(crate) const COMPLETE: &str = "search_complete";

/// The spans of an organization, by their starts.
pub(crate) const LIST_ORGANIZATION: &str = "list_organization";
/// The spans of a resource, by their starts.
pub(crate) const LIST_RESOURCE: &str = "list_resource";
/// The spans of an instance, by a hash of 8 bytes.
pub(crate) const LIST_INSTANCE: &str = "list_instance";

/// The entries of a span, in the order in which they were planned.
pub(crate) const OF_SPAN: &str = "of_span";
/// The usages of an organization, of a resource and of an instance, by their timestamps.
pub(crate) const SUM_ORGANIZATION: &str = "sum_organization";
pub(crate) const SUM_RESOURCE: &str = "sum_resource";
pub(crate) const SUM_INSTANCE: &str = "sum_instance";

/// The usages that are to be sent again.
pub(crate) const RESEND: &str = "resend";

/// Entries to be confirmed, the oldest month first.
pub(crate) const UNCONFIRMED: &str = "unconfirmed";
/// Entries that were set aside, by their cause.
pub(crate) const SET_ASIDE: &str = "set_aside";
/// The entries that expire, for the server to remove.
pub(crate) const EXPIRY: &str = "expiry";

/// The audit trail by time, by the person or client, and by the span.
pub(crate) const AUDIT: &str = "by_at";
pub(crate) const AUDIT_WHO: &str = "by_who";
pub(crate) const AUDIT_SPAN: &str = "by_span";

/// The shard key. It follows from the target, so a span never moves.
pub(crate) fn shard_key() -> Document {
    doc! { "processing.key": 1 }
}

#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) name: &'static str,
    pub(crate) keys: Document,
    pub(crate) options: IndexOptions,
}

pub(crate) fn indexes() -> [Index; 12] {
    [
        // A second open span of the target has the same end, null, and the same correlation id.
        Index {
            name: SPAN,
            keys: of_target(doc! { "end": 1, "target.correlation_id": 1 }),
            options: unique_partial(doc! { "processing.key": { "$exists": true } }),
        },
        Index {
            name: START,
            keys: of_target(doc! { "start_dedup_id": 1 }),
            options: unique_partial(doc! { "start_dedup_id": { "$exists": true } }),
        },
        Index {
            name: STOP,
            keys: of_target(doc! { "end_dedup_id": 1 }),
            options: unique_partial(doc! { "end_dedup_id": { "$exists": true } }),
        },
        Index {
            name: DUE,
            // With `complete`, which is the same in all of them, the index alone says how many are due.
            keys: doc! {
                "processing.partition": 1, "processing.due_at": 1, "processing.complete": 1,
            },
            options: partial(doc! { "processing.complete": false }),
        },
        // Empty as a rule.
        Index {
            name: FAILED,
            keys: doc! { "processing.partition": 1, "processing.due_at": 1 },
            options: partial(doc! { "processing.attempts": { "$gt": 0 } }),
        },
        // Empty as a rule. A cause is searched in all partitions at once.
        Index {
            name: SUSPENDED,
            keys: doc! { "processing.suspended.cause": 1, "processing.suspended.since": 1 },
            options: partial(doc! { "processing.suspended.cause": { "$exists": true } }),
        },
        // Empty as a rule. A usage is searched in all partitions at once.
        Index {
            name: REFUSED,
            keys: doc! { "processing.planned_interval.usage_guid": 1 },
            options: partial(doc! { "processing.refused_at": { "$exists": true } }),
        },
        Index {
            name: COMPLETE,
            keys: doc! { "processing.partition": 1, "processing.last_interval.end": 1 },
            options: partial(doc! { "processing.complete": true }),
        },
        // None of their keys ever changes, so they cost starts alone. An instance has few spans, so the
        // server sorts them.
        Index {
            name: LIST_INSTANCE,
            keys: doc! { "target.resource_instance_id": "hashed" },
            options: IndexOptions::default(),
        },
        Index {
            name: LIST_ORGANIZATION,
            keys: doc! { "target.organization_id": 1, "start": 1, "_id": 1 },
            options: IndexOptions::default(),
        },
        Index {
            name: LIST_RESOURCE,
            keys: doc! { "target.resource_id": 1, "start": 1, "_id": 1 },
            options: IndexOptions::default(),
        },
        // Empty as a rule.
        Index {
            name: LIST_SUSPENDED,
            keys: doc! { "start": 1, "_id": 1 },
            options: partial(doc! { "processing.suspended.cause": { "$exists": true } }),
        },
    ]
}

/// The shard key of the ledger. Writes, and lists of a span's entries, are about one span.
pub(crate) fn ledger_shard_key() -> Document {
    doc! { "partition": 1, "span": 1 }
}

/// The indexes of the ledger, beside `_id`, which is the id of the usage. Each makes every usage
/// dearer. So there is one for the entries of a span, and two that hold only entries that expire, and
/// those that are to be sent again.
pub(crate) fn ledger_indexes() -> [Index; 3] {
    let expiry = IndexOptions::builder()
        .expire_after(Duration::ZERO)
        .partial_filter_expression(doc! { "expires_at": { "$exists": true } })
        .build();
    let mut of_span = ledger_shard_key();
    of_span.insert("version", 1);
    [
        Index {
            name: OF_SPAN,
            keys: of_span,
            options: IndexOptions::default(),
        },
        Index {
            name: EXPIRY,
            keys: doc! { "expires_at": 1 },
            options: expiry,
        },
        // As a rule, nothing. It is searched in all partitions at once.
        Index {
            name: RESEND,
            keys: doc! { "resend.due_at": 1 },
            options: partial(doc! { "resend.due_at": { "$exists": true } }),
        },
    ]
}

/// The index for sums that are narrowed by this field of the target. The first such sum makes it.
pub(crate) fn sum_index(field: &str) -> Index {
    let name = match field {
        "organization_id" => SUM_ORGANIZATION,
        "resource_id" => SUM_RESOURCE,
        _ => SUM_INSTANCE,
    };
    Index {
        name,
        keys: doc! { format!("target.{field}"): 1, "timestamp": 1 },
        options: IndexOptions::default(),
    }
}

/// The indexes of the audit trail, in the order of its lists.
pub(crate) fn audit_indexes() -> [Index; 3] {
    let indexes = [
        (AUDIT, doc! { "at": 1, "_id": 1 }),
        (AUDIT_WHO, doc! { "who": 1, "at": 1, "_id": 1 }),
        (AUDIT_SPAN, doc! { "span": 1, "at": 1, "_id": 1 }),
    ];
    indexes.map(|(name, keys)| Index {
        name,
        keys,
        options: IndexOptions::default(),
    })
}

/// The indexes of what is asked of the upstream after it has accepted it, and of what it has set aside.
/// Where usages are not confirmed, they hold nothing and cost nothing.
pub(crate) fn confirmation_indexes() -> [Index; 2] {
    let exists = doc! { "$exists": true };
    let accepted = EntryState::Accepted.name();
    [
        Index {
            name: UNCONFIRMED,
            keys: doc! { "partition": 1, "ask_again.month": 1, "ask_again.at": 1 },
            options: partial(doc! { "state": accepted, "ask_again.at": &exists }),
        },
        Index {
            name: SET_ASIDE,
            keys: doc! { "cause": 1, "state": 1, "_id": 1 },
            options: partial(doc! { "cause": exists }),
        },
    ]
}

fn partial(filter: Document) -> IndexOptions {
    IndexOptions::builder()
        .partial_filter_expression(filter)
        .build()
}

fn unique_partial(filter: Document) -> IndexOptions {
    IndexOptions::builder()
        .unique(true)
        .partial_filter_expression(filter)
        .build()
}

/// Keys within a target: its key, and these.
fn of_target(keys: Document) -> Document {
    let mut all = shard_key();
    all.extend(keys);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MongoDB's rule for a sharded collection: a unique index begins with the whole shard key
    /// (`_id` is exempt, and unique within each shard alone).
    fn fits_shard_key(keys: &Document, shard_key: &Document) -> bool {
        let count = shard_key.len();
        keys.len() >= count && keys.iter().take(count).eq(shard_key.iter())
    }

    #[test]
    fn each_unique_index_satisfies_the_rule_for_sharded_collections() {
        for index in indexes() {
            if index.options.unique == Some(true) {
                assert!(fits_shard_key(&index.keys, &shard_key()), "{}", index.name);
                assert_eq!(index.options.sparse, None, "{}", index.name);
            }
        }
        let global = doc! { "start_dedup_id": 1 };
        assert!(!fits_shard_key(&global, &shard_key()));
        let turned = doc! { "end": 1, "processing.key": 1 };
        assert!(!fits_shard_key(&turned, &shard_key()));
    }

    /// A collection can be sharded by a key that is the beginning of an index which holds every
    /// document. The guid of a usage is unique within its shard, and all entries of a span are on one.
    #[test]
    fn the_ledger_can_be_sharded_by_what_it_is_read_by() {
        let indexes = ledger_indexes();
        let is_unique = |index: &Index| index.options.unique == Some(true);
        assert!(!indexes.iter().any(is_unique));
        let serves = |index: &Index| {
            fits_shard_key(&index.keys, &ledger_shard_key())
                && index.options.partial_filter_expression.is_none()
        };
        assert!(indexes.iter().any(serves));
    }
}
