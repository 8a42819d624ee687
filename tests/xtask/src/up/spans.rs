//! What MongoDB says about the spans (figure 6.1 of the paper).

use std::collections::HashMap;

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{CollectionOptions, ReadConcern};
use mongodb::{Collection, Database};
use sampler_testkit::build::Target;

/// By what a span of the database is found again: target, start and end.
pub(super) type Key = (Target, i64, Option<i64>);

/// How far a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) complete: bool,
    pub(super) sampled_to: i64,
}

/// Read as the receiver reads it: what a majority has.
pub(super) fn collection(database: &Database) -> Collection<Document> {
    let options = CollectionOptions::builder().read_concern(ReadConcern::majority());
    database.collection_with_options("spans", options.build())
}

/// How many spans were stopped and are not complete.
pub(super) async fn incomplete(database: &Database) -> Result<u64> {
    let stopped = doc! { "end": { "$ne": null }, "processing.complete": { "$ne": true } };
    Ok(collection(database).count_documents(stopped).await?)
}

/// All spans.
pub(super) async fn read(database: &Database) -> Result<HashMap<Key, State>> {
    let mut cursor = collection(database).find(doc! {}).await?;
    let mut states = HashMap::new();
    while let Some(document) = cursor.try_next().await? {
        let (key, state) = parse(&document).with_context(|| format!("the span {document}"))?;
        states.insert(key, state);
    }
    Ok(states)
}

fn parse(document: &Document) -> Result<(Key, State)> {
    let fields = document.get_document("target")?;
    let target = Target::read(|name| fields.get_str(name).ok())?;
    let start = document.get("start").and_then(millis).context("no start")?;
    let end = document.get("end").and_then(millis);
    let processing = document.get_document("processing")?;
    let complete = processing.get_bool("complete")?;
    let last = processing.get_document("last_interval")?;
    let sampled_to = last
        .get("end")
        .and_then(millis)
        .context("no end of the last interval")?;
    Ok((
        (target, start, end),
        State {
            complete,
            sampled_to,
        },
    ))
}

/// A moment: we write 64-bit integers, an original Sampler writes doubles.
fn millis(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int64(number) => Some(*number),
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Double(number) => format!("{number:.0}").parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_of_all_kinds() {
        let document = doc! {
            "target": {
                "organization_id": "o", "space_id": "s", "consumer_id": "c",
                "resource_id": "r", "plan_id": "p", "resource_instance_id": "i",
                "correlation_id": "00000000-0000-0000-0000-000000000000",
            },
            "start": 1_540_211_419_000.0,
            "end": 1_540_215_019_000_i64,
            "processing": {
                "complete": true,
                "last_interval": { "start": 5, "end": 7 },
                "planned_interval": null,
            },
        };
        let (key, state) = parse(&document).unwrap();
        assert_eq!((key.1, key.2), (1_540_211_419_000, Some(1_540_215_019_000)));
        assert_eq!(key.0.instance(), "i");
        assert_eq!(
            state,
            State {
                complete: true,
                sampled_to: 7
            }
        );
    }

    #[test]
    fn an_open_span_has_no_end() {
        assert_eq!(millis(&Bson::Null), None);
    }
}
