//! What the platform knows: what runs, and the rows of its usage events.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use chrono::DateTime;
use serde_json::{Value, json};

/// The two tables of usage events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Events {
    Apps,
    Services,
}

/// A row of a table of usage events.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: u64,
    pub(super) guid: String,
    /// In ms since epoch; shown in whole seconds.
    pub(super) at: i64,
    pub(super) document: Value,
}

#[derive(Clone, Debug)]
struct Process {
    app: String,
    space: String,
    r#type: String,
    memory: i64,
    instances: i64,
    /// Memory and instances before the last change.
    previous: (i64, i64),
    is_started: bool,
    made: i64,
}

#[derive(Clone, Debug)]
struct Task {
    app: String,
    space: String,
    memory: i64,
    state: &'static str,
    made: i64,
    updated: i64,
}

#[derive(Clone, Debug)]
struct Service {
    space: String,
    offering: String,
    plan: String,
    made: i64,
}

/// Everything that the platform knows. Times are in ms since epoch. A plan has the GUID
/// `<offering>-<plan>` of the names that it was made with; a new name of it changes nothing else.
#[derive(Debug, Default)]
pub struct World {
    pub(super) apps: Vec<Row>,
    pub(super) services: Vec<Row>,
    ids: u64,
    /// The organization of each space.
    spaces: BTreeMap<String, String>,
    processes: BTreeMap<String, Process>,
    tasks: BTreeMap<String, Task>,
    instances: BTreeMap<String, Service>,
    /// The present names of plans, by GUID.
    names: BTreeMap<String, String>,
    /// How many rows a page has at most, so that small lists have several.
    pub rows_per_page: Option<usize>,
}

pub(super) fn shown(at: i64) -> String {
    let time = DateTime::from_timestamp_millis(at).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

impl World {
    pub fn space(&mut self, organization: &str, space: &str) {
        self.spaces
            .insert(space.to_owned(), organization.to_owned());
    }

    fn organization(&self, space: &str) -> &str {
        self.spaces.get(space).map_or("", String::as_str)
    }

    pub(super) fn rows(&self, events: Events) -> &[Row] {
        match events {
            Events::Apps => &self.apps,
            Events::Services => &self.services,
        }
    }

    fn insert(&mut self, events: Events, guid: Option<String>, at: i64, mut document: Value) {
        self.ids += 1;
        let id = self.ids;
        let guid = guid.unwrap_or_else(|| format!("event-{id}"));
        document["guid"] = json!(guid);
        document["created_at"] = json!(shown(at));
        document["updated_at"] = json!(shown(at));
        let row = Row {
            id,
            guid,
            at,
            document,
        };
        match events {
            Events::Apps => self.apps.push(row),
            Events::Services => self.services.push(row),
        }
    }

    /// A new process, which runs with a size: memory of each instance in MB, and instances.
    pub fn start(&mut self, guid: &str, app: &str, space: &str, size: (i64, i64), at: i64) {
        let (memory, instances) = size;
        let process = Process {
            app: app.to_owned(),
            space: space.to_owned(),
            r#type: "web".to_owned(),
            memory,
            instances,
            previous: size,
            is_started: true,
            made: at,
        };
        self.processes.insert(guid.to_owned(), process);
        self.process_event(guid, "STARTED", "STOPPED", at);
    }

    /// A process that ran before runs again.
    pub fn restart(&mut self, guid: &str, at: i64) {
        if let Some(process) = self.processes.get_mut(guid) {
            process.is_started = true;
        }
        self.process_event(guid, "STARTED", "STOPPED", at);
    }

    pub fn scale(&mut self, guid: &str, memory: i64, instances: i64, at: i64) {
        if let Some(process) = self.processes.get_mut(guid) {
            process.previous = (process.memory, process.instances);
            (process.memory, process.instances) = (memory, instances);
        }
        self.process_event(guid, "STARTED", "STARTED", at);
        if let Some(process) = self.processes.get_mut(guid) {
            process.previous = (memory, instances);
        }
    }

    pub fn stop(&mut self, guid: &str, at: i64) {
        if let Some(process) = self.processes.get_mut(guid) {
            process.is_started = false;
        }
        self.process_event(guid, "STOPPED", "STARTED", at);
    }

    /// An event about a process that changes nothing: of its staging, or of a buildpack.
    pub fn stage(&mut self, guid: &str, state: &str, at: i64) {
        let mut document = self.process_document(guid, state, state);
        document["process"] = json!({ "guid": null, "type": null });
        self.insert(Events::Apps, None, at, document);
    }

    /// What a newer platform writes about what still runs.
    pub fn was_running(&mut self, guid: &str, at: i64) {
        self.process_event(guid, "WAS_RUNNING", "STARTED", at);
    }

    fn process_event(&mut self, guid: &str, state: &str, previous: &str, at: i64) {
        let document = self.process_document(guid, state, previous);
        self.insert(Events::Apps, None, at, document);
    }

    fn process_document(&self, guid: &str, state: &str, previous: &str) -> Value {
        let Some(process) = self.processes.get(guid) else {
            return Value::Null;
        };
        json!({
            "state": { "current": state, "previous": previous },
            "app": { "guid": process.app, "name": process.app },
            "process": { "guid": guid, "type": process.r#type },
            "space": { "guid": process.space, "name": process.space },
            "organization": { "guid": self.organization(&process.space) },
            "buildpack": { "guid": null, "name": null },
            "task": { "guid": null, "name": null },
            "memory_in_mb_per_instance": { "current": process.memory, "previous": process.previous.0 },
            "instance_count": { "current": process.instances, "previous": process.previous.1 },
        })
    }

    pub fn start_task(&mut self, guid: &str, app: &str, space: &str, memory: i64, at: i64) {
        let task = Task {
            app: app.to_owned(),
            space: space.to_owned(),
            memory,
            state: "RUNNING",
            made: at,
            updated: at,
        };
        self.tasks.insert(guid.to_owned(), task);
        self.task_event(guid, "TASK_STARTED", at);
    }

    /// A task ends. The platform tells it only where its start is still in the table.
    pub fn end_task(&mut self, guid: &str, at: i64) {
        if let Some(task) = self.tasks.get_mut(guid) {
            (task.state, task.updated) = ("SUCCEEDED", at);
        }
        let is_told = self.apps.iter().any(|row| {
            row.document["task"]["guid"] == guid
                && row.document["state"]["current"] == "TASK_STARTED"
        });
        if is_told {
            self.task_event(guid, "TASK_STOPPED", at);
        }
    }

    fn task_event(&mut self, guid: &str, state: &str, at: i64) {
        let Some(task) = self.tasks.get(guid) else {
            return;
        };
        let document = json!({
            "state": { "current": state, "previous": null },
            "app": { "guid": task.app, "name": task.app },
            "process": { "guid": null, "type": null },
            "space": { "guid": task.space, "name": task.space },
            "organization": { "guid": self.organization(&task.space) },
            "buildpack": { "guid": null, "name": null },
            "task": { "guid": guid, "name": guid },
            "memory_in_mb_per_instance": { "current": task.memory, "previous": null },
            "instance_count": { "current": 1, "previous": null },
        });
        self.insert(Events::Apps, None, at, document);
    }

    /// A new service instance of `offering` and `plan`.
    pub fn create(&mut self, guid: &str, space: &str, offering: &str, plan: &str, at: i64) {
        let service = Service {
            space: space.to_owned(),
            offering: offering.to_owned(),
            plan: format!("{offering}-{plan}"),
            made: at,
        };
        self.names.insert(service.plan.clone(), plan.to_owned());
        self.instances.insert(guid.to_owned(), service);
        self.service_event(guid, "CREATED", at);
    }

    /// A user-provided instance, which has no plan.
    pub fn create_user_provided(&mut self, guid: &str, space: &str, at: i64) {
        let nothing = json!({ "guid": null, "name": null });
        let document = json!({
            "state": "CREATED",
            "space": { "guid": space, "name": space },
            "organization": { "guid": self.organization(space) },
            "service_instance": { "guid": guid, "name": guid, "type": "user_provided_service_instance" },
            "service_plan": nothing, "service_offering": nothing, "service_broker": nothing,
        });
        self.insert(Events::Services, None, at, document);
    }

    pub fn change_plan(&mut self, guid: &str, plan: &str, at: i64) {
        if let Some(service) = self.instances.get_mut(guid) {
            service.plan = format!("{}-{plan}", service.offering);
            self.names.insert(service.plan.clone(), plan.to_owned());
        }
        self.service_event(guid, "UPDATED", at);
    }

    /// An instance gets another name.
    pub fn rename(&mut self, guid: &str, at: i64) {
        self.service_event(guid, "UPDATED", at);
    }

    /// A plan gets another name, which writes no event.
    pub fn rename_plan(&mut self, plan_guid: &str, name: &str) {
        self.names.insert(plan_guid.to_owned(), name.to_owned());
    }

    pub fn delete(&mut self, guid: &str, at: i64) {
        self.service_event(guid, "DELETED", at);
        self.instances.remove(guid);
    }

    fn service_event(&mut self, guid: &str, state: &str, at: i64) {
        let document = self.service_document(guid, state);
        self.insert(Events::Services, None, at, document);
    }

    fn service_document(&self, guid: &str, state: &str) -> Value {
        let Some(service) = self.instances.get(guid) else {
            return Value::Null;
        };
        json!({
            "state": state,
            "space": { "guid": service.space, "name": service.space },
            "organization": { "guid": self.organization(&service.space) },
            "service_instance": { "guid": guid, "name": guid, "type": "managed_service_instance" },
            "service_plan": { "guid": service.plan, "name": self.names.get(&service.plan) },
            "service_offering": { "guid": service.offering, "name": service.offering },
            "service_broker": { "guid": "broker", "name": "broker" },
        })
    }

    /// Removes rows that were made before, but never that with the highest id.
    pub fn prune(&mut self, before: i64) {
        for rows in [&mut self.apps, &mut self.services] {
            let last = rows.iter().map(|row| row.id).max();
            rows.retain(|row| row.at >= before || Some(row.id) == last);
        }
    }

    /// Purges a table, and seeds it with what runs.
    pub fn reseed(&mut self, events: Events, at: i64) {
        match events {
            Events::Apps => {
                self.apps.clear();
                let guids: Vec<String> = self.processes.keys().cloned().collect();
                for guid in guids {
                    if self.processes[&guid].is_started {
                        let mut document = self.process_document(&guid, "STARTED", "STARTED");
                        document["process"]["type"] = Value::Null;
                        self.insert(events, Some(guid), at, document);
                    }
                }
            }
            Events::Services => {
                self.services.clear();
                let guids: Vec<String> = self.instances.keys().cloned().collect();
                for guid in guids {
                    let document = self.service_document(&guid, "CREATED");
                    self.insert(events, Some(guid), at, document);
                }
            }
        }
    }

    pub(super) fn list(&self, path: &str, filter: &BTreeMap<String, String>) -> Option<Vec<Value>> {
        let wanted = |name: &str, value: &str| {
            let values = filter.get(name).map(String::as_str);
            values.is_none_or(|values| values.split(',').any(|one| one == value))
        };
        match path {
            "/v3/spaces" => Some(self.spaces.iter().map(|(guid, organization)| json!({
                "guid": guid, "name": guid,
                "relationships": { "organization": { "data": { "guid": organization } } },
            })).collect()),
            "/v3/organizations" => Some(self.organizations()),
            "/v3/apps" => Some(self.list_apps()),
            "/v3/processes" => Some(self.processes.iter().map(|(guid, process)| json!({
                "guid": guid, "type": process.r#type, "instances": process.instances,
                "memory_in_mb": process.memory, "created_at": shown(process.made),
                "relationships": { "app": { "data": { "guid": process.app } } },
            })).collect()),
            "/v3/tasks" => Some(self.tasks.iter()
                .filter(|(guid, task)| wanted("guids", guid) && wanted("states", task.state))
                .map(|(guid, task)| json!({
                    "guid": guid, "state": task.state, "memory_in_mb": task.memory,
                    "created_at": shown(task.made), "updated_at": shown(task.updated),
                    "relationships": { "app": { "data": { "guid": task.app } } },
                })).collect()),
            "/v3/service_instances" => Some(self.instances.iter().map(|(guid, service)| json!({
                "guid": guid, "type": "managed", "created_at": shown(service.made),
                "relationships": {
                    "space": { "data": { "guid": service.space } },
                    "service_plan": { "data": { "guid": service.plan } },
                },
            })).collect()),
            _ => None,
        }
    }

    fn organizations(&self) -> Vec<Value> {
        let guids: BTreeSet<&String> = self.spaces.values().collect();
        let rows = guids.into_iter();
        rows.map(|guid| json!({ "guid": guid, "name": guid }))
            .collect()
    }

    fn list_apps(&self) -> Vec<Value> {
        let processes = self.processes.values();
        let of_processes = processes.map(|it| (&it.app, &it.space, it.is_started));
        let of_tasks = self.tasks.values().map(|it| (&it.app, &it.space, false));
        let mut apps: BTreeMap<&String, (&String, bool)> = BTreeMap::new();
        for (app, space, is_started) in of_processes.chain(of_tasks) {
            apps.entry(app).or_insert((space, false)).1 |= is_started;
        }
        apps.into_iter()
            .map(|(guid, (space, is_started))| {
                json!({
                    "guid": guid, "name": guid,
                    "state": if is_started { "STARTED" } else { "STOPPED" },
                    "relationships": { "space": { "data": { "guid": space } } },
                })
            })
            .collect()
    }

    /// What belongs to service instances.
    pub(super) fn included(&self) -> Value {
        let mut offerings = HashSet::new();
        let plans: Vec<Value> = self.instances.values().map(|service| {
            offerings.insert(service.offering.clone());
            json!({
                "guid": service.plan, "name": self.names.get(&service.plan),
                "relationships": { "service_offering": { "data": { "guid": service.offering } } },
            })
        }).collect();
        let offerings: Vec<Value> = offerings
            .iter()
            .map(|offering| json!({ "guid": offering, "name": offering }))
            .collect();
        let spaces = self.list("/v3/spaces", &BTreeMap::new());
        json!({ "service_plans": plans, "service_offerings": offerings, "spaces": spaces })
    }
}
