//! The target.

use serde::{Deserialize, Serialize};

use crate::Id;

/// The six fields by which start and stop belong together (section 3 of the paper, *target*).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The organization that is charged.
    pub organization_id: Id,
    /// The space in that organization.
    pub space_id: Id,
    /// The consumer, an app for example.
    pub consumer_id: Id,
    /// The kind of resource that is used, `postgres` for example.
    pub resource_id: Id,
    pub plan_id: Id,
    /// The one instance that is used.
    pub resource_instance_id: Id,
}

impl Target {
    /// The names of the fields, in the order of the paper's table 6.2.
    pub const FIELDS: [&'static str; 6] = [
        "organization_id",
        "space_id",
        "consumer_id",
        "resource_id",
        "plan_id",
        "resource_instance_id",
    ];

    /// A target of the fields in the order of [`Self::FIELDS`], whatever they are (see
    /// [`Id::from_store`]).
    pub fn from_store(fields: [&str; 6]) -> Self {
        let [
            organization_id,
            space_id,
            consumer_id,
            resource_id,
            plan_id,
            resource_instance_id,
        ] = fields.map(Id::from_store);
        Self {
            organization_id,
            space_id,
            consumer_id,
            resource_id,
            plan_id,
            resource_instance_id,
        }
    }

    pub fn fields(&self) -> [(&'static str, &Id); 6] {
        let ids = [
            &self.organization_id,
            &self.space_id,
            &self.consumer_id,
            &self.resource_id,
            &self.plan_id,
            &self.resource_instance_id,
        ];
        std::array::from_fn(|field| (Self::FIELDS[field], ids[field]))
    }

    /// Sets a field by its name. Returns whether there is a field of this name.
    pub fn set(&mut self, name: &str, id: Id) -> bool {
        let field = match name {
            "organization_id" => &mut self.organization_id,
            "space_id" => &mut self.space_id,
            "consumer_id" => &mut self.consumer_id,
            "resource_id" => &mut self.resource_id,
            "plan_id" => &mut self.plan_id,
            "resource_instance_id" => &mut self.resource_instance_id,
            _ => return false,
        };
        *field = id;
        true
    }

    /// Bytes that differ for any two different targets: each field behind its length.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(256);
        for (_, id) in self.fields() {
            push_text(&mut bytes, id.as_str());
        }
        bytes
    }
}

/// Appends a text behind its length, so that texts put one after another stay apart.
pub(crate) fn push_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u64).to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
}
