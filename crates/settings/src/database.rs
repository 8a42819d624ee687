//! The settings of the database that the programs share.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use sampler_store_mongo::{MongoOptions, is_readable};
use secrecy::{ExposeSecret, SecretString};
use tracing::warn;

use crate::declare::settings;
use crate::reader::Reader;
use crate::uri_options::{replaced, weaknesses, without_replaced};
use crate::value::Value;

/// How long the driver looks for a suitable server.
pub(crate) const SERVER_SELECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest name of a MongoDB database, in bytes.
const DATABASE_NAME_MAX: usize = 63;

/// The longest name of a MongoDB collection that leaves room for the database's, in bytes.
const COLLECTION_NAME_MAX: usize = 128;

settings! {
    /// The database that the programs share.
    pub struct DatabaseSettings(checked by DatabaseSettings::check) {
        /// The address of the MongoDB, with the name of the database in its path. A MongoDB service
        /// that the platform has bound (VCAP_SERVICES) overrides it. Options that would weaken reads or
        /// writes (readPreference, readConcernLevel, w, journal, retryWrites, directConnection beside
        /// replicaSet) are mistakes.
        uri: DatabaseUri = "DB_URI", "mongodb://localhost:27017/sampler";
        /// The name of the bound MongoDB service to use. Needed only if several are bound.
        service: Option<String> = "SAMPLER_DB_SERVICE";
        /// The collection that holds the spans.
        collection: String as CollectionName = "SPANS_COLLECTION_NAME", "spans";
        /// The maximum number of connections to each server of the database.
        pool_size: u32 = "SAMPLER_DB_POOL_SIZE", "64", in "1" to "1000";
        /// How long one operation of the database may take.
        operation_timeout: Duration = "SAMPLER_DB_OPERATION_TIMEOUT", "10s", in "100ms" to "10m";
    }
}

impl DatabaseSettings {
    /// The options of the driver. `app_name` is the program's name in the server's logs.
    pub fn options(&self, app_name: &str) -> MongoOptions {
        MongoOptions {
            uri: self.uri.address.expose_secret().to_owned(),
            database: self.uri.database.clone(),
            collection: self.collection.clone(),
            pool_size: self.pool_size,
            server_selection_timeout: SERVER_SELECTION_TIMEOUT,
            operation_timeout: self.operation_timeout,
            app_name: app_name.to_owned(),
        }
    }

    /// Logs which options in the address do not count, once the log is there.
    pub fn announce(&self) {
        if !self.uri.replaced.is_empty() {
            warn!(
                code = "database.option_replaced",
                options = self.uri.replaced.join(", "),
                "options in the address of the database do not count"
            );
        }
    }

    /// Complains of each option in the address that would weaken what Sampler promises.
    fn check(&self, reader: &mut Reader) {
        for why in &self.uri.weakened {
            reader.complain(format!("DB_URI {why}: remove the option"));
        }
    }
}

/// The address of the database, taken apart.
#[derive(Clone, Debug)]
pub struct DatabaseUri {
    /// The address, with credentials.
    address: SecretString,
    /// The name of the database.
    database: String,
    /// Options that do not count.
    replaced: Vec<&'static str>,
    /// What is wrong with options that would weaken what Sampler promises.
    weakened: Vec<&'static str>,
}

impl Value for DatabaseUri {
    const EXPECTED: &'static str = "an address as in mongodb://user:password@host/name";
    const IS_SECRET: bool = true;

    fn parse(uri: &str) -> Result<Self, String> {
        let (database, address) = (database_name(uri)?, without_replaced(uri));
        // Not in the driver's words, which repeat what it cannot read.
        if !is_readable(&address) {
            return Err(
                "an address that the driver can read: mongodb://user:password@host/name, \
                        with : / ? # @ % in user and password percent-encoded, and options that \
                        the driver knows, each with a value that it takes"
                    .to_owned(),
            );
        }
        Ok(Self {
            address: address.into(),
            database,
            replaced: replaced(uri),
            weakened: weaknesses(uri),
        })
    }
}

/// The path of an address. Several hosts make it an address that no URL parser takes, so it is taken apart by
/// hand; the driver looks at the rest.
fn path(uri: &str) -> Result<&str, String> {
    let rest = uri
        .strip_prefix("mongodb://")
        .or_else(|| uri.strip_prefix("mongodb+srv://"))
        .ok_or("an address that begins with mongodb:// or mongodb+srv://")?;
    let (before_options, _options) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = before_options
        .split_once('/')
        .unwrap_or((before_options, ""));
    let hosts = authority
        .rsplit_once('@')
        .map_or(authority, |(_credentials, hosts)| hosts);
    if hosts.split(',').any(str::is_empty) {
        return Err("a host in the address".to_owned());
    }
    Ok(path)
}

/// The name of the database in the path of its address.
fn database_name(uri: &str) -> Result<String, String> {
    let name = percent_decode_str(path(uri)?)
        .decode_utf8()
        .map_err(|_| "UTF-8 in the path")?;
    if name.is_empty() {
        return Err("the name of the database in the path, as in mongodb://host/name".to_owned());
    }
    // An @ is a name like any other to MongoDB. But here it is the rest of a password with a slash.
    let is_forbidden = name.contains(|c: char| c.is_control() || r#"/\. "$*<>:|?@"#.contains(c));
    if name.len() > DATABASE_NAME_MAX || is_forbidden {
        return Err(format!(
            "the name of the database in the path: at most {DATABASE_NAME_MAX} bytes, without \
             spaces and any of / \\ . \" $ * < > : | ? @"
        ));
    }
    Ok(name.into_owned())
}

struct CollectionName(String);

impl From<CollectionName> for String {
    fn from(name: CollectionName) -> Self {
        name.0
    }
}

impl Value for CollectionName {
    const EXPECTED: &'static str = "a name of a collection: at most 128 bytes, without $, not beginning with \
         system. and neither beginning nor ending with a dot";

    fn parse(name: &str) -> Result<Self, String> {
        let is_forbidden = name.starts_with("system.")
            || name.starts_with('.')
            || name.ends_with('.')
            || name.contains(|c: char| c.is_control() || c == '$');
        if is_forbidden || name.len() > COLLECTION_NAME_MAX {
            return Err(Self::EXPECTED.to_owned());
        }
        Ok(Self(name.to_owned()))
    }
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
            "mongodb://me:1/s3cr3t@host",
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
            assert!(CollectionName::parse(name).is_ok());
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
            assert!(CollectionName::parse(name).is_err(), "{name:?}");
        }
    }
}
