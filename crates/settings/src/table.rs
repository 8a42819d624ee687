//! How settings are declared.

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
    pub(crate) takes: &'static str,
    /// Whether its value must never be shown.
    pub is_secret: bool,
    pub doc: &'static str,
}

impl Setting {
    /// What a value must be, in words.
    pub(crate) fn expected(&self) -> String {
        match self.range {
            Some((min, max)) => format!("{} from {min} to {max}", self.takes),
            None => self.takes.to_owned(),
        }
    }
}

/// The settings of a program.
pub trait Settings: Sized + Send + 'static {
    /// All of them, group by group.
    const GROUPS: &'static [&'static [Setting]];

    /// Defaults that differ from those of the groups.
    const DEFAULTS: &'static [(&'static str, &'static str)];

    /// Reads them, and adds each mistake to the reader.
    fn read(reader: &mut Reader) -> Self;

    /// Those that both programs have.
    fn common(&self) -> Common<'_>;
}

/// The settings that both programs have.
pub struct Common<'s> {
    pub(crate) http: &'s crate::HttpSettings,
    pub(crate) database: &'s crate::DatabaseSettings,
    pub(crate) sampling: &'s crate::SamplingSettings,
    pub(crate) security: &'s crate::SecuritySettings,
    pub(crate) log: &'s crate::LogSettings,
    pub(crate) traces: &'s crate::TraceSettings,
    /// The address to which tokens are sent, with the name of its setting.
    pub(crate) called: Option<(&'static str, url::Url)>,
}

/// Declares groups of settings. Operators read the comment on a field. Its type says how the text of a value is
/// read ([`Value`](crate::value::Value)); `as` another type, where that one is read and then converted. After
/// the name in the environment come the default, and behind `in` the smallest and the largest value.
macro_rules! settings {
    (@via $type:ty) => { $type };
    (@via $type:ty, $via:ty) => { $via };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    (@read $reader:ident, $name:literal, $type:ty) => { $reader.value::<$type>($name) };
    (@read $reader:ident, $name:literal, $type:ty, $min:literal) => { $reader.in_range::<$type>($name) };
    ($(
        $(#[doc = $about:literal])+
        pub struct $group:ident {$(
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
                default: $crate::table::settings!(@option $($default)?),
                range: $crate::table::settings!(@option $(($min, $max))?),
                takes: <$crate::table::settings!(@via $type $(, $via)?) as $crate::value::Value>::EXPECTED,
                is_secret: <$crate::table::settings!(@via $type $(, $via)?) as $crate::value::Value>::IS_SECRET,
                doc: concat!($($doc),+).trim_ascii_start(),
            },)+];

            pub(crate) fn read(reader: &mut $crate::reader::Reader) -> Self {
                Self {$(
                    $field: $crate::table::settings!(
                        @read reader, $name, $crate::table::settings!(@via $type $(, $via)?) $(, $min)?
                    ).into(),
                )+}
            }
        }

        impl Default for $group {
            fn default() -> Self {
                Self::read(&mut $crate::reader::Reader::of_defaults(&[Self::TABLE], &[]))
            }
        }
    )+};
}
pub(crate) use settings;

/// Declares the settings of a program: a struct with a field for each group, some of which both programs have. Its
/// method `check` adds mistakes of settings that contradict each other; `called` is that of [`Common`].
macro_rules! groups {
    (
        $(#[doc = $about:literal])+
        pub struct $settings:ident(defaults: $defaults:expr) {$(
            $field:ident: $group:ident;
        )+}
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub struct $settings {$(
            pub $field: $group,
        )+}

        impl $settings {
            fn of(reader: &mut $crate::reader::Reader) -> Self {
                Self {$(
                    $field: $group::read(reader),
                )+}
            }
        }

        impl $crate::Settings for $settings {
            const GROUPS: &'static [&'static [$crate::Setting]] = &[$($group::TABLE),+];
            const DEFAULTS: &'static [(&'static str, &'static str)] = $defaults;

            fn read(reader: &mut $crate::reader::Reader) -> Self {
                let settings = Self::of(reader);
                settings.common().check(reader);
                settings.check(reader);
                settings
            }

            fn common(&self) -> $crate::table::Common<'_> {
                $crate::table::Common {
                    http: &self.http,
                    database: &self.database,
                    sampling: &self.sampling,
                    security: &self.security,
                    log: &self.log,
                    traces: &self.traces,
                    called: self.called(),
                }
            }
        }

        impl Default for $settings {
            fn default() -> Self {
                use $crate::Settings;
                Self::of(&mut $crate::reader::Reader::of_defaults(Self::GROUPS, Self::DEFAULTS))
            }
        }
    };
}
pub(crate) use groups;
