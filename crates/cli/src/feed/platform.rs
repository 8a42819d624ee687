//! The Cloud Controller's API (v3): usage events, and what runs now. The receiver: its open spans, and its events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::sync::Arc;

use sampler_service::oauth::ClientCredentials;
use sampler_verify::moment::{Millis, parse_moment};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::mapping::Mapping;
use super::outside::{EventPage, Listed, Outside};
use super::state::{Kind, Mark, Refused, Tracked, measures, one};
use super::usage_event::{Record, UsageEvent, text};
use crate::api::{Api, ApiError, Query};
use crate::connection::{Token, client_of_platform};
use crate::event::SpanSeen;
use crate::events::{FileEvent, Sender};
use crate::failure::Failure;
use crate::moment;
use crate::output::{Progress, warn};

/// Who has one of these sees all usage events. Anybody else gets empty lists.
const SCOPES: [&str; 3] = [
    "cloud_controller.global_auditor",
    "cloud_controller.admin_read_only",
    "cloud_controller.admin",
];
/// How many rows a page has: the most that the platform gives.
const PER_PAGE: usize = 5_000;
/// How many tasks are looked up at once: an address has a limit.
const TASKS_PER_REQUEST: usize = 50;
/// How many pages one list may have.
const PAGES_MAX: u64 = 10_000;
/// How many events are sent at once.
const BATCH: usize = 500;

/// The platform and the receiver.
#[derive(Debug)]
pub(super) struct Live {
    platform: Api,
    client: Arc<ClientCredentials>,
    mapping: Mapping,
    receiver: Api,
}

/// A page of a list.
#[derive(Deserialize)]
struct Page<T> {
    resources: Vec<T>,
    included: Option<HashMap<String, Vec<T>>>,
    #[serde(default)]
    pagination: Pagination,
}

#[derive(Default, Deserialize)]
struct Pagination {
    /// None: this is the last page.
    next: Option<Value>,
}

impl Live {
    pub(super) fn new(
        api: Url,
        client_id: &str,
        mapping: Mapping,
        receiver: Api,
    ) -> Result<Self, Failure> {
        let client = client_of_platform(&api, client_id)?;
        Ok(Self {
            platform: Api::at(api, Token::Client(client.clone()))?,
            client,
            mapping,
            receiver,
        })
    }

    /// Makes sure that this is a platform, and that its client sees everything.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        let token = self.client.token().await;
        let token = token.map_err(|error| self.failed(error))?;
        let mut scopes = token.scope().unwrap_or_default().split(' ');
        if scopes.any(|scope| SCOPES.contains(&scope)) {
            return Ok(());
        }
        Err(self.failed(format!(
            "the client gets none of the scopes that see all usage events: it needs {}",
            SCOPES[0]
        )))
    }

    /// When a usage event was made, as the platform writes it.
    async fn made(&self, record: Record, guid: &str) -> Result<Option<String>, Failure> {
        let path = ["v3", record.path(), guid];
        let row = match self.platform.get(&path, &Query::new()).await {
            Err(error) if error.status() == Some(404) => return Ok(None),
            answer => answer.and_then(|answer| answer.read::<Value>()),
        };
        let row = row.map_err(|error| self.failed(error))?;
        Ok(text(&row, "/created_at").map(str::to_owned))
    }

    async fn page<T: DeserializeOwned>(
        &self,
        list: &str,
        query: &Query,
    ) -> Result<Page<T>, ApiError> {
        self.platform.get(&["v3", list], query).await?.read()
    }

    /// A list with all of its pages, by GUID. If a row goes while pages are read, another can be missed, so a list of
    /// several pages is read twice: what is in either counts.
    async fn all(&self, list: &str, query: &Query) -> Result<Rows, Failure> {
        let mut all = Rows::new();
        for pass in 0..2 {
            for number in 1..=PAGES_MAX {
                let mut query = query.clone();
                query.push(("per_page", PER_PAGE.to_string()));
                query.push(("page", number.to_string()));
                let page = self.page::<Row>(list, &query).await;
                let page = page.map_err(|error| self.failed(error))?;
                let included = page.included.into_iter();
                let included = included.flat_map(HashMap::into_values).flatten();
                let rows = page.resources.into_iter().chain(included);
                all.extend(rows.map(|row| (row.guid.clone(), row)));
                if page.pagination.next.is_none() {
                    if number == 1 && pass == 0 {
                        return Ok(all);
                    }
                    break;
                }
            }
        }
        Ok(all)
    }

    async fn services(&self) -> Result<Listed, Failure> {
        let spaces = self.spaces().await?;
        let plan = "guid,name,relationships.service_offering";
        let query = [
            ("type", "managed"),
            ("fields[service_plan]", plan),
            ("fields[service_plan.service_offering]", "guid,name"),
        ];
        let query = query.map(|(name, value)| (name, value.to_owned()));
        let rows = self.all("service_instances", &query.into()).await?;
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
        let processes = self.all("processes", &Query::new()).await?;
        let running = vec![("states", "RUNNING".to_owned())];
        let tasks = self.all("tasks", &running).await?;
        let apps = self.all("apps", &Query::new()).await?;
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
        let service = Tracked::new(Kind::Service, ids, names, one(), made);
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
        let measures = measures(row.memory_in_mb?, instances);
        let made = parse_moment(row.created_at.as_deref()?).ok()?;
        Some(Tracked::new(kind, ids, names, measures, made))
    }

    /// The organization of each space.
    async fn spaces(&self) -> Result<Spaces, Failure> {
        let rows = self.all("spaces", &Query::new()).await?;
        let spaces = rows.into_iter().filter_map(|(guid, row)| {
            let organization = row.related("organization")?.to_owned();
            Some((guid, organization))
        });
        Ok(spaces.collect())
    }

    /// The platform gives no answer that can be used.
    fn failed(&self, why: impl Display) -> Failure {
        let base = self.platform.base();
        Failure::Unanswered(format!("Cloud Foundry at {base}: {why}"))
    }

    /// The receiver gives none.
    fn unanswered(&self, why: impl Display) -> Failure {
        let base = self.receiver.base();
        Failure::Unanswered(format!("Sampler at {base}: {why}"))
    }
}

impl Outside for Live {
    fn now(&self) -> Millis {
        moment::now()
    }

    /// The events after a mark, if it is still there. There is no `order_by`: the platform's own order is
    /// the one that `after_guid` goes by.
    async fn events(
        &self,
        record: Record,
        mark: Option<&Mark>,
    ) -> Result<Option<EventPage>, Failure> {
        let mut query = vec![("per_page", PER_PAGE.to_string())];
        query.extend(mark.map(|mark| ("after_guid", mark.guid.clone())));
        let page = self.page::<Value>(record.path(), &query).await;
        if let Some(mark) = mark {
            let found = self.made(record, &mark.guid).await?;
            let refused = page.as_ref().err().filter(|it| it.status() == Some(422));
            let is_gone =
                refused.is_some_and(|it| found.is_none() || it.message.contains("After guid"));
            // After another purge the same GUID is there again, with another time.
            let is_other = found.is_some_and(|found| found != mark.created_at);
            if is_other || is_gone {
                return Ok(None);
            }
        }
        let page = page.map_err(|error| self.failed(error))?;
        let rows = page.resources.iter();
        let events = rows.map(|row| UsageEvent::read(record, row, &self.mapping));
        let events: Result<Vec<UsageEvent>, String> = events.collect();
        let events = events.map_err(|why| self.failed(why))?;
        let is_last = events.is_empty() || page.pagination.next.is_none();
        Ok(Some(EventPage { events, is_last }))
    }

    async fn running(&self, record: Record) -> Result<Listed, Failure> {
        let mut listed = match record {
            Record::Services => self.services().await?,
            Record::Apps => self.apps().await?,
        };
        // Also those without a space.
        let organizations = self.all("organizations", &Query::new()).await?;
        listed.organizations = organizations.into_keys().collect();
        Ok(listed)
    }

    async fn tasks(&self, guids: &[String]) -> Result<HashMap<String, Option<Millis>>, Failure> {
        let mut found = HashMap::new();
        for part in guids.chunks(TASKS_PER_REQUEST) {
            let rows = self.all("tasks", &vec![("guids", part.join(","))]).await?;
            found.extend(rows.into_iter().filter_map(|(guid, row)| {
                let has_ended = matches!(row.state.as_deref(), Some("SUCCEEDED" | "FAILED"));
                let updated_at = row.updated_at.or(row.created_at)?;
                let updated_at = parse_moment(&updated_at).ok()?;
                Some((guid, has_ended.then_some(updated_at)))
            }));
        }
        Ok(found)
    }

    async fn open_spans(&self, organizations: &BTreeSet<String>) -> Result<Vec<SpanSeen>, Failure> {
        let mut spans: Vec<SpanSeen> = Vec::new();
        for id in organizations {
            // Not by state: what is suspended may be open, too.
            let now = self.now().to_string();
            let query = vec![("organization_id", id.clone()), ("from", now)];
            let take = |page: Vec<SpanSeen>| {
                spans.extend(page.into_iter().filter(|span| span.end.is_none()));
            };
            let read = self.receiver.each_page(&["v1", "spans"], query, take).await;
            read.map_err(|error| self.unanswered(error))?;
        }
        Ok(spans)
    }

    async fn post(&self, bodies: &[&Value]) -> Result<Refused, Failure> {
        let mut refused = Refused::new();
        // A report names more refusals than a batch has events.
        for part in bodies.chunks(BATCH) {
            let events = (0..).zip(part).map(|(line, body)| FileEvent {
                line,
                is_cloud_event: false,
                body: body.to_string(),
            });
            let mut sender = Sender::new(&self.receiver, BATCH, Progress::hidden());
            let sent = sender.send_events(events).await;
            sent.map_err(|failure| self.unanswered(failure))?;
            let refusals = sender.finish().refusals.into_iter();
            refused.extend(refusals.filter_map(|refusal| {
                let (status, detail) = (refusal.status, &refusal.problem.detail);
                warn(&format!("an event is refused with {status}: {detail}"));
                let body = part.get(usize::try_from(refusal.line).ok()?)?;
                Some((body["id"].as_str()?.to_owned(), refusal))
            }));
        }
        Ok(refused)
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
            Some(running) => _ = self.running.insert(guid.to_owned(), running),
            None => _ = self.unplaced.insert(guid.to_owned()),
        }
    }
}
