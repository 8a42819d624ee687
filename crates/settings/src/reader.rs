//! Reading typed values without stopping at the first mistake.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::Setting;
use crate::value::Value;

/// How many characters of a wrong value a mistake shows. A value can be a whole file by accident; its
/// beginning is enough to recognise it.
const SHOWN_MAX: usize = 100;

/// Returns the values of settings by their names, and collects mistakes.
///
/// It always returns a value, so that all settings are read and every mistake is found: for a value that is
/// wrong the default. A name that is not in the table is an error of the program: it panics.
pub struct Reader {
    settings: BTreeMap<&'static str, Setting>,
    /// What was set.
    texts: BTreeMap<&'static str, String>,
    /// Settings that have a mistake already: one for each is enough.
    wrong: BTreeSet<&'static str>,
    mistakes: Vec<String>,
}

impl Reader {
    /// Returns the defaults of settings; `defaults` are those that differ from their own.
    pub fn of_defaults(
        settings: impl IntoIterator<Item = &'static Setting>,
        defaults: &[(&str, &'static str)],
    ) -> Self {
        let own = |setting: &Setting| {
            let other = defaults.iter().find(|(name, _)| *name == setting.name);
            other.map_or(setting.default, |(_, default)| Some(*default))
        };
        let settings = settings.into_iter().map(|setting| {
            let default = own(setting);
            (
                setting.name,
                Setting {
                    default,
                    ..*setting
                },
            )
        });
        Self {
            settings: settings.collect(),
            texts: BTreeMap::new(),
            wrong: BTreeSet::new(),
            mistakes: Vec::new(),
        }
    }

    pub(crate) fn settings(&self) -> impl Iterator<Item = &Setting> {
        self.settings.values()
    }

    /// Sets a value, over one that was set before. An empty text counts as not set.
    pub(crate) fn set(&mut self, name: &str, text: String) {
        if let Some(setting) = self.settings.get(name).filter(|_| !text.is_empty()) {
            self.texts.insert(setting.name, text);
        }
    }

    pub(crate) fn mistakes(&self) -> &[String] {
        &self.mistakes
    }

    /// The value of a setting; its default after a mistake.
    pub(crate) fn value<T: Value>(&mut self, name: &str) -> T {
        let setting = self.setting(name);
        if let Some(text) = self.texts.get(setting.name).cloned() {
            match T::parse(&text) {
                Ok(value) if is_in_range(&value, setting.range) => return value,
                Ok(_) => self.reject(name, &expected(&setting)),
                Err(other) if other == setting.expected => self.reject(name, &expected(&setting)),
                Err(expected) => self.reject(name, &expected),
            }
        }
        let default = setting.default.map(T::parse);
        let default = default.map_or_else(T::if_unset, Result::ok);
        default.unwrap_or_else(|| panic!("the setting {name} has no default that is valid"))
    }

    /// Adds the mistake that the value of a setting is not what is `expected`.
    pub fn reject(&mut self, name: &str, expected: &str) {
        let setting = self.setting(name);
        if self.wrong.insert(setting.name) {
            let given = match self.texts.get(setting.name) {
                Some(_) if setting.is_secret => "not valid".to_owned(),
                Some(text) => format!("{:?}", beginning(text)),
                None => "not set".to_owned(),
            };
            self.complain(format!("{name} is {given}: expected {expected}"));
        }
    }

    /// Adds the mistake that one setting `must` something of another one, unless they fit together.
    pub(crate) fn require(&mut self, fits: bool, one: &str, must: &str, other: &str, why: &str) {
        if !fits {
            let (one, other) = (self.described(one), self.described(other));
            self.complain(format!("{one} must {must} {other}: {why}"));
        }
    }

    /// Adds a mistake that does not belong to one setting. It must not hold a secret.
    pub fn complain(&mut self, mistake: impl Into<String>) {
        self.mistakes.push(mistake.into());
    }

    /// The name of a setting and its value, as in `MAX_PAYLOAD (500kb)`.
    fn described(&self, name: &str) -> String {
        match self.shown(name) {
            Some(shown) => format!("{name} ({shown})"),
            None => name.to_owned(),
        }
    }

    /// The value of a setting as it may be shown; none where it is not set and has no default.
    pub(crate) fn shown(&self, name: &str) -> Option<&str> {
        let setting = self.setting(name);
        let set = self.texts.get(setting.name).map(String::as_str);
        let text = set.or(setting.default)?;
        Some(if setting.is_secret { "<hidden>" } else { text })
    }

    fn setting(&self, name: &str) -> Setting {
        let setting = self.settings.get(name).copied();
        setting.unwrap_or_else(|| panic!("{name} is no setting of this program"))
    }
}

fn is_in_range<T: Value>(value: &T, range: Option<(&str, &str)>) -> bool {
    let Some((min, max)) = range else { return true };
    let is_not = |limit: &str, wrong: Ordering| {
        let limit = T::parse(limit).ok();
        limit.is_some_and(|limit| value.compare(&limit) != Some(wrong))
    };
    is_not(min, Ordering::Less) && is_not(max, Ordering::Greater)
}

/// What the value of a setting must be.
pub(crate) fn expected(setting: &Setting) -> String {
    match setting.range {
        Some((min, max)) => format!("{} from {min} to {max}", setting.expected),
        None => setting.expected.to_owned(),
    }
}

fn beginning(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
