//! One instance of a snapshot: from JSON, and as it is kept until the answer is written.

use std::borrow::Cow;

use sampler_domain::{Id, Measure, Measures, Quantity, Target, Timestamp};
use sampler_service::problem::{FieldError, Problem};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{self, Fields, Root};
use crate::json::{self, Json};

/// An instance that runs, as its provider knows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Instance {
    pub(super) target: Target,
    /// Since when.
    pub(super) since: Option<Timestamp>,
    /// How much is used; none where the provider does not say.
    pub(super) measures: Option<Measures>,
}

/// Why an instance is not taken.
pub(super) enum Unfit {
    /// Its bytes are no JSON.
    NoJson(Problem),
    /// Fields are wrong.
    Fields(Vec<FieldError>),
}

/// An instance as JSON has it: the fields of a target, and what it uses since when. One that names no
/// resource is of `resource`.
pub(super) fn read(bytes: &[u8], index: usize, resource: &str) -> Result<Instance, Unfit> {
    let mut body = json::parse(bytes).map_err(Unfit::NoJson)?;
    let mut has_measures = false;
    if let Json::Object(members) = &mut body {
        let has = |name: &str| members.iter().any(|member| member.0 == name);
        has_measures = has("measured_usage");
        if !has("resource_id") {
            let resource = Json::Text(Cow::Owned(resource.to_owned()));
            members.push((Cow::Borrowed("resource_id"), resource));
        }
    }
    let root = Root::Instance(index);
    let mut fields = Fields::within(root, Some(body), Vec::new()).map_err(|_| {
        let error = FieldError::new(root.pointer(), "It must be an object.");
        Unfit::Fields(vec![error])
    })?;
    let target = fields.target();
    let measures = has_measures.then(|| fields.measures()).flatten();
    let since = fields.take("since").and_then(|since| {
        let moment = moment(&since);
        if moment.is_none() {
            fields.wrong(
                root.field("since"),
                "must be a moment in whole milliseconds",
            );
        }
        moment
    });
    let errors = fields.finish_with_errors();
    match target {
        Some(target) if errors.is_empty() => Ok(Instance {
            target,
            since,
            measures,
        }),
        _ => Err(Unfit::Fields(errors)),
    }
}

/// A moment in whole milliseconds.
pub(super) fn moment(value: &Json<'_>) -> Option<Timestamp> {
    Timestamp::new(event::whole_number(value)?).ok()
}

/// An instance, as it is kept.
#[derive(Serialize, Deserialize)]
pub(super) struct Kept {
    ids: [String; 5],
    since: Option<i64>,
    measures: Option<Vec<(String, Value)>>,
}

impl From<&Instance> for Kept {
    fn from(instance: &Instance) -> Self {
        let target = &instance.target;
        let ids = [
            &target.organization_id,
            &target.space_id,
            &target.consumer_id,
            &target.plan_id,
            &target.resource_instance_id,
        ];
        let measure = |it: &Measure| {
            (
                it.measure.as_str().to_owned(),
                it.quantity.as_json().clone(),
            )
        };
        let measures = instance.measures.as_ref();
        Self {
            ids: ids.map(|id| id.as_str().to_owned()),
            since: instance.since.map(Timestamp::as_millis),
            measures: measures.map(|all| all.as_slice().iter().map(measure).collect()),
        }
    }
}

impl Kept {
    /// The instance again, of its resource.
    pub(super) fn instance(self, resource: &Id) -> Instance {
        let [organization, space, consumer, plan, instance] = self.ids.map(Id::from_store);
        let measure = |(name, quantity): (String, Value)| Measure {
            measure: Id::from_store(name),
            quantity: Quantity::from_store(quantity),
        };
        let measures = self.measures;
        let measures =
            measures.map(|all| Measures::from_store(all.into_iter().map(measure).collect()));
        Instance {
            target: Target {
                organization_id: organization,
                space_id: space,
                consumer_id: consumer,
                resource_id: resource.clone(),
                plan_id: plan,
                resource_instance_id: instance,
            },
            since: self.since.map(Timestamp::clamped),
            measures,
        }
    }
}
