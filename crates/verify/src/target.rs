//! The target of a usage: six ids.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Target {
    /// The customer.
    pub organization_id: String,
    /// A part of the customer's organization.
    pub space_id: String,
    /// The consumer within it.
    pub consumer_id: String,
    pub resource_id: String,
    pub plan_id: String,
    pub resource_instance_id: String,
}

impl Target {
    /// The names of the ids, in the order of [`Target::ids`].
    pub const FIELDS: [&'static str; 6] = [
        "organization_id",
        "space_id",
        "consumer_id",
        "resource_id",
        "plan_id",
        "resource_instance_id",
    ];

    pub fn ids(&self) -> [&str; 6] {
        [
            &self.organization_id,
            &self.space_id,
            &self.consumer_id,
            &self.resource_id,
            &self.plan_id,
            &self.resource_instance_id,
        ]
    }

    /// Makes a target of ids in the order of [`Target::FIELDS`].
    pub fn from_ids(ids: [String; 6]) -> Self {
        let [
            organization_id,
            space_id,
            consumer_id,
            resource_id,
            plan_id,
            resource_instance_id,
        ] = ids;
        Self {
            organization_id,
            space_id,
            consumer_id,
            resource_id,
            plan_id,
            resource_instance_id,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [.., resource, plan, instance] = self.ids();
        write!(f, "{resource}/{plan}/{instance}")
    }
}
