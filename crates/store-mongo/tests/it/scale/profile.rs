//! What the server's profiler says of the commands on the collections of a store.

use bson::{Document, doc};
use mongodb::Database;

/// What commands cost the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) commands: i64,
    pub(crate) keys: i64,
    pub(crate) documents: i64,
    /// The time in the server, ms.
    pub(crate) millis: i64,
    /// The collections and the plans, each once.
    pub(crate) plans: Vec<(String, String)>,
}

/// Has the profiler forget what it knows, and note each command from now on.
pub(crate) async fn begin(database: &Database) {
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let profile = database.collection::<Document>("system.profile");
    profile.drop().await.unwrap();
    let create = doc! { "create": "system.profile", "capped": true, "size": 16 << 20 };
    database.run_command(create).await.unwrap();
    database.run_command(doc! { "profile": 2 }).await.unwrap();
}

/// What the commands since [`begin`] cost together.
pub(crate) async fn end(database: &Database) -> Cost {
    database.run_command(doc! { "profile": 0 }).await.unwrap();
    let profile = database.collection::<Document>("system.profile");
    let of_a_store = doc! { "ns": { "$regex": r"\.spans(_\w+)?$" } };
    let mut commands = profile.find(of_a_store).await.unwrap();
    let mut cost = Cost::default();
    while commands.advance().await.unwrap() {
        let command = commands.deserialize_current().unwrap();
        let number = |name: &str| {
            let number = command.get_i32(name).map(i64::from);
            number.or_else(|_| command.get_i64(name)).unwrap_or(0)
        };
        cost.commands += 1;
        cost.keys += number("keysExamined");
        cost.documents += number("docsExamined");
        cost.millis += number("millis");
        let text = |name: &str| command.get_str(name).unwrap_or_default().to_owned();
        let of = text("ns").replace(&format!("{}.", database.name()), "");
        let plan = (of, text("planSummary"));
        if !plan.1.is_empty() && !cost.plans.contains(&plan) {
            cost.plans.push(plan);
        }
    }
    cost
}
