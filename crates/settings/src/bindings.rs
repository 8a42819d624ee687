//! The database that Cloud Foundry has bound. Mistakes repeat nothing but names of services: all else may be,
//! or be part of, a credential.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Where the platform says what it has bound: in a variable, or in a file of the same form (if the variable
/// would be too long).
pub(crate) const SERVICES: &str = "VCAP_SERVICES";
pub(crate) const SERVICES_FILE: &str = "VCAP_SERVICES_FILE_PATH";

/// A bound service. Other members may be missing or of any shape.
#[derive(Deserialize)]
struct Service {
    name: Option<String>,
    binding_name: Option<String>,
    #[serde(default)]
    credentials: serde_json::Value,
}

impl Service {
    /// The address of a MongoDB.
    fn uri(&self) -> Option<&str> {
        let uri = self.credentials.get("uri")?.as_str()?;
        let is_mongodb = uri.starts_with("mongodb://") || uri.starts_with("mongodb+srv://");
        is_mongodb.then_some(uri)
    }

    fn is_called(&self, wanted: &str) -> bool {
        [&self.name, &self.binding_name]
            .into_iter()
            .any(|name| name.as_deref() == Some(wanted))
    }

    fn shown(&self) -> String {
        let name = self.binding_name.as_ref().or(self.name.as_ref());
        format!("'{}'", name.map_or("unnamed", String::as_str))
    }
}

/// The address of the bound MongoDB that is `wanted`, or of the only one there is. None where none is bound and
/// none is wanted.
pub(crate) fn bound(services: &[String], wanted: Option<&str>) -> Result<Option<String>, String> {
    let mut databases = Vec::new();
    for text in services {
        let by_label: BTreeMap<String, Vec<Service>> =
            serde_json::from_str(text).map_err(|error| {
                format!(
                    "{SERVICES}: expected services by label (line {})",
                    error.line()
                )
            })?;
        databases.extend(by_label.into_values().flatten());
    }
    databases.retain(|service| service.uri().is_some());
    // The platform may present one binding in both ways.
    databases.dedup_by(|later, earlier| later.uri() == earlier.uri());
    let names = |services: &[&Service]| match services {
        [] => "none".to_owned(),
        all => all
            .iter()
            .map(|it| it.shown())
            .collect::<Vec<_>>()
            .join(", "),
    };
    let chosen: Vec<&Service> = databases
        .iter()
        .filter(|service| wanted.is_none_or(|wanted| service.is_called(wanted)))
        .collect();
    match (chosen.as_slice(), wanted) {
        ([one], _) => Ok(one.uri().map(str::to_owned)),
        ([], None) => Ok(None),
        ([], Some(wanted)) => Err(format!(
            "no MongoDB service '{wanted}' is bound; those that are: {}",
            names(&databases.iter().collect::<Vec<_>>())
        )),
        (several, _) => Err(format!(
            "which MongoDB service is meant? SAMPLER_DB_SERVICE names one of {}",
            names(several)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    fn of(services: &str, wanted: Option<&str>) -> Result<Option<String>, String> {
        bound(&[services.to_owned()], wanted)
    }

    #[test]
    fn the_only_one_is_taken_and_of_several_the_one_that_is_wanted_by_either_name() {
        let one = r#"{"x": [{"name": "spans", "credentials": {"uri": "mongodb://one/spans"}},
                            {"name": "log", "credentials": {"uri": 5}}, {"name": "bare"}]}"#;
        assert_eq!(of(one, None), Ok(Some("mongodb://one/spans".to_owned())));
        for wanted in ["spans", "db"] {
            let uri = Ok(Some("mongodb://u:s3cr3t@one/spans".to_owned()));
            assert_eq!(of(TWO, Some(wanted)), uri);
        }
        let twice = bound(&[one.to_owned(), one.to_owned()], None);
        assert_eq!(twice, of(one, None), "what is told twice counts once");
        assert_eq!(of("{}", None), Ok(None));
    }

    #[test]
    fn mistakes_name_the_candidates_and_nothing_more() {
        let several = of(TWO, None).unwrap_err();
        assert!(
            several.ends_with("names one of 'archive', 'db'"),
            "{several}"
        );
        let absent = of(TWO, Some("absent")).unwrap_err();
        assert!(
            absent.ends_with("those that are: 'archive', 'db'"),
            "{absent}"
        );
        for text in ["", "s3cr3t", r#"["s3cr3t"]"#, r#"{"x": {"s3cr3t": 1}}"#] {
            let mistake = of(text, None).unwrap_err();
            assert!(!mistake.contains("s3cr3t"), "{mistake}");
        }
    }
}
