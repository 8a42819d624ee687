//! The lists of the platform: usage events, and what runs now.

use std::collections::{HashMap, HashSet};

use sampler_verify::moment::{Millis, parse_moment};
use serde_json::Value;

use super::hole::Listed;
use super::platform::{Answer, Platform};
use super::rules::Mark;
use super::usage_event::{Quantities, Record, Running, UsageEvent, UsageKind, old_enough};
use crate::failure::Failure;
use crate::output::printable;

/// How many rows a page has: the most that the platform gives.
const PER_PAGE: usize = 5_000;
/// How many tasks are looked up at once: an address has a limit.
const TASKS_PER_REQUEST: usize = 50;
/// How many pages one list may have.
const PAGES_MAX: usize = 10_000;

#[derive(Debug)]
pub(super) struct EventPage {
    pub(super) events: Vec<UsageEvent>,
    pub(super) is_last: bool,
    /// How many events there are from here on.
    pub(super) total: u64,
    pages: usize,
}

/// Why a list is not read on.
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

#[derive(Clone, Debug)]
pub(super) struct TaskState {
    pub(super) has_ended: bool,
    pub(super) updated_at: Millis,
}

fn path_of(record: Record) -> &'static str {
    match record {
        Record::Services => "/v3/service_usage_events",
        Record::Apps => "/v3/app_usage_events",
    }
}

fn text<'a>(document: &'a Value, pointer: &str) -> Option<&'a str> {
    document.pointer(pointer).and_then(Value::as_str)
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
        let path = path_of(record);
        let answer = self.get(path, &query).await?;
        let found = match mark {
            Some(mark) => self.event_time(record, mark).await?,
            None => None,
        };
        // After another purge the same guid is there again, with another time.
        let is_other = found
            .as_ref()
            .is_some_and(|found| Some(found) != mark.map(|mark| &mark.created_at));
        let is_refused = answer.status == 422 && mark.is_some();
        let is_gone = found.is_none() || answer.detail().starts_with("After guid");
        if is_other || is_refused && is_gone {
            return Err(Unread::Gone);
        }
        Ok(self.page(record, answer)?)
    }

    /// When an event was made, if it is there.
    async fn event_time(&self, record: Record, mark: &Mark) -> Result<Option<String>, Failure> {
        let path = format!("{}/{}", path_of(record), mark.guid);
        let answer = self.get(&path, &[]).await?;
        Ok(text(&answer.document, "/created_at").map(str::to_owned))
    }

    fn page(&self, record: Record, mut answer: Answer) -> Result<EventPage, Failure> {
        let path = path_of(record);
        let rows = self.rows(path, &mut answer)?;
        let events: Result<Vec<UsageEvent>, String> = rows
            .iter()
            .map(|row| UsageEvent::read(record, row))
            .collect();
        let events = events.map_err(|why| self.fatal(&format!("GET {path}: {why}")).failure)?;
        let pagination = &answer.document["pagination"];
        Ok(EventPage {
            is_last: events.is_empty() || is_last(&answer),
            total: pagination["total_results"].as_u64().unwrap_or_default(),
            pages: pagination["total_pages"]
                .as_u64()
                .and_then(|pages| usize::try_from(pages).ok())
                .unwrap_or(1),
            events,
        })
    }

    /// The rows of an answer, which is a list.
    fn rows(&self, path: &str, answer: &mut Answer) -> Result<Vec<Value>, Failure> {
        let rows = answer.document.pointer_mut("/resources").map(Value::take);
        match (answer.status, rows) {
            (200, Some(Value::Array(rows))) => Ok(rows),
            (status, _) => {
                let said = printable(answer.detail());
                let words = format!("GET {path} is answered {status}, not with a list: {said}");
                Err(self.fatal(&words).failure)
            }
        }
    }

    /// The newest event that is not younger than this, and has no younger one before it. Pages count rows,
    /// so it is searched from the end.
    pub(super) async fn newest(
        &self,
        record: Record,
        until: Millis,
    ) -> Result<Option<Mark>, Failure> {
        let mut number = 1;
        let (mut is_first, mut found) = (true, None);
        loop {
            let query = [
                ("per_page", PER_PAGE.to_string()),
                ("page", number.to_string()),
            ];
            let answer = self.get(path_of(record), &query).await?;
            let page = self.page(record, answer)?;
            if is_first && page.pages > 1 {
                (is_first, number) = (false, page.pages);
                continue;
            }
            is_first = false;
            let old = old_enough(&page.events, until);
            if old < page.events.len() {
                found = None;
            }
            if let Some(event) = page.events[..old].last()
                && found.is_none()
            {
                found = Some(Mark::from(event));
            }
            let is_all_old = old == page.events.len() && old > 0;
            if is_all_old || number <= 1 {
                return Ok(found);
            }
            number -= 1;
        }
    }

    /// What has events after a mark, however young they are.
    pub(super) async fn subjects_after(
        &self,
        record: Record,
        mark: Option<&Mark>,
    ) -> Result<HashSet<String>, Unread> {
        let (mut subjects, mut mark) = (HashSet::new(), mark.cloned());
        for _ in 0..PAGES_MAX {
            let page = self.events(record, mark.as_ref()).await?;
            subjects.extend(
                page.events
                    .iter()
                    .filter_map(|event| event.subject().map(str::to_owned)),
            );
            if page.is_last {
                break;
            }
            mark = page.events.last().map(Mark::from);
        }
        Ok(subjects)
    }

    /// A list with all of its pages. Where a row goes while pages are read, another can be missed, so a list
    /// of several pages is read twice: what is in either counts.
    async fn all(
        &self,
        path: &str,
        query: &[(&str, String)],
        mut each: impl FnMut(&Value),
    ) -> Result<(), Failure> {
        for pass in 0..2 {
            for number in 1..=PAGES_MAX {
                let mut query = query.to_vec();
                query.push(("per_page", PER_PAGE.to_string()));
                query.push(("page", number.to_string()));
                let mut answer = self.get(path, &query).await?;
                for row in self.rows(path, &mut answer)? {
                    each(&row);
                }
                for key in ["service_plans", "service_offerings", "spaces"] {
                    let included = answer.document.pointer(&format!("/included/{key}"));
                    for row in included.and_then(Value::as_array).into_iter().flatten() {
                        each(row);
                    }
                }
                if is_last(&answer) {
                    if number == 1 && pass == 0 {
                        return Ok(());
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    pub(super) async fn running(&self, record: Record) -> Result<Listed, Failure> {
        match record {
            Record::Services => self.services().await,
            Record::Apps => self.apps().await,
        }
    }

    async fn services(&self) -> Result<Listed, Failure> {
        let spaces = self.spaces().await?;
        let query = [
            ("type", "managed".to_owned()),
            (
                "fields[service_plan]",
                "guid,name,relationships.service_offering".to_owned(),
            ),
            (
                "fields[service_plan.service_offering]",
                "guid,name".to_owned(),
            ),
            (
                "fields[space]",
                "guid,relationships.organization".to_owned(),
            ),
        ];
        let (mut catalogue, mut instances) = (Catalogue::default(), HashMap::new());
        self.all("/v3/service_instances", &query, |row| {
            let Some(guid) = text(row, "/guid") else {
                return;
            };
            if row.pointer("/relationships/service_plan").is_some() {
                instances.insert(guid.to_owned(), Instance::read(row));
            } else {
                catalogue.add(guid, row);
            }
        })
        .await?;
        let mut listed = Listed::default();
        for (guid, instance) in instances {
            let found = instance.and_then(|instance| catalogue.place(&guid, instance, &spaces));
            match found {
                Some(found) => listed.running.push(found),
                None => _ = listed.unplaced.insert(guid),
            }
        }
        listed.organizations = self.organizations(spaces).await?;
        Ok(listed)
    }

    async fn apps(&self) -> Result<Listed, Failure> {
        let mut parts: HashMap<String, Option<Part>> = HashMap::new();
        self.all("/v3/processes", &[], |row| {
            let guid = text(row, "/guid").unwrap_or_default().to_owned();
            parts.insert(guid, Part::of_process(row));
        })
        .await?;
        let running = [("states", "RUNNING".to_owned())];
        self.all("/v3/tasks", &running, |row| {
            let guid = text(row, "/guid").unwrap_or_default().to_owned();
            parts.insert(guid, Part::read(row, UsageKind::Task, 1));
        })
        .await?;
        let mut apps: HashMap<String, App> = HashMap::new();
        self.all("/v3/apps", &[], |row| {
            let space = text(row, "/relationships/space/data/guid");
            if let (Some(guid), Some(space)) = (text(row, "/guid"), space) {
                let is_started = text(row, "/state") == Some("STARTED");
                let space = space.to_owned();
                apps.insert(guid.to_owned(), App { is_started, space });
            }
        })
        .await?;
        let spaces = self.spaces().await?;
        let mut listed = Listed::default();
        for (guid, part) in parts {
            let app = part.as_ref().and_then(|part| apps.get(&part.app));
            let is_process = part
                .as_ref()
                .is_some_and(|part| part.kind != UsageKind::Task);
            if is_process && app.is_some_and(|app| !app.is_started) {
                continue;
            }
            let found = part
                .zip(app)
                .and_then(|(part, app)| part.place(&guid, app, &spaces));
            match found {
                Some(found) => listed.running.push(found),
                None => _ = listed.unplaced.insert(guid),
            }
        }
        listed.organizations = self.organizations(spaces).await?;
        Ok(listed)
    }

    /// All organizations, also those without a space.
    async fn organizations(
        &self,
        spaces: HashMap<String, String>,
    ) -> Result<HashSet<String>, Failure> {
        let mut organizations: HashSet<String> = spaces.into_values().collect();
        self.all("/v3/organizations", &[], |row| {
            organizations.extend(text(row, "/guid").map(str::to_owned));
        })
        .await?;
        Ok(organizations)
    }

    /// The organization of each space.
    async fn spaces(&self) -> Result<HashMap<String, String>, Failure> {
        let mut spaces = HashMap::new();
        self.all("/v3/spaces", &[], |row| {
            let organization = text(row, "/relationships/organization/data/guid");
            if let (Some(guid), Some(organization)) = (text(row, "/guid"), organization) {
                spaces.insert(guid.to_owned(), organization.to_owned());
            }
        })
        .await?;
        Ok(spaces)
    }

    /// Looks tasks up. A missing task is gone.
    pub(super) async fn tasks(
        &self,
        guids: &[String],
    ) -> Result<HashMap<String, TaskState>, Failure> {
        let mut found = HashMap::new();
        for part in guids.chunks(TASKS_PER_REQUEST) {
            let query = [("guids", part.join(","))];
            self.all("/v3/tasks", &query, |row| {
                let (guid, state) = (text(row, "/guid"), text(row, "/state"));
                let updated_at = text(row, "/updated_at")
                    .or_else(|| text(row, "/created_at"))
                    .and_then(|time| parse_moment(time).ok());
                if let (Some(guid), Some(updated_at)) = (guid, updated_at) {
                    let has_ended = matches!(state, Some("SUCCEEDED" | "FAILED"));
                    let state = TaskState {
                        has_ended,
                        updated_at,
                    };
                    found.insert(guid.to_owned(), state);
                }
            })
            .await?;
        }
        Ok(found)
    }
}

fn is_last(answer: &Answer) -> bool {
    let next = answer.document.pointer("/pagination/next");
    next.is_none_or(Value::is_null)
}

fn made(row: &Value) -> Option<Millis> {
    parse_moment(text(row, "/created_at")?).ok()
}

struct Instance {
    plan: String,
    space: String,
    made: Millis,
}

impl Instance {
    fn read(row: &Value) -> Option<Self> {
        Some(Self {
            plan: text(row, "/relationships/service_plan/data/guid")?.to_owned(),
            space: text(row, "/relationships/space/data/guid")?.to_owned(),
            made: made(row)?,
        })
    }
}

/// The plans and offerings that come along with instances, by GUID.
#[derive(Default)]
struct Catalogue {
    /// With the offering of each.
    plans: HashMap<String, (String, String)>,
    offerings: HashMap<String, String>,
}

impl Catalogue {
    fn add(&mut self, guid: &str, row: &Value) {
        let Some(name) = text(row, "/name").map(str::to_owned) else {
            return;
        };
        let offering = text(row, "/relationships/service_offering/data/guid");
        match offering {
            Some(offering) => {
                let plan = (offering.to_owned(), name);
                self.plans.insert(guid.to_owned(), plan);
            }
            None => _ = self.offerings.insert(guid.to_owned(), name),
        }
    }

    fn place(
        &self,
        guid: &str,
        instance: Instance,
        spaces: &HashMap<String, String>,
    ) -> Option<(Running, Millis)> {
        let (offering, plan) = self.plans.get(&instance.plan)?;
        let running = Running {
            kind: UsageKind::Service {
                offering: self.offerings.get(offering)?.clone(),
                plan: plan.clone(),
                plan_guid: instance.plan,
            },
            guid: guid.to_owned(),
            organization_id: spaces.get(&instance.space)?.clone(),
            space_id: instance.space,
            consumer_id: format!("service:{guid}"),
            quantities: Quantities::SERVICE,
        };
        Some((running, instance.made))
    }
}

struct App {
    is_started: bool,
    space: String,
}

/// A process or a task of a list.
struct Part {
    app: String,
    kind: UsageKind,
    quantities: Quantities,
    made: Millis,
}

impl Part {
    fn of_process(row: &Value) -> Option<Self> {
        let r#type = text(row, "/type").map(str::to_owned);
        let instances = row.pointer("/instances")?.as_i64()?;
        Self::read(row, UsageKind::Process { r#type }, instances)
    }

    fn read(row: &Value, kind: UsageKind, instances: i64) -> Option<Self> {
        let memory = row.pointer("/memory_in_mb")?.as_i64()?;
        Some(Self {
            app: text(row, "/relationships/app/data/guid")?.to_owned(),
            kind,
            quantities: Quantities::of(memory, instances),
            made: made(row)?,
        })
    }

    fn place(
        self,
        guid: &str,
        app: &App,
        spaces: &HashMap<String, String>,
    ) -> Option<(Running, Millis)> {
        let running = Running {
            consumer_id: format!("app:{}", self.app),
            kind: self.kind,
            guid: guid.to_owned(),
            organization_id: spaces.get(&app.space)?.clone(),
            space_id: app.space.clone(),
            quantities: self.quantities,
        };
        Some((running, self.made))
    }
}
