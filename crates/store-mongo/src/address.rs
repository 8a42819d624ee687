//! Connection strings, which may hold a password, and what the driver says of them.

use std::collections::BTreeSet;
use std::error::Error as _;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use mongodb::error::{Error, ErrorKind};
use mongodb::options::ConnectionString;
use percent_encoding::percent_decode_str;

use crate::call::CallError;

/// The separators in a connection string.
const SEPARATORS: [char; 10] = [':', '@', '/', '?', '&', '=', ',', ';', '#', ' '];

/// The ports that a MongoDB has by default.
const USUAL_PORTS: RangeInclusive<u16> = 27_017..=27_020;

const HIDDEN: &str = "<hidden>";

/// Hosts of a connection string that may be a user with a password. The driver reads
/// `mongodb://user:1234/db`, which has no host, as a host with a port, and names it in its errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct DoubtfulHosts(Arc<[String]>);

impl DoubtfulHosts {
    /// Those of a connection string: each that has an unusual port, where there are no credentials.
    /// This machine and addresses of numbers are no users.
    pub(crate) fn of(uri: &str) -> Self {
        Self(doubtful_hosts(uri).map(str::to_lowercase).collect())
    }

    /// Hides them in an error of the driver.
    pub(crate) fn hide_in(&self, error: CallError) -> CallError {
        match error {
            CallError::Driver(error) if !self.0.is_empty() && is_of_the_way(&error) => {
                CallError::Unreachable(hide(error.kind.to_string(), &self.0))
            }
            error => error,
        }
    }
}

/// Whether the error is that no server can be reached. Of a user that was taken for a host, there is
/// no other one.
fn is_of_the_way(error: &Error) -> bool {
    matches!(
        error.kind.as_ref(),
        ErrorKind::ServerSelection { .. } | ErrorKind::DnsResolve { .. }
    )
}

fn doubtful_hosts(uri: &str) -> impl Iterator<Item = &str> {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let hosts = rest.split(['/', '?']).next().unwrap_or_default();
    let has_credentials = rest.contains('@');
    let is_doubtful = move |host: &&str| {
        let Some((name, port)) = host.rsplit_once(':') else {
            return false;
        };
        let port: Option<u16> = port.parse().ok();
        let is_usual = port.is_some_and(|port| USUAL_PORTS.contains(&port));
        let ip: Result<IpAddr, _> = name.trim_matches(['[', ']']).parse();
        !has_credentials && !is_usual && name != "localhost" && ip.is_err()
    };
    hosts.split(',').filter(is_doubtful)
}

/// Hides each of these parts of a text, whether or not its letters are capitals in it.
fn hide(mut text: String, parts: &[String]) -> String {
    for part in parts {
        while let Some(at) = text.to_ascii_lowercase().find(&part.to_ascii_lowercase()) {
            text.replace_range(at..at + part.len(), HIDDEN);
        }
    }
    text
}

/// Whether the driver can read a connection string.
///
/// # Errors
/// Its fault, without any part of it that may be secret.
pub fn check_address(uri: &str) -> Result<(), String> {
    match ConnectionString::parse(uri) {
        Ok(_) => Ok(()),
        Err(error) => Err(describe_without(uri, &error)),
    }
}

/// Describes an error without what may be secret in the connection string. The driver repeats parts
/// of it: of `mongodb://user:password/db`, which has no host, the password as a wrong port.
pub(crate) fn describe_without(uri: &str, error: &Error) -> String {
    let mut text = error.kind.to_string();
    if let Some(source) = error.source() {
        text = format!("{text}: {source}");
    }
    // The longest first: one may be a part of another.
    let mut secrets: Vec<String> = secrets(uri).into_iter().collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    let doubtful: Vec<String> = doubtful_hosts(uri).map(str::to_owned).collect();
    text = hide(text, &doubtful);
    // The driver's last word on a port is the port, which may be a single letter.
    if let Some(at) = text.rfind(", got ") {
        text.replace_range(at + ", got ".len().., HIDDEN);
    }
    for secret in secrets {
        text = text.replace(&secret, HIDDEN);
    }
    text
}

/// All parts that may be secret, as they are written and decoded: credentials, whatever they hold;
/// what stands behind a colon, where there are none; values of options. Names of hosts, of the
/// database and of options are not.
fn secrets(uri: &str) -> BTreeSet<String> {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let mut parts: Vec<&str> = Vec::new();
    let rest = match rest.rsplit_once('@') {
        Some((credentials, rest)) => {
            parts.push(credentials);
            rest
        }
        None => rest,
    };
    let (hosts_and_path, options) = rest.split_once('?').unwrap_or((rest, ""));
    let hosts = hosts_and_path.split('/').next().unwrap_or_default();
    let after_colons = hosts.split(',').filter_map(|host| host.split_once(':'));
    parts.extend(after_colons.map(|(_, text)| text));
    let options = options
        .split(['&', ';'])
        .filter(|option| !option.is_empty());
    parts.extend(options.map(|option| option.split_once('=').map_or(option, |(_, value)| value)));
    let pieces = parts.into_iter().flat_map(|part| {
        let decoded = percent_decode_str(part).decode_utf8_lossy().into_owned();
        let pieces = part.split(SEPARATORS).map(str::to_owned);
        let of_decoded: Vec<String> = decoded.split(SEPARATORS).map(str::to_owned).collect();
        pieces.chain([part.to_owned(), decoded]).chain(of_decoded)
    });
    // A single letter is no secret, but a part of every word.
    pieces.filter(|piece| piece.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_not_repeated() {
        for uri in [
            "mongodb://me:s3cr3t/db",
            "mongodb://me:s3cr3t",
            "mongodb://a:1,me:s3cr3t/db",
            "mongodb://me:s3cr3t@/db",
            "mongodb://me:s3cr3t@:27017/db",
            "mongodb://me:s3cr3t@host:port/db",
            "mongodb://me:s3/cr3t@host/db",
            "mongodb://me:s3cr3t/s3cr3t@host/db",
            "mongodb://me:s3cr3t?s3cr3t@host/db",
            "mongodb://me:s3cr3t@s3cr3t@host:x/db",
            "mongodb://me:s3cr3t%zz@host/db",
            "mongodb://me:%73%33cr3t/db",
            "mongodb+srv://me:s3cr3t/db",
            "mongodb+srv://me:s3cr3t@a,b/db",
            "mongodb://host/db?authMechanism=s3cr3t",
            "mongodb://host/db?authMechanismProperties=A:s3cr3t",
            "mongodb://host/db?tlsCertificateKeyFilePassword=s3cr3t&w=",
            "mongodb://host/db?s3cr3t",
            "mongodb://host/db?maxIdleTimeMS=s3cr3t",
            "s3cr3t",
            "",
        ] {
            if let Err(said) = check_address(uri) {
                assert!(!said.contains("s3cr3t"), "{uri}: {said}");
                assert!(!said.is_empty());
            }
        }
        let lost = std::io::Error::other("no user:s3cr3t or s3cr3t here");
        let said = describe_without("mongodb://user:s3cr3t@host/db", &lost.into());
        assert!(said.ends_with("no <hidden> or <hidden> here"), "{said}");
    }

    /// A host that is really a user and a password. They must not be named, not even as a port.
    #[test]
    fn a_user_and_a_password_that_read_as_a_host_and_a_port_are_hidden() {
        for (uri, expected) in [
            ("mongodb://Me:1234/db", vec!["me:1234"]),
            ("mongodb://me:1234", vec!["me:1234"]),
            ("mongodb://a:1,b.c:65535/db?w=1", vec!["a:1", "b.c:65535"]),
            ("mongodb://me:1234@host:1/db", vec![]),
            ("mongodb://host/db", vec![]),
            ("mongodb://db.example:27017,other:27018/db", vec![]),
            ("mongodb://localhost:1,127.0.0.1:2,[::1]:3/db", vec![]),
        ] {
            assert_eq!(*DoubtfulHosts::of(uri).0, expected, "{uri}");
        }
        let hosts = DoubtfulHosts::of("mongodb://Me:1234/db");
        let error = CallError::Unreachable(hide("at Me:1234, me:1234".to_owned(), &hosts.0));
        assert_eq!(error.to_string(), "at <hidden>, <hidden>");
        for uri in ["mongodb://me:123456/db", "mongodb://me:0/db"] {
            let said = check_address(uri).unwrap_err();
            let words: Vec<&str> = said.split(|c: char| !c.is_alphanumeric()).collect();
            assert!(!words.contains(&"me"), "{said}");
            assert!(!said.contains("123456") && !words.contains(&"0"), "{said}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let said = check_address("mongodb://me:s3cr3t/db").unwrap_err();
        assert!(said.contains("port must be an integer"), "{said}");
        let said = check_address("mongodb://host/db?replcaSet=rs0").unwrap_err();
        assert!(said.to_lowercase().contains("replcaset"), "{said}");
        assert_eq!(
            check_address("mongodb://u:p%2F@a:1,b/db?replicaSet=rs0"),
            Ok(())
        );
    }
}
