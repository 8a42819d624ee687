//! The settings of the database that the programs share.

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use tracing::warn;

use super::HIDDEN;
use super::groups::BRIEF;
use super::reader::Reader;
use super::setting::{Kind, Setting};
use super::uri_options::{Finding, ReplacedOption, findings};

const MINUTES: Duration = Duration::from_mins(10);

/// The longest name of a MongoDB database, in bytes.
const DATABASE_NAME_MAX: usize = 63;

/// The longest name of a MongoDB collection that leaves room for the database's, in bytes.
const COLLECTION_NAME_MAX: usize = 128;

/// The database that the programs share.
pub const DATABASE: [Setting; 6] = [
    Setting::new(
        "database.uri",
        "DB_URI",
        Kind::Text,
        "The address of the MongoDB, with the name of the database in its path. A MongoDB service \
         that the platform has bound (VCAP_SERVICES, SERVICE_BINDING_ROOT) counts before it. \
         Options that would weaken what is kept or read (readPreference, readConcernLevel, w, \
         journal, retryWrites, directConnection beside replicaSet) must not be set to that.",
    )
    .or("mongodb://localhost:27017/sampler")
    .secret(),
    Setting::new(
        "database.service",
        "SAMPLER_DB_SERVICE",
        Kind::Text,
        "The name of the bound MongoDB service to use. Needed only where several are bound.",
    ),
    Setting::new(
        "database.collection",
        "SPANS_COLLECTION_NAME",
        Kind::Text,
        "The collection that holds the spans.",
    )
    .or("spans"),
    Setting::new(
        "database.pool_size",
        "SAMPLER_DB_POOL_SIZE",
        Kind::Integer { min: 1, max: 1000 },
        "The most connections that are open to one server of the database.",
    )
    .or("64"),
    Setting::new(
        "database.server_selection_timeout",
        "SAMPLER_DB_SERVER_SELECTION_TIMEOUT",
        Kind::Duration {
            min: BRIEF,
            max: MINUTES,
        },
        "How long to look for a server of the database that can take an operation.",
    )
    .or("5s"),
    Setting::new(
        "database.operation_timeout",
        "SAMPLER_DB_OPERATION_TIMEOUT",
        Kind::Duration {
            min: BRIEF,
            max: MINUTES,
        },
        "How long one operation of the database may take.",
    )
    .or("10s"),
];

/// The database that the programs share.
#[derive(Clone)]
pub struct DatabaseSettings {
    /// Its address, with credentials.
    pub uri: SecretString,
    /// The name of the database, out of the address.
    pub database: String,
    /// The collection of the spans.
    pub collection: String,
    /// The most connections to one server.
    pub pool_size: u32,
    /// How long to look for a server.
    pub server_selection_timeout: Duration,
    /// How long one operation may take.
    pub operation_timeout: Duration,
    /// Options in the address that do not count.
    pub replaced: Vec<ReplacedOption>,
}

impl DatabaseSettings {
    /// Reads the group [`DATABASE`].
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let database = reader.parse_with("database.uri", database_name);
        let collection = reader.parse_with("database.collection", collection_name);
        let replaced = check_options(reader);
        Self {
            uri: reader.secret("database.uri").unwrap_or_default(),
            database: database.unwrap_or_default(),
            collection: collection.unwrap_or_default(),
            pool_size: reader.integer("database.pool_size"),
            server_selection_timeout: reader.duration("database.server_selection_timeout"),
            operation_timeout: reader.duration("database.operation_timeout"),
            replaced,
        }
    }

    /// Logs each option in the address that does not count, once the log is there.
    pub fn announce(&self) {
        for ReplacedOption { name, by } in &self.replaced {
            warn!(
                option = name,
                instead = by,
                "an option in the address of the database does not count"
            );
        }
    }
}

/// Complains of each option in the address that would weaken what Sampler promises. The options
/// that do not count.
fn check_options(reader: &mut Reader<'_>) -> Vec<ReplacedOption> {
    let uri = reader.optional_text("database.uri").unwrap_or_default();
    let source = reader.source("database.uri").map(ToString::to_string);
    let source = source.unwrap_or_default();
    let mut replaced = Vec::new();
    for finding in findings(&uri) {
        match finding {
            Finding::Weakens(why) => reader.complain(format!(
                "DB_URI (database.uri), from {source}, {why}: remove the option"
            )),
            Finding::Replaced(option) => replaced.push(option),
        }
    }
    replaced
}

impl fmt::Debug for DatabaseSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatabaseSettings")
            .field("uri", &format_args!("{HIDDEN}"))
            .field("database", &self.database)
            .field("collection", &self.collection)
            .field("pool_size", &self.pool_size)
            .field("server_selection_timeout", &self.server_selection_timeout)
            .field("operation_timeout", &self.operation_timeout)
            .field("replaced", &self.replaced)
            .finish()
    }
}

/// The name of the database in the path of its address. Several hosts make it an address that no
/// URL parser takes, so it is taken apart by hand; the driver looks at the rest.
fn database_name(uri: &str) -> Result<String, String> {
    let schemes = ["mongodb://", "mongodb+srv://"];
    let rest = schemes.iter().find_map(|scheme| uri.strip_prefix(scheme));
    let rest = rest.ok_or("an address that begins with mongodb:// or mongodb+srv://")?;
    let (hosts_and_path, _options) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, path) = hosts_and_path
        .split_once('/')
        .unwrap_or((hosts_and_path, ""));
    let hosts = hosts
        .rsplit_once('@')
        .map_or(hosts, |(_credentials, hosts)| hosts);
    if hosts.split(',').any(str::is_empty) {
        return Err("a host in the address".to_owned());
    }
    let name = percent_decode_str(path)
        .decode_utf8()
        .map_err(|_| "UTF-8 in the path")?;
    if name.is_empty() {
        return Err("the name of the database in the path, as in mongodb://host/name".to_owned());
    }
    let forbidden = |c: char| c.is_control() || r#"/\. "$*<>:|?"#.contains(c);
    if name.len() > DATABASE_NAME_MAX || name.contains(forbidden) {
        return Err(format!(
            "the name of the database in the path: at most {DATABASE_NAME_MAX} bytes, without \
             spaces and any of / \\ . \" $ * < > : | ?"
        ));
    }
    Ok(name.into_owned())
}

fn collection_name(name: &str) -> Result<String, String> {
    let forbidden = |c: char| c.is_control() || c == '$';
    let odd = name.starts_with("system.") || name.starts_with('.') || name.ends_with('.');
    if odd || name.len() > COLLECTION_NAME_MAX || name.contains(forbidden) {
        return Err(format!(
            "a name of a collection: at most {COLLECTION_NAME_MAX} bytes, without $, not \
             beginning with system. and neither beginning nor ending with a dot"
        ));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_database_in_the_address() {
        for (uri, name) in [
            ("mongodb://localhost:27017/sampler", "sampler"),
            (
                "mongodb://me:p%2Fss@a:1,b:2,c:3/spans?replicaSet=rs0&w=majority",
                "spans",
            ),
            ("mongodb+srv://cluster.example/my%2Dspans", "my-spans"),
            ("mongodb://me:p@ss@host/spans", "spans"),
        ] {
            assert_eq!(database_name(uri).as_deref(), Ok(name), "{uri}");
        }
    }

    #[test]
    fn an_address_without_a_database_is_refused_without_repeating_it() {
        for uri in [
            "mongodb://me:s3cr3t@host",
            "mongodb://me:s3cr3t@host/",
            "mongodb://host/?s3cr3t=1",
            "http://s3cr3t/name",
            "s3cr3t",
            "mongodb:///s3cr3t",
            "mongodb://host,/s3cr3t",
            "mongodb://host/s3cr3t/more",
            "mongodb://host/s3cr3t.spans",
            "mongodb://host/%ff",
        ] {
            let mistake = database_name(uri).unwrap_err();
            assert!(!mistake.contains("s3cr3t"), "{uri}: {mistake}");
        }
        assert!(database_name(&format!("mongodb://host/{}", "x".repeat(63))).is_ok());
        assert!(database_name(&format!("mongodb://host/{}", "x".repeat(64))).is_err());
    }

    #[test]
    fn collections_have_the_names_that_mongodb_takes() {
        for name in ["spans", "abacus-spans", "billing.spans"] {
            assert_eq!(collection_name(name).as_deref(), Ok(name));
        }
        let long = "x".repeat(COLLECTION_NAME_MAX + 1);
        for name in [
            "system.spans",
            "a$b",
            ".spans",
            "spans.",
            "a\0b",
            long.as_str(),
        ] {
            assert!(collection_name(name).is_err(), "{name:?}");
        }
    }
}
