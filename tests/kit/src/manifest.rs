//! `deploy/manifest.yml` as `cf push` reads it, with the values of a file of variables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::workspace_dir;

/// The manifest of the repository, by its folder.
const FOLDER: &str = "deploy";
const MANIFEST: &str = "manifest.yml";
const EXAMPLE: &str = "vars.example.yml";

/// Values by the names of variables.
pub type Variables = BTreeMap<String, Value>;

/// The variables of the example, which an operator copies.
///
/// # Errors
///
/// When the file cannot be read.
pub fn example_variables() -> Result<Variables> {
    let path = folder().join(EXAMPLE);
    serde_json::from_value(yaml(&path)?).with_context(|| format!("in {}", path.display()))
}

/// The manifest of the repository with these variables.
///
/// # Errors
///
/// When a variable is missing, or one is not used; or where `cf push` would not know a key.
pub fn manifest(variables: &Variables) -> Result<Manifest> {
    let path = folder().join(MANIFEST);
    read(yaml(&path)?, variables).with_context(|| format!("in {}", path.display()))
}

fn folder() -> PathBuf {
    workspace_dir().join(FOLDER)
}

fn yaml(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

fn read(mut manifest: Value, variables: &Variables) -> Result<Manifest> {
    let mut used = BTreeSet::new();
    substitute(&mut manifest, variables, &mut used)?;
    let unused: Vec<_> = variables
        .keys()
        .filter(|name| !used.contains(*name))
        .collect();
    ensure!(unused.is_empty(), "variables that nothing uses: {unused:?}");
    serde_json::from_value(manifest).context("reading the manifest")
}

/// Puts values in the places of `((names))`. Where a name stands alone its value keeps its type.
fn substitute(value: &mut Value, variables: &Variables, used: &mut BTreeSet<String>) -> Result<()> {
    match value {
        Value::Array(items) => items
            .iter_mut()
            .try_for_each(|item| substitute(item, variables, used)),
        Value::Object(members) => members
            .values_mut()
            .try_for_each(|member| substitute(member, variables, used)),
        Value::String(text) => {
            while let Some((before, name, after)) = variable(text) {
                let known = variables.get(name);
                let known = known.with_context(|| format!("the variable {name} is missing"))?;
                used.insert(name.to_owned());
                if before.is_empty() && after.is_empty() {
                    *value = known.clone();
                    return Ok(());
                }
                *text = format!("{before}{}{after}", plain(known));
            }
            Ok(())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}

/// The first variable in a text, and what stands around it.
fn variable(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("((")?;
    let (name, after) = rest.split_once("))")?;
    Some((before, name, after))
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// What `cf push` reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the form.
    pub version: u32,
    /// The apps.
    pub applications: Vec<App>,
}

impl Manifest {
    /// The app of that name.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn app(&self, name: &str) -> Result<&App> {
        let found = self.applications.iter().find(|app| app.name == name);
        found.with_context(|| format!("the manifest has no app {name}"))
    }
}

/// An app, with the keys of the form that the manifest uses. A mistyped key is none of these.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct App {
    /// What it is called.
    pub name: String,
    /// Labels and annotations.
    #[serde(default)]
    pub metadata: Metadata,
    /// The folder that is pushed, from the folder of the manifest.
    pub path: PathBuf,
    /// The system that it runs on.
    pub stack: String,
    /// What prepares it.
    pub buildpacks: Vec<String>,
    /// How it is started, in the pushed folder.
    pub command: String,
    /// How many run.
    pub instances: usize,
    /// The memory of each.
    pub memory: String,
    /// The disk of each.
    #[serde(rename = "disk_quota")]
    pub disk_quota: String,
    /// Where its requests come from.
    #[serde(default)]
    pub routes: Vec<BTreeMap<String, String>>,
    /// Whether it gets none.
    #[serde(default)]
    pub no_route: bool,
    /// The service instances that are bound.
    pub services: Vec<String>,
    /// How an instance is asked whether it lives.
    pub health_check_type: String,
    /// Where.
    pub health_check_http_endpoint: String,
    /// Within how many seconds it must answer.
    pub health_check_invocation_timeout: u64,
    /// How it is asked whether it is ready for requests.
    pub readiness_health_check_type: String,
    /// Where.
    pub readiness_health_check_http_endpoint: String,
    /// Within how many seconds it must answer.
    pub readiness_health_check_invocation_timeout: u64,
    /// Its environment.
    pub env: BTreeMap<String, Value>,
}

impl App {
    /// Its environment as a program sees it.
    pub fn environment(&self) -> impl Iterator<Item = (&str, String)> {
        let variables = self.env.iter();
        variables.map(|(name, value)| (name.as_str(), plain(value)))
    }

    /// The last part of its path: the name of its package.
    pub fn package(&self) -> &Path {
        self.path.file_name().map_or(Path::new(""), Path::new)
    }
}

/// Labels and annotations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// To select by.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// To read.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn substituted(value: Value, variables: &Value) -> Result<Value> {
        let (mut value, mut used) = (value, BTreeSet::new());
        let variables = serde_json::from_value(variables.clone()).unwrap();
        substitute(&mut value, &variables, &mut used)?;
        Ok(value)
    }

    #[test]
    fn variables_keep_their_type_where_they_stand_alone() {
        let text = json!({ "a": ["((n))", "((n)) of ((t))"], "b": true });
        let expected = json!({ "a": [2, "2 of ten"], "b": true });
        assert_eq!(
            substituted(text, &json!({ "n": 2, "t": "ten" })).unwrap(),
            expected
        );
    }

    #[test]
    fn a_variable_that_is_missing_is_named() {
        let error = substituted(json!("((n))"), &json!({})).unwrap_err();
        assert_eq!(error.to_string(), "the variable n is missing");
    }

    #[test]
    fn the_manifest_and_the_example_have_the_same_variables() {
        let mut variables = example_variables().unwrap();
        assert_eq!(manifest(&variables).unwrap().applications.len(), 2);
        variables.insert("nobody".to_owned(), json!(1));
        assert!(manifest(&variables).is_err());
    }
}
