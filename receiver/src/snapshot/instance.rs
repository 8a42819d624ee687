//! One instance of a snapshot: from JSON, and as it is kept until the answer is written.

use std::borrow::Cow;

use sampler_domain::{Id, Measure, Measures, Quantity, Target, Timestamp};
use sampler_service::problem::{FieldError, Problem};
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use crate::event;
use crate::fields::{self, Fields, Step};
use crate::json::{self, Json};

/// An instance that runs, as its provider knows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Instance {
    pub(super) target: Target,
    pub(super) since: Option<Timestamp>,
    /// How much is used; none where the provider does not say.
    pub(super) measures: Option<Measures>,
}

/// Why an instance is not taken.
pub(super) enum Unfit {
    NoJson(Problem),
    Fields(Vec<FieldError>),
}

/// An instance as JSON has it: the fields of a target, and what it uses since when. One that names no
/// resource is of `resource`.
pub(super) fn read(bytes: &[u8], index: usize, resource: &str) -> Result<Instance, Unfit> {
    let mut body = json::parse(bytes).map_err(Unfit::NoJson)?;
    let mut has_measures = false;
    if let Json::Object(members) = &mut body {
        has_measures = members.iter().any(|(name, _)| name == "measured_usage");
        if !members.iter().any(|(name, _)| name == "resource_id") {
            let resource = Json::Text(Cow::Owned(resource.to_owned()));
            members.push((Cow::Borrowed("resource_id"), resource));
        }
    }
    let path = vec![Step::Field("instances"), Step::Index(index)];
    let mut fields = Fields::at(path, Some(body), Vec::new()).map_err(Unfit::Fields)?;
    let target = event::target(&mut fields);
    let measures = has_measures.then(|| event::measures(&mut fields));
    let since = fields.optional("since", fields::timestamp);
    fields.finish().map_err(Unfit::Fields)?;
    Ok(Instance {
        target: target.expect("what could not be read was named"),
        since,
        measures: measures.flatten(),
    })
}

/// An instance, as it is kept: its ids without that of the resource, its measures, and since when it
/// runs. There are no more values in it than in the body, so the strict reader takes it again.
pub(super) struct Kept<'a>(&'a Instance);

impl<'a> From<&'a Instance> for Kept<'a> {
    fn from(instance: &'a Instance) -> Self {
        Self(instance)
    }
}

impl Serialize for Kept<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Instance {
            target,
            since,
            measures,
        } = self.0;
        let mut list = serializer.serialize_seq(None)?;
        for id in [
            &target.organization_id,
            &target.space_id,
            &target.consumer_id,
            &target.plan_id,
            &target.resource_instance_id,
        ] {
            list.serialize_element(id)?;
        }
        list.serialize_element(&measures.as_ref().map(pairs))?;
        if let Some(since) = since {
            list.serialize_element(since)?;
        }
        list.end()
    }
}

fn pairs(measures: &Measures) -> Vec<(&Id, &Quantity)> {
    let all = measures.as_slice().iter();
    all.map(|it| (&it.measure, &it.quantity)).collect()
}

/// The instance of this resource that was kept as this text. Its numbers are read like the numbers of
/// the body: `serde_json` alone would change the last bit of some.
pub(super) fn kept(text: &str, resource: &Id) -> Option<Instance> {
    let Json::List(items) = json::parse(text.as_bytes()).ok()? else {
        return None;
    };
    let mut items = items.into_iter();
    let texts = items.by_ref();
    let mut ids = texts.map_while(|item| Some(Id::from_store(item.as_str()?)));
    let (organization_id, space_id, consumer_id) = (ids.next()?, ids.next()?, ids.next()?);
    let (plan_id, resource_instance_id) = (ids.next()?, ids.next()?);
    let measures = match items.next()? {
        Json::List(pairs) => {
            let measures: Option<Vec<Measure>> = pairs.into_iter().map(measure).collect();
            Some(Measures::from_store(measures?))
        }
        _ => None,
    };
    let since = match items.next() {
        Some(since) => Some(fields::timestamp(since).ok()?),
        None => None,
    };
    Some(Instance {
        target: Target {
            organization_id,
            space_id,
            consumer_id,
            resource_id: resource.clone(),
            plan_id,
            resource_instance_id,
        },
        since,
        measures,
    })
}

fn measure(pair: Json<'_>) -> Option<Measure> {
    let Json::List(pair) = pair else {
        return None;
    };
    let [name, quantity] = <[Json<'_>; 2]>::try_from(pair).ok()?;
    Some(Measure {
        measure: Id::from_store(name.as_str()?),
        quantity: Quantity::from_store(quantity.into_value().ok()?),
    })
}
