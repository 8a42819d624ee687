//! Which instances of both programs run, and how each is.

use std::time::Duration;

use sampler_domain::Timestamp;
use serde::{Deserialize, Serialize};

/// How long after its last report an instance counts as running.
pub const INSTANCE_LIFETIME: Duration = Duration::from_secs(20);

/// How long after its last report an instance is shown.
pub const INSTANCE_SHOWN: Duration = Duration::from_hours(1);

/// The most instances that are shown.
pub const INSTANCES_MAX: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceProgram {
    Receiver,
    Worker,
}

sampler_domain::named!(pub InstanceProgram: Receiver = "receiver", Worker = "worker");

/// One run of a program, as it describes itself, and as it is kept: under the names of its members
/// here. Another release may leave members out, or add some.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The name of this run; no two runs have the same.
    #[serde(rename = "_id")]
    pub name: String,
    pub program: InstanceProgram,
    /// The number of the instance on its platform, where that has numbers.
    pub index: Option<String>,
    /// Its version; `None` of a release that reports nothing but that it is alive.
    pub version: Option<String>,
    /// When it began, by its own clock; `None` as for the version.
    pub started_at: Option<Timestamp>,
    /// Whether it was asked to stop, and takes nothing new on.
    #[serde(default)]
    pub is_stopping: bool,
    /// The names of the health probes that fail.
    #[serde(default)]
    pub failing: Vec<String>,
    /// The names of the active health warnings.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// How many partitions a worker owns.
    pub partitions: Option<u32>,
    /// Why a worker pauses sampling: names of reasons, none while it samples.
    #[serde(default)]
    pub paused_by: Vec<String>,
    /// The upstream to which a worker posts usages, by the name in its settings.
    pub upstream: Option<String>,
    /// The usages that a worker has recorded since midnight (UTC), or since it began.
    pub usages_today: Option<u64>,
    /// How far into the past a receiver takes events, ms.
    pub slack: Option<i64>,
    // Earlier releases take no null for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intake: Option<Intake>,
}

/// The events that a receiver has answered of late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intake {
    /// Events of the last whole minute that are kept, also those that were kept before.
    pub kept: u32,
    /// Events of this minute that were refused.
    pub refused: u32,
    /// When the last event came, whatever its answer.
    pub last_at: Option<Timestamp>,
}

impl Instance {
    /// A run with only its name known.
    pub fn new(name: String, program: InstanceProgram) -> Self {
        Self {
            name,
            program,
            index: None,
            version: None,
            started_at: None,
            is_stopping: false,
            failing: Vec::new(),
            warnings: Vec::new(),
            partitions: None,
            paused_by: Vec::new(),
            upstream: None,
            usages_today: None,
            slack: None,
            intake: None,
        }
    }
}

/// The last report of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenInstance {
    pub instance: Instance,
    /// When that was, by the store's own clock.
    pub seen_at: Timestamp,
    /// How long ago that was, by the same clock, ms.
    pub age: i64,
}

impl SeenInstance {
    /// Whether it was not seen for so long that it no longer counts as running.
    pub fn is_stale(&self) -> bool {
        self.age > i64::try_from(INSTANCE_LIFETIME.as_millis()).unwrap_or(i64::MAX)
    }
}

/// The order in which instances are shown.
pub fn sort_instances(instances: &mut Vec<SeenInstance>) {
    instances.sort_by(|one, other| place_of(&one.instance).cmp(&place_of(&other.instance)));
    instances.truncate(INSTANCES_MAX);
}

fn place_of(instance: &Instance) -> (InstanceProgram, Option<Timestamp>, &str) {
    (instance.program, instance.started_at, &instance.name)
}
