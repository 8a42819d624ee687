//! The database that the platform has bound, out of `VCAP_SERVICES`.
//!
//! Errors never repeat anything but names of services and files: all else may be, or be
//! part of, a credential.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::layers::{Variables, read_file};

/// Where a platform says what it has bound: in a variable, or in a file of the same form (if
/// the variable would be too long).
const SERVICES: &str = "VCAP_SERVICES";
const SERVICES_FILE: &str = "VCAP_SERVICES_FILE_PATH";

#[derive(PartialEq, Eq)]
pub(super) struct Binding {
    /// The variable that led to it.
    pub(super) origin: &'static str,
    /// The name to call it by.
    pub(super) name: String,
    /// The name of the service, where the binding has one of its own.
    service: Option<String>,
    /// Its address; holds credentials.
    pub(super) uri: String,
}

impl Binding {
    fn is_called(&self, name: &str) -> bool {
        self.name == name || self.service.as_deref() == Some(name)
    }
}

/// One service of `VCAP_SERVICES`. Other members may be missing or of any shape.
#[derive(Deserialize)]
struct Service {
    name: Option<String>,
    binding_name: Option<String>,
    #[serde(default)]
    credentials: serde_json::Value,
}

impl Service {
    fn into_database(self, origin: &'static str) -> Option<Binding> {
        let uri = self.credentials.get("uri")?.as_str()?;
        is_mongodb(uri).then(|| Binding {
            origin,
            name: self
                .binding_name
                .or_else(|| self.name.clone())
                .unwrap_or_else(|| "unnamed".to_owned()),
            service: self.name,
            uri: uri.to_owned(),
        })
    }
}

fn is_mongodb(uri: &str) -> bool {
    uri.starts_with("mongodb://") || uri.starts_with("mongodb+srv://")
}

/// The bound database that is `wanted`, or the only one there is. None where none is bound and none is
/// wanted.
pub(super) fn bound(
    variables: &Variables,
    wanted: Option<&str>,
) -> Result<Option<Binding>, String> {
    let mut bound = Vec::new();
    if let Some(value) = variables.get(SERVICES) {
        let text = value
            .to_str()
            .ok_or_else(|| format!("{SERVICES}: expected UTF-8"))?;
        bound.extend(in_services(text, SERVICES)?);
    }
    if let Some(path) = variables.get(SERVICES_FILE).map(Path::new) {
        let text = read_file(path)
            .map_err(|why| format!("{SERVICES_FILE}: the file {} {why}", path.display()))?;
        bound.extend(in_services(&text, SERVICES_FILE)?);
    }
    choose(bound, wanted)
}

/// The databases in `text`, which is in the form of `VCAP_SERVICES`.
fn in_services(text: &str, origin: &'static str) -> Result<Vec<Binding>, String> {
    let by_label: BTreeMap<String, Vec<Service>> = serde_json::from_str(text).map_err(|error| {
        format!(
            "{origin}: expected services by label as JSON (line {})",
            error.line()
        )
    })?;
    let services = by_label.into_values().flatten();
    Ok(services
        .filter_map(|service| service.into_database(origin))
        .collect())
}

fn choose(bound: Vec<Binding>, wanted: Option<&str>) -> Result<Option<Binding>, String> {
    let (mut chosen, others): (Vec<_>, Vec<_>) = bound
        .into_iter()
        .partition(|binding| wanted.is_none_or(|name| binding.is_called(name)));
    // A platform may present one binding in several ways.
    chosen.dedup_by(|later, earlier| later.name == earlier.name && later.uri == earlier.uri);
    match (chosen.len(), wanted) {
        (0, None) => Ok(None),
        (1, _) => Ok(chosen.pop()),
        (0, Some(name)) => Err(format!(
            "no MongoDB service '{name}' is bound; those that are: {}",
            names(&others)
        )),
        (_, _) => Err(format!(
            "which MongoDB service is meant? {} are bound",
            names(&chosen)
        )),
    }
}

fn names(bindings: &[Binding]) -> String {
    if bindings.is_empty() {
        return "none".to_owned();
    }
    let quoted = bindings.iter().map(|it| format!("'{}'", it.name));
    quoted.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: &str = "VCAP_SERVICES";

    /// Two MongoDB services under different labels, and one of another sort.
    const TWO: &str = r#"{
        "user-provided": [
            {"name": "spans", "binding_name": "db", "label": "user-provided", "tags": [],
             "credentials": {"uri": "mongodb://u:s3cr3t@one/spans"}},
            {"name": "cache", "credentials": {"uri": "redis://u:s3cr3t@two"}}
        ],
        "mongodb": [
            {"name": "archive", "binding_name": null,
             "credentials": {"uri": "mongodb+srv://u:s3cr3t@three/archive"}}
        ]
    }"#;

    fn found(services: &str, wanted: Option<&str>) -> Option<(String, String)> {
        let bound = in_services(services, ORIGIN).expect("services");
        let binding = choose(bound, wanted).expect("no mistake");
        binding.map(|binding| (binding.name, binding.uri))
    }

    fn mistake(services: &str, wanted: Option<&str>) -> String {
        let found = in_services(services, ORIGIN).and_then(|bound| choose(bound, wanted));
        match found {
            Ok(_) => panic!("taken without a mistake"),
            Err(mistake) => mistake,
        }
    }

    #[test]
    fn takes_the_only_one() {
        let one = r#"{"x": [{"name": "spans", "credentials": {"uri": "mongodb://one/spans"}},
                            {"name": "log", "credentials": {"uri": 5}}, {"name": "bare"}]}"#;
        let expected = Some(("spans".to_owned(), "mongodb://one/spans".to_owned()));
        assert_eq!(found(one, None), expected);
        assert_eq!(found(one, Some("spans")), expected);
    }

    #[test]
    fn takes_the_one_that_is_wanted_by_either_name() {
        let first = Some(("db".to_owned(), "mongodb://u:s3cr3t@one/spans".to_owned()));
        assert_eq!(found(TWO, Some("spans")), first);
        assert_eq!(found(TWO, Some("db")), first);
        let second = Some((
            "archive".to_owned(),
            "mongodb+srv://u:s3cr3t@three/archive".to_owned(),
        ));
        assert_eq!(found(TWO, Some("archive")), second);
    }

    #[test]
    fn none_bound_is_no_mistake_unless_one_is_wanted() {
        assert_eq!(found("{}", None), None);
        let other = r#"{"x": [{"name": "cache", "credentials": {"uri": "redis://two"}}]}"#;
        assert_eq!(found(other, None), None);
        assert!(mistake(other, Some("cache")).ends_with("those that are: none"));
    }

    #[test]
    fn names_the_candidates_and_nothing_more() {
        let several = mistake(TWO, None);
        assert_eq!(
            several,
            "which MongoDB service is meant? 'archive', 'db' are bound"
        );
        let absent = mistake(TWO, Some("absent"));
        assert!(
            absent.ends_with("those that are: 'archive', 'db'"),
            "{absent}"
        );
    }

    #[test]
    fn malformed_text_is_a_mistake_that_echoes_nothing() {
        for text in ["", "s3cr3t", r#"["s3cr3t"]"#, r#"{"x": {"s3cr3t": 1}}"#] {
            let mistake = mistake(text, None);
            assert!(!mistake.contains("s3cr3t"), "{mistake}");
        }
    }

    #[test]
    fn what_is_told_twice_counts_once() {
        let services = r#"{"x": [{"name": "db", "credentials": {"uri": "mongodb://one/spans"}}]}"#;
        let twice = || {
            let mut bound = in_services(services, ORIGIN).unwrap();
            bound.extend(in_services(services, "VCAP_SERVICES_FILE_PATH").unwrap());
            bound
        };
        let chosen = choose(twice(), None).unwrap().unwrap();
        assert_eq!(chosen.origin, ORIGIN);
        let mut other = twice();
        other[1].uri = "mongodb://two/spans".to_owned();
        assert!(choose(other, None).is_err());
    }
}
