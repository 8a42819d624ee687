//! A usage event of the platform, and what it says about one service instance, process or task.

use clap::ValueEnum;
use sampler_verify::moment::{Millis, parse_moment};
use sampler_verify::quantity::Measure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mapping::Mapping;
use super::state::{Kind, Tracked, measures, one};

/// A list of usage events of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Record {
    /// Managed service instances.
    Services,
    /// Apps: their processes and tasks.
    Apps,
}

impl Record {
    /// Its list at the platform, below `/v3`.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Services => "service_usage_events",
            Self::Apps => "app_usage_events",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Starts,
    /// It ran before, too.
    Changes,
    /// The platform only notes that it runs.
    Noted,
    Ends,
}

/// What an event says about its subject.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Says {
    pub(super) guid: String,
    pub(super) what: What,
    /// What runs from then on; of an end, what ran until then, if the event says all of it.
    pub(super) part: Option<Tracked>,
    /// How much of it ran before the event, if the platform says so.
    pub(super) was: Option<Vec<Measure>>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct UsageEvent {
    pub(super) guid: String,
    /// As the platform writes it, in whole seconds.
    pub(super) created_at: String,
    pub(super) at: Millis,
    /// The platform's name for it, like `STARTED`.
    pub(super) state: String,
    /// None: nothing that is metered.
    pub(super) says: Option<Says>,
}

impl UsageEvent {
    pub(super) fn read(record: Record, row: &Value, mapping: &Mapping) -> Result<Self, String> {
        let required = |name: &str| {
            let text = text(row, &format!("/{name}")).map(str::to_owned);
            text.ok_or_else(|| format!("a usage event has no {name}"))
        };
        let (guid, created_at) = (required("guid")?, required("created_at")?);
        let at = parse_moment(&created_at).map_err(|why| format!("usage event {guid}: {why}"))?;
        let (state, says) = match record {
            Record::Services => {
                let state = required("state")?;
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
            says,
        })
    }

    /// The GUID of what it is about.
    pub(super) fn subject(&self) -> Option<&str> {
        self.says.as_ref().map(|says| says.guid.as_str())
    }

    /// Whether it comes from purge-and-reseed, which gives an event the GUID of its subject.
    pub(super) fn is_seed(&self) -> bool {
        self.subject() == Some(&self.guid)
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
    let what = match state {
        "CREATED" => What::Starts,
        "UPDATED" => What::Changes,
        "DELETED" => What::Ends,
        _ => return None,
    };
    let guid = text(row, "/service_instance/guid")?;
    let part = || {
        let offering = text(row, "/service_offering/name")?;
        let names = mapping.service(offering, text(row, "/service_plan/name")?);
        let consumer = format!("service:{guid}");
        let ids = ids(row, &consumer, guid)?;
        let service = Tracked::new(Kind::Service, ids, names, one(), at);
        let plan = Some(text(row, "/service_plan/guid")?.to_owned());
        Some(Tracked { plan, ..service })
    };
    Says::new(guid, what, part(), None)
}

fn of_app(row: &Value, state: &str, at: Millis, mapping: &Mapping) -> Option<Says> {
    let was_same = text(row, "/state/previous") == Some(state);
    let what = match state {
        "STARTED" | "TASK_STARTED" if was_same => What::Changes,
        "STARTED" | "TASK_STARTED" => What::Starts,
        "STOPPED" | "TASK_STOPPED" => What::Ends,
        "WAS_RUNNING" | "TASK_WAS_RUNNING" => What::Noted,
        // Staging and buildpacks.
        _ => return None,
    };
    let (kind, guid, names) = if state.starts_with("TASK") {
        (Kind::Task, text(row, "/task/guid")?, mapping.task())
    } else {
        let names = mapping.process(text(row, "/process/type"));
        (Kind::Process, text(row, "/process/guid")?, names)
    };
    let measures = |when: &str| {
        let of = |name: &str| row.pointer(&format!("/{name}/{when}"))?.as_i64();
        let memory = of("memory_in_mb_per_instance")?;
        Some(measures(memory, of("instance_count")?))
    };
    let (was, now) = (measures("previous"), measures("current"));
    let part = |measures| {
        let consumer = format!("app:{}", text(row, "/app/guid")?);
        let ids = ids(row, &consumer, guid)?;
        Some(Tracked::new(kind, ids, names, measures, at))
    };
    // A task has no previous values.
    let runs = if what == What::Ends {
        was.clone().or(now)
    } else {
        now
    };
    Says::new(guid, what, runs.and_then(part), was)
}

impl Says {
    /// Only an end says something without what it is about.
    fn new(
        guid: &str,
        what: What,
        part: Option<Tracked>,
        was: Option<Vec<Measure>>,
    ) -> Option<Self> {
        let guid = guid.to_owned();
        (what == What::Ends || part.is_some()).then_some(Self {
            guid,
            what,
            part,
            was,
        })
    }
}

/// The ids of a row's organization and space, with those of the consumer and the instance.
fn ids<'a>(row: &'a Value, consumer: &'a str, guid: &'a str) -> Option<[&'a str; 4]> {
    let (organization, space) = (text(row, "/organization/guid")?, text(row, "/space/guid")?);
    Some([organization, space, consumer, guid])
}
