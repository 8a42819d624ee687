//! The lists of the platform: usage events, and what runs now.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sampler_verify::moment::{Millis, parse_moment};
use serde::Deserialize;
use serde_json::Value;

use super::platform::{Answer, Platform};
use super::state::{Kind, Mark, Quantities, Tracked};
use super::usage_event::{Record, UsageEvent, text};
use crate::failure::Failure;

/// How many rows a page has: the most that the platform gives.
const PER_PAGE: usize = 5_000;
/// How many tasks are looked up at once: an address has a limit.
const TASKS_PER_REQUEST: usize = 50;
/// How many pages one list may have.
const PAGES_MAX: u64 = 10_000;
#[derive(Clone, Debug)]
pub(super) struct EventPage {
    pub(super) events: Vec<UsageEvent>,
    pub(super) is_last: bool,
}

/// Why a list is not read on.
#[derive(Debug)]
pub(super) enum Unread {
    /// The event that a page comes after is gone: pruned, or purged.
    Gone,
    Failure(Failure),
}

impl From<Failure> for Unread {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// What runs at a time, as the platform lists it.
#[derive(Clone, Debug, Default)]
pub(super) struct Listed {
    /// `last` is when each was made.
    pub(super) running: Vec<Tracked>,
    /// What is listed, but nobody says where it belongs: it is neither started nor stopped.
    pub(super) unplaced: BTreeSet<String>,
    pub(super) organizations: BTreeSet<String>,
    /// The resources that the feed names, also if nothing of them runs.
    pub(super) resources: BTreeSet<String>,
}

#[derive(Clone, Debug)]
pub(super) struct TaskState {
    pub(super) has_ended: bool,
    pub(super) updated_at: Millis,
}

impl Record {
    fn path(self) -> &'static str {
        match self {
            Self::Services => "/v3/service_usage_events",
            Self::Apps => "/v3/app_usage_events",
        }
    }
}

impl Platform {
    /// The events after a mark, if it is still there. There is no `order_by`: the platform's own order is
    /// the one that `after_guid` goes by.
    pub(super) async fn events(
        &self,
        record: Record,
        mark: Option<&Mark>,
    ) -> Result<EventPage, Unread> {
        let mut query = vec![("per_page", PER_PAGE.to_string())];
        query.extend(mark.map(|mark| ("after_guid", mark.guid.clone())));
        let answer = self.get(record.path(), &query).await?;
        if let Some(mark) = mark {
            let path = format!("{}/{}", record.path(), mark.guid);
            let found = self.get(&path, &[]).await?;
            let found = text(&found.document, "/created_at");
            // After another purge the same GUID is there again, with another time.
            let is_other = found.is_some_and(|found| found != mark.created_at);
            let is_gone = found.is_none() || answer.detail().starts_with("After guid");
            if is_other || answer.status == 422 && is_gone {
                return Err(Unread::Gone);
            }
        }
        Ok(self.page(record, answer)?)
    }

    fn page(&self, record: Record, mut answer: Answer) -> Result<EventPage, Failure> {
        let rows = self.rows(record.path(), &mut answer)?;
        let events: Result<Vec<UsageEvent>, String> = rows
            .iter()
            .map(|row| UsageEvent::read(record, row, &self.mapping))
            .collect();
        let events =
            events.map_err(|why| self.fatal(&format!("GET {}: {why}", record.path())).failure)?;
        let is_last = events.is_empty() || is_last(&answer);
        Ok(EventPage { events, is_last })
    }

    /// The rows of an answer, which is a list.
    fn rows(&self, path: &str, answer: &mut Answer) -> Result<Vec<Value>, Failure> {
        let rows = answer.document.pointer_mut("/resources").map(Value::take);
        match (answer.status, rows) {
            (200, Some(Value::Array(rows))) => Ok(rows),
            (status, _) => {
                let said = answer.detail();
                let words = format!("GET {path} is answered {status}, not with a list: {said}");
                Err(self.fatal(&words).failure)
            }
        }
    }

    /// A list with all of its pages, by GUID. If a row goes while pages are read, another can be missed, so a list of
    /// several pages is read twice: what is in either counts.
    async fn all(&self, path: &str, query: &[(&str, String)]) -> Result<Rows, Failure> {
        let mut all = Rows::new();
        for pass in 0..2 {
            for number in 1..=PAGES_MAX {
                let page = [
                    ("per_page", PER_PAGE.to_string()),
                    ("page", number.to_string()),
                ];
                let mut answer = self.get(path, &[query, &page[..]].concat()).await?;
                let mut rows = self.rows(path, &mut answer)?;
                for key in ["service_plans", "service_offerings"] {
                    let included = answer.document["included"][key].as_array();
                    rows.extend(included.into_iter().flatten().cloned());
                }
                for row in rows {
                    let row: Row = serde_json::from_value(row)
                        .map_err(|why| self.fatal(&format!("GET {path}: {why}")).failure)?;
                    all.insert(row.guid.clone(), row);
                }
                if is_last(&answer) {
                    if number == 1 && pass == 0 {
                        return Ok(all);
                    }
                    break;
                }
            }
        }
        Ok(all)
    }

    pub(super) async fn running(&self, record: Record) -> Result<Listed, Failure> {
        let mut listed = match record {
            Record::Services => self.services().await?,
            Record::Apps => self.apps().await?,
        };
        // Also those without a space.
        let organizations = self.all("/v3/organizations", &[]).await?;
        listed.organizations = organizations.into_keys().collect();
        listed.resources = self.mapping.resources(record);
        Ok(listed)
    }

    async fn services(&self) -> Result<Listed, Failure> {
        let spaces = self.spaces().await?;
        let of = |name, fields: &str| (name, fields.to_owned());
        let query = [
            of("type", "managed"),
            of(
                "fields[service_plan]",
                "guid,name,relationships.service_offering",
            ),
            of("fields[service_plan.service_offering]", "guid,name"),
        ];
        let rows = self.all("/v3/service_instances", &query).await?;
        let mut listed = Listed::default();
        for (guid, row) in &rows {
            // Plans and offerings are among them.
            if row.related("service_plan").is_some() {
                listed.add(guid, self.service(guid, row, &rows, &spaces));
            }
        }
        Ok(listed)
    }

    async fn apps(&self) -> Result<Listed, Failure> {
        let processes = self.all("/v3/processes", &[]).await?;
        let running = [("states", "RUNNING".to_owned())];
        let tasks = self.all("/v3/tasks", &running).await?;
        let apps = self.all("/v3/apps", &[]).await?;
        let spaces = self.spaces().await?;
        let mut listed = Listed::default();
        for (guid, row) in &processes {
            let app = row.related("app").and_then(|app| apps.get(app));
            if app.is_none_or(|app| app.state.as_deref() == Some("STARTED")) {
                listed.add(guid, self.part(Kind::Process, row, &apps, &spaces));
            }
        }
        for (guid, row) in &tasks {
            listed.add(guid, self.part(Kind::Task, row, &apps, &spaces));
        }
        Ok(listed)
    }

    /// A service instance, whose plan and offering are listed with it.
    fn service(&self, guid: &str, row: &Row, rows: &Rows, spaces: &Spaces) -> Option<Tracked> {
        let plan_guid = row.related("service_plan")?;
        let plan = rows.get(plan_guid)?;
        let offering = rows.get(plan.related("service_offering")?)?;
        let (offering, name) = (offering.name.as_deref()?, plan.name.as_deref()?);
        let names = self.mapping.service(offering, name);
        let (space, consumer) = (row.related("space")?, format!("service:{guid}"));
        let ids = [spaces.get(space)?, space, &consumer, guid];
        let made = parse_moment(row.created_at.as_deref()?).ok()?;
        let service = Tracked::new(Kind::Service, ids, names, Quantities::SERVICE, made);
        let plan = Some(plan_guid.to_owned());
        Some(Tracked { plan, ..service })
    }

    /// A process or a task of an app.
    fn part(&self, kind: Kind, row: &Row, apps: &Rows, spaces: &Spaces) -> Option<Tracked> {
        let (names, instances) = match kind {
            Kind::Task => (self.mapping.task(), 1),
            _ => (self.mapping.process(row.r#type.as_deref()), row.instances?),
        };
        let app = row.related("app")?;
        let (space, consumer) = (apps.get(app)?.related("space")?, format!("app:{app}"));
        let ids = [spaces.get(space)?, space, &consumer, &row.guid];
        let quantities = Quantities::of(row.memory_in_mb?, instances);
        let made = parse_moment(row.created_at.as_deref()?).ok()?;
        Some(Tracked::new(kind, ids, names, quantities, made))
    }

    /// The organization of each space.
    async fn spaces(&self) -> Result<Spaces, Failure> {
        let rows = self.all("/v3/spaces", &[]).await?;
        let spaces = rows.into_iter().filter_map(|(guid, row)| {
            let organization = row.related("organization")?.to_owned();
            Some((guid, organization))
        });
        Ok(spaces.collect())
    }

    /// Looks tasks up. A missing task is gone.
    pub(super) async fn tasks(
        &self,
        guids: &[String],
    ) -> Result<HashMap<String, TaskState>, Failure> {
        let mut found = HashMap::new();
        for part in guids.chunks(TASKS_PER_REQUEST) {
            let rows = self.all("/v3/tasks", &[("guids", part.join(","))]).await?;
            found.extend(rows.into_iter().filter_map(|(guid, row)| {
                let updated_at = row.updated_at.or(row.created_at)?;
                let state = TaskState {
                    has_ended: matches!(row.state.as_deref(), Some("SUCCEEDED" | "FAILED")),
                    updated_at: parse_moment(&updated_at).ok()?,
                };
                Some((guid, state))
            }));
        }
        Ok(found)
    }
}

/// Rows by GUID, and organizations by the GUID of a space.
type Rows = BTreeMap<String, Row>;
type Spaces = BTreeMap<String, String>;

/// What matters of a row, whatever list it is of.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    guid: String,
    name: Option<String>,
    r#type: Option<String>,
    state: Option<String>,
    instances: Option<i64>,
    memory_in_mb: Option<i64>,
    created_at: Option<String>,
    updated_at: Option<String>,
    #[serde(default)]
    relationships: Value,
}

impl Row {
    /// The GUID of what it belongs to.
    fn related(&self, name: &str) -> Option<&str> {
        self.relationships[name]["data"]["guid"].as_str()
    }
}

impl Listed {
    fn add(&mut self, guid: &str, running: Option<Tracked>) {
        match running {
            Some(running) => self.running.push(running),
            None => _ = self.unplaced.insert(guid.to_owned()),
        }
    }
}

fn is_last(answer: &Answer) -> bool {
    answer.document["pagination"]["next"].is_null()
}
