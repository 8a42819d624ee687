//! How settings are declared and read, without stopping at the first mistake.

use std::collections::{BTreeMap, BTreeSet};

use crate::Settings;

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
    pub doc: &'static str,
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
/// A value that is wrong, and a setting of the other program, is read as the default, so that all settings are read
/// and every mistake is found.
pub(crate) struct Reader {
    program: Of,
    /// What was set.
    texts: BTreeMap<&'static str, String>,
    /// Settings that have a mistake already: one for each is enough.
    wrong: BTreeSet<&'static str>,
    /// None of them holds a secret.
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

    /// The value of a setting, as `parse` reads it, or its default, if it has one.
    pub(crate) fn value<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        if let Some(text) = self.texts.get(name) {
            match parse(text) {
                Some(value) => return Some(value),
                None => self.miss(name),
            }
        }
        let default = Setting::named(name).default_of(self.program);
        default.and_then(parse)
    }

    /// Adds the mistake that the value of a setting is not what is `expected`.
    pub(crate) fn reject(&mut self, name: &str, expected: &str) {
        let setting = Setting::named(name);
        if self.wrong.insert(setting.name) {
            let given = match self.texts.get(name) {
                // An address may have a password or a key in it, though it must not.
                Some(text) if setting.is_secret || text.contains(['@', '?', '#']) => {
                    "not valid".to_owned()
                }
                Some(text) => format!("{text:?}"),
                None => "not set".to_owned(),
            };
            let mistake = format!("{name} is {given}: expected {expected}");
            self.mistakes.push(mistake);
        }
    }

    /// Adds the mistake that a setting is wrong, or is needed and not set.
    pub(crate) fn miss(&mut self, name: &str) {
        self.reject(name, &Setting::named(name).expected());
    }

    /// The value of a setting, as it may be shown.
    pub(crate) fn shown(&self, name: &str) -> &str {
        let setting = Setting::named(name);
        let set = self.texts.get(setting.name).map(String::as_str);
        match set.or(setting.default_of(self.program)) {
            Some(_) if setting.is_secret => "<hidden>",
            other => other.unwrap_or("not set"),
        }
    }
}

/// Declares all settings, in groups: which program has a group, and its name. Operators read the comment on a field.
/// After the name in the environment come the kind of value (`kinds.rs`), the default, another one of the worker, and
/// behind `in` the smallest and the largest value.
macro_rules! settings {
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
    (@parse $kind:ident) => { $crate::kinds::$kind.parse };
    (@parse $kind:ident, $min:literal, $max:literal) => { $crate::kinds::$kind.within($min, $max) };
    (@field $value:expr) => { $value };
    (@field $value:expr, $default:literal) => { $value.expect("its default is valid") };
    ($(
        $(#[doc = $about:literal])+
        $of:ident $name_of_group:ident: $group:ident {$(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty = $name:literal, $kind:ident $(, $default:literal)?
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
                doc: concat!($($doc),+).trim_ascii_start(),
                of: $crate::Of::$of,
                default: $crate::table::settings!(@option $($default)?),
                of_worker: $crate::table::settings!(@option $($of_worker)?),
                range: $crate::table::settings!(@option $(($min, $max))?),
                takes: $crate::kinds::$kind.takes,
                is_secret: $crate::kinds::$kind.is_secret,
            },)+)+];

            /// Reads all; a value that is wrong alone is a mistake.
            pub(crate) fn read(reader: &mut $crate::table::Reader) -> Self {
                Self {$(
                    $name_of_group: $group {$(
                        $field: $crate::table::settings!(@field reader.value(
                            $name,
                            $crate::table::settings!(@parse $kind $(, $min, $max)?)
                        ) $(, $default)?),
                    )+},
                )+}
            }
        }
    };
}
pub(crate) use settings;
