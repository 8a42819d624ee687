//! What the server's profiler says of the commands on the collections of a store.

use bson::{Document, doc};
use mongodb::{Collection, Database};

use crate::support::database_of;

/// What a command cost the server.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// The full name of its collection.
    pub(crate) namespace: String,
    pub(crate) plan: String,
    pub(crate) keys: i64,
    pub(crate) documents: i64,
}

/// The commands since this was asked last, in their order; from now on each is noted.
pub(crate) async fn commands(database: &Database) -> Vec<Command> {
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let profile = database.collection::<Document>("system.profile");
    let of_a_store = doc! { "ns": { "$regex": r"\.spans(_\w+)?$" } };
    let found = profile.find(of_a_store).sort(doc! { "ts": 1 });
    let mut found = found.await.unwrap();
    let mut commands = Vec::new();
    while found.advance().await.unwrap() {
        let command = found.deserialize_current().unwrap();
        let number = |name: &str| {
            let number = command.get_i32(name).map(i64::from);
            number.or_else(|_| command.get_i64(name)).unwrap_or(0)
        };
        let text = |name: &str| command.get_str(name).unwrap_or_default().to_owned();
        commands.push(Command {
            namespace: text("ns"),
            plan: text("planSummary"),
            keys: number("keysExamined"),
            documents: number("docsExamined"),
        });
    }
    profile.drop().await.unwrap();
    let create = doc! { "create": "system.profile", "capped": true, "size": 16 << 20 };
    database.run_command(create).await.unwrap();
    database.run_command(doc! { "profile": 2 }).await.unwrap();
    commands
}

/// The commands on one collection since they were asked for last.
pub(crate) async fn examined(collection: &Collection<Document>) -> Vec<Command> {
    let mut commands = commands(&database_of(collection)).await;
    let namespace = collection.namespace().to_string();
    commands.retain(|command| command.namespace == namespace);
    commands
}

/// The keys and documents of all of them together.
pub(crate) fn cost(commands: &[Command]) -> (i64, i64) {
    let keys = commands.iter().map(|command| command.keys);
    let documents = commands.iter().map(|command| command.documents);
    (keys.sum(), documents.sum())
}

/// Each of the commands read so much at the most.
#[track_caller]
pub(crate) fn assert_cost(commands: &[Command], keys: i64, documents: i64) {
    for command in commands {
        let is_cheap = command.keys <= keys && command.documents <= documents;
        assert!(is_cheap, "{command:?}");
    }
}
