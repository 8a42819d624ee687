//! The settings of the database that the programs share.
//!
//! Reads and writes go to the primary, with concerns of our own, whatever the address says. An option that asks
//! for less is a mistake, because the operator relies on it. An option that something of ours replaces is worth a
//! warning.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use sampler_store_mongo::{MongoOptions, is_readable};
use secrecy::{ExposeSecret, SecretString};
use tracing::warn;

use crate::reader::Reader;
use crate::table::settings;
use crate::value::{texts, values};

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
    /// Options that would weaken what Sampler promises, and how.
    weakened: Vec<&'static str>,
}

values! {
    DatabaseUri, secret: "an address as in mongodb://user:password@host/name: with the name of the database (at most 63 \
        bytes, without spaces and any of / \\ . \" $ * < > : | ? @), : / ? # @ % in user and password percent-encoded, and \
        options that the driver knows", DatabaseUri::read;
}

texts! {
    CollectionName: "a name of a collection: at most 128 bytes, without $, not beginning with system. and neither \
        beginning nor ending with a dot", is_collection;
}

fn is_collection(name: &str) -> bool {
    let is_forbidden = name.starts_with("system.")
        || name.starts_with('.')
        || name.ends_with('.')
        || name.contains(|c: char| c.is_control() || c == '$');
    !is_forbidden && name.len() <= COLLECTION_NAME_MAX
}

impl DatabaseUri {
    fn read(uri: &str) -> Option<Self> {
        let database = database_name(uri)?;
        let (place, query) = uri.split_once('?').unwrap_or((uri, ""));
        let options: Vec<_> = query.split(['&', ';']).map(|it| (it, option(it))).collect();
        let in_set = options.iter().any(|(_, (name, _))| name == "replicaset");
        let (mut kept, mut replaced, mut weakened) = (Vec::new(), Vec::new(), Vec::new());
        for (text, (name, value)) in &options {
            let own = REPLACED
                .into_iter()
                .find(|own| own.eq_ignore_ascii_case(name));
            if own.is_none() {
                kept.push(*text);
            }
            replaced.extend(own);
            weakened.extend(weakness(name, value, in_set));
        }
        let query = kept.join("&");
        let question = if query.is_empty() { "" } else { "?" };
        let address = format!("{place}{question}{query}");
        // Not in the driver's words, which repeat what it cannot read.
        is_readable(&address).then(|| Self {
            address: address.into(),
            database,
            replaced,
            weakened,
        })
    }
}

/// The name of the database in the path of its address. Several hosts make it an address that no URL parser takes,
/// so it is taken apart by hand; the driver looks at the rest.
fn database_name(uri: &str) -> Option<String> {
    let mut schemes = ["mongodb://", "mongodb+srv://"].into_iter();
    let rest = schemes.find_map(|scheme| uri.strip_prefix(scheme))?;
    let (place, _options) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = place.split_once('/')?;
    let hosts = authority.rsplit_once('@').map_or(authority, |it| it.1);
    let name = percent_decode_str(path).decode_utf8().ok()?;
    // An @ is a name like any other to MongoDB. But here it is the rest of a password with a slash.
    let is_forbidden = |c: char| c.is_control() || r#"/\. "$*<>:|?@"#.contains(c);
    let is_fine = (1..=DATABASE_NAME_MAX).contains(&name.len()) && !name.contains(is_forbidden);
    (is_fine && !hosts.split(',').any(str::is_empty)).then(|| name.into_owned())
}

/// The name and the value of an option, decoded and in lower case.
fn option(text: &str) -> (String, String) {
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy().to_lowercase();
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (decoded(name), decoded(value))
}

/// How an option would weaken what Sampler promises, if it would. No value is repeated: it may be part of a secret.
fn weakness(name: &str, value: &str, in_set: bool) -> Option<&'static str> {
    Some(match name {
        "readpreference" if value != "primary" => {
            "readPreference to something other than primary, but an answer to a provider must know of all that was kept \
             before"
        }
        "readconcernlevel" if !["majority", "linearizable"].contains(&value) => {
            "readConcernLevel to something other than majority, but what is read must not be rolled back"
        }
        "w" if value != "majority" => {
            "w to something other than majority, but what is kept must survive the loss of a server"
        }
        "journal" if value != "true" => {
            "journal to something other than true, but what is kept must survive a crash of the servers"
        }
        "retrywrites" if value != "true" => {
            "retryWrites to something other than true, but writes are repeated when the primary changes"
        }
        "directconnection" if value == "true" && in_set => {
            "directConnection beside replicaSet, but the primary must be found when it changes"
        }
        _ => return None,
    })
}

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
            assert_eq!(database_name(uri).as_deref(), Some(name), "{uri}");
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
            assert!(database_name(uri).is_none(), "{uri}");
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
            let uri = uri.or_else(|| DatabaseUri::parse(&format!("mongodb://a/spans?{query}")));
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
            assert!(is_collection(name));
        }
        let long = "x".repeat(COLLECTION_NAME_MAX + 1);
        for name in ["system.spans", "a$b", ".spans", "spans.", "a\0b", &long] {
            assert!(!is_collection(name), "{name:?}");
        }
    }
}
