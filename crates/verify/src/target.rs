//! The target of a usage: six ids.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One list of the ids, whose order all lists of them have.
macro_rules! target {
    ($($id:ident),*) => {
        /// The customer, a part of its organization and a consumer within that; what is used, in which plan, and which
        /// instance of it.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct Target {
            $(pub $id: String),*
        }

        impl Target {
            /// The names of the ids.
            pub const FIELDS: [&'static str; 6] = [$(stringify!($id)),*];

            pub fn ids(&self) -> [&str; 6] {
                [$(&self.$id),*]
            }

            pub fn from_ids([$($id),*]: [String; 6]) -> Self {
                Self { $($id),* }
            }
        }
    };
}

target!(
    organization_id,
    space_id,
    consumer_id,
    resource_id,
    plan_id,
    resource_instance_id
);

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [.., resource, plan, instance] = self.ids();
        write!(f, "{resource}/{plan}/{instance}")
    }
}
