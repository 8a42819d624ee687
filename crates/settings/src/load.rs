//! Where settings come from: the environment, over a TOML file; and the database that the platform has bound.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::reader::Reader;
use crate::{ReceiverSettings, Settings, WorkerSettings};

/// The variable that names the file.
const FILE: &str = "SAMPLER_CONFIG_FILE";

/// Where the platform says what it has bound: in a variable, or in a file of the same form.
const SERVICES: &str = "VCAP_SERVICES";
const SERVICES_FILE: &str = "VCAP_SERVICES_FILE_PATH";

/// The beginning of the variables that only Sampler has.
const PREFIX: &str = "SAMPLER_";

/// The variables of an environment. An empty one counts as not set.
pub type Variables = BTreeMap<String, String>;

/// A variable that is not UTF-8 has marks in place of what is not: no setting takes those.
pub(crate) fn of_this_process() -> Variables {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables = std::env::vars_os();
    variables
        .map(|(name, value)| (text(name), text(value)))
        .collect()
}

/// Takes the texts of all settings of a program from their sources.
pub(crate) fn gather<S: Settings>(variables: &Variables) -> Reader {
    let mut reader = Reader::of_defaults(S::GROUPS, S::DEFAULTS);
    let set = |name: &str| variables.get(name).filter(|text| !text.is_empty());
    if let Some(path) = set(FILE) {
        match read_file(path).and_then(|text| values_of(&text)) {
            Ok(values) => take(&mut reader, &values, &format!("in {path}"), |_| true),
            Err(why) => reader.complain(format!("{FILE}: the file {path} {why}")),
        }
    }
    let is_ours = |name: &str| name.starts_with(PREFIX) && name != FILE;
    take(&mut reader, variables, "in the environment", is_ours);
    let wanted: Option<String> = reader.value("SAMPLER_DB_SERVICE");
    let of_file = set(SERVICES_FILE).map(|path| {
        read_file(path).map_err(|why| format!("{SERVICES_FILE}: the file {path} {why}"))
    });
    let services = [set(SERVICES).cloned().map(Ok), of_file];
    let services: Result<Vec<String>, String> = services.into_iter().flatten().collect();
    // A binding overrides the setting, because each has new credentials.
    match services.and_then(|services| bound(&services, wanted.as_deref())) {
        Ok(uri) => reader.set("DB_URI", &uri.unwrap_or_default()),
        Err(mistake) => reader.complain(mistake),
    }
    reader
}

/// Sets what is known, and complains of what is not, where it must be a setting. One manifest can serve both
/// programs, so settings of the other one are known.
fn take(reader: &mut Reader, values: &Variables, place: &str, must_be: impl Fn(&str) -> bool) {
    let groups = [ReceiverSettings::GROUPS, WorkerSettings::GROUPS].concat();
    let known: Vec<&str> = groups.into_iter().flatten().map(|it| it.name).collect();
    for (name, text) in values.iter().filter(|(_, text)| !text.is_empty()) {
        if known.contains(&name.as_str()) {
            reader.set(name, text);
        } else if must_be(name) {
            let nearest = nearest(name, &known);
            reader.complain(format!(
                "{name} {place} is an unknown setting; did you mean {nearest}?"
            ));
        }
    }
}

/// The known name that is most like this one.
fn nearest<'k>(name: &str, known: &[&'k str]) -> &'k str {
    let rest = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let distance = |known: &&&str| strsim::osa_distance(&rest(name), &rest(known));
    known
        .iter()
        .min_by_key(distance)
        .expect("there are settings")
}

/// The text of a file, or why there is none, without any of it.
fn read_file(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
}

/// The values of a file, by their names in the environment. A mistake repeats nothing of the file: any line
/// may hold a secret.
fn values_of(text: &str) -> Result<Variables, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        format!("is not valid TOML in line {line}")
    })?;
    let values = table.into_iter().map(|(name, value)| {
        let text = match value {
            toml::Value::String(text) => text,
            toml::Value::Array(_) | toml::Value::Table(_) => {
                return Err(format!("has several values for {name}"));
            }
            other => other.to_string(),
        };
        Ok((name.to_ascii_uppercase(), text))
    });
    values.collect()
}

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
        let names = [&self.name, &self.binding_name];
        names.into_iter().flatten().any(|name| name == wanted)
    }
}

/// The address of the bound MongoDB that is `wanted`, or of the only one there is. None where none is bound and
/// none is wanted. Mistakes repeat nothing but names of services: all else may be, or be part of, a credential.
fn bound(services: &[String], wanted: Option<&str>) -> Result<Option<String>, String> {
    let mut databases: Vec<Service> = Vec::new();
    for text in services {
        let by_label: BTreeMap<String, Vec<Service>> = serde_json::from_str(text)
            .map_err(|error| format!("{SERVICES} is not as expected in line {}", error.line()))?;
        databases.extend(by_label.into_values().flatten());
    }
    databases.retain(|service| service.uri().is_some());
    // The platform may present one binding in both ways.
    databases.dedup_by(|later, earlier| later.uri() == earlier.uri());
    let names = databases
        .iter()
        .map(|it| it.binding_name.as_ref().or(it.name.as_ref()));
    let names: Vec<String> = names.flatten().map(|name| format!("'{name}'")).collect();
    databases.retain(|it| wanted.is_none_or(|wanted| it.is_called(wanted)));
    match (databases.as_slice(), wanted) {
        ([one], _) => Ok(one.uri().map(str::to_owned)),
        ([], None) => Ok(None),
        (_, wanted) => Err(format!(
            "SAMPLER_DB_SERVICE is {}: expected the name of one bound MongoDB service of: {}",
            wanted.unwrap_or("not set"),
            names.join(", ")
        )),
    }
}
