//! Connection strings.

use anyhow::{Result, bail};

/// A connection string, taken apart only as far as needed: it may name several hosts, which URL
/// parsers do not know.
struct Parts<'a> {
    hosts: &'a str,
    path: &'a str,
    query: &'a str,
}

fn parts(uri: &str) -> Result<Parts<'_>> {
    let Some((scheme, rest)) = uri.split_once("://") else {
        bail!("not a connection string")
    };
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (hosts, path) = before.split_once('/').unwrap_or((before, ""));
    let hosts = &uri[..scheme.len() + "://".len() + hosts.len()];
    Ok(Parts { hosts, path, query })
}

/// The same connection string with another database in its path.
pub(super) fn with_database(uri: &str, database: &str) -> Result<String> {
    let Parts { hosts, path, query } = parts(uri)?;
    let mut query = query.to_owned();
    // Without this, a user would be looked for in the new database.
    if hosts.contains('@') && !query.contains("authSource=") {
        let separator = if query.is_empty() { "" } else { "&" };
        let users = if path.is_empty() { "admin" } else { path };
        query = format!("{query}{separator}authSource={users}");
    }
    let separator = if query.is_empty() { "" } else { "?" };
    Ok(format!("{hosts}/{database}{separator}{query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_a_database_into_a_connection_string() {
        let put = |uri| with_database(uri, "new").unwrap();
        assert_eq!(put("mongodb://a:1"), "mongodb://a:1/new");
        assert_eq!(
            put("mongodb://a:1,b:2/old?w=1"),
            "mongodb://a:1,b:2/new?w=1"
        );
        assert_eq!(
            put("mongodb://u:p@a/?tls=true"),
            "mongodb://u:p@a/new?tls=true&authSource=admin"
        );
        assert_eq!(
            put("mongodb://u:p@a/old"),
            "mongodb://u:p@a/new?authSource=old"
        );
        assert_eq!(
            put("mongodb://u:p@a/old?authSource=x"),
            "mongodb://u:p@a/new?authSource=x"
        );
        assert!(with_database("a:1", "new").is_err());
    }
}
