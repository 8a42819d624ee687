//! The macro that makes the settings of a program of groups.

/// Declares the settings of a program: a struct with a field for each group, the function that reads
/// it, and the table of all its settings. The table of a group is its own, unless another one follows.
macro_rules! groups {
    (@table $group:ident) => { &$group::TABLE };
    (@table $group:ident $table:expr) => { &$table };
    (
        $(#[doc = $about:literal])+
        pub struct $settings:ident {$(
            $field:ident: $group:ident $(= $table:expr)?;
        )+}
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub struct $settings {$(
            pub $field: $group,
        )+}

        pub const TABLE: sampler_service::settings::Table =
            &[$(crate::programs::groups!(@table $group $($table)?)),+];

        impl $settings {
            /// Reads the groups, and checks each.
            pub fn read(reader: &mut sampler_service::settings::Reader) -> Self {
                Self {$(
                    $field: $group::read(reader),
                )+}
            }

            /// The groups that both programs start with.
            pub fn common(&self) -> crate::CommonSettings {
                crate::CommonSettings {
                    http: self.http.clone(),
                    database: self.database.clone(),
                    log: self.log.clone(),
                    traces: self.traces.clone(),
                    security: self.security.clone(),
                }
            }
        }

        impl Default for $settings {
            fn default() -> Self {
                let table = TABLE.iter().copied().flatten();
                Self::read(&mut sampler_service::settings::Reader::new(table))
            }
        }
    };
}
pub(crate) use groups;
