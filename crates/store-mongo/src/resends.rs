//! Resends: marked entries of the ledger.
//!
//! The mark is a member of the entry (`resend`). A partial index holds the marked ones alone. Each of
//! these is one conditional change of one entry, so any of them can be made again.

use bson::{Document, doc};
use sampler_domain::partition::partition_of;
use sampler_domain::{Acceptance, Entry, EntryState, LastError, Resend, Timestamp};
use sampler_store::{EntryKey, StoreError};
use uuid::Uuid;

use crate::MongoStore;
use crate::document::{id_to_bson, moment, read_moment, read_optional_moment};
use crate::entry_document::{ERROR_LEN_MAX, ask_again_document, entry_in, status_in};
use crate::index;

/// Entries that are read with one command.
const WITHHELD_PAGE: usize = 100;

pub(crate) async fn mark_resend(
    store: &MongoStore,
    key: &EntryKey,
    resend: &Resend,
) -> Result<bool, StoreError> {
    let mut filter = condition(key);
    filter.insert("state", resend.from.name());
    // An acceptance is added to a mark that has none.
    let absent = match &resend.acceptance {
        Some(_) => "resend.accepted_at",
        None => "resend",
    };
    filter.insert(absent, doc! { "$exists": false });
    let mut added = acceptance_of(resend);
    added.insert("due_at", moment(resend.due_at));
    let set = doc! {
        "resend": { "$mergeObjects": [
            { "$literal": written(resend) }, "$resend", { "$literal": added },
        ] },
        "expires_at": kept_from(resend.at),
    };
    store.change_entry(filter, vec![doc! { "$set": set }]).await
}

pub(crate) async fn withheld_of(
    store: &MongoStore,
    entry: &Entry,
) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    let mut after = entry.version;
    loop {
        let sort = doc! { "partition": 1, "span": 1, "version": 1 };
        let options = store
            .usages
            .find_options(WITHHELD_PAGE, sort, index::OF_SPAN);
        let filter = doc! {
            "partition": i64::from(partition_of(&entry.target)),
            "span": id_to_bson(&entry.span),
            "version": { "$gt": after },
            "withheld": true,
            "interval.start": { "$lte": moment(entry.interval.end) },
            "interval.end": { "$gte": moment(entry.interval.start) },
        };
        let found = store.usages.found(filter, options, WITHHELD_PAGE).await?;
        for raw in &found.documents {
            let read = entry_in(raw).map_err(StoreError::refused)?;
            after = read.version;
            entries.push(read);
        }
        if !found.has_more {
            break;
        }
    }
    entries.retain(|it| it.target == entry.target && it.was_withheld_of(entry.interval));
    Ok(entries)
}

pub(crate) async fn takes_back_uncounted(
    store: &MongoStore,
    entry: &Entry,
) -> Result<bool, StoreError> {
    let sort = doc! { "partition": 1, "span": 1, "version": 1 };
    let options = store.usages.find_options(1, sort, index::OF_SPAN);
    let states = [EntryState::Skipped, EntryState::SetAside].map(EntryState::name);
    let filter = doc! {
        "partition": i64::from(partition_of(&entry.target)),
        "span": id_to_bson(&entry.span),
        "version": { "$lt": entry.version },
        "state": { "$in": states.to_vec() },
        "interval.start": { "$lte": moment(entry.interval.end) },
        "interval.end": { "$gte": moment(entry.interval.start) },
    };
    let found = store.usages.found(filter, options, 1).await?;
    Ok(entry.interval.duration() < 0 && !found.documents.is_empty())
}

pub(crate) async fn due_resends(
    store: &MongoStore,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<Entry>, StoreError> {
    let sort = doc! { "resend.due_at": 1 };
    let options = store.usages.find_options(limit, sort, index::RESEND);
    let filter = doc! { "resend.due_at": { "$lte": moment(now) } };
    let found = store.usages.found(filter, options, limit).await?;
    let mut entries = Vec::with_capacity(found.documents.len());
    for raw in &found.documents {
        match entry_in(raw) {
            Ok(entry) if entry.resend.is_some() => entries.push(entry),
            Ok(_) => store.tell_of_entry(raw, &"its mark cannot be read"),
            Err(problem) => store.tell_of_entry(raw, &problem),
        }
    }
    Ok(entries)
}

pub(crate) async fn postpone_resend(
    store: &MongoStore,
    key: &EntryKey,
    act: Uuid,
    due_at: Timestamp,
) -> Result<(), StoreError> {
    let update = doc! { "$set": { "resend.due_at": moment(due_at) } };
    store
        .change_entry(marked(key, act), vec![update])
        .await
        .map(drop)
}

pub(crate) async fn claim_resend(
    store: &MongoStore,
    key: &EntryKey,
    read: &Resend,
    due_at: Timestamp,
) -> Result<bool, StoreError> {
    let mut filter = marked(key, read.act);
    filter.insert("resend.due_at", moment(read.due_at));
    filter.insert("resend.accepted_at", doc! { "$exists": false });
    let update = doc! { "$set": { "resend.due_at": moment(due_at) } };
    store.change_entry(filter, vec![update]).await
}

pub(crate) async fn accept_resent(
    store: &MongoStore,
    entry: &Entry,
    acceptance: &Acceptance,
) -> Result<bool, StoreError> {
    let Some(resend) = &entry.resend else {
        return Ok(false);
    };
    let after = entry.resent(acceptance);
    let mut filter = marked(&EntryKey::of(entry), resend.act);
    filter.insert("state", entry.state.name());
    // Another worker may have learned it since the entry was read.
    let unanswered = doc! { if entry.unanswered { "$eq" } else { "$ne" }: true };
    filter.insert("unanswered", unanswered);
    let mut set = doc! {
        "state": after.state.name(),
        "attempts": i64::from(after.attempts),
        "expires_at": kept_from(acceptance.at),
    };
    let mut unset = vec!["error", "cause", "withheld"];
    let confirmation = asked_again(entry);
    for (name, value) in [
        ("accepted_at", after.accepted_at.map(moment)),
        ("resent_at", after.resent_at.map(moment)),
        ("status", after.status.map(|it| i32::from(it).into())),
        (
            "location",
            after.location.map(|it| doc! { "$literal": it }.into()),
        ),
    ] {
        match value {
            Some(value) => _ = set.insert(name, value),
            None => unset.push(name),
        }
    }
    let changes = [doc! { "$set": set }, doc! { "$unset": unset }];
    let update = changes.into_iter().chain(confirmation).collect();
    store.change_entry(filter, update).await
}

pub(crate) async fn has_resend(
    store: &MongoStore,
    key: &EntryKey,
    act: Uuid,
) -> Result<bool, StoreError> {
    let (link, filter) = (store.usages.clone(), marked(key, act));
    let find = async move {
        link.find_linearizable(filter, "_id_", doc! { "_id": 1 })
            .await
    };
    Ok(!store.usages.run(find).await?.is_empty())
}

pub(crate) async fn end_resend(
    store: &MongoStore,
    key: &EntryKey,
    act: Uuid,
    refusal: Option<&LastError>,
) -> Result<(), StoreError> {
    let mut update = vec![doc! { "$unset": ["resend"] }];
    let mut filter = marked(key, act);
    if let Some(refusal) = refusal {
        filter.insert("resend.accepted_at", doc! { "$exists": false });
        let open = [EntryState::Skipped, EntryState::SetAside].map(EntryState::name);
        filter.insert("state", doc! { "$in": open.to_vec() });
        let error: String = refusal.error.chars().take(ERROR_LEN_MAX).collect();
        let mut set = doc! { "error": { "$literal": error } };
        match refusal.status {
            Some(status) => set.insert("status", i32::from(status)),
            None => set.insert("status", "$$REMOVE"),
        };
        update.push(doc! { "$set": set });
        update.push(doc! { "$unset": ["withheld"] });
    }
    store.change_entry(filter, update).await.map(drop)
}

impl MongoStore {
    /// Changes one entry. Returns whether the filter found it.
    async fn change_entry(
        &self,
        filter: Document,
        update: Vec<Document>,
    ) -> Result<bool, StoreError> {
        let usages = &self.usages;
        let update = usages.update_one(&usages.collection, filter, update, false);
        Ok(update.await?.matched_count > 0)
    }
}

/// The condition that only this entry meets. It names the shard that has the entry.
fn condition(key: &EntryKey) -> Document {
    doc! {
        "_id": &key.usage_guid,
        "partition": i64::from(partition_of(&key.target)),
        "span": id_to_bson(&key.span),
    }
}

/// The same, while the entry has this mark.
fn marked(key: &EntryKey, act: Uuid) -> Document {
    let mut condition = condition(key);
    condition.insert("resend.act", act.to_string());
    condition
}

/// The stage after which the upstream is asked whether the usage counts, where the entry says so. An entry
/// expires only once that is decided.
fn asked_again(entry: &Entry) -> Option<Document> {
    let ask = ask_again_document(entry)?;
    let is_expiring = doc! { "$eq": [{ "$type": "$expires_at" }, "date"] };
    let marked = doc! { "$cond": [is_expiring, { "expires": true }, {}] };
    Some(doc! { "$set": {
        "ask_again": { "$mergeObjects": [{ "$literal": ask }, marked] },
        "expires_at": "$$REMOVE",
    } })
}

/// When an entry expires that is kept for its lifetime from this time: not at all, if it had no
/// time before.
fn kept_from(from: Timestamp) -> Document {
    let later = doc! { "$convert": {
        "input": { "$add": [moment(from), "$lifetime"] },
        "to": "date",
        "onError": "$expires_at",
    } };
    let is_fit = doc! { "$and": [
        { "$eq": [{ "$type": "$expires_at" }, "date"] },
        { "$isNumber": "$lifetime" },
    ] };
    let unchanged = doc! { "$ifNull": ["$expires_at", "$$REMOVE"] };
    doc! { "$cond": [is_fit, { "$max": ["$expires_at", later] }, unchanged] }
}

/// A mark, as it is kept.
fn written(resend: &Resend) -> Document {
    let mut document = doc! {
        "act": resend.act.to_string(),
        "from": resend.from.name(),
        "at": moment(resend.at),
        "due_at": moment(resend.due_at),
    };
    document.extend(acceptance_of(resend));
    document
}

/// The upstream's acceptance in a mark, as it is kept.
fn acceptance_of(resend: &Resend) -> Document {
    let mut document = Document::new();
    if let Some(acceptance) = &resend.acceptance {
        document.insert("accepted_at", moment(acceptance.at));
        if let Some(status) = acceptance.status {
            document.insert("status", i32::from(status));
        }
        if let Some(location) = &acceptance.location {
            document.insert("location", location);
        }
    }
    document
}

pub(crate) fn read_resend(entry: &Document) -> Option<Resend> {
    let document = entry.get_document("resend").ok()?;
    let accepted_at = read_optional_moment(document, "accepted_at").ok()?;
    Some(Resend {
        act: document.get_str("act").ok()?.parse().ok()?,
        from: EntryState::from_name(document.get_str("from").ok()?)?,
        at: read_moment(document, "at").ok()?,
        due_at: read_moment(document, "due_at").ok()?,
        acceptance: accepted_at.map(|at| Acceptance {
            at,
            status: status_in(document),
            location: document.get_str("location").ok().map(str::to_owned),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let acceptance = Acceptance {
            at: Timestamp::clamped(5),
            status: Some(202),
            location: Some("https://abacus/$x".to_owned()),
        };
        for acceptance in [None, Some(acceptance)] {
            let resend = Resend {
                act: Uuid::from_u128(7),
                from: EntryState::SetAside,
                at: Timestamp::clamped(1),
                due_at: Timestamp::clamped(2),
                acceptance,
            };
            let entry = doc! { "resend": written(&resend) };
            assert_eq!(read_resend(&entry), Some(resend));
        }
        assert_eq!(read_resend(&doc! { "resend": { "act": "x" } }), None);
    }
}
