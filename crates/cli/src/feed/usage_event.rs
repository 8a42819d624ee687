//! A usage event of the platform, and what it says about one service instance, process or task.

use sampler_verify::moment::{Millis, parse_moment};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::mapping::Mapping;
use super::state::{Kind, Tracked};

/// A list of usage events of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Record {
    Services,
    Apps,
}

impl Record {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Services => "service",
            Self::Apps => "app",
        }
    }
}

/// How much of something runs. A service instance is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Quantities {
    /// Of all instances together; absent for a service.
    pub(super) memory_mb: Option<i64>,
    pub(super) instances: i64,
}

impl Quantities {
    pub(super) const SERVICE: Self = Self {
        memory_mb: None,
        instances: 1,
    };

    pub(super) fn of(memory_per_instance: i64, instances: i64) -> Self {
        Self {
            memory_mb: Some(memory_per_instance.saturating_mul(instances)),
            instances,
        }
    }

    /// `measured_usage` of an event.
    pub(super) fn measures(self) -> Value {
        let instances = json!({ "measure": "instances", "quantity": self.instances });
        match self.memory_mb {
            Some(memory) => json!([{ "measure": "memory_mb", "quantity": memory }, instances]),
            None => json!([instances]),
        }
    }
}

/// Since when something runs, as an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// It starts with the event.
    Event,
    /// It ran before the event, too.
    Before,
    /// The platform only notes that it runs.
    Noted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// It runs like this from then on.
    Runs {
        now: Box<Tracked>,
        since: Since,
        /// How much of it ran before the event, if the platform says so.
        was: Option<Quantities>,
    },
    Ended {
        guid: String,
        /// What ran until then, if the event says all of it.
        was: Option<Box<Tracked>>,
    },
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UsageEvent {
    pub(super) guid: String,
    /// As the platform writes it, in whole seconds.
    pub(super) created_at: String,
    pub(super) at: Millis,
    /// What the platform calls it, like `STARTED`.
    pub(super) state: String,
    pub(super) says: Says,
}

impl UsageEvent {
    pub(super) fn read(record: Record, row: &Value, mapping: &Mapping) -> Result<Self, String> {
        let required = |pointer: &str| {
            let text = text(row, pointer).map(str::to_owned);
            text.ok_or_else(|| format!("a usage event has no {}", &pointer[1..]))
        };
        let (guid, created_at) = (required("/guid")?, required("/created_at")?);
        let at = parse_moment(&created_at).map_err(|why| format!("usage event {guid}: {why}"))?;
        let (state, says) = match record {
            Record::Services => {
                let state = required("/state")?;
                let says = of_service(row, &state, at, mapping);
                (state, says)
            }
            Record::Apps => {
                let state = text(row, "/state/current").unwrap_or_default();
                (state.to_owned(), of_app(row, state, at, mapping))
            }
        };
        Ok(Self {
            guid,
            created_at,
            at,
            state,
            says: says.unwrap_or(Says::Nothing),
        })
    }

    /// The GUID of what it is about.
    pub(super) fn subject(&self) -> Option<&str> {
        match &self.says {
            Says::Runs { now, .. } => Some(&now.target.resource_instance_id),
            Says::Ended { guid, .. } => Some(guid),
            Says::Nothing => None,
        }
    }

    /// Whether it comes from purge-and-reseed, which gives an event the GUID of its subject.
    pub(super) fn is_seed(&self) -> bool {
        self.subject() == Some(&self.guid)
    }

    /// Whether the platform only notes that something runs.
    pub(super) fn is_note(&self) -> bool {
        let Says::Runs { since, .. } = &self.says else {
            return false;
        };
        *since == Since::Noted
    }

    /// The id of the event that follows from it. A reseed uses a GUID again each time.
    pub(super) fn id(&self) -> String {
        if self.is_seed() {
            format!("{}@{}", self.guid, self.created_at)
        } else {
            self.guid.clone()
        }
    }
}

/// How many of these are old enough: those before the first young one.
pub(super) fn old_enough(events: &[UsageEvent], until: Millis) -> usize {
    let young = events.iter().position(|event| event.at > until);
    young.unwrap_or(events.len())
}

/// A text within a document of the platform.
pub(super) fn text<'a>(document: &'a Value, pointer: &str) -> Option<&'a str> {
    document.pointer(pointer).and_then(Value::as_str)
}

fn of_service(row: &Value, state: &str, at: Millis, mapping: &Mapping) -> Option<Says> {
    if text(row, "/service_instance/type") != Some("managed_service_instance") {
        return None;
    }
    let guid = text(row, "/service_instance/guid")?;
    let service = || {
        let offering = text(row, "/service_offering/name")?;
        let names = mapping.service(offering, text(row, "/service_plan/name")?);
        let consumer = format!("service:{guid}");
        let ids = ids(row, &consumer, guid)?;
        let service = Tracked::new(Kind::Service, ids, names, Quantities::SERVICE, at);
        let plan = Some(text(row, "/service_plan/guid")?.to_owned());
        Some(Box::new(Tracked { plan, ..service }))
    };
    let since = match state {
        "CREATED" => Since::Event,
        "UPDATED" => Since::Before,
        "DELETED" => {
            return Some(Says::Ended {
                guid: guid.to_owned(),
                was: service(),
            });
        }
        _ => return None,
    };
    Some(Says::Runs {
        now: service()?,
        since,
        was: None,
    })
}

fn of_app(row: &Value, state: &str, at: Millis, mapping: &Mapping) -> Option<Says> {
    let (kind, guid, names) = match state {
        "STARTED" | "STOPPED" | "WAS_RUNNING" => {
            let names = mapping.process(text(row, "/process/type"));
            (Kind::Process, text(row, "/process/guid")?, names)
        }
        "TASK_STARTED" | "TASK_STOPPED" | "TASK_WAS_RUNNING" => {
            (Kind::Task, text(row, "/task/guid")?, mapping.task())
        }
        // Staging and buildpacks.
        _ => return None,
    };
    let quantities = |when: &str| {
        let of = |name: &str| row.pointer(&format!("/{name}/{when}"))?.as_i64();
        let memory = of("memory_in_mb_per_instance")?;
        Some(Quantities::of(memory, of("instance_count")?))
    };
    let part = |quantities| {
        let consumer = format!("app:{}", text(row, "/app/guid")?);
        let ids = ids(row, &consumer, guid)?;
        Some(Box::new(Tracked::new(kind, ids, names, quantities, at)))
    };
    let was = quantities("previous");
    if state.ends_with("STOPPED") {
        // A task has no previous values.
        let quantities = was.or_else(|| quantities("current"));
        return Some(Says::Ended {
            guid: guid.to_owned(),
            was: quantities.and_then(part),
        });
    }
    let since = if state.ends_with("WAS_RUNNING") {
        Since::Noted
    } else if text(row, "/state/previous") == Some(state) {
        Since::Before
    } else {
        Since::Event
    };
    Some(Says::Runs {
        now: part(quantities("current")?)?,
        since,
        was,
    })
}

/// The ids of a row's organization and space, with those of the consumer and the instance.
fn ids<'a>(row: &'a Value, consumer: &'a str, guid: &'a str) -> Option<[&'a str; 4]> {
    let (organization, space) = (text(row, "/organization/guid")?, text(row, "/space/guid")?);
    Some([organization, space, consumer, guid])
}
