//! The lists of the platform: usage events, and what runs now.

use std::collections::{BTreeMap, HashMap, HashSet};

use sampler_verify::moment::{Millis, parse_moment};
use serde_json::Value;

use super::hole::Listed;
use super::platform::Platform;
use super::rules::Mark;
use super::usage_event::{Kind, Quantities, Record, Running, UsageEvent, old_enough};
use crate::failure::Failure;

/// How many rows a page has: the most that the platform gives.
const PER_PAGE: usize = 5_000;
/// How many tasks are looked up at once: an address has a limit.
const TASKS_PER_REQUEST: usize = 50;
/// How many pages one list may have.
const PAGES_MAX: usize = 10_000;

/// A page of usage events.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) events: Vec<UsageEvent>,
    pub(super) is_last: bool,
    /// How many events there are from here on.
    pub(super) total: u64,
    pages: usize,
}

/// The event that a page comes after is gone: pruned, or purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

/// A task that was looked up.
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
    ) -> Result<Result<Page, Gone>, Failure> {
        let mut query = vec![("per_page", PER_PAGE.to_string())];
        query.extend(mark.map(|mark| ("after_guid", mark.guid.clone())));
        let path = path_of(record);
        let answer = self.get(path, &query).await?;
        let found = match mark {
            Some(mark) => self.event_time(record, mark).await?,
            None => None,
        };
        // After another purge the same guid is there again, with another time.
        let is_other = found.is_some_and(|found| Some(&found) != mark.map(|mark| &mark.created_at));
        if is_other {
            return Ok(Err(Gone));
        }
        if answer.status == 422 && mark.is_some() {
            let is_gone = answer.detail().starts_with("After guid");
            if is_gone || self.is_gone(record, mark).await? {
                return Ok(Err(Gone));
            }
        }
        self.page(record, answer).map(Ok)
    }

    /// When an event was made, if it is there.
    async fn event_time(&self, record: Record, mark: &Mark) -> Result<Option<String>, Failure> {
        let path = format!("{}/{}", path_of(record), mark.guid);
        let answer = self.get(&path, &[]).await?;
        Ok(text(&answer.document, "/created_at").map(str::to_owned))
    }

    async fn is_gone(&self, record: Record, mark: Option<&Mark>) -> Result<bool, Failure> {
        match mark {
            Some(mark) => Ok(self.event_time(record, mark).await?.is_none()),
            None => Ok(false),
        }
    }

    fn page(&self, record: Record, answer: super::platform::Answer) -> Result<Page, Failure> {
        let path = path_of(record);
        let rows = self.rows(path, &answer)?;
        let events: Result<Vec<UsageEvent>, String> = rows
            .iter()
            .map(|row| UsageEvent::read(record, row))
            .collect();
        let events = events.map_err(|why| self.fatal(&format!("GET {path}: {why}")).failure)?;
        let number = |pointer: &str| answer.document.pointer(pointer).and_then(Value::as_u64);
        let next = answer.document.pointer("/pagination/next");
        Ok(Page {
            is_last: events.is_empty() || next.is_none_or(Value::is_null),
            total: number("/pagination/total_results").unwrap_or_default(),
            pages: number("/pagination/total_pages")
                .and_then(|pages| usize::try_from(pages).ok())
                .unwrap_or(1),
            events,
        })
    }

    /// The rows of an answer, which is a list.
    fn rows(&self, path: &str, answer: &super::platform::Answer) -> Result<Vec<Value>, Failure> {
        let rows = answer.document.pointer("/resources");
        match (answer.status, rows.and_then(Value::as_array)) {
            (200, Some(rows)) => Ok(rows.clone()),
            (status, _) => {
                let said = crate::output::printable(answer.detail());
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
    ) -> Result<Result<HashSet<String>, Gone>, Failure> {
        let (mut subjects, mut mark) = (HashSet::new(), mark.cloned());
        for _ in 0..PAGES_MAX {
            let page = match self.events(record, mark.as_ref()).await? {
                Ok(page) => page,
                Err(Gone) => return Ok(Err(Gone)),
            };
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
        Ok(Ok(subjects))
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
                let answer = self.get(path, &query).await?;
                for row in self.rows(path, &answer)? {
                    each(&row);
                }
                for key in ["service_plans", "service_offerings", "spaces"] {
                    let included = answer.document.pointer(&format!("/included/{key}"));
                    for row in included.and_then(Value::as_array).into_iter().flatten() {
                        each(row);
                    }
                }
                let next = answer.document.pointer("/pagination/next");
                if next.is_none_or(Value::is_null) {
                    if number == 1 && pass == 0 {
                        return Ok(());
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// What runs now.
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
        // Instances, and what is included: plans, offerings and spaces.
        let mut rows: BTreeMap<String, Value> = BTreeMap::new();
        let mut instances = HashSet::new();
        self.all("/v3/service_instances", &query, |row| {
            if let Some(guid) = text(row, "/guid") {
                if row.pointer("/relationships/service_plan").is_some() {
                    instances.insert(guid.to_owned());
                }
                rows.insert(guid.to_owned(), row.clone());
            }
        })
        .await?;
        let mut listed = Listed {
            organizations: spaces.values().cloned().collect(),
            ..Listed::default()
        };
        for guid in instances {
            match service(&guid, &rows, &spaces) {
                Some(found) => listed.running.push(found),
                None => _ = listed.unplaced.insert(guid),
            }
        }
        Ok(listed)
    }

    async fn apps(&self) -> Result<Listed, Failure> {
        let mut listed = Listed::default();
        let mut processes: HashMap<String, Value> = HashMap::new();
        self.all("/v3/processes", &[], |row| add(&mut processes, row))
            .await?;
        let mut tasks: HashMap<String, Value> = HashMap::new();
        let running = [("states", "RUNNING".to_owned())];
        self.all("/v3/tasks", &running, |row| add(&mut tasks, row))
            .await?;
        let mut apps: HashMap<String, Value> = HashMap::new();
        self.all("/v3/apps", &[], |row| add(&mut apps, row)).await?;
        let spaces = self.spaces().await?;
        listed.organizations.extend(spaces.values().cloned());
        let is_task = [(false, &processes), (true, &tasks)];
        let rows = is_task.iter().flat_map(|(is_task, rows)| {
            let rows = rows.iter();
            rows.map(move |(guid, row)| (*is_task, guid, row))
        });
        for (is_task, guid, row) in rows {
            let app = text(row, "/relationships/app/data/guid");
            let found = app.and_then(|guid| Some((guid, apps.get(guid)?)));
            let is_started =
                found.is_none_or(|(_, app)| is_task || text(app, "/state") == Some("STARTED"));
            if !is_started {
                continue;
            }
            let placed = found.and_then(|(app_guid, app)| {
                let place = Place::of(app, &spaces)?;
                of_app(is_task, guid, row, app_guid, place)
            });
            match placed {
                Some(found) => listed.running.push(found),
                None => _ = listed.unplaced.insert(guid.clone()),
            }
        }
        Ok(listed)
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

    /// Looks tasks up. What is missing is no more.
    pub(super) async fn tasks(
        &self,
        guids: &[String],
    ) -> Result<HashMap<String, TaskState>, Failure> {
        let mut found = HashMap::new();
        for part in guids.chunks(TASKS_PER_REQUEST) {
            let query = [("guids", part.join(","))];
            self.all("/v3/tasks", &query, |row| {
                let (guid, state) = (text(row, "/guid"), text(row, "/state"));
                let updated_at = text(row, "/updated_at").or_else(|| text(row, "/created_at"));
                let updated_at = updated_at.and_then(|time| parse_moment(time).ok());
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

fn add(rows: &mut HashMap<String, Value>, row: &Value) {
    if let Some(guid) = text(row, "/guid") {
        rows.insert(guid.to_owned(), row.clone());
    }
}

/// Where an app is.
struct Place {
    space_id: String,
    organization_id: String,
}

impl Place {
    fn of(row: &Value, spaces: &HashMap<String, String>) -> Option<Self> {
        let space = text(row, "/relationships/space/data/guid")?;
        Some(Self {
            space_id: space.to_owned(),
            organization_id: spaces.get(space)?.clone(),
        })
    }
}

fn made(row: &Value) -> Option<Millis> {
    parse_moment(text(row, "/created_at")?).ok()
}

fn service(
    guid: &str,
    rows: &BTreeMap<String, Value>,
    spaces: &HashMap<String, String>,
) -> Option<(Running, Millis)> {
    let row = rows.get(guid)?;
    let plan_guid = text(row, "/relationships/service_plan/data/guid")?;
    let plan = rows.get(plan_guid)?;
    let offering = text(plan, "/relationships/service_offering/data/guid")?;
    let offering = rows.get(offering)?;
    let space_id = text(row, "/relationships/space/data/guid")?;
    let organization_id = rows
        .get(space_id)
        .and_then(|space| text(space, "/relationships/organization/data/guid"))
        .or_else(|| spaces.get(space_id).map(String::as_str))?;
    let running = Running {
        kind: Kind::Service {
            offering: text(offering, "/name")?.to_owned(),
            plan: text(plan, "/name")?.to_owned(),
            plan_guid: plan_guid.to_owned(),
        },
        guid: guid.to_owned(),
        organization_id: organization_id.to_owned(),
        space_id: space_id.to_owned(),
        consumer_id: format!("service:{guid}"),
        quantities: Quantities::SERVICE,
    };
    Some((running, made(row)?))
}

fn of_app(
    is_task: bool,
    guid: &str,
    row: &Value,
    app: &str,
    place: Place,
) -> Option<(Running, Millis)> {
    let memory = row.pointer("/memory_in_mb")?.as_i64()?;
    let (kind, instances) = if is_task {
        (Kind::Task, 1)
    } else {
        let r#type = text(row, "/type").map(str::to_owned);
        (
            Kind::Process { r#type },
            row.pointer("/instances")?.as_i64()?,
        )
    };
    let running = Running {
        kind,
        guid: guid.to_owned(),
        organization_id: place.organization_id,
        space_id: place.space_id,
        consumer_id: format!("app:{app}"),
        quantities: Quantities::of(memory, instances),
    };
    Some((running, made(row)?))
}
