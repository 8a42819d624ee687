//! How settings are declared and read, without stopping at the first mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Settings;
use crate::value::Value;

/// How many characters of a wrong value a mistake shows: it may be a whole file by accident.
const SHOWN_MAX: usize = 100;

/// Which program has a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Both,
    Receiver,
    Worker,
}

/// One thing an operator can set.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in the environment; in lower case its name in the file.
    pub name: &'static str,
    pub(crate) of: Of,
    pub(crate) default: Option<&'static str>,
    /// The default of the worker, where it differs.
    pub(crate) of_worker: Option<&'static str>,
    /// The smallest and the largest value.
    pub(crate) range: Option<(&'static str, &'static str)>,
    /// What a value must be, in words.
    pub(crate) takes: &'static str,
    /// Whether its value must never be shown.
    pub(crate) is_secret: bool,
    pub doc: &'static str,
}

impl Setting {
    pub(crate) fn is_of(&self, program: Of) -> bool {
        self.of == Of::Both || self.of == program
    }

    pub(crate) fn default_of(&self, program: Of) -> Option<&'static str> {
        let own = self.of_worker.filter(|_| program == Of::Worker);
        own.or(self.default)
    }

    /// What a value must be, in words.
    pub(crate) fn expected(&self) -> String {
        match self.range {
            Some((min, max)) => format!("{} from {min} to {max}", self.takes),
            None => self.takes.to_owned(),
        }
    }

    /// The setting with this name, which is one.
    fn named(name: &str) -> &'static Self {
        let found = Settings::TABLE.iter().find(|setting| setting.name == name);
        found.unwrap_or_else(|| panic!("{name} is no setting"))
    }
}

/// Returns the values of a program's settings by their names, and collects mistakes.
///
/// It always returns a value, so that all settings are read and every mistake is found: the default for a value that
/// is wrong, and for a setting of the other program.
pub(crate) struct Reader {
    program: Of,
    /// What was set.
    texts: BTreeMap<&'static str, String>,
    /// Settings that have a mistake already: one for each is enough.
    wrong: BTreeSet<&'static str>,
    pub(crate) mistakes: Vec<String>,
}

impl Reader {
    pub(crate) fn new(program: Of) -> Self {
        Self {
            program,
            texts: BTreeMap::new(),
            wrong: BTreeSet::new(),
            mistakes: Vec::new(),
        }
    }

    /// Sets a value, over one that was set before. A setting of the other program and an empty text do not count.
    pub(crate) fn set(&mut self, name: &str, text: &str) {
        let setting = Setting::named(name);
        if setting.is_of(self.program) && !text.is_empty() {
            self.texts.insert(setting.name, text.to_owned());
        }
    }

    /// The value of a setting; its default after a mistake.
    pub(crate) fn value<T: Value>(&mut self, name: &str) -> T {
        self.checked(name, |_| true)
    }

    /// The value of a setting with a range.
    pub(crate) fn in_range<T: Value + PartialOrd>(&mut self, name: &str) -> T {
        let range = Setting::named(name).range.expect("a range");
        let [min, max] = [range.0, range.1].map(|limit| T::parse(limit).expect("a valid limit"));
        self.checked(name, |value| (min..=max).contains(value))
    }

    fn checked<T: Value>(&mut self, name: &str, is_fine: impl FnOnce(&T) -> bool) -> T {
        match self.texts.get(name).map(|text| T::parse(text)) {
            Some(Some(value)) if is_fine(&value) => return value,
            Some(_) => self.miss(name),
            None => {}
        }
        let default = Setting::named(name).default_of(self.program);
        let default = default.map_or(T::UNSET, T::parse);
        default.unwrap_or_else(|| panic!("the setting {name} has no default that is valid"))
    }

    /// Adds the mistake that the value of a setting is not what is `expected`.
    pub(crate) fn reject(&mut self, name: &str, expected: &str) {
        let setting = Setting::named(name);
        if self.wrong.insert(setting.name) {
            let given = match self.texts.get(name) {
                Some(_) if setting.is_secret => "not valid".to_owned(),
                Some(text) => format!("{:?}", text.chars().take(SHOWN_MAX).collect::<String>()),
                None => "not set".to_owned(),
            };
            self.complain(format!("{name} is {given}: expected {expected}"));
        }
    }

    /// Adds the mistake that a setting is wrong, or is needed and not set.
    pub(crate) fn miss(&mut self, name: &str) {
        self.reject(name, &Setting::named(name).expected());
    }

    /// Adds the mistake that one setting must be less than another one, unless it is.
    pub(crate) fn less(&mut self, one: (&str, Duration), other: (&str, Duration), why: &str) {
        if one.1 >= other.1 {
            let shown = |name| format!("{name} ({})", self.shown(Setting::named(name)));
            let mistake = format!(
                "{} must be less than {}: {why}",
                shown(one.0),
                shown(other.0)
            );
            self.complain(mistake);
        }
    }

    /// Adds a mistake that does not belong to one setting. It must not hold a secret.
    pub(crate) fn complain(&mut self, mistake: impl Into<String>) {
        self.mistakes.push(mistake.into());
    }

    /// The value of a setting, as it may be shown.
    pub(crate) fn shown(&self, setting: &Setting) -> &str {
        let set = self.texts.get(setting.name).map(String::as_str);
        match set.or(setting.default_of(self.program)) {
            Some(_) if setting.is_secret => "<hidden>",
            other => other.unwrap_or("not set"),
        }
    }
}

/// Declares all settings, in groups: which program has a group, and its name. Operators read the comment on a field.
/// Its type says how the text of a value is read ([`Value`]); `as` another type, where that one is read and then
/// converted. After the name in the environment come the default, another one of the worker, and behind `in` the
/// smallest and the largest value.
macro_rules! settings {
    (@via $type:ty) => { $type };
    (@via $type:ty, $via:ty) => { $via };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    (@read $reader:ident, $name:literal, $type:ty) => { $reader.value::<$type>($name) };
    (@read $reader:ident, $name:literal, $type:ty, $min:literal) => { $reader.in_range::<$type>($name) };
    ($(
        $(#[doc = $about:literal])+
        $of:ident $name_of_group:ident: $group:ident {$(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty $(as $via:ty)? = $name:literal $(, $default:literal)?
                $(, worker $of_worker:literal)? $(, in $min:literal to $max:literal)?;
        )+}
    )+) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, Debug)]
            #[allow(clippy::doc_markdown, reason = "operators read the comments as they stand")]
            pub struct $group {$(
                $(#[doc = $doc])+
                pub $field: $type,
            )+}
        )+

        /// The settings of a program. Those of the other program have their defaults.
        #[derive(Clone, Debug)]
        pub struct Settings {$(
            $(#[doc = $about])+
            pub $name_of_group: $group,
        )+}

        impl Settings {
            /// All settings, group by group.
            pub const TABLE: &'static [$crate::Setting] = &[$($($crate::Setting {
                name: $name,
                of: $crate::Of::$of,
                default: $crate::table::settings!(@option $($default)?),
                of_worker: $crate::table::settings!(@option $($of_worker)?),
                range: $crate::table::settings!(@option $(($min, $max))?),
                takes: <$crate::table::settings!(@via $type $(, $via)?) as $crate::value::Value>::EXPECTED,
                is_secret: <$crate::table::settings!(@via $type $(, $via)?) as $crate::value::Value>::IS_SECRET,
                doc: concat!($($doc),+).trim_ascii_start(),
            },)+)+];

            /// Reads all; a value that is wrong alone is a mistake.
            pub(crate) fn read(reader: &mut $crate::table::Reader) -> Self {
                Self {$(
                    $name_of_group: $group {$(
                        $field: $crate::table::settings!(
                            @read reader, $name, $crate::table::settings!(@via $type $(, $via)?) $(, $min)?
                        ).into(),
                    )+},
                )+}
            }
        }
    };
}
pub(crate) use settings;
