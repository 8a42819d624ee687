//! Which instances of both programs run, as they report it, by the clock of the server.

use bson::{Bson, Document, doc};
use mongodb::Collection;
use sampler_domain::Timestamp;
use sampler_store::{
    INSTANCE_SHOWN, INSTANCES_MAX, Instance, InstanceProgram, Intake, SeenInstance, StoreError,
    sort_instances,
};
use tracing::warn;

use crate::MongoStore;
use crate::document::{Unreadable, member, read_integer, read_text, unreadable};
use crate::workers::is_alive;

/// The condition that an instance is shown, or with `$lte` that it is no longer shown.
fn seen(comparison: &str) -> Document {
    let millis = i64::try_from(INSTANCE_SHOWN.as_millis()).expect("an hour fits");
    let since = doc! { "$subtract": ["$$NOW", Bson::Int64(millis)] };
    doc! { "$expr": { comparison: ["$seen_at", since] } }
}

pub(crate) async fn report_instance(
    store: &MongoStore,
    instance: &Instance,
) -> Result<(), StoreError> {
    let (instances, name) = (store.instances.clone(), instance.name.clone());
    let report = vec![doc! { "$replaceWith": { "$mergeObjects": [
        { "$literal": instance_document(instance) }, { "seen_at": "$$NOW" },
    ] } }];
    let call = async move {
        let update = instances.update_one(doc! { "_id": name }, report);
        let is_first = update.upsert(true).await?.upserted_id.is_some();
        if is_first {
            // Programs that were killed leave their reports behind, and each is followed by
            // one that begins.
            instances.delete_many(seen("$lte")).await?;
        }
        Ok::<(), mongodb::error::Error>(())
    };
    Ok(store.link.run(call).await?)
}

pub(crate) async fn withdraw_instance(store: &MongoStore, name: &str) -> Result<(), StoreError> {
    let (instances, filter) = (store.instances.clone(), doc! { "_id": name });
    store
        .link
        .run(async move { instances.delete_one(filter).await })
        .await?;
    Ok(())
}

pub(crate) async fn instances(store: &MongoStore) -> Result<Vec<SeenInstance>, StoreError> {
    let reported = store.with_ages(&store.instances, seen("$gt")).await?;
    let mut all: Vec<_> = reported
        .iter()
        .filter_map(|found| match read_instance(found) {
            Ok(instance) => Some(instance),
            Err(problem) => {
                store.warn_of_unreadable(found, &problem);
                None
            }
        })
        .collect();
    // A worker of a release that reports nothing else is known by its heartbeats.
    for found in store.with_ages(&store.workers, is_alive()).await? {
        if let Ok(worker) = read_worker(&found)
            && !all
                .iter()
                .any(|it| it.instance.name == worker.instance.name)
        {
            all.push(worker);
        }
    }
    sort_instances(&mut all);
    Ok(all)
}

impl MongoStore {
    /// The documents that match, each with how long ago it was written.
    async fn with_ages(
        &self,
        of: &Collection<Document>,
        filter: Document,
    ) -> Result<Vec<Document>, StoreError> {
        let most = i64::try_from(INSTANCES_MAX).unwrap_or(i64::MAX);
        let age = doc! { "$subtract": ["$$NOW", "$seen_at"] };
        let pipeline = vec![
            doc! { "$match": filter },
            doc! { "$sort": { "seen_at": -1 } },
            doc! { "$limit": most },
            doc! { "$project": { "document": "$$ROOT", "age": age } },
        ];
        Ok(self.aggregate(of.clone(), pipeline, None).await?)
    }

    fn warn_of_unreadable(&self, found: &Document, problem: &Unreadable) {
        let name = found.get("_id").map(Bson::to_string).unwrap_or_default();
        if self.link.logged.is_news("instances", &name) {
            warn!(code = "instance.unreadable", instance = name, error = %problem,
                "what an instance reported of itself cannot be read; it is not shown");
        }
    }
}

fn instance_document(instance: &Instance) -> Document {
    let list = |names: &[String]| names.iter().cloned().map(Bson::String).collect::<Vec<_>>();
    let known = [
        ("index", instance.index.clone().map(Bson::String)),
        ("version", instance.version.clone().map(Bson::String)),
        (
            "started_at",
            instance.started_at.map(|at| Bson::Int64(at.as_millis())),
        ),
        (
            "partitions",
            instance.partitions.map(|count| Bson::Int64(count.into())),
        ),
        ("upstream", instance.upstream.clone().map(Bson::String)),
        (
            "usages_today",
            instance
                .usages_today
                .map(|count| Bson::Int64(i64::try_from(count).unwrap_or(i64::MAX))),
        ),
        ("slack", instance.slack.map(Bson::Int64)),
        ("intake", instance.intake.map(intake_document)),
    ];
    let mut document = doc! {
        "_id": instance.name.as_str(),
        "program": instance.program.as_str(),
        "is_stopping": instance.is_stopping,
        "failing": list(&instance.failing),
        "warnings": list(&instance.warnings),
        "paused_by": list(&instance.paused_by),
    };
    for (name, value) in known {
        if let Some(value) = value {
            document.insert(name, value);
        }
    }
    document
}

/// A document with its age, as [`MongoStore::with_ages`] finds it.
fn read_instance(found: &Document) -> Result<SeenInstance, Unreadable> {
    let document = member(found, "document")?;
    let program = document.get_str("program").unwrap_or_default();
    let Ok(program) = program.parse::<InstanceProgram>() else {
        return Err(unreadable("program", "is not a program"));
    };
    let instance = Instance {
        index: optional_text(document, "index")?,
        version: optional_text(document, "version")?,
        started_at: optional_integer(document, "started_at")?.map(Timestamp::clamped),
        is_stopping: document.get_bool("is_stopping").unwrap_or(false),
        failing: texts(document, "failing")?,
        warnings: texts(document, "warnings")?,
        partitions: optional_integer(document, "partitions")?
            .map(u32::try_from)
            .transpose()
            .map_err(|_| unreadable("partitions", "is not a count"))?,
        paused_by: texts(document, "paused_by")?,
        upstream: optional_text(document, "upstream")?,
        usages_today: optional_integer(document, "usages_today")?
            .map(u64::try_from)
            .transpose()
            .map_err(|_| unreadable("usages_today", "is not a count"))?,
        slack: optional_integer(document, "slack")?,
        intake: intake(document)?,
        ..Instance::new(name_of(document)?, program)
    };
    dated(found, document, instance)
}

fn intake_document(intake: Intake) -> Bson {
    Bson::Document(doc! {
        "kept": Bson::Int64(intake.kept.into()),
        "refused": Bson::Int64(intake.refused.into()),
        "last_at": intake.last_at.map(|at| Bson::Int64(at.as_millis())),
    })
}

fn intake(document: &Document) -> Result<Option<Intake>, Unreadable> {
    if document.get("intake").is_none() {
        return Ok(None);
    }
    let intake = member(document, "intake")?;
    let count = |name: &'static str| {
        u32::try_from(read_integer(intake, name)?).map_err(|_| unreadable(name, "is not a count"))
    };
    Ok(Some(Intake {
        kept: count("kept")?,
        refused: count("refused")?,
        last_at: optional_integer(intake, "last_at")?.map(Timestamp::clamped),
    }))
}

fn read_worker(found: &Document) -> Result<SeenInstance, Unreadable> {
    let document = member(found, "document")?;
    let instance = Instance::new(name_of(document)?, InstanceProgram::Worker);
    dated(found, document, instance)
}

fn dated(
    found: &Document,
    document: &Document,
    instance: Instance,
) -> Result<SeenInstance, Unreadable> {
    let Ok(seen_at) = document.get_datetime("seen_at") else {
        return Err(unreadable("seen_at", "is not a date"));
    };
    Ok(SeenInstance {
        instance,
        seen_at: Timestamp::clamped(seen_at.timestamp_millis()),
        age: read_integer(found, "age")?,
    })
}

fn name_of(document: &Document) -> Result<String, Unreadable> {
    read_text(document, "_id").map(str::to_owned)
}

fn optional_text(document: &Document, name: &'static str) -> Result<Option<String>, Unreadable> {
    match document.get(name) {
        None | Some(Bson::Null) => Ok(None),
        Some(Bson::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(unreadable(name, "is not a string")),
    }
}

fn optional_integer(document: &Document, name: &'static str) -> Result<Option<i64>, Unreadable> {
    match document.get(name) {
        None | Some(Bson::Null) => Ok(None),
        Some(_) => read_integer(document, name).map(Some),
    }
}

fn texts(document: &Document, name: &'static str) -> Result<Vec<String>, Unreadable> {
    let wrong = || unreadable(name, "is not a list of strings");
    let Some(list) = document.get(name) else {
        return Ok(Vec::new());
    };
    let items = list.as_array().ok_or_else(wrong)?.iter();
    let texts = items.map(|item| item.as_str().map(str::to_owned));
    texts.collect::<Option<Vec<_>>>().ok_or_else(wrong)
}
