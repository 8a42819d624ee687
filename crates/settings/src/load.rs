//! Where settings come from: the environment, over a TOML file, and the database that the platform has bound. And a
//! program on the command line: it starts with its settings, or prints something and ends.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use sampler_service::lifecycle::EXIT_SETTINGS;
use sampler_service::program::{Options, Ports, Startup, run};
use sampler_service::telemetry::LogOptions;
use serde::Deserialize;

use crate::Settings;
use crate::table::{Of, Reader, Setting};

/// The variable that names the file.
const FILE: &str = "SAMPLER_CONFIG_FILE";

/// Where the platform says what it has bound: in a variable, or in a file of the same form.
const SERVICES: &str = "VCAP_SERVICES";
const SERVICES_FILE: &str = "VCAP_SERVICES_FILE_PATH";

/// The beginning of the variables that only Sampler has.
const PREFIX: &str = "SAMPLER_";

/// What any program prints if it is asked to.
const USUAL: &str =
    "  --check-config   Checks the settings, and prints every mistake or what will be used
  --help-settings  Prints all settings as a table in Markdown
  --help           Prints this
  --version        Prints the version
";

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
pub(crate) type Printout = (&'static str, fn() -> String);

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
            settings.announce(&variables);
            body(settings, startup)
        }),
        Err(EarlyExit { code: 0, text }) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(EarlyExit { code, text }) => {
            eprint!("{text}");
            ExitCode::from(code)
        }
    }
}

/// What a program starts with.
fn options(program: &Program, settings: &Settings) -> Options {
    Options {
        name: program.name,
        version: program.version,
        log: LogOptions {
            format: settings.log.format,
            level: settings.log.level.clone(),
        },
        traces: settings.traces.endpoint.clone(),
        database: settings.database.options(program.name),
        ports: Ports {
            port: settings.http.port,
            metrics: settings.http.metrics_port,
            host: settings.http.host.clone(),
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
    let ends = |code, text| Err(EarlyExit { code, text });
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_check = match arguments.as_slice() {
        [] => false,
        ["--check-config"] => true,
        ["--help" | "-h"] => return ends(0, usage(program)),
        ["--version" | "-V"] => return ends(0, format!("{} {}\n", program.name, program.version)),
        ["--help-settings"] => return ends(0, help(program.of)),
        other => match program.printouts.iter().find(|own| *other == [own.0]) {
            Some((_, document)) => return ends(0, document()),
            None => return ends(EXIT_SETTINGS, usage(program)),
        },
    };
    let mut reader = gather(program.of, variables);
    let settings = Settings::read(&mut reader);
    settings.check(program.of, &mut reader);
    let name = program.name;
    if !reader.mistakes.is_empty() {
        let mistakes = reader.mistakes.join("\n  ");
        let text = format!("{name} does not start. Mistakes in the settings:\n  {mistakes}\n");
        return ends(EXIT_SETTINGS, text);
    }
    if is_check {
        let mut text = format!("{name}: the settings are fine\n");
        for setting in of_program(program.of) {
            let _ = writeln!(text, "  {} = {}", setting.name, reader.shown(setting));
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
    let mut text = format!("{about}\n\nUsage: {name} [OPTION]\n\n");
    for (flag, _) in program.printouts {
        let _ = writeln!(text, "  {flag}");
    }
    text + USUAL
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
            Err(mistake) => reader.complain(mistake),
        }
    }
    let is_ours = |name: &str| name.starts_with(PREFIX) && name != FILE;
    take(&mut reader, variables, "in the environment", is_ours);
    let wanted: Option<String> = reader.value("SAMPLER_DB_SERVICE");
    let of_file = set(SERVICES_FILE).map(|path| read_file(SERVICES_FILE, path));
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
    let known = || Settings::TABLE.iter().map(|setting| setting.name);
    let rest = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    for (name, text) in values.iter().filter(|(_, text)| !text.is_empty()) {
        if known().any(|known| known == name) {
            reader.set(name, text);
        } else if must_be(name) {
            let nearest =
                known().min_by_key(|known| strsim::osa_distance(&rest(name), &rest(known)));
            let nearest = nearest.expect("there are settings");
            reader.complain(format!(
                "{name} {place} is an unknown setting; did you mean {nearest}?"
            ));
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

    /// Its names; the last one is that by which it is told.
    fn names(&self) -> impl Iterator<Item = &String> {
        self.name.iter().chain(&self.binding_name)
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
    let names = databases.iter().filter_map(|it| it.names().last());
    let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    databases.retain(|it| wanted.is_none_or(|wanted| it.names().any(|name| name == wanted)));
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
