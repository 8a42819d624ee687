//! The layers that values come from, and what of them counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::bindings::{self, Binding};
use super::file;
use super::mistake::{Mistake, Source};
use super::program::Program;
use super::setting::{Setting, Value};

/// The environment variable that names the file.
pub(super) const FILE_VARIABLE: &str = "SAMPLER_CONFIG";

/// Where a platform says what it has bound.
const SERVICES: &str = "VCAP_SERVICES";
const SERVICES_FILE: &str = "VCAP_SERVICES_FILE_PATH";
const BINDING_ROOT: &str = "SERVICE_BINDING_ROOT";

/// The settings that take part in finding the bound database.
const DATABASE_URI: &str = "database.uri";
const DATABASE_SERVICE: &str = "database.service";

/// The variables of an environment.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, OsString>);

impl Variables {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
            .collect()
    }

    /// The value of a variable; an empty one counts as not set.
    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0
            .get(name)
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// The names that are set.
    fn names(&self) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, _)| name.as_str())
    }
}

impl<N: Into<String>, V: Into<OsString>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(
            variables
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// A value, as it was written and as it was understood.
pub(super) struct Resolved {
    pub(super) text: String,
    pub(super) source: Source,
    /// None where the text is not of the setting's kind; then there is a mistake, too.
    pub(super) value: Option<Value>,
}

/// All layers laid over each other.
pub(super) struct Layers {
    pub(super) resolved: BTreeMap<&'static str, Resolved>,
    pub(super) mistakes: Vec<Mistake>,
}

/// Lays the file and the environment over the defaults of `program`. `file` is the one named on
/// the command line, which counts before the one named in the environment.
pub(super) fn lay(program: &Program, file: Option<&Path>, variables: &Variables) -> Layers {
    let mut layers = Layers {
        resolved: BTreeMap::new(),
        mistakes: Vec::new(),
    };
    for setting in program.settings() {
        if let Some(default) = setting.default {
            layers.put(setting, default.to_owned(), Source::Default);
        }
    }
    let named = variables.get(FILE_VARIABLE).map(Path::new);
    if let Some(path) = file.or(named) {
        layers.lay_file(program, path);
    }
    layers.lay_environment(program, variables);
    if let Some(setting) = program.setting(DATABASE_URI) {
        layers.lay_bindings(setting, variables);
    }
    layers.check(program);
    layers
}

impl Layers {
    /// Text that is empty counts as not set.
    fn put(&mut self, setting: &Setting, text: String, source: Source) {
        if !text.is_empty() {
            let value = setting.kind.parse(&text);
            self.resolved.insert(
                setting.key,
                Resolved {
                    text,
                    source,
                    value,
                },
            );
        }
    }

    fn lay_file(&mut self, program: &Program, path: &Path) {
        let shown = path.display().to_string();
        let table = match file::read(path).and_then(|text| parse(&text)) {
            Ok(table) => table,
            Err(why) => {
                return self
                    .mistakes
                    .push(Mistake::new(format!("the file {shown} {why}")));
            }
        };
        let mut values = Vec::new();
        flatten("", table, &mut values);
        for (key, value) in values {
            match (program.setting(&key), scalar(value)) {
                (Some(setting), Some(text)) => {
                    self.put(setting, text, Source::File(shown.clone()));
                }
                (Some(setting), None) => self.mistakes.push(Mistake::new(format!(
                    "{key} in the file {shown} holds several values: expected {}",
                    setting.kind
                ))),
                (None, _) if program.foreign.contains(&key.as_str()) => {}
                (None, _) => {
                    self.mistakes.push(Mistake::new(format!(
                        "{key} in the file {shown} is no setting"
                    )));
                }
            }
        }
    }

    fn lay_environment(&mut self, program: &Program, variables: &Variables) {
        for setting in program.settings() {
            match variables.get(setting.env).map(OsStr::to_str) {
                Some(Some(text)) => {
                    let source = Source::Environment(setting.env.to_owned());
                    self.put(setting, text.to_owned(), source);
                }
                Some(None) => self.mistakes.push(Mistake::new(format!(
                    "the environment variable {} is not UTF-8",
                    setting.env
                ))),
                None => {}
            }
        }
        let known: BTreeSet<_> = program.settings().map(|setting| setting.env).collect();
        for name in variables.names() {
            let ours = name.starts_with("SAMPLER_") && name != FILE_VARIABLE;
            if ours && !known.contains(name) && !program.foreign.contains(&name) {
                let text = format!("the environment variable {name} is an unknown setting");
                self.mistakes.push(Mistake::new(text));
            }
        }
    }

    /// A bound database counts before anything that is written down: its credentials are made anew
    /// with each binding.
    fn lay_bindings(&mut self, uri: &Setting, variables: &Variables) {
        let wanted = self
            .resolved
            .get(DATABASE_SERVICE)
            .map(|resolved| resolved.text.as_str());
        match bound(variables).and_then(|bound| bindings::choose(bound, wanted)) {
            Ok(Some(Binding {
                origin,
                name,
                uri: text,
                ..
            })) => self.put(uri, text, Source::Binding { origin, name }),
            Ok(None) => {}
            Err(why) => self.mistakes.push(Mistake::new(why)),
        }
    }

    fn check(&mut self, program: &Program) {
        for setting in program.settings() {
            match self.resolved.get(setting.key) {
                Some(Resolved {
                    text,
                    source,
                    value: None,
                }) => {
                    let expected = setting.kind.to_string();
                    self.mistakes
                        .push(Mistake::value(setting, text, source, &expected));
                }
                None if setting.required => self.mistakes.push(Mistake::missing(setting)),
                Some(_) | None => {}
            }
        }
    }
}

/// All that is bound, in each of the ways in which a platform says so: in the environment; in a file
/// of the same form, where that grows too long; as a folder of files.
fn bound(variables: &Variables) -> Result<Vec<Binding>, String> {
    let mut bound = Vec::new();
    if let Some(text) = variables.get(SERVICES) {
        let text = text
            .to_str()
            .ok_or_else(|| format!("{SERVICES}: expected UTF-8"))?;
        bound.extend(bindings::in_services(text, SERVICES)?);
    }
    if let Some(path) = variables.get(SERVICES_FILE).map(Path::new) {
        let text = file::read(path);
        let text =
            text.map_err(|why| format!("{SERVICES_FILE}: the file {} {why}", path.display()))?;
        bound.extend(bindings::in_services(&text, SERVICES_FILE)?);
    }
    if let Some(root) = variables.get(BINDING_ROOT).map(Path::new) {
        bound.extend(bindings::in_folder(root, BINDING_ROOT)?);
    }
    Ok(bound)
}

/// The parser's own display would repeat the line, which may hold a secret.
fn parse(text: &str) -> Result<toml::Table, String> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error
            .span()
            .and_then(|span| text.get(..span.start))
            .unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("is no TOML: line {line}: {}", error.message())
    })
}

/// Every value that is no table, by its dotted key.
fn flatten(prefix: &str, table: toml::Table, values: &mut Vec<(String, toml::Value)>) {
    for (name, value) in table {
        let key = if prefix.is_empty() {
            name
        } else {
            format!("{prefix}.{name}")
        };
        match value {
            toml::Value::Table(table) => flatten(&key, table, values),
            value => values.push((key, value)),
        }
    }
}

/// A single value as the text that the environment would hold.
fn scalar(value: toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text),
        toml::Value::Array(_) | toml::Value::Table(_) => None,
        other => Some(other.to_string()),
    }
}
