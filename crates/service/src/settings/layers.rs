//! The layers that values come from, and which of them counts: the defaults, the file, the
//! environment, and for the database a service that the platform has bound.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use config::{Config, ConfigError, File, FileFormat, Map, Source as _, ValueKind};

use super::bindings::{self, Binding};
use super::file;
use super::mistake::Mistake;
use super::program::Program;
use super::setting::Value;
use super::similar::question;

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

/// A value of the highest layer that has one.
pub(super) struct Resolved {
    pub(super) text: String,
    /// Where it came from, in words.
    pub(super) origin: String,
    /// `None` if the text is not of the setting's kind; then there is a mistake, too.
    pub(super) value: Option<Value>,
}

/// The values after all layers were merged.
pub(super) struct Layers {
    pub(super) resolved: BTreeMap<&'static str, Resolved>,
    pub(super) mistakes: Vec<Mistake>,
}

/// Merges the layers of `program`. `file` is the one that the command line names; it counts before
/// the one that the environment names.
pub(super) fn lay(program: &Program, file: Option<&Path>, variables: &Variables) -> Layers {
    let mut mistakes = Vec::new();
    let mut layers = vec![Layer::of_defaults(program)];
    let named = variables.get(FILE_VARIABLE).map(Path::new);
    if let Some(path) = file.or(named) {
        layers.push(Layer::of_file(program, path, &mut mistakes));
    }
    layers.push(Layer::of_environment(program, variables, &mut mistakes));
    if program.setting(DATABASE_URI).is_some() {
        let merged = merge(&layers);
        let wanted = merged.get(DATABASE_SERVICE).map(text_and_origin);
        let wanted = wanted.as_ref().map(|(name, _)| name.as_str());
        layers.push(Layer::of_bindings(wanted, variables, &mut mistakes));
    }
    let resolved = resolve(program, &merge(&layers), &mut mistakes);
    Layers { resolved, mistakes }
}

/// The values of one layer by key, each with its origin.
#[derive(Clone, Default)]
struct Layer(Map<String, config::Value>);

/// Values may be secret, so none is shown.
impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layer").finish_non_exhaustive()
    }
}

/// The crate `config` merges the layers and carries the origin of each value. The layers are sources
/// of our own because its own sources for the environment know no table: they could not distinguish an
/// unknown variable from that of another program, and would not skip empty ones ([ADR 9]).
///
/// [ADR 9]: ../../../../docs/adr/009-a-table-of-settings.md
impl config::Source for Layer {
    fn clone_into_box(&self) -> Box<dyn config::Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, config::Value>, ConfigError> {
        Ok(self.0.clone())
    }
}

impl Layer {
    /// Adds a value. An empty text counts as not set.
    fn put(&mut self, key: &str, text: String, origin: &str) {
        if !text.is_empty() {
            let value = config::Value::new(Some(&origin.to_owned()), text);
            self.0.insert(key.to_owned(), value);
        }
    }

    fn of_defaults(program: &Program) -> Self {
        let mut layer = Self::default();
        for setting in program.settings() {
            layer.put(
                setting.key,
                setting.default.unwrap_or_default().to_owned(),
                "the default",
            );
        }
        layer
    }

    fn of_file(program: &Program, path: &Path, mistakes: &mut Vec<Mistake>) -> Self {
        let mut layer = Self::default();
        let origin = format!("the file {}", path.display());
        let values = match file::read(path).and_then(|text| parse(&text)) {
            Ok(values) => values,
            Err(why) => {
                mistakes.push(Mistake::new(format!("{origin} {why}")));
                return layer;
            }
        };
        for (key, value) in values {
            match (program.setting(&key), scalar(value)) {
                (Some(_), Some(text)) => layer.put(&key, text, &origin),
                (Some(setting), None) => mistakes.push(Mistake::new(format!(
                    "{key} in {origin} has several values: expected {}",
                    setting.kind
                ))),
                (None, _) if program.is_of_the_other(&key) => {}
                (None, _) => {
                    let question = question(&key, program.settings().map(|setting| setting.key));
                    mistakes.push(Mistake::new(format!(
                        "{key} in {origin} is an unknown setting{question}"
                    )));
                }
            }
        }
        layer
    }

    fn of_environment(
        program: &Program,
        variables: &Variables,
        mistakes: &mut Vec<Mistake>,
    ) -> Self {
        let mut layer = Self::default();
        for setting in program.settings() {
            let origin = format!("the environment variable {}", setting.env);
            match variables.get(setting.env).map(OsStr::to_str) {
                Some(Some(text)) => layer.put(setting.key, text.to_owned(), &origin),
                Some(None) => mistakes.push(Mistake::new(format!("{origin} is not UTF-8"))),
                None => {}
            }
        }
        for name in variables.names() {
            let ours = name.starts_with("SAMPLER_") && name != FILE_VARIABLE;
            let known = program.settings().any(|setting| setting.env == name);
            if ours && !known && !program.is_of_the_other(name) {
                let question = question(name, program.settings().map(|setting| setting.env));
                let text =
                    format!("the environment variable {name} is an unknown setting{question}");
                mistakes.push(Mistake::new(text));
            }
        }
        layer
    }

    /// A bound database overrides all other layers, because each binding has new credentials.
    fn of_bindings(
        wanted: Option<&str>,
        variables: &Variables,
        mistakes: &mut Vec<Mistake>,
    ) -> Self {
        let mut layer = Self::default();
        match bound(variables).and_then(|bound| bindings::choose(bound, wanted)) {
            Ok(Some(binding)) => {
                let origin = format!("{} (service '{}')", binding.origin, binding.name);
                layer.put(DATABASE_URI, binding.uri, &origin);
            }
            Ok(None) => {}
            Err(why) => mistakes.push(Mistake::new(why)),
        }
        layer
    }
}

/// Merges layers by key. Each overrides the previous ones.
fn merge(layers: &[Layer]) -> BTreeMap<String, config::Value> {
    let layers = layers.iter().cloned();
    let merged = layers.fold(Config::builder(), |builder, layer| {
        builder.add_source(layer)
    });
    let merged = merged.build().and_then(|merged| merged.collect());
    flatten(merged.expect("layers that are in memory can be read"))
}

/// Parses the merged value of each setting.
fn resolve(
    program: &Program,
    merged: &BTreeMap<String, config::Value>,
    mistakes: &mut Vec<Mistake>,
) -> BTreeMap<&'static str, Resolved> {
    let mut resolved = BTreeMap::new();
    for setting in program.settings() {
        let expected = setting.kind.to_string();
        let Some((text, origin)) = merged.get(setting.key).map(text_and_origin) else {
            if setting.required {
                mistakes.push(Mistake::missing(setting, &expected));
            }
            continue;
        };
        let value = setting.kind.parse(&text);
        if value.is_none() {
            mistakes.push(Mistake::value(setting, &text, &origin, &expected));
        }
        let parsed = Resolved {
            text,
            origin,
            value,
        };
        resolved.insert(setting.key, parsed);
    }
    resolved
}

fn text_and_origin(value: &config::Value) -> (String, String) {
    let origin = value.origin().unwrap_or_default().to_owned();
    (scalar(value.clone()).unwrap_or_default(), origin)
}

/// All services that the platform has bound. It names them in an environment variable, in a file of
/// the same form (if the variable would be too long), or as a folder of files.
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
