//! Where settings come from: the environment, over a TOML file, and the database that the platform has bound. And a
//! program on the command line: it starts with its settings, or prints something and ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use sampler_service::lifecycle::EXIT_SETTINGS;
use sampler_service::program::{Options, Ports, Startup, run};
use sampler_service::telemetry::LogOptions;
use serde_json::Value;

use crate::Settings;
use crate::kinds::TEXT;
use crate::table::{Of, Reader, Setting};

/// The variable that names the file.
const FILE: &str = "SAMPLER_CONFIG_FILE";

/// Where the platform says what it has bound: in a variable, or in a file of the same form.
const SERVICES: &str = "VCAP_SERVICES";
const SERVICES_FILE: &str = "VCAP_SERVICES_FILE_PATH";

/// Which member of a bound service is its name. The first one is that by which it is told.
const SERVICE_NAMES: [&str; 3] = ["name", "binding_name", "instance_name"];

/// The beginning of the variables that only Sampler has.
const PREFIX: &str = "SAMPLER_";

/// What any program prints if it is asked to.
const USUAL: [&str; 4] = ["--check-config", "--help-settings", "--help", "--version"];

/// The variables of an environment. An empty one counts as not set.
pub type Variables = BTreeMap<String, String>;

#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub of: Of,
    /// Its name on the command line.
    pub name: &'static str,
    /// Its purpose, in one sentence.
    pub about: &'static str,
    pub version: &'static str,
    pub printouts: &'static [Printout],
}

/// A flag, and the document in Markdown that a program prints if it is called with it.
type Printout = (&'static str, fn() -> String);

/// The end of a program that does not start: an exit code, and a text, for the standard output where the code is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyExit {
    pub code: u8,
    pub text: String,
}

/// Reads the settings of a program and starts it with them.
pub fn start<B, F>(program: &'static Program, body: B) -> ExitCode
where
    B: FnOnce(Settings, Startup) -> F + Send + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    // A variable that is not UTF-8 has marks in place of what is not: no setting takes those.
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
    let variables: Variables = variables.collect();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match load(program, &arguments, &variables) {
        Ok(settings) => run(options(program, &settings), move |startup| {
            settings.announce(program.of, &variables);
            body(settings, startup)
        }),
        Err(EarlyExit { code, text }) => {
            if code == 0 {
                print!("{text}");
            } else {
                eprint!("{text}");
            }
            ExitCode::from(code)
        }
    }
}

/// What a program starts with.
fn options(program: &Program, settings: &Settings) -> Options {
    let own = &settings.program;
    Options {
        name: program.name,
        version: program.version,
        log: LogOptions {
            format: own.log_format,
            level: own.log_level.clone(),
        },
        traces: own.traces.clone(),
        database: settings.database.options(program.name),
        ports: Ports {
            port: own.port,
            metrics: own.metrics_port,
            host: own.host.clone(),
            is_open: !settings.security.secured,
        },
    }
}

/// Reads the settings of a program from its environment. `arguments` are those behind its name.
///
/// # Errors
/// If the program must not start: an argument asks for a document, or there are mistakes.
pub fn load(
    program: &Program,
    arguments: &[String],
    variables: &Variables,
) -> Result<Settings, EarlyExit> {
    let (name, ends) = (program.name, |code, text| Err(EarlyExit { code, text }));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_check = match arguments.as_slice() {
        [] => false,
        ["--check-config"] => true,
        ["--help" | "-h"] => return ends(0, usage(program)),
        ["--version" | "-V"] => return ends(0, format!("{name} {}\n", program.version)),
        ["--help-settings"] => return ends(0, help(program.of)),
        other => match program.printouts.iter().find(|own| *other == [own.0]) {
            Some((_, document)) => return ends(0, document()),
            None => return ends(EXIT_SETTINGS, usage(program)),
        },
    };
    let mut reader = gather(program.of, variables);
    let settings = Settings::read(&mut reader);
    settings.check(program.of, &mut reader);
    if !reader.mistakes.is_empty() {
        let mistakes = reader.mistakes.join("\n  ");
        let text = format!("{name} does not start. Mistakes in the settings:\n  {mistakes}\n");
        return ends(EXIT_SETTINGS, text);
    }
    if is_check {
        let mut text = format!("{name}: the settings are fine\n");
        for setting in of_program(program.of) {
            let _ = writeln!(text, "  {} = {}", setting.name, reader.shown(setting.name));
        }
        return ends(0, text);
    }
    Ok(settings)
}

fn of_program(program: Of) -> impl Iterator<Item = &'static Setting> {
    Settings::TABLE
        .iter()
        .filter(move |setting| setting.is_of(program))
}

fn usage(program: &Program) -> String {
    let Program { name, about, .. } = program;
    let own = program.printouts.iter().map(|(flag, _)| *flag);
    let flags: Vec<&str> = USUAL.into_iter().chain(own).collect();
    format!("{about}\n\nUsage: {name} [{}]\n", flags.join(" | "))
}

/// All settings of a program as a table in Markdown.
pub fn help(program: Of) -> String {
    let mut text = "| Setting | Default | What it is |\n| --- | --- | --- |\n".to_owned();
    for setting in of_program(program) {
        let default = setting.default_of(program).map(|it| format!("`{it}`"));
        let default = default.unwrap_or_else(|| "none".to_owned());
        let secret = if setting.is_secret {
            " Secret: never shown."
        } else {
            ""
        };
        let what = format!("{}{secret} Takes {}.", setting.doc, setting.expected());
        let what = what.replace('|', r"\|");
        let _ = writeln!(text, "| `{}` | {default} | {what} |", setting.name);
    }
    text
}

/// Takes the texts of all settings of a program from their sources.
fn gather(program: Of, variables: &Variables) -> Reader {
    let mut reader = Reader::new(program);
    let set = |name: &str| variables.get(name).filter(|text| !text.is_empty());
    if let Some(path) = set(FILE) {
        match read_file(FILE, path).and_then(|text| values_of(path, &text)) {
            Ok(values) => take(&mut reader, &values, &format!("in {path}"), |_| true),
            Err(mistake) => reader.mistakes.push(mistake),
        }
    }
    let is_ours = |name: &str| name.starts_with(PREFIX) && name != FILE;
    take(&mut reader, variables, "in the environment", is_ours);
    let wanted = reader.value("SAMPLER_DB_SERVICE", TEXT.parse);
    let services = match (set(SERVICES), set(SERVICES_FILE)) {
        (Some(services), _) => Ok(services.clone()),
        (None, Some(path)) => read_file(SERVICES_FILE, path),
        (None, None) => Ok("{}".to_owned()),
    };
    // A binding overrides the setting, because each has new credentials.
    match services.and_then(|services| bound(&services, wanted.as_deref())) {
        Ok(uri) => reader.set("DB_URI", &uri.unwrap_or_default()),
        Err(mistake) => reader.mistakes.push(mistake),
    }
    reader
}

/// Sets what is known, and complains of what is not, where it must be a setting. One manifest can serve both
/// programs, so settings of the other one are known.
fn take(reader: &mut Reader, values: &Variables, place: &str, must_be: impl Fn(&str) -> bool) {
    let known = || Settings::TABLE.iter().map(|setting| setting.name);
    let rest = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    for (name, text) in values.iter().filter(|(_, text)| !text.is_empty()) {
        if known().any(|known| known == name) {
            reader.set(name, text);
        } else if must_be(name) {
            let distance = |known: &&str| strsim::osa_distance(&rest(name), &rest(known));
            let nearest = known().min_by_key(distance).expect("there are settings");
            let mistake = format!("{name} {place} is an unknown setting; did you mean {nearest}?");
            reader.mistakes.push(mistake);
        }
    }
}

/// The text of a file, or why there is none, without any of it.
fn read_file(variable: &str, path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path);
    text.map_err(|error| format!("{variable}: the file {path} cannot be read: {error}"))
}

/// The values of a file, by their names in the environment. A mistake repeats nothing of the file: any line
/// may hold a secret.
fn values_of(path: &str, text: &str) -> Result<Variables, String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        format!("{FILE}: the file {path} is not valid TOML in line {line}")
    })?;
    let values = table.into_iter().map(|(name, value)| match value {
        toml::Value::String(text) => Ok((name.to_ascii_uppercase(), text)),
        toml::Value::Array(_) | toml::Value::Table(_) => Err(format!(
            "{FILE}: the file {path} has several values for {name}"
        )),
        other => Ok((name.to_ascii_uppercase(), other.to_string())),
    });
    values.collect()
}

/// The address of the bound MongoDB that is `wanted`, or of the only one there is. None where none is bound and
/// none is wanted. Mistakes repeat nothing but names of services: all else may be, or be part of, a credential.
fn bound(services: &str, wanted: Option<&str>) -> Result<Option<String>, String> {
    let by_label: BTreeMap<String, Vec<Value>> = serde_json::from_str(services)
        .map_err(|error| format!("{SERVICES} is not as expected in line {}", error.line()))?;
    let mut databases: Vec<&Value> = by_label.values().flatten().collect();
    databases.retain(|service| mongodb_uri(service).is_some());
    let name = |service: &&Value| {
        format!(
            "'{}'",
            service[SERVICE_NAMES[0]].as_str().unwrap_or_default()
        )
    };
    let names: Vec<String> = databases.iter().map(name).collect();
    if let Some(wanted) = wanted {
        databases.retain(|service| SERVICE_NAMES.iter().any(|name| service[*name] == wanted));
    }
    match (databases.as_slice(), wanted) {
        ([one], _) => Ok(mongodb_uri(one).map(str::to_owned)),
        ([], None) => Ok(None),
        (_, wanted) => Err(format!(
            "SAMPLER_DB_SERVICE is {}: expected the name of one bound MongoDB service of: {}",
            wanted.unwrap_or("not set"),
            names.join(", ")
        )),
    }
}

/// The address of a bound service, if it is a MongoDB.
fn mongodb_uri(service: &Value) -> Option<&str> {
    let uri = service["credentials"]["uri"].as_str()?;
    let is_mongodb = uri.starts_with("mongodb://") || uri.starts_with("mongodb+srv://");
    is_mongodb.then_some(uri)
}
