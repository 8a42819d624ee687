//! A usage event of the platform, and what it says about one service instance, process or task.

use sampler_verify::moment::{Millis, parse_moment};
use sampler_verify::quantity::Measure;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UsageKind {
    Service {
        offering: String,
        plan: String,
        plan_guid: String,
    },
    Process {
        r#type: Option<String>,
    },
    Task,
}

/// How much of it runs. A service instance is one.
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

    /// Those of a span, if a feed has started it.
    pub(super) fn of_span(measures: &[Measure]) -> Option<Self> {
        match measures {
            [memory, instances]
                if memory.measure == "memory_mb" && instances.measure == "instances" =>
            {
                Some(Self {
                    memory_mb: Some(whole(memory)?),
                    instances: whole(instances)?,
                })
            }
            [instances] if instances.measure == "instances" => Some(Self {
                memory_mb: None,
                instances: whole(instances)?,
            }),
            _ => None,
        }
    }

    /// As an event has them.
    pub(super) fn measures(self) -> Value {
        let instances = json!({ "measure": "instances", "quantity": self.instances });
        match self.memory_mb {
            Some(memory) => {
                json!([{ "measure": "memory_mb", "quantity": memory }, instances])
            }
            None => json!([instances]),
        }
    }
}

/// A service instance, process or task that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) kind: UsageKind,
    pub(super) guid: String,
    pub(super) organization_id: String,
    pub(super) space_id: String,
    pub(super) consumer_id: String,
    pub(super) quantities: Quantities,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// It runs with these properties from then on.
    Runs {
        running: Box<Running>,
        /// It ran before the event, too.
        is_change: bool,
        /// How much of it ran before the event, where the platform says so.
        was: Option<Quantities>,
    },
    Ended {
        guid: String,
        /// What ran until then, where the event says all of it.
        was: Option<Box<Running>>,
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
    pub(super) fn subject(&self) -> Option<&str> {
        match &self.says {
            Says::Runs { running, .. } => Some(&running.guid),
            Says::Ended { guid, .. } => Some(guid),
            Says::Nothing => None,
        }
    }

    /// Whether it comes from purge-and-reseed, which gives an event the guid of its subject.
    pub(super) fn is_seed(&self) -> bool {
        self.subject() == Some(&self.guid)
    }

    /// The id of the event that follows from it. A reseed uses a guid again each time.
    pub(super) fn id(&self) -> String {
        if self.is_seed() {
            format!("{}@{}", self.guid, self.created_at)
        } else {
            self.guid.clone()
        }
    }

    pub(super) fn read(record: Record, document: &Value) -> Result<Self, String> {
        let (head, state, says) = match record {
            Record::Services => {
                let raw: RawService = parsed(document)?;
                let says = raw.says();
                (raw.head, raw.state, says)
            }
            Record::Apps => {
                let raw: RawApp = parsed(document)?;
                let says = raw.says();
                (raw.head, raw.state.current.unwrap_or_default(), says)
            }
        };
        let at = parse_moment(&head.created_at)
            .map_err(|error| format!("the usage event {}: {error}", head.guid))?;
        Ok(Self {
            guid: head.guid,
            created_at: head.created_at,
            at,
            state,
            says: says.unwrap_or(Says::Nothing),
        })
    }
}

fn parsed<'d, T: Deserialize<'d>>(document: &'d Value) -> Result<T, String> {
    T::deserialize(document).map_err(|error| format!("a usage event: {error}"))
}

/// How many of these are old enough: those before the first young one.
pub(super) fn old_enough(events: &[UsageEvent], until: Millis) -> usize {
    let young = events.iter().position(|event| event.at > until);
    young.unwrap_or(events.len())
}

#[derive(Deserialize)]
struct Head {
    guid: String,
    created_at: String,
}

/// A thing of the platform; each member is null where there is none.
#[derive(Default, Deserialize)]
struct Named {
    guid: Option<String>,
    name: Option<String>,
    r#type: Option<String>,
}

#[derive(Default, Deserialize)]
struct Pair<T> {
    current: Option<T>,
    previous: Option<T>,
}

#[derive(Deserialize)]
struct RawService {
    #[serde(flatten)]
    head: Head,
    state: String,
    service_instance: Named,
    organization: Option<Named>,
    space: Option<Named>,
    service_plan: Option<Named>,
    service_offering: Option<Named>,
}

impl RawService {
    fn says(&self) -> Option<Says> {
        let instance = &self.service_instance;
        if instance.r#type.as_deref() != Some("managed_service_instance") {
            return None;
        }
        let guid = instance.guid.clone()?;
        let is_change = match self.state.as_str() {
            "DELETED" => {
                let was = self.running(&guid);
                return Some(Says::Ended { guid, was });
            }
            "CREATED" => false,
            "UPDATED" => true,
            _ => return None,
        };
        Some(Says::Runs {
            running: self.running(&guid)?,
            is_change,
            was: None,
        })
    }

    fn running(&self, guid: &str) -> Option<Box<Running>> {
        let (plan, offering) = (self.service_plan.as_ref()?, self.service_offering.as_ref()?);
        Some(Box::new(Running {
            kind: UsageKind::Service {
                offering: offering.name.clone()?,
                plan: plan.name.clone()?,
                plan_guid: plan.guid.clone()?,
            },
            organization_id: guid_of(self.organization.as_ref())?,
            space_id: guid_of(self.space.as_ref())?,
            consumer_id: format!("service:{guid}"),
            guid: guid.to_owned(),
            quantities: Quantities::SERVICE,
        }))
    }
}

#[derive(Deserialize)]
struct RawApp {
    #[serde(flatten)]
    head: Head,
    state: Pair<String>,
    app: Option<Named>,
    process: Option<Named>,
    task: Option<Named>,
    organization: Option<Named>,
    space: Option<Named>,
    memory_in_mb_per_instance: Option<Pair<i64>>,
    instance_count: Option<Pair<i64>>,
}

impl RawApp {
    fn says(&self) -> Option<Says> {
        let state = self.state.current.as_deref()?;
        let (kind, of) = match state {
            "STARTED" | "STOPPED" => {
                let process = self.process.as_ref()?;
                let r#type = process.r#type.clone();
                (UsageKind::Process { r#type }, process)
            }
            "TASK_STARTED" | "TASK_STOPPED" => (UsageKind::Task, self.task.as_ref()?),
            // Staging, buildpacks, and `WAS_RUNNING`: a snapshot has shown the same.
            _ => return None,
        };
        let guid = of.guid.clone()?;
        let was = self.quantities(|pair| pair.previous);
        if matches!(state, "STOPPED" | "TASK_STOPPED") {
            // A task has no previous values.
            let quantities = was.or_else(|| self.quantities(|pair| pair.current));
            let was = quantities.and_then(|it| self.running(kind, &guid, it));
            return Some(Says::Ended { guid, was });
        }
        let quantities = self.quantities(|pair| pair.current)?;
        Some(Says::Runs {
            running: self.running(kind, &guid, quantities)?,
            is_change: self.state.previous.as_deref() == Some(state),
            was,
        })
    }

    /// How much of it ran after the event, or before.
    fn quantities(&self, of: impl Fn(&Pair<i64>) -> Option<i64>) -> Option<Quantities> {
        let memory = of(self.memory_in_mb_per_instance.as_ref()?)?;
        let instances = of(self.instance_count.as_ref()?)?;
        Some(Quantities::of(memory, instances))
    }

    fn running(&self, kind: UsageKind, guid: &str, quantities: Quantities) -> Option<Box<Running>> {
        Some(Box::new(Running {
            kind,
            guid: guid.to_owned(),
            organization_id: guid_of(self.organization.as_ref())?,
            space_id: guid_of(self.space.as_ref())?,
            consumer_id: format!("app:{}", guid_of(self.app.as_ref())?),
            quantities,
        }))
    }
}

fn guid_of(named: Option<&Named>) -> Option<String> {
    named?.guid.clone()
}

/// The quantity of a measure, if it is a whole number.
fn whole(measure: &Measure) -> Option<i64> {
    i64::try_from(measure.quantity.whole()?).ok()
}

#[cfg(test)]
impl Running {
    pub(super) fn of_kind(kind: UsageKind) -> Self {
        let quantities = match kind {
            UsageKind::Service { .. } => Quantities::SERVICE,
            UsageKind::Process { .. } | UsageKind::Task => Quantities::of(512, 2),
        };
        Self {
            kind,
            guid: "i".to_owned(),
            organization_id: "o".to_owned(),
            space_id: "s".to_owned(),
            consumer_id: "c".to_owned(),
            quantities,
        }
    }
}
