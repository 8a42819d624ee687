//! What all instances read: the operators' settings, the controller's state, and the last count of the backlog.

use bson::{Document, doc};
use sampler_store::group::CommandFailure;
use sampler_store::{Published, StoreError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::MongoStore;
use crate::backlog::first;
use crate::call::BY_ID;

/// The control that operators have set.
pub(crate) const CONTROL: &str = "control";
pub(crate) const CONTROLLER: &str = "controller";
/// The last count of the backlog.
pub(crate) const BACKLOG: &str = "backlog";

#[derive(Deserialize)]
struct Aged {
    document: Document,
    /// ms.
    age: i64,
}

impl MongoStore {
    /// What was written for all instances. Where that cannot be read, it is logged, and there is none.
    pub(crate) async fn published<T: DeserializeOwned>(
        &self,
        id: &'static str,
        code: &'static str,
    ) -> Result<Option<Published<T>>, StoreError> {
        let age = doc! { "$subtract": ["$$NOW", "$at"] };
        let pipeline = vec![
            doc! { "$match": { "_id": id } },
            doc! { "$project": { "document": "$$ROOT", "age": age } },
        ];
        let Some(found) = first::<Aged>(&self.control, pipeline, BY_ID).await? else {
            return Ok(None);
        };
        let Aged { document, age } = found;
        let value = bson::deserialize_from_document(document);
        if let Err(problem) = &value {
            self.link.logged.tell_of(code, id, problem);
        }
        Ok(value.ok().map(|value| Published { value, age }))
    }

    /// Replaces a document that has this version. With version 0 the document may be missing: then it is inserted.
    pub(crate) async fn replace(
        &self,
        id: &'static str,
        version: i64,
        document: &impl Serialize,
    ) -> Result<bool, StoreError> {
        let filter = doc! { "_id": id, "version": version };
        let update = dated(id, document)?;
        match self.control.update_one(filter, update, version == 0).await {
            Ok(written) => Ok(written.matched_count > 0 || written.upserted_id.is_some()),
            // Somebody has written the first one meanwhile.
            Err(error) if error.is_duplicate_key() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// The update that replaces a document, and dates it by the clock of the server.
pub(crate) fn dated(id: &str, document: &impl Serialize) -> Result<Vec<Document>, StoreError> {
    let document = bson::serialize_to_document(document).map_err(StoreError::refused)?;
    Ok(vec![doc! { "$replaceWith": { "$mergeObjects": [
        { "$literal": document }, { "_id": id, "at": "$$NOW" },
    ] } }])
}
