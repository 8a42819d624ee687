//! The audit trail: a document for each action, never removed.

use bson::raw::RawDocument;
use bson::{Document, doc};
use mongodb::options::FindOptions;
use sampler_domain::{ClientId, Timestamp};
use sampler_store::{ActOutcome, AuditPage, AuditPosition, AuditQuery, AuditRecord, StoreError};
use serde::Deserialize;

use crate::MongoStore;
use crate::call::hint;
use crate::document::moment;
use crate::index;
use crate::raw::{self, Unreadable, unreadable};

pub(crate) async fn audit(store: &MongoStore, query: &AuditQuery) -> Result<AuditPage, StoreError> {
    let index = match (&query.span, &query.who) {
        (Some(_), _) => index::AUDIT_SPAN,
        (None, Some(_)) => index::AUDIT_WHO,
        (None, None) => index::AUDIT,
    };
    let options = FindOptions::builder()
        .sort(doc! { "at": -1, "_id": -1 })
        .hint(hint(index))
        .build();
    let found = store
        .audit
        .found(filter(query), options, query.limit)
        .await?;
    let mut page = AuditPage::default();
    for raw in &found.documents {
        match record_in(raw) {
            Ok(record) => page.records.push(record),
            Err(problem) => store.link.logged.tell("audit.unreadable", raw, &problem),
        }
    }
    if found.has_more {
        page.next = found.documents.iter().rev().find_map(|raw| position(raw));
    }
    Ok(page)
}

/// The document of a record, but for its id. Absent members are left out, not null. The two values
/// are kept as texts: a document of the database can hold neither all names nor all numbers.
pub(crate) fn written(record: &AuditRecord) -> Document {
    let mut document = doc! {
        "at": moment(record.at),
        "act": &record.act,
        "subject": &record.subject,
        "reason": &record.reason,
        "before": record.before.to_string(),
        "after": record.after.to_string(),
        "outcome": record.outcome.name(),
    };
    if let Some(who) = &record.who {
        document.insert("who", who.as_str());
    }
    if let Some(span) = &record.span {
        document.insert("span", span);
    }
    document
}

fn filter(query: &AuditQuery) -> Document {
    let mut filter = Document::new();
    if let Some(span) = &query.span {
        filter.insert("span", span);
    }
    if let Some(who) = &query.who {
        filter.insert("who", who.as_str());
    }
    let mut at = Document::new();
    if let Some(from) = query.from {
        at.insert("$gte", moment(from));
    }
    if let Some(to) = query.to {
        at.insert("$lt", moment(to));
    }
    if let Some(after) = &query.after {
        // Bounds of the index; records at exactly this time are compared one by one.
        at.insert("$lte", moment(after.at));
        filter.insert(
            "$or",
            [
                doc! { "at": { "$lt": moment(after.at) } },
                doc! { "_id": { "$lt": after.id.to_string() } },
            ],
        );
    }
    if !at.is_empty() {
        filter.insert("at", at);
    }
    filter
}

#[derive(Deserialize)]
struct RecordDocument {
    #[serde(rename = "_id")]
    id: String,
    at: Timestamp,
    who: Option<String>,
    act: String,
    subject: String,
    span: Option<String>,
    reason: String,
    before: String,
    after: String,
    outcome: String,
}

fn record_in(raw: &RawDocument) -> Result<AuditRecord, Unreadable> {
    let document: RecordDocument = raw::read(raw)?;
    let json = |text: &str| serde_json::from_str(text).map_err(unreadable);
    let outcome = ActOutcome::from_name(&document.outcome);
    Ok(AuditRecord {
        id: document.id.parse().map_err(unreadable)?,
        at: document.at,
        who: document.who.as_deref().and_then(ClientId::new),
        act: document.act,
        subject: document.subject,
        span: document.span,
        reason: document.reason,
        before: json(&document.before)?,
        after: json(&document.after)?,
        outcome: outcome.ok_or_else(|| unreadable("the outcome is not that of an action"))?,
    })
}

/// The position of a record in the trail, even if the record cannot be read.
fn position(raw: &RawDocument) -> Option<AuditPosition> {
    Some(AuditPosition {
        at: Timestamp::clamped(raw.get_i64("at").ok()?),
        id: raw.get_str("_id").ok()?.parse().ok()?,
    })
}
