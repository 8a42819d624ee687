//! How settings are declared.

use url::Url;

use crate::CommonSettings;
use crate::reader::Reader;

/// One thing an operator can set.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in the environment; in lower case its name in the file.
    pub name: &'static str,
    pub default: Option<&'static str>,
    /// The smallest and the largest value.
    pub range: Option<(&'static str, &'static str)>,
    /// What a value must be, in words.
    pub expected: &'static str,
    /// Whether its value must never be shown.
    pub is_secret: bool,
    pub doc: &'static str,
}

/// The groups of settings of a program.
pub type Groups = &'static [&'static [Setting]];

/// The settings of a program.
pub trait Settings: Sized + Send + 'static {
    const GROUPS: Groups;

    /// The settings of the other program. They are ignored, not refused, so that one manifest can serve both.
    const OTHER: Groups;

    /// Defaults that differ from those of the groups.
    const DEFAULTS: &'static [(&'static str, &'static str)];

    /// Reads them, and adds each mistake to the reader.
    fn read(reader: &mut Reader) -> Self;

    /// Those that both programs have.
    fn common(&self) -> CommonSettings;

    /// The address to which tokens are sent, with the name of its setting.
    fn token_destination(&self) -> Option<(&'static str, Url)>;
}

/// Declares groups of settings. Operators read the comment on a field. Its type says how the text of a value is
/// read ([`Value`](crate::value::Value)); `as` another type, where that one is read and then converted. After
/// the name in the environment come the default, and behind `in` the smallest and the largest value. The
/// function behind `checked by` adds mistakes of settings that contradict each other.
macro_rules! settings {
    (@via $type:ty) => { $type };
    (@via $type:ty, $via:ty) => { $via };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    ($(
        $(#[doc = $about:literal])+
        pub struct $group:ident $((checked by $check:path))? {$(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty $(as $via:ty)? = $name:literal $(, $default:literal)?
                $(, in $min:literal to $max:literal)?;
        )+}
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        #[allow(clippy::doc_markdown, reason = "operators read the comments as they stand")]
        pub struct $group {$(
            $(#[doc = $doc])+
            pub $field: $type,
        )+}

        impl $group {
            /// The settings of this group, in the order of their fields.
            pub const TABLE: &'static [$crate::Setting] = &[$($crate::Setting {
                name: $name,
                default: $crate::declare::settings!(@option $($default)?),
                range: $crate::declare::settings!(@option $(($min, $max))?),
                expected: <$crate::declare::settings!(@via $type $(, $via)?) as $crate::value::Value>::EXPECTED,
                is_secret: <$crate::declare::settings!(@via $type $(, $via)?) as $crate::value::Value>::IS_SECRET,
                doc: concat!($($doc),+).trim_ascii_start(),
            },)+];

            /// Reads the group.
            pub fn read(reader: &mut $crate::Reader) -> Self {
                let group = Self {$(
                    $field: reader.value::<$crate::declare::settings!(@via $type $(, $via)?)>($name).into(),
                )+};
                $($check(&group, reader);)?
                group
            }
        }

        impl Default for $group {
            fn default() -> Self {
                Self::read(&mut $crate::Reader::of_defaults(Self::TABLE, &[]))
            }
        }
    )+};
}
pub(crate) use settings;

/// Declares the settings of a program: a struct with a field for each group. `common` makes those that both
/// programs have of the groups; `check` adds mistakes of settings of several groups.
macro_rules! groups {
    (
        $(#[doc = $about:literal])+
        pub struct $settings:ident(other: $other:expr, defaults: $defaults:expr) {$(
            $field:ident: $group:ident;
        )+}
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub struct $settings {$(
            pub $field: $group,
        )+}

        /// All settings of the program.
        pub const GROUPS: $crate::Groups = &[$($group::TABLE),+];

        impl $settings {
            fn of(reader: &mut $crate::Reader) -> Self {
                Self {$(
                    $field: $group::read(reader),
                )+}
            }
        }

        impl $crate::Settings for $settings {
            const GROUPS: $crate::Groups = GROUPS;
            const OTHER: $crate::Groups = $other;
            const DEFAULTS: &'static [(&'static str, &'static str)] = $defaults;

            fn read(reader: &mut $crate::Reader) -> Self {
                let settings = Self::of(reader);
                settings.check(reader);
                settings
            }

            fn common(&self) -> $crate::CommonSettings {
                $crate::CommonSettings {
                    http: self.http.clone(),
                    database: self.database.clone(),
                    log: self.log.clone(),
                    traces: self.traces.clone(),
                    security: self.security.clone(),
                }
            }

            fn token_destination(&self) -> Option<(&'static str, url::Url)> {
                self.destination_of_tokens()
            }
        }

        impl Default for $settings {
            fn default() -> Self {
                let all = GROUPS.iter().copied().flatten();
                Self::of(&mut $crate::Reader::of_defaults(all, $defaults))
            }
        }
    };
}
pub(crate) use groups;
