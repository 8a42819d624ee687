//! Where settings come from: the environment, over a TOML file.

use std::collections::BTreeMap;
use std::path::Path;

use crate::bindings::{SERVICES, SERVICES_FILE, bound};
use crate::reader::Reader;
use crate::{Groups, Settings};

/// The variable that names the file.
const FILE: &str = "SAMPLER_CONFIG_FILE";

/// The beginning of the variables that only Sampler has.
const PREFIX: &str = "SAMPLER_";

/// Two names count as similar if at most one character in this many differs.
const PER_DIFFERENCE: usize = 4;

/// The largest file that is read at the start, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The variables of an environment.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// A variable that is not UTF-8 has marks in place of what is not: no setting takes those.
    pub fn of_this_process() -> Self {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        std::env::vars_os()
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// An empty variable counts as not set.
impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables.into_iter();
        let mut by_name: BTreeMap<String, String> = variables
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        by_name.retain(|_, value| !value.is_empty());
        Self(by_name)
    }
}

/// Takes the texts of all settings of a program from their sources.
pub(crate) fn gather<S: Settings>(variables: &Variables) -> Reader {
    let mut reader = Reader::of_defaults(S::GROUPS.iter().copied().flatten(), S::DEFAULTS);
    let known = Known::of(&[S::GROUPS, S::OTHER]);
    if let Some(path) = variables.get(FILE) {
        match read_file(Path::new(path)).and_then(|text| values_of(&text)) {
            Ok(values) => take(&mut reader, &known, values, &format!("in {path}")),
            Err(why) => reader.complain(format!("{FILE}: the file {path} {why}")),
        }
    }
    let of_environment = variables
        .0
        .iter()
        .filter(|(name, _)| known.has(name) || (name.starts_with(PREFIX) && *name != FILE));
    let of_environment = of_environment.map(|(name, text)| (name.clone(), text.clone()));
    take(
        &mut reader,
        &known,
        of_environment.collect(),
        "in the environment",
    );
    take_bound(&mut reader, variables);
    reader
}

/// Sets what is known, and complains of what is not.
fn take(reader: &mut Reader, known: &Known, values: Vec<(String, String)>, place: &str) {
    for (name, text) in values {
        if known.has(&name) {
            reader.set(&name, text);
        } else {
            let question = known.question(&name);
            reader.complain(format!("{name} {place} is an unknown setting{question}"));
        }
    }
}

/// A bound database overrides `DB_URI`, because each binding has new credentials.
fn take_bound(reader: &mut Reader, variables: &Variables) {
    let wanted: Option<String> = reader.value("SAMPLER_DB_SERVICE");
    let services = [
        variables.get(SERVICES).map(|text| Ok(text.to_owned())),
        variables.get(SERVICES_FILE).map(|path| {
            read_file(Path::new(path))
                .map_err(|why| format!("{SERVICES_FILE}: the file {path} {why}"))
        }),
    ];
    let services: Result<Vec<String>, String> = services.into_iter().flatten().collect();
    match services.and_then(|services| bound(&services, wanted.as_deref())) {
        Ok(Some(uri)) => reader.set("DB_URI", uri),
        Ok(None) => {}
        Err(mistake) => reader.complain(mistake),
    }
}

/// The names of the settings of both programs.
struct Known(Vec<&'static str>);

impl Known {
    fn of(programs: &[Groups]) -> Self {
        let groups = programs.iter().copied().flatten().copied();
        Self(groups.flatten().map(|setting| setting.name).collect())
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    /// The question whether a known name was meant, for the end of a mistake.
    fn question(&self, name: &str) -> String {
        let rest = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
        let nearest = self
            .0
            .iter()
            .map(|known| (strsim::osa_distance(&rest(name), &rest(known)), known))
            .min_by_key(|(distance, _)| *distance);
        match nearest {
            Some((distance, meant)) if distance * PER_DIFFERENCE <= name.len() => {
                format!("; did you mean {meant}?")
            }
            _ => String::new(),
        }
    }
}

/// The text of a file, or why there is none, without any of it.
fn read_file(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
    if metadata.len() > FILE_MAX {
        return Err(format!("has more than {FILE_MAX} bytes"));
    }
    std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))
}

/// The values of a file, by their names in the environment. A mistake repeats nothing of the file: any line
/// may hold a secret.
fn values_of(text: &str) -> Result<Vec<(String, String)>, String> {
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
