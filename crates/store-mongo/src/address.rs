//! Connection strings, which may hold a password, and what the driver says of them.

use std::collections::BTreeSet;
use std::error::Error as _;

use mongodb::error::Error;
use mongodb::options::ConnectionString;
use percent_encoding::percent_decode_str;

/// What separates the parts of a connection string.
const SEPARATORS: [char; 10] = [':', '@', '/', '?', '&', '=', ',', ';', '#', ' '];

/// Whether the driver can read a connection string.
///
/// # Errors
/// What is wrong with it, without any part of it that may be secret.
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
    for secret in secrets {
        text = text.replace(&secret, "<hidden>");
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
    let ports = hosts.split(',').filter_map(|host| host.split_once(':'));
    parts.extend(ports.map(|(_, port)| port));
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
