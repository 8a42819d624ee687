//! The settings of the database that the programs share.
//!
//! Reads and writes go to the primary, with concerns of our own, whatever the address says. An option that asks
//! for less is a mistake, because the operator relies on it. An option that something of ours replaces is worth a
//! warning.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use sampler_store_mongo::{MongoOptions, is_readable};
use secrecy::{ExposeSecret, SecretString};
use tracing::warn;

use crate::reader::Reader;
use crate::table::settings;
use crate::value::{text, value};

/// How long the driver looks for a suitable server.
const SERVER_SELECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest name of a MongoDB database, in bytes.
const DATABASE_NAME_MAX: usize = 63;

/// The longest name of a MongoDB collection that leaves room for the database's, in bytes.
const COLLECTION_NAME_MAX: usize = 128;

/// Options that something of ours replaces. The driver is not shown them: it refuses some, and values that it
/// cannot use.
const REPLACED: [&str; 12] = [
    "appName",
    "connectTimeoutMS",
    "localThresholdMS",
    "maxPoolSize",
    "maxStalenessSeconds",
    "readPreferenceTags",
    "serverSelectionTimeoutMS",
    "serverSelectionTryOnce",
    "socketTimeoutMS",
    "timeoutMS",
    "waitQueueTimeoutMS",
    "wTimeoutMS",
];

/// Options with the values that do not weaken what Sampler promises, and the promise.
const STRONG: [(&str, &[&str], &str); 5] = [
    (
        "readPreference",
        &["primary"],
        "an answer to a provider must know of all that was kept before",
    ),
    (
        "readConcernLevel",
        &["majority", "linearizable"],
        "what is read must not be rolled back",
    ),
    (
        "w",
        &["majority"],
        "what is kept must survive the loss of a server",
    ),
    (
        "journal",
        &["true"],
        "what is kept must survive a crash of the servers",
    ),
    (
        "retryWrites",
        &["true"],
        "writes are repeated when the primary changes",
    ),
];

settings! {
    /// The database that the programs share.
    pub struct DatabaseSettings {
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

    pub(crate) fn announce(&self) {
        if !self.uri.replaced.is_empty() {
            warn!(
                code = "database.option_replaced",
                options = self.uri.replaced.join(", "),
                "options in the address of the database do not count"
            );
        }
    }

    pub(crate) fn check(&self, reader: &mut Reader) {
        for why in &self.uri.weakened {
            reader.complain(format!("DB_URI sets {why}: remove the option"));
        }
    }
}

/// The address of the database, taken apart.
#[derive(Clone, Debug)]
pub struct DatabaseUri {
    /// The address, with credentials, without options that do not count.
    address: SecretString,
    /// The name of the database.
    database: String,
    /// Options that do not count.
    replaced: Vec<&'static str>,
    /// Options that would weaken what Sampler promises, and how. No value is repeated: it may be part of a secret.
    weakened: Vec<String>,
}

value!(
    secret DatabaseUri,
    "an address as in mongodb://user:password@host/name, with : / ? # @ % in user and password percent-encoded, and \
     options that the driver knows, each with a value that it takes",
    DatabaseUri::read
);

impl DatabaseUri {
    fn read(uri: &str) -> Result<Self, String> {
        let database = database_name(uri)?;
        let (place, query) = uri.split_once('?').unwrap_or((uri, ""));
        let options: Vec<_> = query
            .split(['&', ';'])
            .map(|text| (text, option(text)))
            .collect();
        let in_set = options
            .iter()
            .any(|(_, (name, _))| name.eq_ignore_ascii_case("replicaSet"));
        let (mut kept, mut replaced, mut weakened) = (Vec::new(), Vec::new(), Vec::new());
        for (text, (name, value)) in options {
            if let Some(own) = REPLACED
                .into_iter()
                .find(|own| own.eq_ignore_ascii_case(&name))
            {
                replaced.push(own);
                continue;
            }
            kept.push(text);
            weakened.extend(value.and_then(|value| weakness(&name, &value, in_set)));
        }
        let query = kept.join("&");
        let question = if query.is_empty() { "" } else { "?" };
        let address = format!("{place}{question}{query}");
        // Not in the driver's words, which repeat what it cannot read.
        if !is_readable(&address) {
            return Err(String::new());
        }
        Ok(Self {
            address: address.into(),
            database,
            replaced,
            weakened,
        })
    }
}

/// The name of the database in the path of its address. Several hosts make it an address that no URL parser takes,
/// so it is taken apart by hand; the driver looks at the rest.
fn database_name(uri: &str) -> Result<String, &'static str> {
    let rest = ["mongodb://", "mongodb+srv://"]
        .iter()
        .find_map(|scheme| uri.strip_prefix(scheme))
        .ok_or("it begins with something else")?;
    let (place, _options) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = place.split_once('/').unwrap_or((place, ""));
    let hosts = authority
        .rsplit_once('@')
        .map_or(authority, |(_, hosts)| hosts);
    if hosts.split(',').any(str::is_empty) {
        return Err("it has no host");
    }
    let name = percent_decode_str(path).decode_utf8();
    let name = name.map_err(|_| "its path is not UTF-8")?;
    if name.is_empty() {
        return Err("it has no name of a database in its path");
    }
    // An @ is a name like any other to MongoDB. But here it is the rest of a password with a slash.
    let is_forbidden = name.contains(|c: char| c.is_control() || r#"/\. "$*<>:|?@"#.contains(c));
    if name.len() > DATABASE_NAME_MAX || is_forbidden {
        return Err(
            "the name of the database in its path is longer than 63 bytes, or has a space or one of \
                    / \\ . \" $ * < > : | ? @",
        );
    }
    Ok(name.into_owned())
}

/// The name and the value of an option, decoded.
fn option(text: &str) -> (Cow<'_, str>, Option<String>) {
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy();
    match text.split_once('=') {
        Some((name, value)) => (decoded(name), Some(decoded(value).to_ascii_lowercase())),
        None => (decoded(text), None),
    }
}

/// How an option would weaken what Sampler promises, if it would.
fn weakness(name: &str, value: &str, in_set: bool) -> Option<String> {
    if name.eq_ignore_ascii_case("directConnection") && value == "true" && in_set {
        let why =
            "directConnection beside replicaSet, but the primary must be found when it changes";
        return Some(why.to_owned());
    }
    let strong = STRONG
        .iter()
        .find(|strong| strong.0.eq_ignore_ascii_case(name));
    let (name, values, promise) = strong.filter(|strong| !strong.1.contains(&value))?;
    Some(format!(
        "{name} to something other than {}, but {promise}",
        values[0]
    ))
}

text!(
    CollectionName,
    "a name of a collection: at most 128 bytes, without $, not beginning with system. and neither beginning nor ending \
     with a dot",
    |name: &str| {
        let is_forbidden = name.starts_with("system.")
            || name.starts_with('.')
            || name.ends_with('.')
            || name.contains(|c: char| c.is_control() || c == '$');
        !is_forbidden && name.len() <= COLLECTION_NAME_MAX
    }
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

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
            assert_eq!(database_name(uri), Ok(name.to_owned()), "{uri}");
        }
        for uri in [
            "mongodb://host",
            "mongodb://host/",
            "mongodb://host/?name=1",
            "http://host/name",
            "name",
            "mongodb:///name",
            "mongodb://host,/name",
            "mongodb://host/name/more",
            "mongodb://host/name.spans",
            "mongodb://me:1/name@host",
            "mongodb://host/%ff",
            &format!("mongodb://host/{}", "x".repeat(DATABASE_NAME_MAX + 1)),
        ] {
            assert!(database_name(uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn what_does_not_count_is_not_shown_to_the_driver() {
        for (given, left, replaced) in [
            ("mongodb://a/b", "mongodb://a/b", &[][..]),
            (
                "mongodb://a/b?socketTimeoutMS=x",
                "mongodb://a/b",
                &["socketTimeoutMS"],
            ),
            (
                "mongodb://u:p%3F@a,c/b?w=majority&TIMEOUTms=1;replicaSet=rs0&max%50oolSize=0",
                "mongodb://u:p%3F@a,c/b?w=majority&replicaSet=rs0",
                &["timeoutMS", "maxPoolSize"],
            ),
        ] {
            let uri = DatabaseUri::parse(given).unwrap();
            assert_eq!(uri.address.expose_secret(), left);
            assert_eq!(uri.replaced, replaced);
        }
    }

    #[test]
    fn what_would_weaken_a_promise_is_named_without_its_value() {
        for (query, name) in [
            ("readPreference=secondaryPreferred", "readPreference"),
            ("READPREFERENCE=nearest", "readPreference"),
            ("readPreference=%73econdary", "readPreference"),
            ("readConcernLevel=local", "readConcernLevel"),
            ("w=1", "w to"),
            ("w=eastwest", "w to"),
            ("journal=false", "journal"),
            ("retryWrites=false", "retryWrites"),
            ("replicaSet=rs0&directConnection=true", "directConnection"),
            ("directconnection=true&replicaset=rs0", "directConnection"),
        ] {
            let uri = DatabaseUri::parse(&format!("mongodb://a:1,b:2/spans?{query}"));
            let uri = uri.or_else(|_| DatabaseUri::parse(&format!("mongodb://a/spans?{query}")));
            let weakened = uri.unwrap().weakened;
            assert_eq!(weakened.len(), 1, "{query}");
            assert!(weakened[0].starts_with(name), "{query}: {weakened:?}");
            let value = query.rsplit_once('=').unwrap().1;
            assert!(value.len() < 3 || value == "true" || !weakened[0].contains(value));
        }
        for query in [
            "replicaSet=rs0",
            "readPreference=primary&w=majority&journal=true&retryWrites=true",
            "readConcernLevel=linearizable",
            "directConnection=false&replicaSet=rs0",
            "tls=true&authSource=admin&retryReads=false",
            "maxIdleTimeMS=1000&minPoolSize=2",
        ] {
            let uri = DatabaseUri::parse(&format!("mongodb://me:hush@a:1,b:2/spans?{query}"));
            let uri = uri.unwrap();
            assert!(
                uri.weakened.is_empty() && uri.replaced.is_empty(),
                "{query}"
            );
        }
    }

    #[test]
    fn collections_have_the_names_that_mongodb_takes() {
        for name in ["spans", "abacus-spans", "billing.spans"] {
            assert!(CollectionName::parse(name).is_ok());
        }
        let long = "x".repeat(COLLECTION_NAME_MAX + 1);
        for name in ["system.spans", "a$b", ".spans", "spans.", "a\0b", &long] {
            assert!(CollectionName::parse(name).is_err(), "{name:?}");
        }
    }
}
