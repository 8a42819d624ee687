//! The names that events get: those of the platform, unless a mapping says others.

use std::collections::BTreeSet;
use std::path::Path;

use toml::{Table, Value};

use super::usage_event::{Record, Running, UsageKind};
use crate::failure::Failure;

/// The resource and the plans of apps, without a mapping.
const CONTAINER: &str = "linux-container";
const TASK: &str = "linux-task";
const BASIC: &str = "basic";
/// The longest id that the receiver takes, in bytes.
const ID_LEN_MAX: usize = 1_024;
/// In bytes.
const FILE_LEN_MAX: u64 = 4 << 20;

/// Names that override those of the platform. The first entry that fits decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapping {
    services: Vec<Entry>,
    processes: Vec<Entry>,
    tasks: Entry,
}

/// An entry: the conditions for it, and the names that it gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// The offering, for services.
    offering: Option<String>,
    /// The plan of a service, or the type of a process. None: any.
    only: Option<String>,
    resource_id: Option<String>,
    plan_id: Option<String>,
}

impl Mapping {
    /// Reads a file. All of its mistakes are named at once.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let metadata = std::fs::metadata(path).map_err(|error| Failure::of_file(path, &error))?;
        if metadata.len() > FILE_LEN_MAX {
            return Err(Failure::of_file(path, &"it is too long"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| Failure::of_file(path, &error))?;
        Self::parse(&text).map_err(|mistakes| Failure::of_file(path, &mistakes.join("; ")))
    }

    fn parse(text: &str) -> Result<Self, Vec<String>> {
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| vec![error.to_string().trim().replace('\n', " ")])?;
        let mut reader = Reader::default();
        let mut mapping = Self::default();
        for (name, value) in &table {
            match name.as_str() {
                "services" => mapping.services = reader.entries(name, value, &["offering", "plan"]),
                "processes" => mapping.processes = reader.entries(name, value, &["type"]),
                "tasks" => mapping.tasks = reader.tasks(value),
                _ => reader.mistake(format!("{name} is not a known key")),
            }
        }
        for (number, entry) in (1..).zip(&mapping.services) {
            if entry.offering.is_none() {
                reader.mistake(format!("services[{number}] names no offering"));
            }
        }
        reader.find_unreachable("services", &mapping.services);
        reader.find_unreachable("processes", &mapping.processes);
        if reader.mistakes.is_empty() {
            return Ok(mapping);
        }
        Err(reader.mistakes)
    }

    /// The resource and the plan of what runs.
    pub(super) fn names(&self, running: &Running) -> (String, String) {
        let (entry, resource_id, plan_id) = match &running.kind {
            UsageKind::Service { offering, plan, .. } => {
                let mut entries = self.services.iter();
                let entry = entries
                    .find(|entry| entry.offering.as_ref() == Some(offering) && entry.fits(plan));
                (entry, offering.as_str(), plan.as_str())
            }
            UsageKind::Process { r#type } => {
                let r#type = r#type.as_deref().unwrap_or_default();
                let entry = self.processes.iter().find(|entry| entry.fits(r#type));
                (entry, CONTAINER, BASIC)
            }
            UsageKind::Task => (Some(&self.tasks), TASK, BASIC),
        };
        let given_resource = entry.and_then(|entry| entry.resource_id.as_deref());
        let given_plan = entry.and_then(|entry| entry.plan_id.as_deref());
        (
            given_resource.unwrap_or(resource_id).to_owned(),
            given_plan.unwrap_or(plan_id).to_owned(),
        )
    }

    /// The resources that the mapping names, and those of apps, also where nothing of them runs.
    pub(super) fn resources(&self, record: Record) -> BTreeSet<String> {
        let (entries, own): (&[Entry], &[&str]) = match record {
            Record::Services => (&self.services, &[]),
            Record::Apps => (&self.processes, &[CONTAINER, TASK]),
        };
        let tasks = (record == Record::Apps).then_some(&self.tasks);
        let given = entries
            .iter()
            .chain(tasks)
            .filter_map(|entry| entry.resource_id.clone());
        given
            .chain(own.iter().map(|name| (*name).to_owned()))
            .collect()
    }
}

impl Entry {
    fn fits(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == name)
    }

    /// Whether this fits everything that another fits.
    fn covers(&self, other: &Self) -> bool {
        self.offering == other.offering && (self.only.is_none() || self.only == other.only)
    }
}

/// Collects mistakes.
#[derive(Default)]
struct Reader {
    mistakes: Vec<String>,
}

impl Reader {
    fn mistake(&mut self, what: String) {
        self.mistakes.push(what);
    }

    fn entries(&mut self, name: &str, value: &Value, keys: &[&str]) -> Vec<Entry> {
        let Some(list) = value.as_array() else {
            self.mistake(format!("{name} is not a list: write [[{name}]]"));
            return Vec::new();
        };
        let numbered = (1..).zip(list);
        numbered
            .filter_map(|(number, value)| self.entry(&format!("{name}[{number}]"), value, keys))
            .collect()
    }

    fn tasks(&mut self, value: &Value) -> Entry {
        if value.is_array() {
            self.mistake("tasks is not a table: write [tasks]".to_owned());
            return Entry::default();
        }
        self.entry("tasks", value, &[]).unwrap_or_default()
    }

    fn entry(&mut self, place: &str, value: &Value, keys: &[&str]) -> Option<Entry> {
        let Some(table) = value.as_table() else {
            self.mistake(format!("{place} is not a table"));
            return None;
        };
        let mut entry = Entry::default();
        for (key, value) in table {
            let name = key.as_str();
            let slot = match name {
                "resource_id" => &mut entry.resource_id,
                "plan_id" => &mut entry.plan_id,
                "offering" if keys.contains(&name) => &mut entry.offering,
                "plan" | "type" if keys.contains(&name) => &mut entry.only,
                _ => {
                    self.mistake(format!("{place}.{key} is not a known key"));
                    continue;
                }
            };
            match value.as_str().map(|text| (text, fault_of(text))) {
                Some((text, None)) => *slot = Some(text.to_owned()),
                Some((text, Some(fault))) => {
                    *slot = Some(text.to_owned());
                    self.mistake(format!("{place}.{key} {fault}"));
                }
                None => self.mistake(format!("{place}.{key} is not a string")),
            }
        }
        Some(entry)
    }

    fn find_unreachable(&mut self, name: &str, entries: &[Entry]) {
        for (index, entry) in entries.iter().enumerate() {
            let before = entries[..index].iter().position(|one| one.covers(entry));
            if let Some(before) = before {
                let (number, before) = (index + 1, before + 1);
                self.mistake(format!(
                    "{name}[{number}] is never reached: {name}[{before}] fits all that it fits"
                ));
            }
        }
    }
}

/// Why the receiver would refuse an id.
fn fault_of(id: &str) -> Option<String> {
    if id.is_empty() {
        return Some("is empty".to_owned());
    }
    if id.len() > ID_LEN_MAX {
        return Some(format!("has more than {ID_LEN_MAX} bytes"));
    }
    id.chars()
        .any(char::is_control)
        .then(|| "holds a control character".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(offering: &str, plan: &str) -> Running {
        Running::of_kind(UsageKind::Service {
            offering: offering.to_owned(),
            plan: plan.to_owned(),
            plan_guid: "g".to_owned(),
        })
    }

    fn process(name: Option<&str>) -> Running {
        let r#type = name.map(str::to_owned);
        Running::of_kind(UsageKind::Process { r#type })
    }

    #[test]
    fn the_first_entry_that_fits_decides() {
        let mapping = Mapping::parse(
            r#"
            [[services]]
            offering = "p-mysql"
            plan = "small"
            resource_id = "mysql"
            plan_id = "s"
            [[services]]
            offering = "p-mysql"
            resource_id = "sql"
            [[processes]]
            type = "worker"
            plan_id = "background"
            [tasks]
            resource_id = "jobs"
            "#,
        )
        .unwrap();
        for (running, resource_id, plan_id) in [
            (service("p-mysql", "small"), "mysql", "s"),
            (service("p-mysql", "large"), "sql", "large"),
            (service("redis", "small"), "redis", "small"),
            (process(Some("worker")), "linux-container", "background"),
            (process(Some("web")), "linux-container", "basic"),
            (process(None), "linux-container", "basic"),
            (Running::of_kind(UsageKind::Task), "jobs", "basic"),
        ] {
            let names = (resource_id.to_owned(), plan_id.to_owned());
            assert_eq!(mapping.names(&running), names);
        }
    }

    #[test]
    fn all_mistakes_are_named_at_once() {
        let long = "x".repeat(1_025);
        let text = format!(
            r#"
            other = 1
            tasks = {{ resource_id = "", type = "x" }}
            [[services]]
            plan = "p"
            [[services]]
            offering = "a"
            [[services]]
            offering = "a"
            plan = "small"
            resource_id = "{long}"
            plan_id = "a\u0007"
            [[processes]]
            type = 5
            colour = "red"
            [[processes]]
            type = "web"
            "#
        );
        let mistakes = Mapping::parse(&text).unwrap_err();
        for part in [
            "other is not a known key",
            "tasks.resource_id is empty",
            "tasks.type is not a known key",
            "services[1] names no offering",
            "services[3] is never reached: services[2] fits",
            "services[3].resource_id has more than 1024 bytes",
            "services[3].plan_id holds a control character",
            "processes[1].type is not a string",
            "processes[1].colour is not a known key",
            "processes[2] is never reached: processes[1] fits",
        ] {
            let named = mistakes.iter().filter(|one| one.contains(part)).count();
            assert_eq!(named, 1, "{part}: {mistakes:#?}");
        }
        assert_eq!(mistakes.len(), 10, "{mistakes:#?}");
        assert_eq!(Mapping::parse("services = 1").unwrap_err().len(), 1);
        assert_eq!(Mapping::parse("[[services").unwrap_err().len(), 1);
    }
}
