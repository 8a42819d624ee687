//! Entries of accepted usages that the upstream has not confirmed yet.

use bson::raw::RawDocument;
use bson::{Bson, Document, RawDocumentBuf, doc};
use sampler_domain::partition::partition_of;
use sampler_domain::{CauseId, Entry, EntryState};
use sampler_store::{Confirmation, StoreError, Unconfirmed, UnconfirmedQuery};

use crate::MongoStore;
use crate::call::CallError;
use crate::document::{
    Unreadable, id_from_bson, id_to_bson, member, moment, read_interval, read_target, read_text,
    unreadable,
};
use crate::entry_document::{ERROR_LEN_MAX, ask_again_in};
use crate::index;
use crate::ledger::{expires_at, while_in};
use crate::rounds;
use crate::unreadable::{Statement, change_each, decoded};

/// The fields of an entry that are read, beside its id. An entry can have half a megabyte.
const PROJECTED: [&str; 5] = ["span", "target", "interval", "location", "ask_again"];

pub(crate) async fn unconfirmed(
    store: &MongoStore,
    query: &UnconfirmedQuery,
) -> Result<Vec<Unconfirmed>, StoreError> {
    let sort = doc! { "ask_again.month": 1, "ask_again.at": 1 };
    let mut options = store
        .usages
        .find_options(query.limit, sort, index::UNCONFIRMED);
    let projection = PROJECTED.iter().map(|name| ((*name).to_owned(), 1.into()));
    options.projection = Some(projection.collect());
    let found = store.usages.fetch(filter(query), options).await?;
    let readable = found.iter().filter_map(|raw| store.unconfirmed_in(raw));
    Ok(readable.collect())
}

pub(crate) async fn confirm(
    store: &MongoStore,
    confirmed: &[(Unconfirmed, Confirmation)],
) -> Result<u64, StoreError> {
    let statements = confirmed.iter().map(statement);
    let statements: Vec<Statement> = statements
        .collect::<Result<_, _>>()
        .map_err(StoreError::refused)?;
    if statements.is_empty() {
        return Ok(0);
    }
    let mut written = change_each(&store.usages, &statements).await?;
    match written.failed.pop() {
        Some((_, error)) => Err(error.into()),
        None => Ok(written.matched as u64),
    }
}

/// Asks the upstream no earlier than this entry says, if its usage is asked for.
pub(crate) async fn ask_later(store: &MongoStore, entry: &Entry) -> Result<(), StoreError> {
    let Some(ask) = entry.question else {
        return Ok(());
    };
    let mut filter = while_in(entry, EntryState::Accepted);
    filter.insert("ask_again.at", doc! { "$exists": true });
    let later = doc! { "$max": {
        "ask_again.at": moment(ask.at),
        "ask_again.until": moment(ask.until),
    } };
    let usages = &store.usages;
    usages
        .update_one(&usages.collection, filter, later, false)
        .await?;
    Ok(())
}

impl MongoStore {
    /// The entry, to be confirmed. A document that cannot be read is logged, and left as it is.
    fn unconfirmed_in(&self, raw: &RawDocumentBuf) -> Option<Unconfirmed> {
        read_unconfirmed(raw)
            .inspect_err(|problem| self.tell_of_entry(raw, problem))
            .ok()
    }

    /// How many usages were set aside for a cause, counted up to a bound, by the index alone.
    pub(crate) async fn count_set_aside(
        &self,
        cause: CauseId,
        bound: usize,
    ) -> Result<u64, CallError> {
        let filter = doc! { "cause": cause.to_string(), "state": EntryState::SetAside.name() };
        self.usages.count(filter, index::SET_ASIDE, bound).await
    }
}

/// The condition on entries that the upstream is to be asked about. The first two conditions are those of
/// the index. The totals of a span are about to count a usage that is marked for a resend: its
/// state stays until they do.
fn filter(query: &UnconfirmedQuery) -> Document {
    let partitions: Vec<i64> = query.partitions.iter().copied().map(i64::from).collect();
    let mut filter = doc! {
        "state": EntryState::Accepted.name(),
        "ask_again.at": { "$lte": moment(query.now) },
        "resend": { "$exists": false },
        "partition": { "$in": partitions },
    };
    if let Some(month) = query.month {
        filter.insert("ask_again.month", moment(month));
    }
    filter
}

fn read_unconfirmed(raw: &RawDocument) -> Result<Unconfirmed, Unreadable> {
    let document = decoded(raw)?;
    let target = member(&document, "target")?;
    let ask = ask_again_in(&document);
    Ok(Unconfirmed {
        usage_guid: read_text(&document, "_id")?.to_owned(),
        span: id_from_bson(document.get("span"))?,
        target: read_target(target)?,
        interval: read_interval(member(&document, "interval")?)?,
        location: document.get_str("location").unwrap_or_default().to_owned(),
        ask: ask.ok_or_else(|| unreadable("ask_again", "is not whole"))?,
    })
}

/// The statement that records the answer, unless the entry has changed since it was read.
fn statement(
    (read, confirmation): &(Unconfirmed, Confirmation),
) -> Result<Statement, bson::error::Error> {
    let condition = condition(read);
    let update: Bson = match confirmation {
        Confirmation::AskAgain { at } => doc! { "$set": { "ask_again.at": moment(*at) } }.into(),
        Confirmation::Missing { at } => {
            doc! { "$set": { "ask_again.at": moment(*at), "ask_again.lost": true } }.into()
        }
        Confirmation::GivenUp => ending(None).into(),
        Confirmation::Counted { at } => ending(Some(doc! {
            "state": EntryState::Counted.name(),
            "counted_at": moment(*at),
        }))
        .into(),
        Confirmation::SetAside { at, error, cause } => {
            let error: String = error.chars().take(ERROR_LEN_MAX).collect();
            ending(Some(doc! {
                "state": EntryState::SetAside.name(),
                "set_aside_at": moment(*at),
                "earlier_rounds": rounds::one_more(),
                // It comes from outside: a `$` at its beginning is not a field name.
                "error": { "$literal": error },
                "cause": cause.to_string(),
            }))
            .into()
        }
    };
    let statement = doc! { "q": condition, "u": update, "hint": "_id_" };
    Ok(Statement(RawDocumentBuf::try_from(&statement)?))
}

fn condition(read: &Unconfirmed) -> Document {
    doc! {
        "_id": &read.usage_guid,
        "partition": i64::from(partition_of(&read.target)),
        "span": id_to_bson(&read.span),
        "state": EntryState::Accepted.name(),
        "ask_again.at": moment(read.ask.at),
        "ask_again.until": moment(read.ask.until),
        "resend": { "$exists": false },
    }
}

/// The stages after which an entry is no longer asked for. If its span is complete, it expires from
/// now on.
fn ending(set: Option<Document>) -> Vec<Document> {
    let is_expiring = doc! { "$eq": ["$ask_again.expires", true] };
    let expiry = doc! { "$cond": [is_expiring, expires_at(), "$expires_at"] };
    let end = [
        doc! { "$set": { "expires_at": expiry } },
        doc! { "$unset": "ask_again" },
    ];
    let set = set.into_iter().map(|set| doc! { "$set": set });
    set.chain(end).collect()
}
