//! Options in the address of the database that Sampler does not follow.
//!
//! Reads and writes go to the primary, with concerns of our own, whatever the address says. An
//! option that asks for less is a mistake, because the operator relies on it. An option that something of ours
//! replaces is worth a warning. An option that agrees with ours is fine.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Options that something of ours replaces.
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

/// Why options of an address would weaken what Sampler promises. No value is repeated: it may be part of a secret
/// that is not encoded as it must be.
pub(crate) fn weaknesses(uri: &str) -> Vec<&'static str> {
    let options = options(uri);
    let in_set = options
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("replicaSet"));
    options
        .iter()
        .filter_map(|(name, value)| weakness(name, value, in_set))
        .collect()
}

/// The options of an address that do not count.
pub(crate) fn replaced(uri: &str) -> Vec<&'static str> {
    let options = options(uri);
    options
        .iter()
        .filter_map(|(name, _)| replaced_option(name))
        .collect()
}

/// The option that does not count, if it is one of those.
fn replaced_option(name: &str) -> Option<&'static str> {
    REPLACED
        .into_iter()
        .find(|option| option.eq_ignore_ascii_case(name))
}

/// The address without the options that do not count. The driver refuses some of them, and values
/// that it cannot use.
pub(crate) fn without_replaced(uri: &str) -> String {
    let Some((address, query)) = uri.split_once('?') else {
        return uri.to_owned();
    };
    let options: Vec<&str> = query
        .split(['&', ';'])
        .filter(|option| {
            let name = option.split_once('=').map_or(*option, |(name, _)| name);
            replaced_option(&decoded(name)).is_none()
        })
        .collect();
    if options.is_empty() {
        return address.to_owned();
    }
    format!("{address}?{}", options.join("&"))
}

/// The names and values of the options, decoded.
fn options(uri: &str) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    query
        .split(['&', ';'])
        .filter_map(|option| option.split_once('='))
        .map(|(name, value)| (decoded(name), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

/// Why the option would weaken what Sampler promises, if it would.
fn weakness(name: &str, value: &str, in_set: bool) -> Option<&'static str> {
    let value = value.to_ascii_lowercase();
    match name.to_ascii_lowercase().as_str() {
        "readpreference" if value != "primary" => Some(
            "sets readPreference to something other than primary, but an answer to a provider \
             must know of all that was kept before, so only the primary is read",
        ),
        "readconcernlevel" if value != "majority" && value != "linearizable" => Some(
            "sets readConcernLevel to something other than majority, but what is read must not be \
             rolled back",
        ),
        "w" if value != "majority" => Some(
            "sets w to something other than majority, but what is kept must survive the loss of a \
             server",
        ),
        "journal" if value != "true" => {
            Some("turns journal off, but what is kept must survive a crash of the servers")
        }
        "retrywrites" if value != "true" => {
            Some("turns retryWrites off, but writes are repeated when the primary changes")
        }
        "directconnection" if value == "true" && in_set => Some(
            "sets directConnection beside replicaSet, but the primary must be found when it \
             changes",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(query: &str) -> String {
        format!("mongodb://me:hush@a:1,b:2/spans?{query}")
    }

    #[test]
    fn what_does_not_count_is_not_shown_to_the_driver() {
        for (given, left) in [
            ("mongodb://a/b", "mongodb://a/b"),
            ("mongodb://a/b?socketTimeoutMS=1", "mongodb://a/b"),
            (
                "mongodb://u:p%3F@a,c/b?w=majority&SOCKETtimeoutms=1;replicaSet=rs0&maxPoolSize=0",
                "mongodb://u:p%3F@a,c/b?w=majority&replicaSet=rs0",
            ),
        ] {
            assert_eq!(without_replaced(given), left);
        }
    }

    #[test]
    fn what_would_weaken_a_promise_is_named_without_its_value() {
        for (query, name) in [
            ("readPreference=secondaryPreferred", "readPreference"),
            ("READPREFERENCE=nearest", "readPreference"),
            ("readPreference=%73econdary", "readPreference"),
            ("readConcernLevel=local", "readConcernLevel"),
            ("readConcernLevel=available", "readConcernLevel"),
            ("w=1", "sets w "),
            ("w=0", "sets w "),
            ("w=eastwest", "sets w "),
            ("journal=false", "journal"),
            ("retryWrites=false", "retryWrites"),
            ("tls=true&%77=2", "sets w "),
            ("replicaSet=rs0&directConnection=true", "directConnection"),
            ("directconnection=true&replicaset=rs0", "directConnection"),
        ] {
            let found = weaknesses(&uri(query));
            let [text] = found.as_slice() else {
                panic!("{query}: {found:?}");
            };
            assert!(text.contains(name), "{query}: {text}");
            let value = query.rsplit_once('=').unwrap().1;
            assert!(value.len() < 3 || value == "true" || !text.contains(value));
        }
    }

    #[test]
    fn what_agrees_with_us_or_is_followed_is_silent() {
        for query in [
            "",
            "replicaSet=rs0",
            "readPreference=primary&w=majority&journal=true&retryWrites=true",
            "readConcernLevel=majority",
            "readConcernLevel=linearizable",
            "directConnection=true",
            "directConnection=false&replicaSet=rs0",
            "tls=true&tlsCAFile=%2Fca.pem&authSource=admin&retryReads=false&compressors=zlib",
            "maxIdleTimeMS=1000&minPoolSize=2&heartbeatFrequencyMS=5000",
            "w",
        ] {
            let uri = uri(query);
            assert!(
                weaknesses(&uri).is_empty() && replaced(&uri).is_empty(),
                "{query}"
            );
        }
    }

    #[test]
    fn each_of_several_is_named() {
        let uri = uri("w=1&MAXPOOLSIZE=5&journal=false&timeoutMS=1");
        assert_eq!(weaknesses(&uri).len(), 2);
        assert_eq!(replaced(&uri), ["maxPoolSize", "timeoutMS"]);
    }
}
