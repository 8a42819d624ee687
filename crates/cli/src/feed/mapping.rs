//! The names that events get: those of the platform, unless a mapping says others.

use std::path::Path;

use sampler_domain::Id;
use serde::Deserialize;

use crate::failure::Failure;

/// The resource and the plan of apps, without a mapping.
const CONTAINER: &str = "linux-container";
const TASK: &str = "linux-task";
const BASIC: &str = "basic";

/// Names that override those of the platform. The first entry that fits decides.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Mapping {
    services: Vec<OfService>,
    processes: Vec<OfProcess>,
    tasks: Names,
}

/// The names of an offering, or of one of its plans.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfService {
    offering: String,
    plan: Option<String>,
    resource_id: Option<Id>,
    plan_id: Option<Id>,
}

/// The names of all processes, or of those of a type.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfProcess {
    r#type: Option<String>,
    resource_id: Option<Id>,
    plan_id: Option<Id>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Names {
    resource_id: Option<Id>,
    plan_id: Option<Id>,
}

impl Mapping {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| Failure::of_file(path, &error))?;
        toml::from_str(&text).map_err(|error| Failure::of_file(path, &error.to_string().trim_end()))
    }

    /// The resource and the plan of a service.
    pub(super) fn service(&self, offering: &str, plan: &str) -> (String, String) {
        let fits = |it: &&OfService| it.offering == offering && is_or_any(it.plan.as_deref(), plan);
        let found = self.services.iter().find(fits);
        let found = found.map(|it| [&it.resource_id, &it.plan_id]);
        names(found, offering, plan)
    }

    /// The same of a process.
    pub(super) fn process(&self, r#type: Option<&str>) -> (String, String) {
        let fits = |it: &&OfProcess| is_or_any(it.r#type.as_deref(), r#type.unwrap_or_default());
        let found = self.processes.iter().find(fits);
        let found = found.map(|it| [&it.resource_id, &it.plan_id]);
        names(found, CONTAINER, BASIC)
    }

    /// The same of a task.
    pub(super) fn task(&self) -> (String, String) {
        let given = [&self.tasks.resource_id, &self.tasks.plan_id];
        names(Some(given), TASK, BASIC)
    }
}

/// Whether a condition holds; one that is left out always does.
fn is_or_any(condition: Option<&str>, name: &str) -> bool {
    condition.is_none_or(|condition| condition == name)
}

/// The resource and the plan that an entry gives, or else these.
fn names(given: Option<[&Option<Id>; 2]>, resource_id: &str, plan_id: &str) -> (String, String) {
    let [resource, plan] = given.map_or([None; 2], |given| given.map(Option::as_ref));
    let name = |given: Option<&Id>, own: &str| given.map_or(own, Id::as_str).to_owned();
    (name(resource, resource_id), name(plan, plan_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_that_fits_decides() {
        let mapping: Mapping = toml::from_str(
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
        for (names, resource_id, plan_id) in [
            (mapping.service("p-mysql", "small"), "mysql", "s"),
            (mapping.service("p-mysql", "large"), "sql", "large"),
            (mapping.service("redis", "small"), "redis", "small"),
            (
                mapping.process(Some("worker")),
                "linux-container",
                "background",
            ),
            (mapping.process(Some("web")), "linux-container", "basic"),
            (mapping.process(None), "linux-container", "basic"),
            (mapping.task(), "jobs", "basic"),
        ] {
            assert_eq!(names, (resource_id.to_owned(), plan_id.to_owned()));
        }
    }

    /// An id that the receiver would refuse is a mistake, too.
    #[test]
    fn a_mistake_is_named_with_its_line() {
        for (text, part) in [
            ("services = 1", "invalid type"),
            ("other = 1", "unknown field `other`"),
            ("[[processes]]\ncolour = \"red\"", "line 2"),
            ("[[processes]]\noffering = \"b\"", "line 2"),
            ("[[processes]]\ntype = 5", "line 2"),
            ("[[services", "line 1"),
            ("[[services]]\nplan = \"p\"", "missing field `offering`"),
            ("[tasks]\nplan_id = \"\"", "must not be empty"),
            ("[tasks]\nplan_id = \"a\\u0007\"", "control characters"),
        ] {
            let words = toml::from_str::<Mapping>(text).unwrap_err().to_string();
            assert!(words.contains(part), "{words}");
        }
    }
}
