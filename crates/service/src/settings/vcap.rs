//! The database that Cloud Foundry has bound, out of `VCAP_SERVICES`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A bound MongoDB.
#[derive(PartialEq, Eq)]
pub(super) struct Binding {
    /// The name to call it by.
    pub(super) name: String,
    /// Its address; holds credentials.
    pub(super) uri: String,
}

/// One bound service. What is not needed here may be missing or of any shape.
#[derive(Deserialize)]
struct Service {
    name: Option<String>,
    binding_name: Option<String>,
    #[serde(default)]
    credentials: serde_json::Value,
}

impl Service {
    fn is_called(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name) || self.binding_name.as_deref() == Some(name)
    }

    fn into_database(self) -> Option<Binding> {
        let uri = self.credentials.get("uri")?.as_str()?;
        let mongodb = uri.starts_with("mongodb://") || uri.starts_with("mongodb+srv://");
        let name = self
            .binding_name
            .or(self.name)
            .unwrap_or_else(|| "unnamed".to_owned());
        mongodb.then(|| Binding {
            name,
            uri: uri.to_owned(),
        })
    }
}

/// The MongoDB in `services`, the text of `VCAP_SERVICES`: the one that is `wanted`, or the only
/// one there is. None where none is bound and none is wanted.
///
/// Errors never repeat anything but names: the text is full of credentials.
pub(super) fn database(services: &str, wanted: Option<&str>) -> Result<Option<Binding>, String> {
    let by_label: BTreeMap<String, Vec<Service>> = serde_json::from_str(services)
        .map_err(|error| format!("expected services by label as JSON (line {})", error.line()))?;
    let called = |service: &Service| wanted.is_none_or(|name| service.is_called(name));
    let (chosen, others): (Vec<_>, Vec<_>) = by_label.into_values().flatten().partition(called);
    let mut found = databases(chosen);
    match (found.len(), wanted) {
        (0, None) => Ok(None),
        (1, _) => Ok(found.pop()),
        (0, Some(name)) => {
            let bound = names(&databases(others));
            Err(format!(
                "no MongoDB service '{name}' is bound; those that are: {bound}"
            ))
        }
        (_, _) => Err(format!(
            "which MongoDB service is meant? {} are bound",
            names(&found)
        )),
    }
}

fn databases(services: Vec<Service>) -> Vec<Binding> {
    services
        .into_iter()
        .filter_map(Service::into_database)
        .collect()
}

fn names(bindings: &[Binding]) -> String {
    if bindings.is_empty() {
        return "none".to_owned();
    }
    let quoted: Vec<_> = bindings
        .iter()
        .map(|binding| format!("'{}'", binding.name))
        .collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let binding = database(services, wanted).expect("no mistake");
        binding.map(|binding| (binding.name, binding.uri))
    }

    fn mistake(services: &str, wanted: Option<&str>) -> String {
        match database(services, wanted) {
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
}
