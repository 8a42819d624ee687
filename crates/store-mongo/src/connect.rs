//! The connection to the database: the options, the client, and the links to the collections.

use std::sync::Arc;
use std::time::Duration;

use mongodb::error::{Error, ErrorKind};
use mongodb::options::{
    Acknowledgment, ClientOptions, CollectionOptions, ConnectionString, ReadConcern,
    ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::{Client, Database};

use crate::call::{self, Link};

/// The address of MongoDB, and the limits of waiting for it.
#[derive(Clone)]
pub struct MongoOptions {
    /// The connection string; it may hold a password.
    pub uri: String,
    pub database: String,
    pub collection: String,
    pub pool_size: u32,
    /// The limit of the search for a primary.
    pub server_selection_timeout: Duration,
    pub operation_timeout: Duration,
    /// The name of the program in the server's logs.
    pub app_name: String,
}

impl MongoOptions {
    /// How long after a [`StoreError::Unknown`] the server may still carry out the command. The driver
    /// looks for a server and connects to it, each for up to `server_selection_timeout`, before it sends,
    /// and the server then works for up to `operation_timeout`, even where its client has gone.
    pub fn unknown_for(&self) -> Duration {
        2 * self.server_selection_timeout + self.operation_timeout + call::MARGIN
    }
}

/// The connection string cannot be used. The text never holds a part of it that may be a password.
#[derive(Debug, thiserror::Error)]
#[error("the MongoDB connection string cannot be used: {0}")]
pub struct ConnectError(String);

impl From<Error> for ConnectError {
    /// The driver repeats what it cannot read: of `mongodb://user:password/db`, which has no host, the
    /// password as a wrong port.
    fn from(error: Error) -> Self {
        Self(match error.kind.as_ref() {
            kind @ (ErrorKind::DnsResolve { .. }
            | ErrorKind::Io(_)
            | ErrorKind::InvalidTlsConfig { .. }) => kind.to_string(),
            _ => "the driver cannot read it".to_owned(),
        })
    }
}

/// Whether the driver can read a connection string.
pub fn is_readable(uri: &str) -> bool {
    ConnectionString::parse(uri).is_ok()
}

/// A client; it connects when that is needed.
pub(crate) async fn client(options: &MongoOptions) -> Result<Client, ConnectError> {
    let mut client = ClientOptions::parse(&options.uri).await?;
    client.app_name = Some(options.app_name.clone());
    client.max_pool_size = Some(options.pool_size);
    client.server_selection_timeout = Some(options.server_selection_timeout);
    client.connect_timeout = Some(options.server_selection_timeout);
    client.retry_writes = Some(true);
    // Where no connection could be made, the driver would send a command again, later than `unknown_for`.
    client.max_adaptive_retries = Some(0);
    // Whatever the connection string says: a secondary does not know yet what the primary has
    // promised. All collections inherit it.
    client.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    client.read_concern = Some(ReadConcern::majority());
    client.write_concern = Some(
        WriteConcern::builder()
            .w(Acknowledgment::Majority)
            .journal(true)
            .w_timeout(options.operation_timeout)
            .build(),
    );
    Ok(Client::with_options(client)?)
}

/// The link to the spans.
pub(crate) fn link(options: &MongoOptions, database: &Database) -> Link {
    let linearizable = CollectionOptions::builder()
        .read_concern(ReadConcern::linearizable())
        .build();
    Link {
        collection: database.collection(&options.collection),
        linearizable: database.collection_with_options(&options.collection, linearizable),
        time_limit: options.operation_timeout,
        database: database.clone(),
        logged: Arc::default(),
    }
}
