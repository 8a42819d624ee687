//! The member `processing` of a span's document, and which of its members a change alters.

use bson::Binary;
use bson::raw::{CStr, RawArrayBuf, RawBson, cstr};
use sampler_domain::{
    Acceptance, Again, Cut, Excluded, FailureState, Granularity, Interval, Key, Planned,
    Processing, RunId, Span, Suspension, Timestamp,
};
use serde::{Deserialize, Serialize, Serializer};

use crate::document::{cause_as_uuid, key_as_binary, partition_number, uuid_as_cause};
use crate::raw::written;

#[derive(Serialize, Deserialize)]
pub(crate) struct ProcessingDocument {
    complete: bool,
    last_interval: Interval,
    planned_interval: Option<PlannedDocument>,
    last_change_at: Timestamp,
    version: i64,
    due_at: Timestamp,
    partition: i32,
    key: Binary,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dimensions: Vec<CutDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<FailureDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probe: Option<bson::Uuid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    excluded: Vec<ExcludedDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    again: Vec<AgainDocument>,
}

#[derive(Serialize, Deserialize)]
struct PlannedDocument {
    start: Timestamp,
    end: Timestamp,
    usage_guid: String,
    planned_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<bson::Uuid>,
    #[serde(default, skip_serializing_if = "is_false")]
    unanswered: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    posts_end_by: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct CutDocument {
    from: Timestamp,
    dimension: Dimension,
}

/// A granularity, by its name.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Dimension(pub(crate) Granularity);

impl TryFrom<String> for Dimension {
    type Error = String;
    fn try_from(name: String) -> Result<Self, String> {
        let granularity = Granularity::from_name(&name);
        granularity
            .map(Self)
            .ok_or_else(|| format!("{name} is no dimension"))
    }
}

impl Serialize for Dimension {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct FailureDocument {
    attempts: i64,
    refusals: i64,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<bson::Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    suspended_at: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct ExcludedDocument {
    start: Timestamp,
    end: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    back_to: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "is_false")]
    unanswered: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage_guid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct AgainDocument {
    #[serde(flatten)]
    range: ExcludedDocument,
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<bson::Uuid>,
    #[serde(default, skip_serializing_if = "is_zero")]
    attempts: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    posts_end_by: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    accepted: Option<AcceptedDocument>,
    #[serde(default, skip_serializing_if = "is_false")]
    is_way_back: bool,
}

#[derive(Serialize, Deserialize)]
struct AcceptedDocument {
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    location: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl ProcessingDocument {
    pub(crate) fn new(span: &Span, changed_at: Timestamp) -> Self {
        let processing = &span.processing;
        let key = Key::of(&span.target);
        Self {
            complete: processing.complete,
            last_interval: processing.last,
            planned_interval: processing.planned.as_ref().map(PlannedDocument::new),
            last_change_at: changed_at,
            version: processing.version,
            due_at: processing.due_at,
            partition: partition_number(key),
            key: key_as_binary(key),
            dimensions: processing.cuts.iter().map(CutDocument::new).collect(),
            failure: processing.failure.as_ref().map(FailureDocument::new),
            probe: processing.probe.map(cause_as_uuid),
            excluded: list_of(&processing.excluded, ExcludedDocument::new),
            again: list_of(&processing.again, AgainDocument::new),
        }
    }

    pub(crate) fn into_processing(self) -> Processing {
        let cuts = self.dimensions.into_iter().map(|cut| Cut {
            from: cut.from,
            granularity: cut.dimension.0,
        });
        let excluded = self.excluded.into_iter();
        let again = self.again.into_iter();
        Processing {
            complete: self.complete,
            last: self.last_interval,
            planned: self.planned_interval.map(PlannedDocument::into_planned),
            version: self.version,
            due_at: self.due_at,
            cuts: cuts.collect(),
            failure: self.failure.map(FailureDocument::into_failure),
            probe: self.probe.map(uuid_as_cause),
            excluded: excluded.map(ExcludedDocument::into_excluded).collect(),
            again: again.map(AgainDocument::into_again).collect(),
        }
    }
}

impl PlannedDocument {
    fn new(planned: &Planned) -> Self {
        Self {
            start: planned.interval.start,
            end: planned.interval.end,
            usage_guid: planned.usage_guid.clone(),
            planned_at: planned.planned_at,
            by: planned.by.map(run_as_uuid),
            unanswered: planned.unanswered,
            posts_end_by: planned.posts_end_by,
        }
    }

    fn into_planned(self) -> Planned {
        Planned {
            interval: Interval {
                start: self.start,
                end: self.end,
            },
            usage_guid: self.usage_guid,
            planned_at: self.planned_at,
            by: self.by.map(uuid_as_run),
            unanswered: self.unanswered,
            posts_end_by: self.posts_end_by,
        }
    }
}

impl CutDocument {
    fn new(cut: &Cut) -> Self {
        Self {
            from: cut.from,
            dimension: Dimension(cut.granularity),
        }
    }
}

impl FailureDocument {
    fn new(failure: &FailureState) -> Self {
        Self {
            attempts: failure.attempts.into(),
            refusals: failure.refusals.into(),
            at: failure.at,
            status: failure.status.map(i32::from),
            error: failure.error.clone(),
            cause: failure.suspension.map(|it| cause_as_uuid(it.cause)),
            suspended_at: failure.suspension.map(|it| it.since),
        }
    }

    pub(crate) fn into_failure(self) -> FailureState {
        let suspension = self.cause.zip(self.suspended_at);
        FailureState {
            attempts: count(self.attempts),
            refusals: count(self.refusals),
            at: self.at,
            status: self.status.and_then(|status| status.try_into().ok()),
            error: self.error,
            suspension: suspension.map(|(cause, since)| Suspension {
                cause: uuid_as_cause(cause),
                since,
            }),
        }
    }
}

impl ExcludedDocument {
    fn new(excluded: &Excluded) -> Self {
        Self {
            start: excluded.interval.start,
            end: excluded.interval.end,
            back_to: excluded.back_to,
            unanswered: excluded.unanswered,
            usage_guid: excluded.usage_guid.clone(),
            error: excluded.error.clone(),
        }
    }

    fn into_excluded(self) -> Excluded {
        Excluded {
            interval: Interval {
                start: self.start,
                end: self.end,
            },
            back_to: self.back_to,
            unanswered: self.unanswered,
            usage_guid: self.usage_guid,
            error: self.error,
        }
    }
}

impl AgainDocument {
    fn new(again: &Again) -> Self {
        Self {
            range: ExcludedDocument::new(&again.range),
            at: again.at,
            by: again.by.map(run_as_uuid),
            attempts: again.attempts.into(),
            posts_end_by: again.posts_end_by,
            accepted: again.accepted.as_ref().map(|it| AcceptedDocument {
                at: it.at,
                status: it.status.map(i32::from),
                location: it.location.clone(),
            }),
            is_way_back: again.is_way_back,
        }
    }

    fn into_again(self) -> Again {
        Again {
            range: self.range.into_excluded(),
            at: self.at,
            by: self.by.map(uuid_as_run),
            attempts: count(self.attempts),
            posts_end_by: self.posts_end_by,
            accepted: self.accepted.map(|it| Acceptance {
                at: it.at,
                status: it.status.and_then(|status| status.try_into().ok()),
                location: it.location,
            }),
            is_way_back: self.is_way_back,
        }
    }
}

/// The members of `processing` that a change has altered, by their names: their new values, or none where
/// they are gone. Without the version and the time of the change.
pub(crate) fn altered(
    before: &Processing,
    after: &Processing,
) -> Vec<(&'static CStr, Option<RawBson>)> {
    let mut altered = Vec::new();
    let mut note = |name, is_altered: bool, value: &dyn Fn() -> Option<RawBson>| {
        if is_altered {
            altered.push((name, value()));
        }
    };
    note(
        cstr!("processing.complete"),
        before.complete != after.complete,
        &|| Some(after.complete.into()),
    );
    note(
        cstr!("processing.last_interval"),
        before.last != after.last,
        &|| Some(written(&after.last).into()),
    );
    note(
        cstr!("processing.planned_interval"),
        before.planned != after.planned,
        &|| {
            let planned = after.planned.as_ref();
            let planned = planned.map(|it| written(&PlannedDocument::new(it)).into());
            Some(planned.unwrap_or(RawBson::Null))
        },
    );
    note(
        cstr!("processing.due_at"),
        before.due_at != after.due_at,
        &|| Some(after.due_at.as_millis().into()),
    );
    note(
        cstr!("processing.dimensions"),
        before.cuts != after.cuts,
        &|| array(&after.cuts, CutDocument::new),
    );
    note(
        cstr!("processing.failure"),
        before.failure != after.failure,
        &|| {
            let failure = after.failure.as_ref()?;
            Some(written(&FailureDocument::new(failure)).into())
        },
    );
    note(
        cstr!("processing.probe"),
        before.probe != after.probe,
        &|| Some(Binary::from(cause_as_uuid(after.probe?)).into()),
    );
    note(
        cstr!("processing.excluded"),
        before.excluded != after.excluded,
        &|| array(&after.excluded, ExcludedDocument::new),
    );
    note(
        cstr!("processing.again"),
        before.again != after.again,
        &|| array(&after.again, AgainDocument::new),
    );
    altered
}

/// A list as it is kept; none where it is empty.
fn array<T, D: Serialize>(list: &[T], written_as: fn(&T) -> D) -> Option<RawBson> {
    let documents = list.iter().map(|it| written(&written_as(it)));
    (!list.is_empty()).then(|| documents.collect::<RawArrayBuf>().into())
}

fn list_of<T, D>(list: &[T], written_as: fn(&T) -> D) -> Vec<D> {
    list.iter().map(written_as).collect()
}

fn run_as_uuid(run: RunId) -> bson::Uuid {
    bson::Uuid::from_bytes(run.0.into_bytes())
}

fn uuid_as_run(uuid: bson::Uuid) -> RunId {
    RunId(uuid::Uuid::from_bytes(uuid.bytes()))
}

fn count(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
