//! The layers that values come from: the defaults, the file, the environment, and for the database a
//! service that the platform has bound. The crate `config` merges them and carries the origin of each
//! value. Its own source for the environment knows no table: it could not distinguish an unknown
//! variable from that of another program.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use config::builder::DefaultState;
use config::{Config, ConfigBuilder, ConfigError, File, FileFormat, Map, Source as _, ValueKind};

use super::bindings::bound;
use super::program::Program;
use super::reader::{Reader, Resolved};
use super::similar::question;

/// The environment variable that names the file.
pub(super) const FILE_VARIABLE: &str = "SAMPLER_CONFIG";

/// The settings that take part in finding the bound database.
const DATABASE_URI: &str = "database.uri";
const DATABASE_SERVICE: &str = "database.service";

/// The largest file that is read at the start, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The variables of an environment.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, OsString>);

impl Variables {
    pub fn of_this_process() -> Self {
        std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
            .collect()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str)
    }
}

/// An empty variable counts as not set.
impl<N: Into<String>, V: Into<OsString>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let mut by_name: BTreeMap<String, OsString> = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        by_name.retain(|_, value| !value.is_empty());
        Self(by_name)
    }
}

/// Merges the layers of `program`. `file` is named by the command line; it counts before the file that
/// the environment names.
pub(super) fn merge(program: &Program, file: Option<&Path>, variables: &Variables) -> Reader {
    let mut layers = Layers {
        program,
        values: Config::builder(),
        mistakes: Vec::new(),
    };
    for setting in program.settings() {
        layers.put(
            setting.key,
            setting.default.unwrap_or_default(),
            "the default",
        );
    }
    if let Some(path) = file.or_else(|| variables.get(FILE_VARIABLE).map(Path::new)) {
        layers.add_file(path);
    }
    layers.add_environment(variables);
    if program.setting(DATABASE_URI).is_some() {
        layers.add_bound(variables);
    }
    layers.resolve()
}

struct Layers<'a> {
    program: &'a Program,
    values: ConfigBuilder<DefaultState>,
    mistakes: Vec<String>,
}

impl Layers<'_> {
    /// Overrides the value of earlier layers, unless it is empty.
    fn put(&mut self, key: &str, text: &str, origin: &str) {
        if !text.is_empty() {
            let value = config::Value::new(Some(&origin.to_owned()), text);
            let values = std::mem::take(&mut self.values).set_override(key, value);
            self.values = values.expect("each key of the table is a path");
        }
    }

    fn add_file(&mut self, path: &Path) {
        let origin = format!("the file {}", path.display());
        match read_file(path).and_then(|text| parse(&text)) {
            Ok(values) => {
                for (key, value) in values {
                    self.add_value_of_file(&key, value, &origin);
                }
            }
            Err(why) => self.mistakes.push(format!("{origin} {why}")),
        }
    }

    fn add_value_of_file(&mut self, key: &str, value: config::Value, origin: &str) {
        match (self.program.setting(key), scalar(value)) {
            (Some(_), Some(text)) => self.put(key, &text, origin),
            (Some(setting), None) => self.mistakes.push(format!(
                "{key} in {origin} has several values: expected {}",
                setting.kind
            )),
            (None, _) if self.program.known().any(|it| it.key == key) => {}
            (None, _) => {
                // Somebody may have written the name that the setting has in the environment.
                let known = self.program.known();
                let names = known.flat_map(|it| [(it.key, it.key), (it.env, it.key)]);
                let question = question(key, names);
                self.mistakes
                    .push(format!("{key} in {origin} is an unknown setting{question}"));
            }
        }
    }

    fn add_environment(&mut self, variables: &Variables) {
        for setting in self.program.settings() {
            let origin = format!("the environment variable {}", setting.env);
            match variables.get(setting.env).map(OsStr::to_str) {
                Some(Some(text)) => self.put(setting.key, text, &origin),
                Some(None) => self.mistakes.push(format!("{origin} is not UTF-8")),
                None => {}
            }
        }
        let ours = variables
            .0
            .keys()
            .filter(|name| name.starts_with("SAMPLER_") && *name != FILE_VARIABLE);
        for name in ours {
            if !self.program.known().any(|it| it.env == name) {
                let names = self.program.known().map(|it| (it.env, it.env));
                let question = question(name, names);
                self.mistakes.push(format!(
                    "the environment variable {name} is an unknown setting{question}"
                ));
            }
        }
    }

    /// A bound database overrides all other layers, because each binding has new credentials.
    fn add_bound(&mut self, variables: &Variables) {
        let merged = self.values.build_cloned();
        let wanted = merged.and_then(|merged| merged.get_string(DATABASE_SERVICE));
        match bound(variables, wanted.ok().as_deref()) {
            Ok(Some(binding)) => {
                let origin = format!("{} (service '{}')", binding.origin, binding.name);
                self.put(DATABASE_URI, &binding.uri, &origin);
            }
            Ok(None) => {}
            Err(why) => self.mistakes.push(why),
        }
    }

    /// Checks the merged values, each alone.
    fn resolve(self) -> Reader {
        let merged = self.values.build().and_then(|merged| merged.collect());
        let mut merged = flatten(merged.expect("values in memory can be read"));
        let mut reader = Reader::new(self.program.settings());
        reader.mistakes = self.mistakes;
        for setting in self.program.settings() {
            let Some(value) = merged.remove(setting.key) else {
                continue;
            };
            let origin = value.origin().unwrap_or_default().to_owned();
            let text = scalar(value).unwrap_or_default();
            let is_valid = setting.kind.accepts(&text);
            let resolved = Resolved {
                text,
                origin,
                is_valid,
            };
            reader.resolved.insert(setting.key, resolved);
            if !is_valid {
                reader.reject(setting.key, &setting.kind.to_string());
            }
        }
        reader
    }
}

/// The text of a file, or why there is none, without any of it.
pub(super) fn read_file(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    let length = metadata.len();
    if length > FILE_MAX {
        return Err(format!("has {length} bytes: expected at most {FILE_MAX}"));
    }
    std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
}

/// The values of a TOML file by their dotted keys. An error names the line and does not repeat it, as
/// the parser's own message would: the line may contain a secret.
fn parse(text: &str) -> Result<BTreeMap<String, config::Value>, String> {
    let values = File::from_str(text, FileFormat::Toml).collect();
    values.map(flatten).map_err(|error| match error {
        ConfigError::FileParse { cause, .. } => match cause.downcast_ref::<toml::de::Error>() {
            Some(error) => {
                let before = error.span().and_then(|span| text.get(..span.start));
                let line = before.unwrap_or_default().matches('\n').count() + 1;
                format!("is not valid TOML: line {line}: {}", error.message())
            }
            // A number that is too large for any setting.
            None => format!("is not valid TOML: {cause}"),
        },
        _ => "is not valid TOML".to_owned(),
    })
}

/// Every value that is not a table, by its dotted key.
fn flatten(table: Map<String, config::Value>) -> BTreeMap<String, config::Value> {
    let mut values = BTreeMap::new();
    for (name, value) in table {
        match value.kind {
            ValueKind::Table(table) => {
                let inner = flatten(table).into_iter();
                values.extend(inner.map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            _ => {
                values.insert(name, value);
            }
        }
    }
    values
}

/// A single value as the text that it would have in the environment.
fn scalar(value: config::Value) -> Option<String> {
    match value.kind {
        ValueKind::Nil | ValueKind::Array(_) | ValueKind::Table(_) => None,
        // With its decimal point: 1.0 is not a whole number.
        ValueKind::Float(number) => Some(format!("{number:?}")),
        _ => value.into_string().ok(),
    }
}
