//! The names that events get: those of the platform, unless a mapping says others.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::usage_event::Record;
use crate::failure::Failure;

/// The resource and the plan of apps, without a mapping.
const CONTAINER: &str = "linux-container";
const TASK: &str = "linux-task";
const BASIC: &str = "basic";
/// The longest id that the receiver takes, in bytes.
const ID_LEN_MAX: usize = 1_024;

/// Names that override those of the platform. The first entry that fits decides.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Mapping {
    services: Vec<Entry>,
    processes: Vec<Entry>,
    tasks: Entry,
}

/// The conditions of an entry, and the names that it gives.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Entry {
    /// Of services.
    offering: Option<String>,
    /// Of services. None: any.
    plan: Option<String>,
    /// Of processes. None: any.
    r#type: Option<String>,
    resource_id: Option<String>,
    plan_id: Option<String>,
}

impl Mapping {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::of_file(path, &error))?;
        Self::parse(&text).map_err(|mistakes| Failure::of_file(path, &mistakes))
    }

    /// A mistake of form is named alone, with its line; wrong values are named together.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mapping: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
        let mistakes = mapping.mistakes();
        if mistakes.is_empty() {
            return Ok(mapping);
        }
        Err(mistakes.join("; "))
    }

    fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (number, entry) in (1..).zip(&self.services) {
            let place = format!("services[{number}]");
            if entry.offering.is_none() {
                mistakes.push(format!("{place} names no offering"));
            }
            entry.check(&place, &["offering", "plan"], &mut mistakes);
        }
        for (number, entry) in (1..).zip(&self.processes) {
            entry.check(&format!("processes[{number}]"), &["type"], &mut mistakes);
        }
        self.tasks.check("tasks", &[], &mut mistakes);
        find_unreachable("services", &self.services, &mut mistakes);
        find_unreachable("processes", &self.processes, &mut mistakes);
        mistakes
    }

    /// The resource and the plan of a service.
    pub(super) fn service(&self, offering: &str, plan: &str) -> (String, String) {
        let mut entries = self.services.iter();
        let entry = entries.find(|it| it.offering.as_deref() == Some(offering) && it.fits(plan));
        names(entry, offering, plan)
    }

    /// The same of a process.
    pub(super) fn process(&self, r#type: Option<&str>) -> (String, String) {
        let r#type = r#type.unwrap_or_default();
        let entry = self.processes.iter().find(|it| it.fits(r#type));
        names(entry, CONTAINER, BASIC)
    }

    /// The same of a task.
    pub(super) fn task(&self) -> (String, String) {
        names(Some(&self.tasks), TASK, BASIC)
    }

    /// The resources that the mapping names, and those of apps, also where nothing of them runs.
    pub(super) fn resources(&self, record: Record) -> BTreeSet<String> {
        let (entries, tasks, own): (_, _, &[&str]) = match record {
            Record::Services => (&self.services, None, &[]),
            Record::Apps => (&self.processes, Some(&self.tasks), &[CONTAINER, TASK]),
        };
        let given = entries.iter().chain(tasks);
        let given = given.filter_map(|entry| entry.resource_id.clone());
        let own = own.iter().map(|name| (*name).to_owned());
        given.chain(own).collect()
    }
}

impl Entry {
    fn only(&self) -> Option<&str> {
        self.plan.as_deref().or(self.r#type.as_deref())
    }

    fn fits(&self, name: &str) -> bool {
        self.only().is_none_or(|only| only == name)
    }

    /// Whether this fits everything that another fits.
    fn covers(&self, other: &Self) -> bool {
        let is_wide = self.only().is_none() || self.only() == other.only();
        self.offering == other.offering && is_wide
    }

    /// Names conditions that mean nothing here, and ids that the receiver would refuse.
    fn check(&self, place: &str, conditions: &[&str], mistakes: &mut Vec<String>) {
        let given = [
            ("offering", &self.offering),
            ("plan", &self.plan),
            ("type", &self.r#type),
        ];
        for (name, value) in given {
            if value.is_some() && !conditions.contains(&name) {
                mistakes.push(format!("{place}.{name} is not a known key"));
            }
        }
        for (name, id) in [
            ("resource_id", &self.resource_id),
            ("plan_id", &self.plan_id),
        ] {
            if let Some(fault) = id.as_deref().and_then(fault_of) {
                mistakes.push(format!("{place}.{name} {fault}"));
            }
        }
    }
}

/// The names that an entry gives, or else these.
fn names(entry: Option<&Entry>, resource_id: &str, plan_id: &str) -> (String, String) {
    let given = |of: fn(&Entry) -> Option<&String>| entry.and_then(of).cloned();
    (
        given(|it| it.resource_id.as_ref()).unwrap_or_else(|| resource_id.to_owned()),
        given(|it| it.plan_id.as_ref()).unwrap_or_else(|| plan_id.to_owned()),
    )
}

/// Why the receiver would refuse an id.
fn fault_of(id: &str) -> Option<String> {
    if id.is_empty() {
        return Some("is empty".to_owned());
    }
    if id.len() > ID_LEN_MAX {
        return Some(format!("has more than {ID_LEN_MAX} bytes"));
    }
    let is_hostile = id.chars().any(char::is_control);
    is_hostile.then(|| "holds a control character".to_owned())
}

fn find_unreachable(name: &str, entries: &[Entry], mistakes: &mut Vec<String>) {
    for (index, entry) in entries.iter().enumerate() {
        let before = entries[..index].iter().position(|one| one.covers(entry));
        if let Some(before) = before {
            let (number, before) = (index + 1, before + 1);
            mistakes.push(format!(
                "{name}[{number}] is never reached: {name}[{before}] fits all that it fits"
            ));
        }
    }
}

#[cfg(test)]
#[path = "../../tests/feed/mapping_tests.rs"]
mod tests;
