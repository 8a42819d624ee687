//! The member `processing` of a span's document, and which of its members a change alters.

use bson::Binary;
use bson::raw::{CStr, RawArrayBuf, RawBson, cstr};
use sampler_domain::{
    Again, CauseId, Cut, Excluded, FailureState, Interval, Key, Planned, Processing, Span,
    Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::document::{cause_as_binary, key_as_binary, partition_number};
use crate::raw::written;

#[derive(Serialize, Deserialize)]
pub(crate) struct ProcessingDocument {
    complete: bool,
    last_interval: Interval,
    planned_interval: Option<Planned>,
    last_change_at: Timestamp,
    version: i64,
    due_at: Timestamp,
    partition: i32,
    key: Binary,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dimensions: Vec<Cut>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<FailureState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    probe: Option<CauseId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    excluded: Vec<Excluded>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    again: Vec<Again>,
}

impl ProcessingDocument {
    pub(crate) fn new(span: &Span, key: Key, changed_at: Timestamp) -> Self {
        let processing = span.processing.clone();
        Self {
            complete: processing.complete,
            last_interval: processing.last,
            planned_interval: processing.planned,
            last_change_at: changed_at,
            version: processing.version,
            due_at: processing.due_at,
            partition: partition_number(key),
            key: key_as_binary(key),
            dimensions: processing.cuts,
            failure: processing.failure,
            probe: processing.probe,
            excluded: processing.excluded,
            again: processing.again,
        }
    }

    pub(crate) fn into_processing(self) -> Processing {
        Processing {
            complete: self.complete,
            last: self.last_interval,
            planned: self.planned_interval,
            version: self.version,
            due_at: self.due_at,
            cuts: self.dimensions,
            failure: self.failure,
            probe: self.probe,
            excluded: self.excluded,
            again: self.again,
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
    if before.complete != after.complete {
        altered.push((cstr!("processing.complete"), Some(after.complete.into())));
    }
    if before.last != after.last {
        let last = written(&after.last).into();
        altered.push((cstr!("processing.last_interval"), Some(last)));
    }
    if before.planned != after.planned {
        let planned = after.planned.as_ref();
        let planned = planned.map_or(RawBson::Null, |it| written(it).into());
        altered.push((cstr!("processing.planned_interval"), Some(planned)));
    }
    if before.due_at != after.due_at {
        let due_at = after.due_at.as_millis().into();
        altered.push((cstr!("processing.due_at"), Some(due_at)));
    }
    if before.cuts != after.cuts {
        altered.push((cstr!("processing.dimensions"), list(&after.cuts)));
    }
    if before.failure != after.failure {
        let failure = after.failure.as_ref().map(|it| written(it).into());
        altered.push((cstr!("processing.failure"), failure));
    }
    if before.probe != after.probe {
        let probe = after.probe.map(|it| cause_as_binary(it).into());
        altered.push((cstr!("processing.probe"), probe));
    }
    if before.excluded != after.excluded {
        altered.push((cstr!("processing.excluded"), list(&after.excluded)));
    }
    if before.again != after.again {
        altered.push((cstr!("processing.again"), list(&after.again)));
    }
    altered
}

/// A list as it is kept; none where it is empty.
fn list<T: Serialize>(list: &[T]) -> Option<RawBson> {
    let documents = list.iter().map(written);
    (!list.is_empty()).then(|| documents.collect::<RawArrayBuf>().into())
}
